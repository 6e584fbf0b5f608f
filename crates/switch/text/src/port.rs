use std::collections::HashMap;

use flow::port_number::PortNumber;

const RESERVED: [(&str, PortNumber); 9] = [
    ("UNSET", PortNumber::UNSET),
    ("IN_PORT", PortNumber::IN_PORT),
    ("TABLE", PortNumber::TABLE),
    ("NORMAL", PortNumber::NORMAL),
    ("FLOOD", PortNumber::FLOOD),
    ("ALL", PortNumber::ALL),
    ("CONTROLLER", PortNumber::CONTROLLER),
    ("LOCAL", PortNumber::LOCAL),
    ("ANY", PortNumber::NONE),
];

/// The names of a bridge's ports, for parsing and printing texts.
#[derive(Debug, Clone, Default)]
pub struct PortNames {
    names: HashMap<PortNumber, String>,
    numbers: HashMap<String, PortNumber>,
}

impl PortNames {
    /// Returns an empty list: texts then have only port numbers.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, number: PortNumber, name: impl Into<String>) {
        let name = name.into();
        self.numbers.insert(name.clone(), number);
        self.names.insert(number, name);
    }

    #[must_use]
    pub fn name(&self, number: PortNumber) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<PortNumber> {
        self.numbers.get(name).copied()
    }
}

impl<Name: Into<String>> FromIterator<(PortNumber, Name)> for PortNames {
    fn from_iter<Pairs: IntoIterator<Item = (PortNumber, Name)>>(pairs: Pairs) -> Self {
        let mut names = Self::none();
        for (number, name) in pairs {
            names.insert(number, name);
        }
        names
    }
}

/// Parses a port: its number, its name, or a reserved name such as `LOCAL`.
pub(crate) fn parse_port(text: &str, names: &PortNames) -> Option<PortNumber> {
    if text.starts_with('-') {
        return None;
    }
    if let Ok((value, "")) = super::number::unsigned(text, 10) {
        let value = u32::try_from(value).ok()?;
        return match value {
            0..=0xffff => Some(PortNumber::from_16_bits(value as u16)),
            0xffff_ff00.. => Some(PortNumber(value)),
            _ => None,
        };
    }
    if text.eq_ignore_ascii_case("NONE") {
        return Some(PortNumber::NONE);
    }
    let reserved = RESERVED.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    if let Some((_, number)) = reserved {
        return Some(*number);
    }
    match text.strip_prefix('"') {
        None => names.number(text),
        Some(quoted) => names.number(&unquote(quoted.strip_suffix('"')?)?),
    }
}

pub(crate) fn print_port(out: &mut String, port: PortNumber, names: &PortNames) {
    if let Some((name, _)) = RESERVED.iter().find(|(_, number)| *number == port) {
        out.push_str(name);
    } else if let Some(name) = names.name(port) {
        print_name(out, name);
    } else if let Some(short) = port.to_16_bits() {
        out.push_str(&short.to_string());
    } else {
        out.push_str(&port.0.to_string());
    }
}

/// Prints a name, without quotes if it has only letters, digits and the characters `_`, `-` and
/// `.`.
pub(crate) fn print_name(out: &mut String, name: &str) {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if first && name.bytes().all(rest) {
        out.push_str(name);
    } else {
        out.push_str(&serde_json::Value::from(name).to_string());
    }
}

fn unquote(text: &str) -> Option<String> {
    serde_json::from_str(&format!("\"{text}\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_parse_from_numbers_and_names() {
        let names: PortNames =
            [(PortNumber(7), "vdpa1"), (PortNumber(8), "a b")].into_iter().collect();
        assert_eq!(parse_port("7", &names), Some(PortNumber(7)));
        assert_eq!(parse_port("vdpa1", &names), Some(PortNumber(7)));
        assert_eq!(parse_port("\"a b\"", &names), Some(PortNumber(8)));
        assert_eq!(parse_port("local", &names), Some(PortNumber::LOCAL));
        assert_eq!(parse_port("65534", &names), Some(PortNumber::LOCAL));
        assert_eq!(parse_port("70000", &names), None);
        let mut out = String::new();
        print_port(&mut out, PortNumber(8), &names);
        assert_eq!(out, "\"a b\"");
    }
}
