use crate::mistake::{Mistakes, What};
use crate::setting::{LOST, Node, Setting, found};
use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor};
use std::ops::{Deref, Range};
use std::path::PathBuf;
use toml::de::{DeInteger, DeValue};
use units::{Bytes, Rate, Share, Span, Switch};

/// Implements [`Setting`](crate::Setting) for types that serde reads from a single value. A text
/// after a type says what its key expects, in place of the type's own words.
#[macro_export]
macro_rules! leaves {
    (@expected) => { None };
    (@expected $expected:literal) => { Some($expected) };
    ($($type:ty $(: $expected:literal)?),* $(,)?) => {$(
        impl $crate::Setting for $type {
            fn read(node: $crate::Node<'_>, mistakes: &mut $crate::Mistakes) -> Option<Self> {
                $crate::read_leaf(node, $crate::leaves!(@expected $($expected)?), mistakes)
            }

            fn stand_in(
                place: &std::ops::Range<usize>,
                mistakes: &mut $crate::Mistakes,
            ) -> Option<Self> {
                $crate::stand_in(place, mistakes)
            }
        }
    )*};
}

leaves! {
    String: "a text in quotes",
    PathBuf: "a text in quotes",
    std::net::SocketAddr: "an address and port in quotes",
    bool: "true or false",
    u16: "a whole number from 0 to 65535",
    u32: "a whole number, 0 or above",
    u64: "a whole number, 0 or above",
    usize: "a whole number, 0 or above",
    f64: "a number",
    [u64; 3]: "a list of three whole numbers",
    Bytes, Rate, Share, Span, Switch,
}

/// A value that serde reads, of a type without [`Setting`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf<T>(pub T);

impl<T> Deref for Leaf<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned> Setting for Leaf<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        read_leaf(node, None, mistakes).map(Self)
    }
}

/// Reads a value with serde. The nearest permitted word takes the place of an unknown word.
pub fn read_leaf<T: DeserializeOwned>(
    node: Node<'_>,
    expected: Option<&str>,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let mut what = match T::deserialize(Value(node.get_ref())) {
        Ok(value) => return Some(value),
        Err(what) => what,
    };
    let mut near = None;
    match (&mut what, expected) {
        (What::Unfit { expected: words, .. }, Some(expected)) => *words = expected.to_owned(),
        (What::UnknownWord { word, known }, _) => {
            near = units::nearest(word, known.iter().copied())
        }
        _ => {}
    }
    mistakes.add(node.span(), what);
    match near {
        Some(word) => T::deserialize(Value(&DeValue::String(word.into()))).ok(),
        None => stand_in(&node.span(), mistakes),
    }
}

/// Returns a value of the type: [`LOST`], 0, false, or a usual quantity. A set of words gives its
/// first word, and the whole table is doubtful, because the other keys of the table may not suit
/// this word.
pub fn stand_in<T: DeserializeOwned>(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<T> {
    let text = |text: &'static str| DeValue::String(text.into());
    let number = DeValue::Integer(DeInteger::default());
    for value in [text(LOST), number, DeValue::Boolean(false), text("1s"), text("100%")] {
        match T::deserialize(Value(&value)) {
            Err(What::UnknownWord { known, .. }) => {
                let table = mistakes.table.clone();
                mistakes.doubt(&table);
                return T::deserialize(Value(&text(known.first()?))).ok();
            }
            Err(_) => {}
            Ok(value) => {
                mistakes.doubt(place);
                return Some(value);
            }
        }
    }
    mistakes.doubt(place);
    None
}

/// A value that serde reads.
struct Value<'a>(&'a DeValue<'a>);

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = What;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, What> {
        match self.0 {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => {
                let (digits, radix) = (number.as_str(), number.radix());
                match (i64::from_str_radix(digits, radix), u64::from_str_radix(digits, radix)) {
                    (Ok(number), _) => visitor.visit_i64(number),
                    (_, Ok(number)) => visitor.visit_u64(number),
                    _ => Err(What::custom("integer number overflowed")),
                }
            }
            DeValue::Float(number) => {
                let is_infinity = number.as_str().contains("inf");
                match number.as_str().parse::<f64>() {
                    Ok(number) if is_infinity || !number.is_infinite() => visitor.visit_f64(number),
                    _ => Err(What::custom("floating-point number overflowed")),
                }
            }
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Array(list) => {
                let values = list.iter().map(|node| Value(node.get_ref()));
                let mut values = SeqDeserializer::<_, What>::new(values);
                let read = visitor.visit_seq(&mut values)?;
                // An array type alone would accept the first three of four elements.
                values.end()?;
                Ok(read)
            }
            table @ (DeValue::Datetime(_) | DeValue::Table(_)) => {
                Err(What::invalid_type(found(table), &visitor))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, What> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, What> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, What> {
        match self.0 {
            DeValue::String(word) => visitor.visit_enum((**word).into_deserializer()),
            other => Err(What::invalid_type(found(other), &"a text in quotes")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map
        struct unit ignored_any unit_struct tuple_struct tuple identifier
    }
}

impl IntoDeserializer<'_, What> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
