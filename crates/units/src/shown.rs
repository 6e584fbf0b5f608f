//! Measured quantities as people read them: three significant digits and the unit, `90.3 Mbit/s`,
//! `3.94 MB`, `35.1 ms`. `Display` prints settings instead, exactly and as a flag takes them.

use crate::{Bytes, Rate, Share, Span};

impl Rate {
    /// Formats the rate as in `90.3 Mbit/s`.
    pub fn shown(self) -> String {
        rate(self.bits_per_second() as f64)
    }
}

impl Bytes {
    /// Formats the size as in `3.94 MB`; a megabyte is 10^6 bytes.
    pub fn shown(self) -> String {
        bytes(self.count() as f64)
    }
}

impl Span {
    /// Formats the time as in `35.1 ms`, and from two minutes on as in `3 min 20 s`.
    pub fn shown(self) -> String {
        seconds(self.secs_f64())
    }
}

impl Share {
    /// Formats the share as in `0.47 %`.
    pub fn shown(self) -> String {
        percent(self.percent())
    }
}

/// Formats a rate in bits per second, as in `90.3 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Formats a number of bytes as in `3.94 MB`; a megabyte is 10^6 bytes.
pub fn bytes(count: f64) -> String {
    scaled(count, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Formats seconds as in `35.1 ms`, and from two minutes on as in `3 min 20 s`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round();
    if whole.is_finite() && whole >= 120.0 {
        let whole = whole as u64;
        let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
        let parts = [(hours, "h"), (minutes, "min"), (rest, "s")];
        let from = if hours > 0 { 0 } else { 1 };
        let parts = parts[from..from + 2].iter().filter(|(count, _)| *count > 0);
        return parts.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ");
    }
    if whole >= 10.0 && (seconds - whole).abs() < 1e-9 {
        return format!("{whole:.0} s");
    }
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let fits = |scale: f64| round(seconds / scale).abs() >= 1.0;
    match units.iter().find(|(scale, _)| fits(*scale)) {
        Some((scale, unit)) => format!("{} {unit}", significant(seconds / scale)),
        None => "0 s".to_owned(),
    }
}

/// Formats a percentage, as in `0.47 %`, `9.84 %`, `63.2 %` and `100 %`. A percentage too small for
/// this becomes `<0.01 %`, never 0.
pub fn percent(percent: f64) -> String {
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        part if part < 0.01 => "<0.01 %".to_owned(),
        part if part < 9.995 => format!("{percent:.2} %"),
        part if part < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a number with three significant digits; zero is `0`.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let magnitude = round(value).abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut rest = value;
    for unit in &units[..units.len() - 1] {
        if round(rest).abs() < 1000.0 {
            // Print bits and bytes without decimals.
            let is_base = unit == &units[0];
            let text = if is_base { format!("{rest:.0}") } else { significant(rest) };
            return format!("{text} {unit}");
        }
        rest /= 1000.0;
    }
    format!("{} {}", significant(rest), units[units.len() - 1])
}

/// Rounds to three significant digits.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_with_three_digits_and_the_unit() {
        for (bits, text) in [
            (0, "0 bit/s"),
            (999, "999 bit/s"),
            (90_300_000, "90.3 Mbit/s"),
            (600_000_000, "600 Mbit/s"),
            (999_600, "1.00 Mbit/s"),
            (9_840_000_000, "9.84 Gbit/s"),
        ] {
            assert_eq!(Rate::from_bits_per_second(bits).shown(), text);
        }
        for (count, text) in [(0, "0 B"), (1514, "1.51 kB"), (3_940_000, "3.94 MB")] {
            assert_eq!(Bytes::new(count).shown(), text);
        }
        for (nanos, text) in [
            (0, "0 s"),
            (1, "1.00 ns"),
            (35_100_000, "35.1 ms"),
            (104_200, "104 µs"),
            (999_999_999, "1.00 s"),
            (90_000_000_000, "90 s"),
            (90_500_000_000, "90.5 s"),
            (200_000_000_000, "3 min 20 s"),
            (7_260_000_000_000, "2 h 1 min"),
        ] {
            assert_eq!(Span::from_nanos(nanos).shown(), text);
        }
        for (share, text) in [
            (0.0, "0 %"),
            (0.00001, "<0.01 %"),
            (0.0047, "0.47 %"),
            (0.098449, "9.84 %"),
            (0.09996, "10.0 %"),
            (0.6321, "63.2 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(Share::new(share).unwrap().shown(), text);
        }
    }
}
