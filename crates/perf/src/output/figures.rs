//! Formats numbers for tables: three digits and a familiar unit.

use units::{Bytes, Span, shown};

/// The unit of printed rates, as in iperf3's `-f`. The default unit depends on the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateUnit {
    #[default]
    Fitting,
    /// Bits a second, divided by this power of 1000.
    Bits(u32),
    Bytes(u32),
}

impl RateUnit {
    /// Parses the letter of `-f`: `k`, `m`, `g`, `t` mean bits a second, `K`, `M`, `G`, `T` bytes.
    pub fn from_letter(letter: char) -> Option<Self> {
        let power = PREFIXES.iter().position(|prefix| prefix.eq_ignore_ascii_case(&letter))?;
        let power = power as u32;
        match (power, letter.is_ascii_uppercase()) {
            (0, _) => None,
            (_, true) => Some(Self::Bytes(power)),
            (_, false) => Some(Self::Bits(power)),
        }
    }

    pub(super) fn show(self, bits_per_second: f64) -> String {
        match self {
            Self::Fitting => shown::rate(bits_per_second),
            Self::Bits(power) => {
                let value = bits_per_second / 1000_f64.powi(power as i32);
                format!("{} {}bit/s", digits(value), prefix(power))
            }
            Self::Bytes(power) => {
                let value = bits_per_second / 8.0 / 1000_f64.powi(power as i32);
                format!("{} {}B/s", digits(value), prefix(power))
            }
        }
    }
}

/// Formats a time, always in milliseconds, so that the values of a column can be compared.
pub(super) fn millis(span: Span) -> String {
    format!("{} ms", digits(span.millis_f64()))
}

pub(super) fn percent(value: f64) -> String {
    shown::percent(value)
}

/// Returns the rate in bits a second; zero if no time has elapsed.
pub(super) fn rate_of(bytes: Bytes, elapsed: Span) -> f64 {
    if elapsed == Span::ZERO { 0.0 } else { bytes.count() as f64 * 8.0 / elapsed.secs_f64() }
}

pub(super) fn share_percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Returns the smallest of 1, 2, 5, 10, … that is at least `value`, as the end of a bar's scale.
pub(super) fn round_above(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let magnitude = 10_f64.powf(value.log10().floor());
    let above = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * magnitude >= value * 0.999);
    above.unwrap_or(10.0) * magnitude
}

fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 0.9995 => format!("{v:.3}"),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn prefix(power: u32) -> char {
    PREFIXES.get(power as usize).copied().unwrap_or(' ')
}

const PREFIXES: [char; 5] = [' ', 'k', 'M', 'G', 'T'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_numbers_have_three_digits_and_a_unit() {
        let shown = |bits: f64| RateUnit::Fitting.show(bits);
        assert_eq!(shown(200_256_793.0), "200 Mbit/s");
        assert_eq!(shown(99_960_000.0), "100 Mbit/s");
        assert_eq!(shown(999_700.0), "1.00 Mbit/s");
        assert_eq!(shown(12_139_808_569.0), "12.1 Gbit/s");
        assert_eq!(shown(0.0), "0 bit/s");
        assert_eq!(Bytes::new(25_034_752).shown(), "25.0 MB");
        assert_eq!(Bytes::new(720_313).shown(), "720 kB");
        assert_eq!(Bytes::new(12).shown(), "12 B");
        assert_eq!(millis(Span::from_micros(37)), "0.037 ms");
        assert_eq!(millis(Span::from_micros(123_456)), "123 ms");
    }

    #[test]
    fn a_rate_is_shown_in_the_requested_unit() {
        let shown = |letter: char| RateUnit::from_letter(letter).unwrap().show(200_000_000.0);
        assert_eq!(shown('k'), "200000 kbit/s");
        assert_eq!(shown('m'), "200 Mbit/s");
        assert_eq!(shown('g'), "0.200 Gbit/s");
        assert_eq!(shown('M'), "25.0 MB/s");
        assert_eq!(RateUnit::from_letter('x'), None);
        assert_eq!(RateUnit::from_letter(' '), None);
    }

    #[test]
    fn chart_scales_end_at_round_numbers() {
        for (value, end) in [(200e6, 200e6), (201e6, 500e6), (10.1, 20.0), (7.0, 10.0), (0.0, 1.0)]
        {
            assert_eq!(round_above(value), end, "{value}");
        }
    }
}
