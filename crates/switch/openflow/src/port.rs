use flow::port_number::PortNumber;
use flow::request::{Bridge, PortDescription, PortMod, PortStatistics, Refusal};

use super::Version;
use super::flow_statistics::put_duration;
use super::octets::{Put, Reader};

/// Writes the description of a port.
pub(super) fn encode_port(port: &PortDescription, version: Version, out: &mut Vec<u8>) {
    let current = feature(port.current_speed_kbit, version);
    if version == Version::V10 {
        out.put_u16(port.number.to_16_bits().unwrap_or(0xffff));
        out.extend_from_slice(&port.hardware_address);
        out.put_text(&port.name, 16);
        out.put_u32(port.config);
        out.put_u32(port.state & LINK_DOWN);
        out.put_u32(current);
        out.put_zeros(12);
        return;
    }
    out.put_u32(port.number.0);
    let is_short = version <= Version::V13;
    out.put_u16(if is_short { 0 } else { 72 });
    out.put_zeros(2);
    out.extend_from_slice(&port.hardware_address);
    out.put_zeros(2);
    out.put_text(&port.name, 16);
    out.put_u32(port.config & CONFIG);
    out.put_u32(port.state);
    if !is_short {
        out.put_u16(0);
        out.put_u16(32);
        out.put_zeros(4);
    }
    out.put_u32(current);
    out.put_zeros(12);
    out.put_u32(port.current_speed_kbit);
    out.put_u32(port.max_speed_kbit);
}

/// Writes a port's counters. A counter that the port does not have is all ones.
pub(super) fn encode_port_statistics(port: &PortStatistics, version: Version, out: &mut Vec<u8>) {
    match version {
        Version::V10 => {
            out.put_u16(PortNumber(port.number).to_16_bits().unwrap_or(0xffff));
            out.put_zeros(6);
        }
        Version::V11 | Version::V12 | Version::V13 => {
            out.put_u32(port.number);
            out.put_zeros(4);
        }
        _ => {
            out.put_u16(120);
            out.put_zeros(2);
            out.put_u32(port.number);
            put_duration(port.duration, out);
        }
    }
    for counter in [
        Some(port.received_packets),
        Some(port.sent_packets),
        Some(port.received_bytes),
        Some(port.sent_bytes),
        port.received_dropped,
        port.sent_dropped,
        port.received_errors,
        port.sent_errors,
    ] {
        out.put_u64(counter.unwrap_or(u64::MAX));
    }
    if version >= Version::V14 {
        out.put_u16(0);
        out.put_u16(40);
        out.put_zeros(4);
    }
    for counter in [port.frame_errors, port.overruns, port.crc_errors, port.collisions] {
        out.put_u64(counter.unwrap_or(u64::MAX));
    }
    if version == Version::V13 {
        put_duration(port.duration, out);
    }
}

/// Reads the port that a request for statistics or descriptions names.
pub(super) fn decode_port_request(
    mut body: Reader<'_>,
    version: Version,
) -> Result<PortNumber, Refusal> {
    Ok(match version {
        Version::V10 => PortNumber::from_16_bits(body.u16()?),
        _ => PortNumber(body.u32()?),
    })
}

/// Returns the numbers of ports that have statistics: `port`, or all such ports if `port` is
/// `NONE`.
pub(super) fn port_numbers(port: PortNumber, bridge: &dyn Bridge) -> Option<Vec<u32>> {
    bridge.settle_ports();
    if port == PortNumber::NONE {
        return Some(bridge.port_numbers().iter().map(|number| number.0).collect());
    }
    bridge.port_statistics(port).map(|_| vec![port.0])
}

/// Reads a port_mod. The advertised features are ignored, because the ports are software.
pub(super) fn decode_port_mod(mut body: Reader<'_>, version: Version) -> Result<PortMod, Refusal> {
    let is_v10 = version == Version::V10;
    let number = if is_v10 {
        PortNumber::from_16_bits(body.u16()?)
    } else {
        let number = PortNumber(body.u32()?);
        body.skip(4)?;
        number
    };
    let hardware_address = body.array()?;
    if !is_v10 {
        body.skip(2)?;
    }
    // Drop the bits that the version does not have.
    let known = if is_v10 { CONFIG_V10 } else { CONFIG };
    let (config, mask) = (body.u32()?, body.u32()? & known);
    Ok(PortMod { number, hardware_address, config: config & mask, mask })
}

/// Returns the feature bit for a speed. OpenFlow 1.0 has no bit for speeds above 10 Gbit/s or for
/// unlisted speeds.
fn feature(speed_kbit: u32, version: Version) -> u32 {
    match speed_kbit {
        0 => 0,
        10_000 => 1 << 1,
        100_000 => 1 << 3,
        1_000_000 => 1 << 5,
        10_000_000 => 1 << 6,
        _ if version == Version::V10 => 0,
        40_000_000 => 1 << 7,
        100_000_000 => 1 << 8,
        1_000_000_000 => 1 << 9,
        _ => 1 << 10,
    }
}

const LINK_DOWN: u32 = 1;
/// The configuration bits that OpenFlow 1.1 has: port down, no receive, no forward, no packet-in.
const CONFIG: u32 = 1 | 1 << 2 | 1 << 5 | 1 << 6;
/// OpenFlow 1.0 also has bits that switch off spanning tree, the receipt of spanning-tree packets,
/// and flooding.
const CONFIG_V10: u32 = CONFIG | 1 << 1 | 1 << 3 | 1 << 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_mod_changes_only_the_config_bits_of_its_version() {
        let all = [0xff; 8];
        let v10 = [&[0, 1][..], &[0; 6][..], &all[..], &[0; 8][..]].concat();
        let v13 = [&[0, 0, 0, 1][..], &[0; 12][..], &all[..], &[0; 8][..]].concat();
        for (version, bytes, known) in [(Version::V10, v10, 0x7f), (Version::V13, v13, 0x65)] {
            let body = Reader::new(&bytes, Refusal::BadLength);
            let change = decode_port_mod(body, version).unwrap();
            assert_eq!((change.number.0, change.config, change.mask), (1, known, known));
        }
    }
}
