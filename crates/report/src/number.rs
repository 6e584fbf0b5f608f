//! Numbers for readers: three significant digits, grouped thousands, no false precision.

use results::Metric;

/// Formats a number: `561`, `57.1`, `0.0571`, `12,345`, `12.3 M`. A dash stands for a value that is
/// not a number, `∞` for an infinite value.
pub fn format(value: f64) -> String {
    let size = value.abs();
    if value == f64::INFINITY {
        "∞".to_owned()
    } else if !value.is_finite() {
        "–".to_owned()
    } else if size >= 1e10 {
        format!("{} G", with_decimals(value / 1e9, decimals(value / 1e9)))
    } else if size >= 1e7 {
        format!("{} M", with_decimals(value / 1e6, decimals(value / 1e6)))
    } else if size > 0.0 && size < 1e-4 {
        format!("{value:.1e}")
    } else {
        with_decimals(value, decimals(value))
    }
}

/// Formats the median and its interval or range: `57.1 [55.0, 58.9]`. The ends have the median's
/// decimals. A share of repeats has its count: `0.833 [0.359, 0.996] (5/6)`.
pub fn with_interval(metric: &Metric) -> String {
    let count = metric.share.map(|share| format!(" ({}/{})", share.count, share.total));
    with_ends(metric) + &count.unwrap_or_default()
}

fn with_ends(metric: &Metric) -> String {
    match metric.interval().or(metric.range) {
        Some(ends) => format!("{} {}", format(metric.value()), interval(metric.value(), ends)),
        None => format(metric.value()),
    }
}

/// Formats an interval with the decimals of the median beside it: `[55.0, 58.9]`.
pub fn interval(median: f64, [low, high]: [f64; 2]) -> String {
    let plain = |value: f64| value.is_finite() && value.abs() < 1e7;
    if plain(median) && plain(low) && plain(high) {
        let places = decimals(median);
        format!("[{}, {}]", with_decimals(low, places), with_decimals(high, places))
    } else {
        format!("[{}, {}]", format(low), format(high))
    }
}

/// Formats a ratio: `9.80×`.
pub fn ratio(value: f64) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{}×", format(value)) }
}

/// Formats a duration: `4 min 10 s`.
pub fn duration(seconds: f64) -> String {
    units::shown::seconds(seconds.max(0.0))
}

fn decimals(value: f64) -> usize {
    let size = value.abs();
    // A value that would round up to the next power of ten belongs to that power: 99.96 is 100, not
    // 100.0.
    let thresholds = [(99.95, 0), (9.995, 1), (0.9995, 2), (0.09995, 3), (0.009995, 4)];
    if size == 0.0 {
        return 0;
    }
    thresholds.iter().find(|(least, _)| size >= *least).map_or(5, |(_, places)| *places)
}

fn with_decimals(value: f64, places: usize) -> String {
    let text = format!("{:.places$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let zero = text.chars().all(|c| matches!(c, '0' | '.'));
    let sign = if value < 0.0 && !zero { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (561.3, "561"),
            (57.12, "57.1"),
            (99.96, "100"),
            (9.996, "10.0"),
            (9.8, "9.80"),
            (0.05712, "0.0571"),
            (0.00002, "2.0e-5"),
            (12_345.0, "12,345"),
            (12_345_678.0, "12.3 M"),
            (4.5e10, "45.0 G"),
            (-3.5, "−3.50"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(format(value), text);
        }
    }

    #[test]
    fn an_interval_has_as_many_decimals_as_its_median() {
        assert_eq!(interval(57.1, [9.951, 101.0]), "[10.0, 101.0]");
        assert_eq!(interval(f64::NAN, [1.0, f64::INFINITY]), "[1.00, ∞]");
        assert_eq!(ratio(f64::INFINITY), "∞×");
    }

    #[test]
    fn durations_are_shown_in_two_units() {
        assert_eq!(duration(4.25), "4.25 s");
        assert_eq!(duration(250.0), "4 min 10 s");
        assert_eq!(duration(7_300.0), "2 h 1 min");
    }
}
