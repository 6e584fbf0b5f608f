//! Quantities of a network path, parsed and printed as people write them.
//!
//! | type | written | holds |
//! | --- | --- | --- |
//! | [`Rate`] | `600mbit`, `2.5gbit`, `64kbit`, `10MB/s` | bits per second |
//! | [`Bytes`] | `256KiB`, `640KB`, `8MB`, `1500` | bytes |
//! | [`Span`] | `20ms`, `150us`, `2s`, `1m` | a length of time, in nanoseconds |
//! | [`Time`] | – | a point on a logical clock, in nanoseconds |
//! | [`Share`] | `1%`, `0` | a part of a whole, 0 to 1 |
//! | [`Switch`] | `on`, `true`, `1` | on or off |
//!
//! Numbers always carry their unit: a bare integer in a signature is a count.
//!
//! [`did_you_mean`] suggests the known word that a misspelt word stands for. [`foreign`] and
//! [`visible`] escape text from outside for terminals, logs and reports.

#![warn(missing_docs)]

mod bytes;
mod cpus;
mod error;
mod foreign;
mod number;
mod rate;
mod share;
pub mod shown;
mod span;
mod spelling;
mod switch;
mod time;

#[cfg(test)]
mod round_trip;

pub use bytes::Bytes;
pub use cpus::parse_cpus;
pub use error::UnitError;
pub use foreign::{Foreign, foreign, foreign_json, visible};
pub use rate::Rate;
pub use share::Share;
pub use span::Span;
pub use spelling::{did_you_mean, nearest, suggestion};
pub use switch::Switch;
pub use time::Time;

/// Implements serialisation through `Display` and deserialisation through `FromStr`, so that every
/// file, flag and JSON document shows a value as a person would write it. The second argument names
/// the value in errors about its type. The calling crate needs serde.
#[macro_export]
macro_rules! as_text {
    ($type:ty, $expected:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        $crate::from_text!($type, $expected);
    };
}

/// Implements deserialisation through `FromStr`; see [`as_text`].
#[macro_export]
macro_rules! from_text {
    ($type:ty, $expected:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
