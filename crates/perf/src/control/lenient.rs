//! Numbers and truth values of a peer's JSON. The libraries that speak iperf3's protocol differ in
//! their types: 1 or `true` for a flag, 2.0 for a count. cJSON and serde write NaN as `null`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a number; `null` is 0.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    read(from, 0.0)
}

/// Reads a measured number; `null` is NaN.
pub(super) fn measured<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    read(from, f64::NAN)
}

/// Reads a truth value; any number except 0 is true, and `null` is false.
pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    read(from, 0.0).map(|number| number != 0.0)
}

/// Reads a whole number; `null` is no number.
pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let number = read(from, f64::NAN)?;
    match number.fract() == 0.0 {
        true => Ok(Some(number as i64)),
        false if number.is_nan() => Ok(None),
        false => Err(D::Error::custom(format!("{number} is not a whole number"))),
    }
}

fn read<'de, D: Deserializer<'de>>(from: D, none: f64) -> Result<f64, D::Error> {
    match Value::deserialize(from)? {
        Value::Number(number) => Ok(number.as_f64().unwrap_or(none)),
        Value::Bool(is_on) => Ok(f64::from(u8::from(is_on))),
        Value::Null => Ok(none),
        other => Err(D::Error::custom(format!("{other} is not a number"))),
    }
}
