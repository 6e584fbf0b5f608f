//! Values as people write them: in Weir's units (`600mbit`, `20ms`, `64KiB`) and in iperf3's. In
//! iperf3's notation a bare number has the unit of its option (`-t 10`, `-b 100M`, `-l 128K`).

use perf::options::KeepAlive;
use perf::output::RateUnit;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use units::{Bytes, Rate, Span, UnitError};

/// A rate for each stream, and the number of blocks in a burst: `100M`, `100M/16`, `2.5gbit`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bitrate {
    /// The rate; `None`, iperf3's 0, is unlimited.
    pub(crate) rate: Option<Rate>,
    pub(crate) burst: Option<u32>,
}

pub(crate) fn bitrate(text: &str) -> Result<Bitrate, String> {
    // 80MB/s is a rate, 80M/16 a rate and a burst.
    let (rate_text, burst) = match text.rsplit_once('/') {
        Some((rate, burst)) if !burst.eq_ignore_ascii_case("s") => (rate, Some(burst)),
        _ => (text, None),
    };
    let burst = burst
        .map(|burst| match burst.parse() {
            Ok(count @ 1..=1000) => Ok(count),
            _ => Err(format!("a burst is 1 to 1000 blocks, as in {rate_text}/16")),
        })
        .transpose()?;
    let rate = rate(rate_text)?;
    Ok(Bitrate { rate: (rate.bits_per_second() > 0).then_some(rate), burst })
}

/// A server's limit for the rate of a test: `100M`, `100M/10`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateLimit {
    /// The rate; `None`, iperf3's 0, is unlimited.
    pub(crate) rate: Option<Rate>,
    /// Time over which the rate is averaged.
    pub(crate) window: Option<Span>,
}

/// Parses a rate limit; a bare number behind the slash is seconds.
pub(crate) fn rate_limit(text: &str) -> Result<RateLimit, String> {
    let (rate_text, window) = match text.rsplit_once('/') {
        Some((rate, window)) if !window.eq_ignore_ascii_case("s") => (rate, Some(window)),
        _ => (text, None),
    };
    let window = window
        .map(|window| match seconds(window) {
            Ok(span) if WINDOWS.contains(&span) => Ok(span),
            _ => Err(format!("the average is over 500ms to 60s, as in {rate_text}/5")),
        })
        .transpose()?;
    let rate = rate(rate_text)?;
    Ok(RateLimit { rate: (rate.bits_per_second() > 0).then_some(rate), window })
}

/// Parses the letter of a rate's unit.
pub(crate) fn unit(text: &str) -> Result<RateUnit, String> {
    let mut letters = text.chars();
    match (letters.next().and_then(RateUnit::from_letter), letters.next()) {
        (Some(unit), None) => Ok(unit),
        _ => Err("write k, m, g or t for bits a second, K, M, G or T for bytes".to_owned()),
    }
}

/// Parses a rate; a bare number is bits per second.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let unit = letters(text);
    if let Some(letter) = bits_or_bytes(unit) {
        let number = text.trim().trim_end_matches(unit).trim_end();
        let (scale, bytes) = (letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
        return Err(format!(
            "`{unit}` may mean bits or bytes: write {number}{scale}bit or {number}{bytes}B/s"
        ));
    }
    let with_unit = match unit {
        "" => format!("{text}bit"),
        "t" | "T" => format!("{text}bit"),
        _ => text.to_owned(),
    };
    read(text, &with_unit, &["bit", "kbit", "mbit", "gbit", "tbit", "MB/s", "GB/s"])
}

/// Returns the first letter of a unit such as `Mb/s` or `MBps`, whose b contradicts its ending: a
/// small b stands for bits and a capital B for bytes, and in Weir `/s` follows bytes and `ps` bits.
fn bits_or_bytes(unit: &str) -> Option<char> {
    let mut letters = unit.chars();
    let scale = letters.next().filter(|letter| "kKmMgG".contains(*letter))?;
    matches!(letters.as_str(), "b/s" | "Bps").then_some(scale)
}

/// Parses a size; a bare number is bytes, and K, M, G and T are powers of 1024.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let with_unit = match letters(text) {
        "t" | "T" => format!("{text}iB"),
        _ => text.to_owned(),
    };
    read(text, &with_unit, &["B", "KB", "MB", "GB", "KiB", "MiB", "GiB", "TiB"])
}

pub(crate) fn block(text: &str) -> Result<Bytes, String> {
    within(size(text)?, Bytes::new(1), Bytes::new(LONGEST_BLOCK))
}

pub(crate) fn window(text: &str) -> Result<Bytes, String> {
    within(size(text)?, Bytes::new(1), Bytes::new(LARGEST_WINDOW))
}

/// Parses a number of blocks, with suffixes as in iperf3.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match size(text) {
        Ok(count) if count.count() > 0 && letters(text).len() < 2 => Ok(count.count()),
        _ => Err("write a number of blocks, for example 1000 or 10K".to_owned()),
    }
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    match size(text)?.count() {
        0 => Err("nothing to send: write for example 100M or 1GiB".to_owned()),
        count => Ok(count),
    }
}

/// Parses a time; a bare number is seconds.
pub(crate) fn seconds(text: &str) -> Result<Span, String> {
    span(text, "s")
}

/// Parses ports that an unprivileged user may open: `20000-20100`, or a single port.
pub(crate) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first @ 1024..), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("write the first and the last port, from 1024 on, as in 20000-20100".to_owned()),
    }
}

/// Parses the duration of a test: at most a day, as in iperf3.
pub(crate) fn duration(text: &str) -> Result<Span, String> {
    let duration = seconds(text)?;
    if duration == Span::ZERO {
        return Err("a test needs a duration: write for example 10, 500ms or 2min".to_owned());
    }
    if duration > Span::from_secs(86_400) {
        return Err("a test takes a day at most: 86400s".to_owned());
    }
    Ok(duration)
}

/// Parses the duration of a test that may have no end, which iperf3 writes as 0.
pub(crate) fn duration_or_endless(text: &str) -> Result<Span, String> {
    match seconds(text)? {
        Span::ZERO => Ok(Span::ZERO),
        _ => duration(text),
    }
}

/// Parses the time to omit: at most ten minutes, as in iperf3 since 3.17.
pub(crate) fn omit(text: &str) -> Result<Span, String> {
    within(seconds(text)?, Span::ZERO, Span::from_secs(600))
}

/// Parses the interval of reports; 0 means no report until the end.
pub(crate) fn interval(text: &str) -> Result<Span, String> {
    match seconds(text)? {
        Span::ZERO => Ok(Span::ZERO),
        interval => within(interval, Span::from_millis(100), Span::from_secs(60)),
    }
}

/// Parses a timeout; a bare number is milliseconds.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = span(text, "ms")?;
    within(timeout, Span::from_millis(1), Span::from_secs(86_400)).map(Span::as_duration)
}

/// Parses the maximum silence; a bare number is milliseconds. At least a tenth of a second, as in
/// iperf3, because a busy machine may be silent for that long.
pub(crate) fn silence(text: &str) -> Result<Duration, String> {
    let silence = span(text, "ms")?;
    within(silence, Span::from_millis(100), Span::from_secs(86_400)).map(Span::as_duration)
}

/// Parses iperf3's `--cntl-ka`: the seconds before the first probe, the seconds between probes and
/// the number of probes. An empty or missing part leaves the kernel's setting.
pub(crate) fn keep_alive(text: &str) -> Result<KeepAlive, String> {
    let mut parts = text.split('/');
    let mut next = |most: u32| -> Result<Option<u32>, String> {
        let part = parts.next().unwrap_or_default();
        match part.parse::<u32>() {
            Ok(count) if (1..=most).contains(&count) => Ok(Some(count)),
            _ if part.is_empty() => Ok(None),
            _ => Err(format!("`{part}`: {KEEP_ALIVE}")),
        }
    };
    let idle = next(32_767)?.map(|seconds| Duration::from_secs(seconds.into()));
    let interval = next(32_767)?.map(|seconds| Duration::from_secs(seconds.into()));
    let probes = next(127)?;
    match parts.next() {
        None => Ok(KeepAlive { idle, interval, probes }),
        Some(_) => Err(KEEP_ALIVE.to_owned()),
    }
}

/// Parses the interval of a pacing timer; a bare number is microseconds.
pub(crate) fn pacing_timer(text: &str) -> Result<Span, String> {
    let micros = match letters(text) {
        "k" | "K" => Span::from_micros(size(text)?.count()),
        _ => span(text, "us")?,
    };
    within(micros, Span::from_micros(1), Span::from_secs(10))
}

/// The CPU of this end and, after a comma, of the server: `2`, `2,3`, `,3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Affinity {
    pub(crate) here: Option<usize>,
    pub(crate) there: Option<usize>,
}

pub(crate) fn affinity(text: &str) -> Result<Affinity, String> {
    let (here, there) = text.split_once(',').unwrap_or((text, ""));
    let cpu = |text: &str| match text {
        "" => Ok(None),
        _ => match text.parse::<usize>() {
            Ok(cpu @ 0..=1023) => Ok(Some(cpu)),
            _ => Err(format!("`{text}` is not the number of a CPU: write 0, or 0,1 for both ends")),
        },
    };
    let affinity = Affinity { here: cpu(here)?, there: cpu(there)? };
    if affinity.here.or(affinity.there).is_none() {
        return Err("write a CPU's number, for example 0, or 0,1 for both ends".to_owned());
    }
    Ok(affinity)
}

/// An address and, after a %, the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) address: Option<IpAddr>,
    pub(crate) device: Option<String>,
}

pub(crate) fn bind(text: &str) -> Result<Bind, String> {
    let (address, device) = match text.split_once('%') {
        Some((_, "")) => return Err("the interface is missing behind the %".to_owned()),
        Some((address, device)) => (address, Some(device.to_owned())),
        None => (text, None),
    };
    if address.is_empty() && device.is_some() {
        return Ok(Bind { address: None, device });
    }
    match address.parse() {
        Ok(address) => Ok(Bind { address: Some(address), device }),
        Err(_) => Err(format!(
            "`{address}` is not an address: write an address of this machine, for example 10.0.0.1, fe80::1%eth0 or %eth0"
        )),
    }
}

/// Parses the type of service in C's number syntax: 52, 064 and 0x34 are the same.
pub(crate) fn type_of_service(text: &str) -> Result<u8, String> {
    c_number(text)
        .and_then(|number| u8::try_from(number).ok())
        .ok_or_else(|| "write 0 to 255, for example 0x20".to_owned())
}

/// Parses the upper six bits of the type of service, by number or name.
pub(crate) fn dscp(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase();
    let named = DSCP.iter().find(|(name, _)| *name == lower).map(|(_, value)| *value);
    let advice = "write 0 to 63 or a name, for example ef, cs1 or af41";
    match named.map(u64::from).or_else(|| c_number(text)) {
        Some(value @ 0..=63) => Ok((value as u8) << 2),
        Some(_) => Err(advice.to_owned()),
        None => {
            let hint = units::did_you_mean(text, DSCP.iter().map(|(name, _)| *name));
            Err(format!("{advice}{hint}"))
        }
    }
}

pub(crate) fn flow_label(text: &str) -> Result<u32, String> {
    match c_number(text) {
        Some(label @ 1..=0xf_ffff) => Ok(label as u32),
        _ => Err("write 1 to 0xfffff".to_owned()),
    }
}

fn span(text: &str, bare: &str) -> Result<Span, String> {
    let with_unit =
        if letters(text).is_empty() { format!("{text}{bare}") } else { text.to_owned() };
    read(text, &with_unit, &["ns", "us", "ms", "s", "min", "h"])
}

fn read<T: std::str::FromStr<Err = UnitError>>(
    text: &str,
    with_unit: &str,
    known: &[&'static str],
) -> Result<T, String> {
    with_unit.parse().map_err(|error| match &error {
        UnitError::UnknownUnit { unit, .. } => match units::nearest(unit, known.iter().copied()) {
            Some(right) => {
                let number = text.trim().trim_end_matches(unit.as_str()).trim_end();
                let hint = units::suggestion(format_args!("{number}{right}"));
                format!("`{unit}` is not a unit of this value{hint}")
            }
            None => error.to_string(),
        },
        _ => error.to_string(),
    })
}

fn within<T: PartialOrd + std::fmt::Display>(value: T, least: T, most: T) -> Result<T, String> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(format!("write {least} to {most}"))
}

fn letters(text: &str) -> &str {
    let text = text.trim();
    text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_').trim_start()
}

fn c_number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

const KEEP_ALIVE: &str = "write the seconds before the first probe, the seconds between probes (1 to 32767) \
                          and the number of probes (1 to 127), as in 60/10/5";
const WINDOWS: RangeInclusive<Span> = Span::from_millis(500)..=Span::from_secs(60);
const LONGEST_BLOCK: u64 = 1 << 20;
/// iperf3's MAX_TCP_BUFFER.
const LARGEST_WINDOW: u64 = 512 << 20;
/// Names of DSCP values: RFC 2474, 2597, 3246, 5865, 8622. The last three names are iperf3's, for
/// bits of the type of service of RFC 1349.
const DSCP: [(&str, u8); 27] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
    ("voice-admit", 44),
    ("le", 1),
    ("lowdelay", 4),
    ("throughput", 2),
    ("reliability", 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_parsed_in_weirs_and_in_iperf3s_notation() {
        let bits = |text: &str| bitrate(text).unwrap().rate.map(Rate::bits_per_second);
        for (text, expected) in [
            ("100M", Some(100_000_000)),
            ("1.5g", Some(1_500_000_000)),
            ("600mbit", Some(600_000_000)),
            ("10MB/s", Some(80_000_000)),
            ("1000000", Some(1_000_000)),
            ("1T", Some(1_000_000_000_000)),
            ("0", None),
        ] {
            assert_eq!(bits(text), expected, "{text}");
        }
        let burst = bitrate("100M/16").unwrap();
        assert_eq!((burst.rate, burst.burst), (Some(Rate::from_mbit(100)), Some(16)));
        assert_eq!(bitrate("0/8").unwrap(), Bitrate { rate: None, burst: Some(8) });
        let limit = rate_limit("100M/10").unwrap();
        let ten = Some(Span::from_secs(10));
        assert_eq!((limit.rate, limit.window), (Some(Rate::from_mbit(100)), ten));
        let limit = rate_limit("10MB/s").unwrap();
        assert_eq!((limit.rate, limit.window), (Some(Rate::from_mbit(80)), None));
        assert!(rate_limit("100M/0").unwrap_err().contains("500ms to 60s, as in 100M/5"));
    }

    #[test]
    fn a_rate_that_may_be_in_bits_or_bytes_is_refused() {
        for (text, advice) in [
            ("10Mb/s", "write 10mbit or 10MB/s"),
            ("10 MBps", "write 10mbit or 10MB/s"),
            ("8kb/s", "write 8kbit or 8KB/s"),
            ("1gb/s/16", "write 1gbit or 1GB/s"),
        ] {
            let error = bitrate(text).unwrap_err();
            assert!(error.ends_with(advice), "{text}: {error}");
        }
        let bits = |text: &str| rate(text).unwrap().bits_per_second();
        assert_eq!((bits("10Mbps"), bits("10MB/s")), (10_000_000, 80_000_000));
    }

    #[test]
    fn a_misspelt_value_gives_a_suggestion() {
        assert!(bitrate("100mbut").unwrap_err().ends_with("(did you mean `100mbit`?)"));
        assert!(bitrate("100M/0").unwrap_err().contains("1 to 1000 blocks, as in 100M/16"));
        assert!(duration("10sek").unwrap_err().ends_with("(did you mean `10s`?)"));
        assert!(size("64KIBI").unwrap_err().ends_with("(did you mean `64KiB`?)"));
        assert!(duration("0").unwrap_err().contains("a test needs a duration"));
        assert!(duration("-5").unwrap_err().contains("write a number and a unit"));
        assert!(bitrate("fast").is_err());
        assert!(dscp("af44").unwrap_err().ends_with("(did you mean `af41`?)"));
        assert!(dscp("255").unwrap_err().ends_with("cs1 or af41"));
    }

    #[test]
    fn sizes_are_iperf3s_powers_of_1024() {
        assert_eq!(size("128K").unwrap(), Bytes::kib(128));
        assert_eq!(size("64KiB").unwrap(), Bytes::kib(64));
        assert_eq!(size("1460").unwrap(), Bytes::new(1460));
        assert_eq!(size("1T").unwrap(), Bytes::new(1 << 40));
        assert_eq!(count("10K").unwrap(), 10_240);
        assert!(count("10 apples").is_err());
        assert!(block("2M").unwrap_err().contains("1B to 1MiB"));
        assert!(bytes("0").is_err());
    }

    #[test]
    fn a_time_without_a_unit_has_the_unit_of_its_option() {
        assert_eq!(duration("10").unwrap(), Span::from_secs(10));
        assert_eq!(duration("0.5").unwrap(), Span::from_millis(500));
        assert_eq!(duration("2min").unwrap(), Span::from_secs(120));
        assert_eq!(timeout("500").unwrap(), Duration::from_millis(500));
        assert_eq!(timeout("2s").unwrap(), Duration::from_secs(2));
        assert_eq!(silence("100").unwrap(), Duration::from_millis(100));
        assert!(silence("1").unwrap_err().contains("100ms to 86400s"));
        assert_eq!(pacing_timer("1000").unwrap(), Span::from_millis(1));
        assert_eq!(pacing_timer("1ms").unwrap(), Span::from_millis(1));
        assert_eq!(interval("0").unwrap(), Span::ZERO);
        assert!(interval("0.01").is_err());
        assert_eq!(omit("600").unwrap(), Span::from_secs(600));
        assert!(omit("601").unwrap_err().contains("0s to 600s"));
        assert_eq!(duration_or_endless("0").unwrap(), Span::ZERO);
        assert!(duration_or_endless("100000").is_err());
        assert!(duration("100000").unwrap_err().contains("at most: 86400s"));
    }

    #[test]
    fn the_parts_of_a_keepalive_may_be_missing() {
        let asked = |idle: Option<u64>, interval: Option<u64>, probes| {
            let (idle, interval) =
                (idle.map(Duration::from_secs), interval.map(Duration::from_secs));
            Ok(KeepAlive { idle, interval, probes })
        };
        assert_eq!(keep_alive("60/10/5"), asked(Some(60), Some(10), Some(5)));
        assert_eq!(keep_alive("60"), asked(Some(60), None, None));
        assert_eq!(keep_alive("//3"), asked(None, None, Some(3)));
        assert_eq!(keep_alive("//"), asked(None, None, None));
        for text in ["0", "60/x", "1/1/128", "1/2/3/4"] {
            assert!(keep_alive(text).unwrap_err().contains("as in 60/10/5"), "{text}");
        }
    }

    #[test]
    fn cpus_addresses_and_dscp_values_are_parsed() {
        let both = |here, there| Ok(Affinity { here, there });
        assert_eq!(affinity("1"), both(Some(1), None));
        assert_eq!(affinity("0,1"), both(Some(0), Some(1)));
        assert_eq!(affinity(",1"), both(None, Some(1)));
        assert!(affinity("a").is_err() && affinity(",").is_err());
        let bound = bind("fe80::1%eth0").unwrap();
        assert_eq!(bound.device.as_deref(), Some("eth0"));
        assert!(bound.address.is_some());
        assert_eq!(bind("%eth0").unwrap().address, None);
        assert!(bind("eth0").unwrap_err().contains("%eth0"));
        for text in ["52", "064", "0x34"] {
            assert_eq!(type_of_service(text), Ok(52), "{text}");
        }
        assert_eq!(dscp("EF"), Ok(0xb8));
        assert_eq!(dscp("8"), Ok(32));
        assert_eq!(dscp("lowdelay"), Ok(0x10));
        assert!(type_of_service("256").is_err() && flow_label("0").is_err());
    }
}
