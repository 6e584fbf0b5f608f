use super::ListenOn;
use super::source::Origin;
use crate::access::Rule;
use crate::identity::{PeerName, Pin};
use crate::target::{HostPort, Target};
use crate::transport::Carrier;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt::{Display, Formatter};
use std::marker::PhantomData;
use std::str::FromStr;
use toml::Spanned;

/// A configured value and its origin, for error messages.
#[derive(Debug, Clone)]
pub struct Located<T> {
    pub value: T,
    pub(super) origin: Origin,
}

/// Parses `"a"` or `["a", "b"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T> Located<T> {
    /// Marks a value as given by the command-line flag `flag`, for example `--listen-on`.
    pub fn by_flag(flag: &'static str, value: T) -> Self {
        Self { value, origin: Origin::Flag(flag) }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let origin = Origin::Byte(spanned.span().start);
        Ok(Self { value: spanned.into_inner(), origin })
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts<T>(PhantomData<T>);
        impl<'de, T: FromStr<Err: Display>> Visitor<'de> for Texts<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text in quotes or a list of them in brackets")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore<T>, E> {
                text.parse().map(|one| OneOrMore(vec![one])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<OneOrMore<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = texts.next_element::<String>()? {
                    all.push(text.parse().map_err(A::Error::custom)?);
                }
                Ok(OneOrMore(all))
            }
        }
        deserializer.deserialize_any(Texts(PhantomData))
    }
}

/// Implements `Deserialize` by parsing the text within serde, so that an error names the line of
/// the text and not the line of the list that contains it.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text(PhantomData))
            }
        }
    )*};
}
as_text!(Carrier, HostPort, ListenOn, PeerName, Pin, Rule, Target);

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
