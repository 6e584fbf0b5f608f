//! Reads saved numbers. A number that is missing or out of its range is `None`.

use serde_json::Value;
use units::{Bytes, Rate, Share, Span};

/// Returns the value at a path of keys.
pub(super) fn at<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

pub(super) fn number(value: &Value, keys: &[&str]) -> Option<f64> {
    at(value, keys)?.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
}

pub(super) fn count(value: &Value, keys: &[&str]) -> Option<u64> {
    number(value, keys).filter(|number| *number < LARGEST).map(|number| number as u64)
}

pub(super) fn small(value: &Value, keys: &[&str]) -> Option<u32> {
    u32::try_from(count(value, keys)?).ok()
}

pub(super) fn bytes(value: &Value, keys: &[&str]) -> Option<Bytes> {
    count(value, keys).map(Bytes::new)
}

pub(super) fn rate(value: &Value, keys: &[&str]) -> Option<Rate> {
    count(value, keys).map(Rate::from_bits_per_second)
}

pub(super) fn micros(value: &Value, keys: &[&str]) -> Option<Span> {
    number(value, keys).and_then(|micros| span(micros / 1e6))
}

pub(super) fn share(value: &Value, keys: &[&str]) -> Option<Share> {
    Share::from_percent(number(value, keys)?.min(100.0))
}

pub(super) fn text<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v str> {
    at(value, keys)?.as_str().filter(|text| !text.is_empty())
}

pub(super) fn list<'v>(value: &'v Value, keys: &[&str]) -> &'v [Value] {
    at(value, keys).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Converts seconds to a time; `None` for ten years or more.
pub(super) fn span(seconds: f64) -> Option<Span> {
    (seconds.is_finite() && (0.0..3e8).contains(&seconds)).then(|| Span::from_secs_f64(seconds))
}

const LARGEST: f64 = 9e15;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_numbers_and_numbers_out_of_range_are_none() {
        let value = json!({"a": {"b": 2.5, "c": -1, "d": "x", "e": 1e300, "f": 120}});
        assert_eq!(number(&value, &["a", "b"]), Some(2.5));
        assert_eq!(micros(&value, &["a", "b"]), Some(Span::from_nanos(2500)));
        for key in ["c", "d", "e", "missing"] {
            assert_eq!(count(&value, &["a", key]), None, "{key}");
            assert_eq!(micros(&value, &["a", key]), None, "{key}");
        }
        assert_eq!(share(&value, &["a", "f"]), Some(Share::ONE));
        assert_eq!(text(&value, &["a", "d"]), Some("x"));
        assert!(list(&value, &["a"]).is_empty());
    }
}
