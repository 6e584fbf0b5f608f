use crate::{Endpoint, LinkPlan, Scheduling, Settings, UsageError, control, settings};
use host::Address;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::{Span, Switch};

/// The description of a link by the command line and a file; the keys are the flags' names.
#[derive(Debug, Clone, Default)]
pub struct LinkOptions {
    name: Option<String>,
    a: Option<Endpoint>,
    b: Option<Endpoint>,
    address_a: Vec<Address>,
    address_b: Vec<Address>,
    mtu: Option<u32>,
    duration: Option<Span>,
    cpu: Option<usize>,
    no_real_time: bool,
    spin: Option<Span>,
    both: Settings,
    ab: Settings,
    ba: Settings,
}

impl LinkOptions {
    /// All keys of link options except those of [`Settings`].
    pub const KEYS: [&str; 10] = [
        "name",
        "a",
        "b",
        "address-a",
        "address-b",
        "mtu",
        "duration",
        "cpu",
        "no-real-time",
        "spin",
    ];

    pub fn set(&mut self, key: &str, value: &str) -> Result<(), UsageError> {
        match key {
            "name" => self.name = Some(control::check_name(value)?.to_owned()),
            "a" => self.a = Some(value.parse()?),
            "b" => self.b = Some(value.parse()?),
            "address-a" => self.address_a.push(address(key, value)?),
            "address-b" => self.address_b.push(address(key, value)?),
            "mtu" => self.mtu = Some(number(key, value, 576..=65_535)? as u32),
            "duration" => self.duration = Some(longer_than_nothing(key, value)?),
            "cpu" => self.cpu = Some(number(key, value, 0..=1_023)? as usize),
            "no-real-time" => {
                let Switch(on) = value.parse().map_err(|error| UsageError::value(key, error))?;
                self.no_real_time = on;
            }
            "spin" => {
                self.spin = Some(value.parse().map_err(|error| UsageError::value(key, error))?);
            }
            _ if Settings::KEYS.contains(&key) => settings::set(&mut self.both, key, value)?,
            _ => {
                let known: Vec<&str> = Self::KEYS.into_iter().chain(Settings::KEYS).collect();
                return Err(UsageError::unknown_key(key, &known));
            }
        }
        Ok(())
    }

    /// Sets `KEY=VALUE` for the direction from a to b only.
    pub fn set_ab(&mut self, pair: &str) -> Result<(), UsageError> {
        settings::set_pair(&mut self.ab, pair)
    }

    pub fn set_ba(&mut self, pair: &str) -> Result<(), UsageError> {
        settings::set_pair(&mut self.ba, pair)
    }

    /// Adds the options of `file`; the options already given take precedence.
    pub fn or_file(self, file: &Path) -> Result<Self, UsageError> {
        let name = file.display().to_string();
        let mut text = String::new();
        // A device or another user's huge file must not fill the memory.
        let read = host::open_regular_file(file)
            .and_then(|opened| opened.take(LONGEST + 1).read_to_string(&mut text));
        let length =
            read.map_err(|source| UsageError::Unreadable { file: name.clone(), source })?;
        if length as u64 > LONGEST {
            let problem = "longer than 1 MiB: this is not the file of a link".to_owned();
            return Err(UsageError::File { file: name, line: 1, problem });
        }
        Ok(self.or(Self::parse(&name, &text)?))
    }

    /// Parses the text of a file: TOML with the keys above, and tables `[ab]` and `[ba]` with
    /// settings of one direction. Messages refer to the file as `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let at = |start: usize, problem: String| UsageError::File {
            file: file.to_owned(),
            line: 1 + text.as_bytes()[..start.min(text.len())]
                .iter()
                .filter(|b| **b == b'\n')
                .count(),
            problem,
        };
        let table = DeTable::parse(text).map_err(|error| {
            at(
                error.span().map_or(0, |span| span.start),
                error.message().trim().replace('\n', ", "),
            )
        })?;
        for (key, value) in table.get_ref().iter() {
            let place = key.span().start;
            match (&**key.get_ref(), value.get_ref()) {
                (way @ ("ab" | "ba"), DeValue::Table(given)) => {
                    let one = if way == "ab" { &mut options.ab } else { &mut options.ba };
                    for (key, value) in given.iter() {
                        let place = key.span().start;
                        let word =
                            word(value).ok_or_else(|| at(place, not_a_word(key.get_ref())))?;
                        settings::set(one, key.get_ref(), &word)
                            .map_err(|e| at(place, e.to_string()))?;
                    }
                }
                ("ab" | "ba", _) => {
                    let problem = format!(
                        "`{}` is a table: write [{0}] and its settings below",
                        key.get_ref()
                    );
                    return Err(at(place, problem));
                }
                (key @ ("address-a" | "address-b"), DeValue::Array(several)) => {
                    for value in several.iter() {
                        let place = value.span().start;
                        let word = word(value).ok_or_else(|| at(place, not_a_word(key)))?;
                        options.set(key, &word).map_err(|e| at(place, e.to_string()))?;
                    }
                }
                (key, _) => {
                    // Check for an unknown key first, because its value may have any type.
                    let word = word(value).unwrap_or_default();
                    options.set(key, &word).map_err(|e| at(place, e.to_string()))?;
                }
            }
        }
        Ok(options)
    }

    /// Validates all options together; creates nothing yet.
    pub fn plan(self) -> Result<LinkPlan, UsageError> {
        let missing = |side: char| {
            UsageError::Wrong(format!(
                "side {side} is missing: name it with --{side} NAMESPACE:INTERFACE, for example --{side} left:eth0"
            ))
        };
        let a = self.a.ok_or_else(|| missing('a'))?;
        let b = self.b.ok_or_else(|| missing('b'))?;
        if a == b {
            return Err(UsageError::Wrong(format!(
                "both sides are {a}: a link needs two interfaces; name another with --b"
            )));
        }
        let forward = self.ab.or(&self.both);
        let mut backward = self.ba.or(&self.both);
        // Use another seed for this direction. With the same random stream, both directions would
        // always lose packets together.
        if self.ba.seed.is_none() {
            backward.seed = Some(backward.seed.unwrap_or_default().wrapping_add(1));
        }
        let usual = Scheduling::default();
        Ok(LinkPlan {
            name: self.name,
            ends: [a, b],
            addresses: [self.address_a, self.address_b],
            mtu: self.mtu.unwrap_or(USUAL_MTU),
            forward: forward.config()?,
            backward: backward.config()?,
            settings: [forward, backward],
            duration: self.duration,
            scheduling: Scheduling {
                cpu: self.cpu,
                real_time: !self.no_real_time,
                spin: self.spin.unwrap_or(usual.spin),
                stalls: None,
            },
        })
    }

    fn or(self, other: Self) -> Self {
        let either = |these: Vec<Address>, those| if these.is_empty() { those } else { these };
        Self {
            name: self.name.or(other.name),
            a: self.a.or(other.a),
            b: self.b.or(other.b),
            address_a: either(self.address_a, other.address_a),
            address_b: either(self.address_b, other.address_b),
            mtu: self.mtu.or(other.mtu),
            duration: self.duration.or(other.duration),
            cpu: self.cpu.or(other.cpu),
            no_real_time: self.no_real_time || other.no_real_time,
            spin: self.spin.or(other.spin),
            both: self.both.or(&other.both),
            ab: self.ab.or(&other.ab),
            ba: self.ba.or(&other.ba),
        }
    }
}

fn word(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}

fn not_a_word(key: &str) -> String {
    format!("`{key}` takes one value, for example {key} = \"…\"")
}

fn address(key: &str, text: &str) -> Result<Address, UsageError> {
    let problem = || {
        UsageError::value(
            key,
            format!(
                "`{text}` is not an address with its prefix, for example 10.0.0.1/24 or fd00::1/64"
            ),
        )
    };
    let (ip, prefix) = text.split_once('/').ok_or_else(problem)?;
    let ip: IpAddr = ip.parse().map_err(|_| problem())?;
    let prefix: u8 = prefix.parse().map_err(|_| problem())?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    if prefix > longest {
        return Err(problem());
    }
    Ok(Address { ip, prefix })
}

fn number(key: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, UsageError> {
    let problem = || {
        UsageError::value(
            key,
            format!("`{text}` is not a whole number from {} to {}", range.start(), range.end()),
        )
    };
    let number = text.trim().parse().map_err(|_| problem())?;
    range.contains(&number).then_some(number).ok_or_else(problem)
}

fn longer_than_nothing(key: &str, text: &str) -> Result<Span, UsageError> {
    let span: Span = text.parse().map_err(|error| UsageError::value(key, error))?;
    if span == Span::ZERO {
        return Err(UsageError::value(
            key,
            "is 0: leave it out for a link that lasts until Ctrl-C",
        ));
    }
    Ok(span)
}

const USUAL_MTU: u32 = 1500;

const LONGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = r#"
name = "wan"
a = "left:eth0"
b = "right:eth0"
address-a = ["10.0.0.1/24", "fd00::1/64"]
rate = "600mbit"
rtt = "20ms"
mtu = 1400
seed = 7

[ba]
rate = "20mbit"
loss = "1%"
"#;

    #[test]
    fn a_link_file_accepts_the_keys_of_flags_and_flags_take_precedence() {
        let mut flags = LinkOptions::default();
        flags.set("rate", "1gbit").unwrap();
        flags.set("b", "other:eth1").unwrap();
        let plan = flags.or(LinkOptions::parse("wan.toml", FILE).unwrap()).plan().unwrap();
        assert_eq!(plan.name.as_deref(), Some("wan"));
        assert_eq!(plan.ends.map(|end| end.to_string()), ["left:eth0", "other:eth1"]);
        assert_eq!(plan.addresses[0].len(), 2);
        assert_eq!((plan.mtu, plan.forward.seed, plan.backward.seed), (1400, 7, 8));
        assert_eq!(plan.forward.rate.to_string(), "1gbit");
        assert_eq!(plan.backward.rate.to_string(), "20mbit");
        assert_eq!(plan.forward.delay, Span::from_millis(10));
        assert_eq!(plan.backward.loss.to_string(), "1%");
    }

    #[test]
    fn the_error_of_a_link_file_names_the_line_and_the_nearest_key() {
        let message = |text: &str| LinkOptions::parse("l.toml", text).unwrap_err().to_string();
        assert_eq!(
            message("rate = \"1mbit\"\n\nlos = \"1%\"").split(';').next().unwrap(),
            "l.toml:3: there is no setting `los` (did you mean `loss`?)"
        );
        assert!(
            message("rate = \"1mbit\"\n[ab]\ndelai = \"1ms\"")
                .starts_with("l.toml:3: there is no setting `delai` (did you mean `delay`?)")
        );
        assert!(message("rate = \"1mbut\"").starts_with("l.toml:1: rate:"));
        assert!(message("ab = 3").contains("is a table"));
        assert!(message("rate = [\"1mbit\"]").starts_with("l.toml:1: rate:"));
        assert!(message("\nrate = ").starts_with("l.toml:2:"));
    }

    #[test]
    fn a_link_needs_two_different_endpoints() {
        let message = |pairs: &[(&str, &str)]| {
            let mut options = LinkOptions::default();
            pairs.iter().for_each(|(key, value)| options.set(key, value).unwrap());
            options.plan().unwrap_err().to_string()
        };
        assert!(message(&[("a", "l:e")]).contains("side b is missing"));
        assert!(message(&[("a", "l:e"), ("b", "l:e")]).contains("needs two interfaces"));
    }

    #[test]
    fn link_options_out_of_range_are_refused() {
        for (key, value) in [
            ("mtu", "10"),
            ("cpu", "-1"),
            ("duration", "0s"),
            ("address-a", "10.0.0.1"),
            ("address-a", "10.0.0.1/33"),
            ("name", "../x"),
            ("name", ""),
        ] {
            assert!(LinkOptions::default().set(key, value).is_err(), "{key} {value}");
        }
    }

    proptest! {
        #[test]
        fn the_parser_of_link_files_never_panics(text in "[a-z\\[\\]=\"\\n 0-9%.-]{0,80}") {
            let _ = LinkOptions::parse("x", &text);
        }
    }
}
