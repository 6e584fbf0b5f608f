//! Figures in the output of a command: how a lab file describes them, and how they are read.

use super::workload_table::{Better, FigureSpec};
use super::{FileError, schema::Document};
use results::metrics::OWN;
use serde_json::Value;

impl FigureSpec {
    /// Returns the name of the metric in results.
    pub(crate) fn metric(&self, name: &str) -> String {
        let [more, less] = OWN;
        let family = if self.better == Better::More { more } else { less };
        format!("{family}.{name}")
    }

    /// Returns the name of the metric with the error of a delay.
    pub(crate) fn error_metric(&self, name: &str) -> String {
        format!("{}.{name}_error", OWN[1])
    }

    /// Returns a second in the unit of the figure. `None`: the unit is not a unit of time.
    pub(crate) fn second(&self) -> Option<f64> {
        let known = [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("µs", 1e6), ("ns", 1e9)];
        known.into_iter().find(|(unit, _)| *unit == self.unit).map(|(_, second)| second)
    }

    /// Reads the figure from the output `text`. `document`: the output as JSON, or the reason why
    /// the output is no JSON.
    pub(crate) fn read(&self, text: &str, document: &Result<Value, String>) -> Result<f64, String> {
        match (&self.json, &self.pattern) {
            (Some(pointer), _) => at(document.as_ref().map_err(Clone::clone)?, pointer.get_ref()),
            (_, Some(pattern)) => last_match(pattern.get_ref(), text),
            (None, None) => Err("the file names neither `json` nor `pattern`".to_owned()),
        }
    }
}

impl Document {
    /// Checks the names of the file's own figures, and that each figure has a pointer or a pattern.
    pub(crate) fn check_figures(&self) -> Result<(), FileError> {
        for (name, figure) in &self.workload.get_ref().metrics {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let text = name.get_ref();
            if text.is_empty() || text.len() > LONGEST_NAME || !text.chars().all(plain) {
                let message = format!(
                    "a figure's name is made of at most {LONGEST_NAME} letters, digits and `_`"
                );
                self.refuse(name.span(), message)?;
            }
            let spec = figure.get_ref();
            let wrong = match (&spec.json, &spec.pattern) {
                (Some(_), Some(_)) => Some("`json` and `pattern` both name the place: keep one"),
                (None, None) => Some(
                    "name the figure's place: `json = \"/end/rate\"` or `pattern = \"rate: (number)\"`",
                ),
                (Some(json), None) if !json.get_ref().starts_with('/') => {
                    Some("a JSON pointer begins with `/`: `/end/sum_received/bits_per_second`")
                }
                (None, Some(pattern)) if pattern.get_ref().matches(NUMBER).count() != 1 => {
                    Some("a pattern has `(number)` once, in the place of the figure")
                }
                _ => None,
            };
            if let Some(message) = wrong {
                self.refuse(figure.span(), message)?;
            }
            if let (Some(way), None) = (&spec.one_way, spec.second()) {
                let message = "a delay has a `unit` of time: s, ms, us or ns";
                self.refuse(way.span(), message)?;
            }
        }
        Ok(())
    }
}

fn at(document: &Value, pointer: &str) -> Result<f64, String> {
    let found =
        document.pointer(pointer).ok_or_else(|| format!("its JSON has nothing at `{pointer}`"))?;
    let number = match found {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| format!("its JSON has no number at `{pointer}`"))
}

/// Returns the number in the last line that has the pattern, because a program prints its progress
/// before its result.
fn last_match(pattern: &str, text: &str) -> Result<f64, String> {
    let found = text.lines().rev().find_map(|line| number_in(pattern, line));
    found.ok_or_else(|| format!("no line of its output has `{pattern}`"))
}

/// Returns the number at the first match of the pattern in `line`. A blank in the pattern matches
/// any number of blanks.
fn number_in(pattern: &str, line: &str) -> Option<f64> {
    let (before, after) = pattern.split_once(NUMBER)?;
    let starts = line.char_indices().map(|(start, _)| start);
    starts.into_iter().find_map(|start| {
        let rest = &line[start..];
        let rest = &rest[length_of(before, rest)?..];
        let length = number_at(rest);
        let number: f64 = rest[..length].parse().ok()?;
        // A match that begins inside a longer number does not count.
        let is_cut = before.is_empty()
            && line[..start].ends_with(|c: char| c.is_alphanumeric() || ".-+".contains(c));
        length_of(after, &rest[length..]).filter(|_| !is_cut && number.is_finite())?;
        Some(number)
    })
}

/// Returns the length of the match of `pattern` at the start of `text`.
fn length_of(pattern: &str, text: &str) -> Option<usize> {
    let mut rest = text;
    let mut words = pattern.split(char::is_whitespace);
    rest = rest.strip_prefix(words.next()?)?;
    for word in words {
        let trimmed = rest.trim_start();
        if trimmed.len() == rest.len() && !ends_blank(text, rest) {
            return None;
        }
        rest = trimmed.strip_prefix(word)?;
    }
    Some(text.len() - rest.len())
}

/// Whether a blank of `text` precedes `rest`, or `rest` is all of `text`.
fn ends_blank(text: &str, rest: &str) -> bool {
    let consumed = &text[..text.len() - rest.len()];
    consumed.is_empty() || consumed.ends_with(char::is_whitespace)
}

/// Returns the length of the number at the start of `text`: `-1.5e3`, `12`, `.5`.
fn number_at(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        let digits = bytes[from..].iter().take(MOST_DIGITS);
        digits.take_while(|b| b.is_ascii_digit()).count()
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(sign);
    let mut end = sign + whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += if fraction > 0 { 1 + fraction } else { 0 };
    }
    if whole + fraction == 0 {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let count = digits((end + 1 + sign).min(bytes.len()));
        end += if count > 0 { 1 + sign + count } else { 0 };
    }
    end
}

const NUMBER: &str = "(number)";
const LONGEST_NAME: usize = 40;
/// Maximum length of a number. A number with more digits is infinite. The limit bounds the time for
/// a long line of digits, which would grow with the square of its length.
const MOST_DIGITS: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(json: Option<&str>, pattern: Option<&str>) -> FigureSpec {
        let written = |text: &str| toml::Spanned::new(0..0, text.to_owned());
        FigureSpec {
            json: json.map(written),
            pattern: pattern.map(written),
            unit: String::new(),
            better: Better::More,
            one_way: None,
        }
    }

    #[test]
    fn a_pattern_reads_the_number_of_the_last_matching_line() {
        let read = |pattern: &str, text: &str| {
            figure(None, Some(pattern)).read(text, &Err(String::new())).ok()
        };
        let wrk = "Requests/sec:   10.00\nRequests/sec:  12345.67\nTransfer/sec:  1.2MB\n";
        assert_eq!(read("Requests/sec: (number)", wrk), Some(12345.67));
        assert_eq!(read("Transfer/sec: (number)MB", wrk), Some(1.2));
        assert_eq!(read("Transfer/sec: (number) KB", wrk), None);
        assert_eq!(read("(number)", "0.25\n"), Some(0.25));
        assert_eq!(read("(number) ms", "took 1e-3 ms"), Some(0.001));
        assert_eq!(read("rtt = (number)/", "rtt = -.5/2"), Some(-0.5));
        assert_eq!(read("a (number)", "é a  7"), Some(7.0));
        assert_eq!(read("a (number)", "ab 7"), None);
        for nothing in ["", "(number", "e5", ".", "-", "1e999"] {
            assert_eq!(read("(number)", nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_json_pointer_finds_numbers_and_numeric_strings() {
        let read = |pointer: &str, text: &str| {
            let document = serde_json::from_str(text).map_err(|error| error.to_string());
            figure(Some(pointer), None).read(text, &document)
        };
        assert_eq!(read("/end/rate", r#"{"end": {"rate": 2.5}}"#), Ok(2.5));
        assert_eq!(read("/0/a~1b", r#"[{"a/b": " 7 "}]"#), Ok(7.0));
        assert!(read("/end", r#"{"end": {}}"#).unwrap_err().contains("no number"));
        assert!(read("/none", "{}").unwrap_err().contains("nothing at `/none`"));
        assert!(read("/a", "no JSON").is_err());
    }
}
