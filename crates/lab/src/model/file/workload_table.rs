//! `[workload]`: the keys that every workload has, and the keys of a single workload.

use super::locate::FileError;
use super::schema::{Document, Pinning};
use indexmap::IndexMap;
use results::Axes;
use serde::Deserialize;
use serde::de::Unexpected;
use settings::{Mistakes, Node, Table, leaves, table};
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use toml::Spanned;
use toml::de::DeValue;
use units::Span;

#[derive(Debug, Clone)]
pub struct WorkloadTable {
    pub kind: Spanned<String>,
    pub pin: Pinning,
    /// Time at the start of a step that is excluded from every figure.
    pub omit: Option<Spanned<Span>>,
    /// Figures that the workload `command` reads from its client's output, by name.
    pub(crate) metrics: IndexMap<Spanned<String>, Spanned<FigureSpec>>,
    /// All other keys, in the file's order. The workload that `kind` names interprets these keys.
    pub(crate) settings: IndexMap<String, Setting>,
}

table! {
    /// A figure in the output of a command, by a JSON pointer or a pattern.
    #[derive(Debug, Clone)]
    pub struct FigureSpec {
        /// JSON pointer to the figure (RFC 6901): `/end/sum_received/bits_per_second`.
        pub json: Option<Spanned<String>>,
        /// The text around the figure, with `(number)` in the figure's place: `Requests/sec:
        /// (number)`.
        pub pattern: Option<Spanned<String>>,
        pub unit: String = String::new(),
        /// Whether a higher or a lower figure is better. By default a higher figure.
        pub better: Better = Better::default(),
        /// The direction of a one-way delay, measured by the clocks of both hosts. `None` for any
        /// other figure.
        pub one_way: Option<Spanned<OneWay>>,
    }
}

leaves!(Better, OneWay);

/// The direction of a one-way delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OneWay {
    ToServer,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    #[default]
    More,
    Less,
}

/// Parses a value between two bounds. `refused`: the error for a value beyond a bound.
pub(crate) fn bounded<T: FromStr<Err: Display> + PartialOrd>(
    text: &str,
    bounds: RangeInclusive<T>,
    refused: impl FnOnce() -> String,
) -> Result<T, String> {
    let value = text.parse::<T>().map_err(|error| format!("{error}"))?;
    if bounds.contains(&value) { Ok(value) } else { Err(refused()) }
}

/// A key's position in the file, and its value.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) name: Range<usize>,
    pub(crate) value: Spanned<Value>,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    /// A TOML value of a type that no key takes; the text names the type for the error.
    Other(String),
}

/// A key of `[workload]`, and the type of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    is_count: bool,
}

impl Key {
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, is_count: false }
    }

    /// Declares a key whose value is a number, or a text in which an axis replaces the number.
    pub(crate) const fn count(name: &'static str) -> Self {
        Self { name, is_count: true }
    }

    /// Returns the type error of a value, if its type is not the type of the key.
    pub(crate) fn type_error(&self, value: &Value) -> Option<String> {
        let found = match value {
            Value::Text(_) => return None,
            Value::Number(number) if self.is_count && u32::try_from(*number).is_ok() => {
                return None;
            }
            Value::Number(number) => Unexpected::Signed(*number).to_string(),
            Value::Other(words) => words.clone(),
        };
        let expected =
            if self.is_count { "a whole number, 0 or above" } else { "a text in quotes" };
        Some(format!("found {found}, expected {expected}"))
    }
}

impl WorkloadTable {
    /// Returns the position of a key's value, if the file has the key.
    pub(crate) fn place(&self, key: Key) -> Option<Range<usize>> {
        self.settings.get(key.name).map(|setting| setting.value.span())
    }

    /// Returns the text of a key. `None` if the file does not have the key, or if its value is a
    /// number.
    pub(crate) fn text(&self, key: Key) -> Option<&str> {
        match self.settings.get(key.name)?.value.get_ref() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the text of any key contains `part`.
    pub(super) fn mentions(&self, part: &str) -> bool {
        self.settings.values().any(|setting| match setting.value.get_ref() {
            Value::Text(text) => text.contains(part),
            _ => false,
        })
    }
}

impl Document {
    /// Returns the position of the first of `keys` that the file has, or else the position of
    /// `[workload]`.
    pub(crate) fn place_of_workload(&self, keys: &[Key]) -> Range<usize> {
        let table = self.workload.get_ref();
        let place = keys.iter().find_map(|key| table.place(*key));
        place.unwrap_or_else(|| self.workload.span())
    }

    /// Returns the text of a key of `[workload]` in the cell at `axes`, parsed by `parse`. `None`
    /// if the file does not have the key.
    pub(crate) fn workload_key<T>(
        &self,
        axes: &Axes,
        key: Key,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, FileError> {
        let table = self.workload.get_ref();
        let (Some(text), Some(place)) = (table.text(key), table.place(key)) else {
            return Ok(None);
        };
        let parsed = self.filled_text(axes, text).and_then(|text| parse(&text));
        parsed.map(Some).map_err(|message| self.source.error(place, message))
    }

    /// Returns a number of `[workload]` in the cell at `axes`. `None` if the file does not have the
    /// key.
    pub(crate) fn workload_count(
        &self,
        axes: &Axes,
        key: Key,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, FileError> {
        let Some(setting) = self.workload.get_ref().settings.get(key.name) else {
            return Ok(None);
        };
        let count = match setting.value.get_ref() {
            Value::Number(number) => u32::try_from(*number).map_err(|_| String::new()),
            Value::Text(text) => self.filled_text(axes, text).and_then(|filled| {
                filled.parse().map_err(|_| format!("`{filled}` is no number of {}", key.name))
            }),
            Value::Other(words) => Err(words.clone()),
        };
        let within = |count: u32| match range.contains(&count) {
            true => Ok(Some(count)),
            false => Err(format!("`{}` is from {} to {}", key.name, range.start(), range.end())),
        };
        count.and_then(within).map_err(|message| self.source.error(setting.value.span(), message))
    }
}

impl settings::Setting for WorkloadTable {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let mut table = Table::open(node, &["kind", "pin", "omit", "metrics"], false, mistakes)?;
        let settings = table.others().map(|(key, node)| {
            let value = Spanned::new(node.span(), Value::of(node.get_ref()));
            let name = key.span();
            (key.into_inner(), Setting { name, value })
        });
        Some(Self {
            settings: settings.collect(),
            kind: table.take("kind", None)?,
            pin: table.take("pin", Some(Pinning::default))?,
            omit: table.take("omit", None)?,
            metrics: table.take("metrics", Some(IndexMap::new))?,
        })
    }
}

impl Value {
    fn of(value: &DeValue<'_>) -> Self {
        match (value, settings::found(value)) {
            (DeValue::String(text), _) => Self::Text(text.clone().into_owned()),
            (_, Unexpected::Signed(number)) => Self::Number(number),
            (_, found) => Self::Other(found.to_string()),
        }
    }
}
