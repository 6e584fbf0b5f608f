//! Meters: `meter=1,kbps,band=type=drop,rate=100`.

use flow::request::{Band, BandKind, MeterCommand, MeterMod};

use super::error::{TextError, refuse};
use super::number::{number_8, number_32};
use super::token::Words;

const MAX_METER: u32 = 0xffff_0000;
const SPACE: &[u8] = b", \t\r\n";
const KEY_END: &[u8] = b"=, \t\r\n";

/// Parses the change that `ovs-ofctl add-meter`, `mod-meter` or `del-meter` makes for this text.
pub fn parse_meter(text: &str, command: MeterCommand) -> Result<MeterMod, TextError> {
    let takes_bands = command != MeterCommand::Delete;
    let (keys, bands) = if takes_bands { split_bands(text)? } else { (text, "") };
    let mut change = MeterMod {
        command,
        meter: 0,
        is_in_packets: false,
        has_burst: false,
        has_statistics: false,
        bands: Vec::new(),
    };
    let mut has_flags = false;
    let mut words = Words::new(keys);
    while let Some(key) = words.next(KEY_END) {
        let flag = match key {
            _ if !takes_bands => None,
            "kbps" => Some((&mut change.is_in_packets, false)),
            "pktps" => Some((&mut change.is_in_packets, true)),
            "burst" => Some((&mut change.has_burst, true)),
            "stats" => Some((&mut change.has_statistics, true)),
            _ => None,
        };
        if let Some((flag, value)) = flag {
            *flag = value;
            has_flags = true;
            continue;
        }
        let value = words.next(SPACE).ok_or_else(|| refuse!("field {key} missing value"))?;
        if key != "meter" {
            return Err(refuse!("unknown keyword {key}"));
        }
        change.meter = meter_number(key, value)?;
    }
    if change.meter == 0 {
        return Err(refuse!("must specify 'meter'"));
    }
    if takes_bands {
        if !has_flags {
            return Err(refuse!("meter must specify either 'kbps' or 'pktps'"));
        }
        change.bands = parse_bands(bands, change.has_burst)?;
    }
    Ok(change)
}

fn split_bands(text: &str) -> Result<(&str, &str), TextError> {
    let parts = text
        .split_once("band")
        .and_then(|(keys, rest)| rest.split_once('=').map(|(_, bands)| (keys, bands)));
    parts.ok_or_else(|| refuse!("must specify bands"))
}

fn meter_number(key: &str, text: &str) -> Result<u32, TextError> {
    let number = match text {
        "all" => return Ok(MeterMod::ALL),
        "controller" => return Ok(MeterMod::CONTROLLER),
        "slowpath" => return Ok(MeterMod::SLOW_PATH),
        _ => number_32(text)?,
    };
    if number == 0 || number > MAX_METER {
        return Err(refuse!("invalid value for {key}"));
    }
    Ok(number)
}

fn parse_bands(text: &str, has_burst: bool) -> Result<Vec<Band>, TextError> {
    let mut bands: Vec<(Band, u8)> = Vec::new();
    let mut words = Words::new(text);
    while let Some(key) = words.next(KEY_END) {
        let value = words.next(SPACE).ok_or_else(|| refuse!("field {key} missing value"))?;
        if key == "type" {
            let kind = match value {
                "drop" => BandKind::Drop,
                "dscp_remark" => BandKind::DscpRemark { precedence: 0 },
                _ => return Err(refuse!("field {key} unknown value {value}")),
            };
            bands.push((Band { kind, rate: 0, burst: 0 }, 0));
            continue;
        }
        let Some((band, precedence)) = bands.last_mut() else {
            return Err(refuse!("band must start with the 'type' keyword"));
        };
        match key {
            "rate" => band.rate = number_32(value)?,
            "burst_size" => band.burst = number_32(value)?,
            "prec_level" => *precedence = number_8(value, key)?,
            _ => return Err(refuse!("unknown keyword {key}")),
        }
    }
    if bands.is_empty() {
        return Err(refuse!("meter must have bands"));
    }
    bands.into_iter().map(|(band, precedence)| finish(band, precedence, has_burst)).collect()
}

fn finish(mut band: Band, precedence: u8, has_burst: bool) -> Result<Band, TextError> {
    match band.kind {
        BandKind::DscpRemark { .. } if precedence == 0 => {
            return Err(refuse!("'dscp_remark' band must have 'prec_level'"));
        }
        BandKind::DscpRemark { .. } => band.kind = BandKind::DscpRemark { precedence },
        BandKind::Drop if precedence != 0 => {
            return Err(refuse!("Only 'dscp_remark' band may have 'prec_level'"));
        }
        BandKind::Drop => {}
    }
    if band.rate == 0 {
        return Err(refuse!("band must have 'rate'"));
    }
    if has_burst && band.burst == 0 {
        return Err(refuse!("band must have 'burst_size' when 'burst' flag is set"));
    }
    if !has_burst && band.burst != 0 {
        return Err(refuse!("band may have 'burst_size' only when 'burst' flag is set"));
    }
    Ok(band)
}
