//! Parsers for the formats that suites print, one file for each format. A parser only converts a
//! text into cases: it has no side effects.

mod junit;
mod kirk;
mod ltp;
mod packetdrill;
mod tap;

use super::case::{Case, Parsed};
use std::collections::HashMap;

/// A format of a suite's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parser {
    Packetdrill,
    Ltp,
    Kirk,
    Tap,
    Junit,
}

impl Parser {
    pub const ALL: [Self; 5] = [Self::Packetdrill, Self::Ltp, Self::Kirk, Self::Tap, Self::Junit];

    /// Returns the format's name, as the flag `--parser` takes the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packetdrill => "packetdrill",
            Self::Ltp => "ltp",
            Self::Kirk => "kirk",
            Self::Tap => "tap",
            Self::Junit => "junit",
        }
    }

    /// Parses the cases in `text`, each with a name of its own.
    pub fn parse(self, text: &str) -> Result<Parsed, String> {
        let mut parsed = match self {
            Self::Packetdrill => packetdrill::parse(text),
            Self::Ltp => ltp::parse(text),
            Self::Kirk => kirk::parse(text)?,
            Self::Tap => tap::parse(text),
            Self::Junit => junit::parse(text)?,
        };
        if parsed.cases.len() > MOST_CASES {
            let count = parsed.cases.len();
            return Err(format!("the suite reports {count} cases, and Weir reads {MOST_CASES}"));
        }
        name_apart(&mut parsed.cases);
        Ok(parsed)
    }

    /// Finds another format whose parser finds cases in `text`.
    pub fn guess(self, text: &str) -> Option<Self> {
        // packetdrill's parser also reads TAP, so packetdrill's parser is tried last.
        Self::ALL
            .into_iter()
            .rev()
            .filter(|other| *other != self)
            .find(|other| other.parse(text).is_ok_and(|parsed| !parsed.cases.is_empty()))
    }
}

/// Numbers the cases that share a name, and shortens names that are too long.
fn name_apart(cases: &mut [Case]) {
    let mut counts: HashMap<String, u32> = HashMap::with_capacity(cases.len());
    for case in cases {
        if case.name.len() > LONGEST_NAME {
            case.name = case.name.chars().take(LONGEST_NAME / 4).collect();
        }
        let mut count = counts.get(&case.name).copied().unwrap_or_default() + 1;
        let own = case.name.clone();
        // The numbered name may already be the name of another case.
        while count > 1 && counts.contains_key(&format!("{own} #{count}")) {
            count += 1;
        }
        if count > 1 {
            case.name = format!("{own} #{count}");
            counts.insert(case.name.clone(), 1);
        }
        counts.insert(own, count);
    }
}

/// Returns the line without escape sequences, such as colours.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '\x1b' {
            out.push(char);
            continue;
        }
        if chars.peek() == Some(&'[') {
            chars.next();
            // ECMA-48: a control sequence ends with a byte from @ to ~.
            for char in chars.by_ref() {
                if ('@'..='~').contains(&char) {
                    break;
                }
            }
        }
    }
    out
}

const MOST_CASES: usize = 500_000;
const LONGEST_NAME: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::suite::Outcome;

    #[test]
    fn suite_cases_with_equal_names_get_numbers() {
        let mut cases = vec![Case::new("a", Outcome::Passed); 3];
        name_apart(&mut cases);
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["a", "a #2", "a #3"]);
        let mut cases = ["a #2", "a", "a"].map(|name| Case::new(name, Outcome::Passed));
        name_apart(&mut cases);
        let names = cases.map(|case| case.name);
        assert_eq!(names, ["a #2", "a", "a #3"]);
    }

    #[test]
    fn colour_escape_sequences_are_removed() {
        assert_eq!(plain("\x1b[1;32mTPASS: \x1b[0mgood\x1b"), "TPASS: good");
    }

    #[test]
    fn the_parser_for_an_output_in_another_format_is_suggested() {
        let tap = "TAP version 13\n1..1\nok 1 - a\n";
        assert_eq!(Parser::Kirk.guess(tap), Some(Parser::Tap));
        assert_eq!(Parser::Ltp.guess(tap), Some(Parser::Tap));
        assert_eq!(Parser::Tap.guess("OK   [/a/b.pkt (ipv4)]\n"), Some(Parser::Packetdrill));
        assert_eq!(Parser::Tap.guess("hello\n"), None);
        let junit = "<testsuite><testcase name=\"a\"/></testsuite>";
        assert_eq!(Parser::Tap.guess(junit), Some(Parser::Junit));
        let kirk = r#"{"results": [{"test_fqn": "a", "status": "pass", "test": {}}]}"#;
        assert_eq!(Parser::Ltp.guess(kirk), Some(Parser::Kirk));
    }
}
