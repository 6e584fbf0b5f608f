use flow::request::{Band, BandKind, MeterCommand, MeterEntry, MeterMod, MeterStatistics, Refusal};

use super::flow_statistics::put_duration;
use super::octets::{Put, Reader};

/// Reads a meter_mod.
pub(super) fn decode_meter_mod(mut body: Reader<'_>) -> Result<MeterMod, Refusal> {
    let command = match body.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(Refusal::BadCommand),
    };
    let flags = body.u16()?;
    let meter = body.u32()?;
    let is_delete = command == MeterCommand::Delete;
    if !is_delete {
        let is_both = flags & (KILOBITS | PACKETS) == KILOBITS | PACKETS;
        if flags & !(KILOBITS | PACKETS | BURST | STATISTICS) != 0 || is_both {
            return Err(Refusal::BadFlags);
        }
        if meter == 0 || meter == MeterMod::ALL {
            return Err(Refusal::BadMeter);
        }
    }
    let mut change = MeterMod {
        command,
        meter,
        is_in_packets: flags & PACKETS != 0,
        has_burst: flags & BURST != 0,
        has_statistics: flags & STATISTICS != 0,
        bands: Vec::new(),
    };
    while !is_delete && !body.is_empty() {
        change.bands.push(decode_band(&mut body)?);
    }
    Ok(change)
}

/// Writes the body of a meter_mod.
pub(super) fn encode_meter_mod(change: &MeterMod, out: &mut Vec<u8>) {
    out.put_u16(match change.command {
        MeterCommand::Add => 0,
        MeterCommand::Modify => 1,
        MeterCommand::Delete => 2,
    });
    let flags = (change.is_in_packets, change.has_burst, change.has_statistics);
    encode_bands(flags, change.meter, &change.bands, out);
}

pub(super) fn encode_meter(meter: &MeterEntry, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    let flags = (meter.is_in_packets, meter.has_burst, meter.has_statistics);
    encode_bands(flags, meter.meter, &meter.bands, out);
    out.set_u16(start, (out.len() - start) as u16);
}

/// Writes the common part of a meter's description and change.
fn encode_bands(
    (is_in_packets, has_burst, has_statistics): (bool, bool, bool),
    meter: u32,
    bands: &[Band],
    out: &mut Vec<u8>,
) {
    let unit = if is_in_packets { PACKETS } else { KILOBITS };
    let burst = if has_burst { BURST } else { 0 };
    out.put_u16(unit | burst | if has_statistics { STATISTICS } else { 0 });
    out.put_u32(meter);
    for band in bands {
        let (kind, precedence) = match band.kind {
            BandKind::Drop => (1, 0),
            BandKind::DscpRemark { precedence } => (2, precedence),
        };
        out.put_u16(kind);
        out.put_u16(16);
        out.put_u32(band.rate);
        out.put_u32(band.burst);
        out.put_u8(precedence);
        out.put_zeros(3);
    }
}

pub(super) fn encode_meter_statistics(meter: &MeterStatistics, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u32(meter.meter);
    out.put_u16(0);
    out.put_zeros(6);
    out.put_u32(meter.flows);
    out.put_u64(meter.packets);
    out.put_u64(meter.bytes);
    put_duration(meter.duration, out);
    for (packets, bytes) in &meter.bands {
        out.put_u64(*packets);
        out.put_u64(*bytes);
    }
    out.set_u16(start + 4, (out.len() - start) as u16);
}

pub(super) fn encode_meter_features(out: &mut Vec<u8>) {
    out.put_u32(MAX_METERS);
    out.put_u32(1 << 1 | 1 << 2);
    out.put_u32((KILOBITS | PACKETS | BURST | STATISTICS).into());
    out.put_u8(MAX_BANDS);
    out.put_zeros(3);
}

fn decode_band(body: &mut Reader<'_>) -> Result<Band, Refusal> {
    let mut band = Reader::new(body.take(16)?, Refusal::BadLength);
    let kind = band.u16()?;
    let length = band.u16()?;
    let (rate, burst) = (band.u32()?, band.u32()?);
    let kind = match kind {
        1 => BandKind::Drop,
        2 => BandKind::DscpRemark { precedence: band.u8()? },
        _ => return Err(Refusal::BadMeter),
    };
    if length != 16 {
        return Err(Refusal::BadLength);
    }
    Ok(Band { kind, rate, burst })
}

const KILOBITS: u16 = 1;
const PACKETS: u16 = 1 << 1;
const BURST: u16 = 1 << 2;
const STATISTICS: u16 = 1 << 3;
const MAX_METERS: u32 = 200_000;
const MAX_BANDS: u8 = 8;
