use std::net::Ipv4Addr;

use units::{Span, foreign};

use super::mistakes::Mistakes;
use super::tree::{Entry, Node, Value};

/// The keys of a YAML block. The caller reads one key after another. [`Self::finish`] reports the
/// keys that no code has read.
pub(super) struct Fields<'a> {
    pub(super) line: usize,
    what: &'static str,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Returns the keys of a node. If the node is not a block of keys, returns `None` and reports a
    /// mistake.
    pub(super) fn of(node: &'a Node, what: &'static str, mistakes: &mut Mistakes) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Self { line: node.line, what, entries, asked: Vec::new() }),
            _ => {
                let kind = node.kind();
                mistakes.add(node.line, format!("{what} is a block of keys, found {kind}"));
                None
            }
        }
    }

    /// Returns the value of a key. If the key is repeated, returns its last value, as TRex does.
    pub(super) fn find(&mut self, key: &'static str) -> Option<&'a Node> {
        self.asked.push(key);
        self.peek(key)
    }

    /// Returns the value of a key without marking the key as read.
    pub(super) fn peek(&self, key: &str) -> Option<&'a Node> {
        self.entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    pub(super) fn require(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<&'a Node> {
        let found = self.find(key);
        if found.is_none() {
            mistakes.add(self.line, format!("`{key}` is missing in {}", self.what));
        }
        found
    }

    pub(super) fn number(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<f64> {
        let node = self.find(key)?;
        number(node, key, mistakes)
    }

    pub(super) fn whole(
        &mut self,
        key: &'static str,
        most: u64,
        mistakes: &mut Mistakes,
    ) -> Option<u64> {
        let node = self.find(key)?;
        whole(node, key, most, mistakes)
    }

    pub(super) fn truth(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<bool> {
        let node = self.find(key)?;
        let text = scalar(node, key, mistakes)?;
        let truth = truth(text);
        if truth.is_none() {
            let text = foreign(text);
            mistakes.add(node.line, format!("`{key}` is true or false, not `{text}`"));
        }
        truth
    }

    pub(super) fn micros(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Span> {
        let node = self.find(key)?;
        micros(node, key, mistakes)
    }

    pub(super) fn address(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<Ipv4Addr> {
        let node = self.find(key)?;
        address(node, key, mistakes)
    }

    /// Reports the keys that no code has read as mistakes, and repeated keys as notes.
    pub(super) fn finish(self, mistakes: &mut Mistakes, notes: &mut Vec<String>) {
        for (number, entry) in self.entries.iter().enumerate() {
            if !self.asked.contains(&entry.key.as_str()) {
                let hint = units::did_you_mean(&entry.key, self.asked.iter().copied());
                let known = match hint.is_empty() {
                    true => format!(": one of {} is meant here", self.asked.join(", ")),
                    false => String::new(),
                };
                let key = foreign(&entry.key);
                mistakes
                    .add(entry.line, format!("unknown key `{key}` in {}{hint}{known}", self.what));
            } else if self.entries[..number].iter().any(|earlier| earlier.key == entry.key) {
                let key = foreign(&entry.key);
                notes.push(format!(
                    "line {}: `{key}` is repeated; the last one counts, as in TRex",
                    entry.line
                ));
            }
        }
    }
}

pub(super) fn scalar<'a>(node: &'a Node, key: &str, mistakes: &mut Mistakes) -> Option<&'a str> {
    match &node.value {
        Value::Scalar(text) if !text.is_empty() => Some(text),
        _ => {
            let kind = node.kind();
            mistakes.add(node.line, format!("`{key}` is a single value, found {kind}"));
            None
        }
    }
}

/// Reads a list. A key without a value is an empty list, as in TRex.
pub(super) fn list<'a>(node: &'a Node, key: &str, mistakes: &mut Mistakes) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(list) => Some(list),
        Value::Scalar(text) if text.is_empty() => Some(&[]),
        _ => {
            let kind = node.kind();
            mistakes.add(node.line, format!("`{key}` is a list, found {kind}"));
            None
        }
    }
}

pub(super) fn number(node: &Node, key: &str, mistakes: &mut Mistakes) -> Option<f64> {
    let text = scalar(node, key, mistakes)?;
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && (0.0..=LARGEST).contains(&value) => Some(value),
        _ => {
            let text = foreign(text);
            mistakes.add(node.line, format!("`{key}` is a number from 0 on, not `{text}`"));
            None
        }
    }
}

pub(super) fn micros(node: &Node, key: &str, mistakes: &mut Mistakes) -> Option<Span> {
    let micros = number(node, key, mistakes)?;
    if micros > LONGEST_MICROS {
        mistakes.add(node.line, format!("`{key}` counts microseconds, at most an hour"));
        return None;
    }
    Some(Span::from_secs_f64(micros / 1e6))
}

/// Parses a whole number: hexadecimal after `0x` and octal after `0`, as in TRex's parser.
pub(super) fn whole(node: &Node, key: &str, most: u64, mistakes: &mut Mistakes) -> Option<u64> {
    let text = scalar(node, key, mistakes)?;
    let (digits, radix) = match text.trim() {
        hex if hex.starts_with("0x") || hex.starts_with("0X") => (&hex[2..], 16),
        octal if octal.len() > 1 && octal.starts_with('0') => (&octal[1..], 8),
        decimal => (decimal, 10),
    };
    let is_signed = radix != 10 && digits.starts_with('+');
    let value = u64::from_str_radix(digits, radix).ok();
    let value = value.filter(|value| *value <= most && !is_signed);
    if value.is_none() {
        let text = foreign(text);
        mistakes
            .add(node.line, format!("`{key}` is a whole number from 0 to {most}, not `{text}`"));
    }
    value
}

pub(super) fn address(node: &Node, key: &str, mistakes: &mut Mistakes) -> Option<Ipv4Addr> {
    let text = scalar(node, key, mistakes)?;
    let address = text.trim().parse().ok();
    if address.is_none() {
        let text = foreign(text);
        mistakes.add(
            node.line,
            format!("`{key}` is an IPv4 address such as \"16.0.0.1\", not `{text}`"),
        );
    }
    address
}

/// Parses a YAML 1.1 boolean, as TRex's parser does.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "y" | "on" | "1" => Some(true),
        "false" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

const LARGEST: f64 = 1e12;
const LONGEST_MICROS: f64 = 3.6e9;
