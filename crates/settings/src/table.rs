use crate::mistake::{Mistakes, What};
use crate::setting::{Node, Setting};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Declares a table of a file: a struct in which each line is a key.
///
/// A key with a default, `repeats: u32 = 1`, and a key of a type `Option` may be left out.
/// `apply: String as "do"` reads the key `do`. After `struct Name in kebab`, `listen_on` reads the
/// key `listen-on`. The fields of a second block, `beside { … }`, are no keys, and begin with the
/// default of their type.
#[macro_export]
macro_rules! table {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@default) => { None };
    (@default $default:expr) => { Some(|| $default) };
    (@dashes) => { false };
    (@dashes kebab) => { true };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(in $case:ident)? {
            $(
                $(#[$doc:meta])*
                $field_vis:vis $field:ident : $type:ty $(as $key:literal)? $(= $default:expr)?
            ),* $(,)?
        }
        $(beside {
            $($(#[$own_doc:meta])* $own_vis:vis $own:ident : $own_type:ty),* $(,)?
        })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $type,)*
            $($($(#[$own_doc])* $own_vis $own: $own_type,)*)?
        }

        impl $crate::Setting for $name {
            fn read(node: $crate::Node<'_>, mistakes: &mut $crate::Mistakes) -> Option<Self> {
                const KEYS: &[&str] = &[$($crate::table!(@key $field $($key)?)),*];
                let has_dashes = $crate::table!(@dashes $($case)?);
                let mut table = $crate::Table::open(node, KEYS, has_dashes, mistakes)?;
                table.refuse_others(KEYS);
                $(let $field = table.take::<$type>(
                    $crate::table!(@key $field $($key)?),
                    $crate::table!(@default $($default)?),
                );)*
                Some(Self {
                    $($field: $field?,)*
                    $($($own: Default::default(),)*)?
                })
            }

            fn stand_in(
                place: &std::ops::Range<usize>,
                mistakes: &mut $crate::Mistakes,
            ) -> Option<Self> {
                $crate::empty(place, mistakes)
            }
        }
    };
}

/// A table whose values are being read.
#[derive(Debug)]
pub struct Table<'a, 'm> {
    place: Range<usize>,
    /// The place of the enclosing table.
    outer: Range<usize>,
    has_dashes: bool,
    values: Vec<(&'static str, Node<'a>)>,
    others: Vec<(&'a Spanned<DeString<'a>>, Node<'a>)>,
    mistakes: &'m mut Mistakes,
}

impl<'a, 'm> Table<'a, 'm> {
    /// Finds the values of `keys`. `None`: the value is no table.
    pub fn open(
        node: Node<'a>,
        keys: &[&'static str],
        has_dashes: bool,
        mistakes: &'m mut Mistakes,
    ) -> Option<Self> {
        let DeValue::Table(entries) = node.get_ref() else {
            mistakes.add_unfit(node, "a table");
            mistakes.doubt(&node.span());
            return None;
        };
        let outer = std::mem::replace(&mut mistakes.table, extent(node));
        let (place, values, others) = (node.span(), Vec::new(), Vec::new());
        let mut table = Self { place, outer, has_dashes, values, others, mistakes };
        for (key, node) in entries.iter() {
            match keys.iter().find(|known| table.written(known) == **key.get_ref()) {
                Some(known) => table.values.push((known, node)),
                None => table.others.push((key, node)),
            }
        }
        Some(table)
    }

    /// Adds a mistake for each key that is not in `keys`. The value of such a key belongs to the
    /// key that the user meant.
    pub fn refuse_others(&mut self, keys: &[&'static str]) {
        let known: Vec<String> = keys.iter().map(|key| self.written(key)).collect();
        for (key, node) in std::mem::take(&mut self.others) {
            if self.mistakes.is_full() {
                break;
            }
            let word = key.get_ref().to_string();
            let near = units::nearest(&word, known.iter().map(String::as_str));
            let near = near.and_then(|near| known.iter().position(|key| key == near));
            self.values.extend(near.map(|at| (keys[at], node)));
            self.mistakes.add(key.span(), What::UnknownKey { word, known: known.clone() });
        }
    }

    /// Returns the keys and values that [`Table::open`] has not found among its keys.
    pub fn others(&self) -> impl Iterator<Item = (Spanned<String>, Node<'a>)> {
        self.others
            .iter()
            .map(|(key, node)| (Spanned::new(key.span(), key.get_ref().to_string()), *node))
    }

    /// Reads the value of a key. `None`: the table cannot be read without the key.
    pub fn take<T: Setting>(&mut self, key: &str, default: Option<fn() -> T>) -> Option<T> {
        let value = self.values.iter().find(|(name, _)| *name == key);
        let read = value.and_then(|(_, node)| T::read(node, self.mistakes));
        let read = read.or_else(|| default.map(|make| make())).or_else(T::absent);
        if value.is_some() || read.is_some() {
            return read;
        }
        self.mistakes.add(self.place.clone(), What::MissingKey(self.written(key)));
        T::stand_in(&self.place, self.mistakes)
    }

    fn written(&self, key: &str) -> String {
        if self.has_dashes { key.replace('_', "-") } else { key.to_owned() }
    }
}

impl Drop for Table<'_, '_> {
    fn drop(&mut self) {
        self.mistakes.table = self.outer.clone();
    }
}

/// Reads an empty table in place of a lost table.
pub fn empty<T: Setting>(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<T> {
    mistakes.doubt(place);
    let node = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
    T::read(&node, &mut Mistakes::default())
}

/// Returns the place of a value with all values in it. The span of a table covers only its head.
/// Without recursion: dotted keys within inline tables nest some thousand tables.
fn extent(node: Node<'_>) -> Range<usize> {
    let start = node.span().start;
    let (mut end, mut open) = (start, vec![node]);
    while let Some(node) = open.pop() {
        end = end.max(node.span().end);
        match node.get_ref() {
            DeValue::Table(entries) => open.extend(entries.values()),
            DeValue::Array(list) => open.extend(list.iter()),
            _ => {}
        }
    }
    start..end
}
