use crate::mistake::{Mistakes, What};
use indexmap::IndexMap;
use serde::de::{Error, Unexpected};
use std::hash::Hash;
use std::ops::{Deref, Range};
use toml::Spanned;
use toml::de::DeValue;

/// A value of the file, with its place.
pub type Node<'a> = &'a Spanned<DeValue<'a>>;

/// The stand-in of a text that is lost. A file that contains this text is refused.
pub const LOST: &str = "\0";

/// A type of values in a file.
pub trait Setting: Sized {
    /// Reads a value. Adds a mistake for a value that does not fit, and returns a stand-in.
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self>;

    /// Returns the value of a key that the file leaves out. `None`: each table needs the key.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns a value in place of a lost value, and marks the place as doubtful.
    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        mistakes.doubt(place);
        None
    }
}

/// A key of a table whose keys are not fixed.
pub trait Key: Hash + Eq {
    fn of(name: &str, place: Range<usize>) -> Self;
}

/// The values of a key that takes a single value or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl Key for String {
    fn of(name: &str, _: Range<usize>) -> Self {
        name.to_owned()
    }
}

impl Key for Spanned<String> {
    fn of(name: &str, place: Range<usize>) -> Self {
        Self::new(place, name.to_owned())
    }
}

impl<T> Deref for OneOrMore<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Setting> Setting for Spanned<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        Some(Self::new(node.span(), T::read(node, mistakes)?))
    }

    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        Some(Self::new(place.clone(), T::stand_in(place, mistakes)?))
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        Some(T::read(node, mistakes))
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        match node.get_ref() {
            DeValue::Array(list) => {
                Some(list.iter().filter_map(|node| T::read(node, mistakes)).collect())
            }
            _ => mistakes.unfit(node, "a list in brackets"),
        }
    }

    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        Some(T::stand_in(place, mistakes).into_iter().collect())
    }
}

impl<T: Setting> Setting for OneOrMore<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        match node.get_ref() {
            DeValue::Array(_) => Vec::read(node, mistakes).map(Self),
            _ => T::read(node, mistakes).map(|one| Self(vec![one])),
        }
    }
}

impl<K: Key, T: Setting> Setting for IndexMap<K, T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let DeValue::Table(entries) = node.get_ref() else {
            return mistakes.unfit(node, "a table");
        };
        let entries = entries.iter().filter_map(|(key, node)| {
            Some((K::of(key.get_ref(), key.span()), T::read(node, mistakes)?))
        });
        Some(entries.collect())
    }

    /// Returns a map with the key [`LOST`]. The other keys of its table may not suit the lost keys.
    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        let table = mistakes.table.clone();
        mistakes.doubt(&table);
        let value = T::stand_in(place, mistakes)?;
        Some(Self::from_iter([(K::of(LOST, place.clone()), value)]))
    }
}

impl Mistakes {
    /// Adds the mistake of a value that has another type, and returns a stand-in.
    pub fn unfit<T: Setting>(&mut self, node: Node<'_>, expected: &str) -> Option<T> {
        self.add_unfit(node, expected);
        T::stand_in(&node.span(), self)
    }

    pub(crate) fn add_unfit(&mut self, node: Node<'_>, expected: &str) {
        self.add(node.span(), What::invalid_type(found(node.get_ref()), &expected));
    }
}

/// Returns the type and value as messages name them.
pub fn found<'a>(value: &'a DeValue<'_>) -> Unexpected<'a> {
    match value {
        DeValue::String(text) => Unexpected::Str(text),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Unexpected::Signed(number),
            Err(_) => Unexpected::Other("a huge integer"),
        },
        DeValue::Float(number) => Unexpected::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Unexpected::Bool(*value),
        DeValue::Array(_) => Unexpected::Seq,
        DeValue::Datetime(_) | DeValue::Table(_) => Unexpected::Map,
    }
}
