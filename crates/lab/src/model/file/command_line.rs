//! Command lines whose placeholders are single words, whatever their values contain.

use super::placeholders::fill;
use super::words;

/// The placeholders that a command of the workload `command`, and a change of a system, may use.
pub(crate) const WORDS: [&str; 5] = ["client", "server", "port", "weir", "duration"];

/// Splits a line into words and fills each word. `{{` and `}}` stand for braces.
pub(crate) fn command_words(
    line: &str,
    known: &[&str],
    value_of: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, String> {
    let shown = |text: String| text.replace(OPEN, "{").replace(CLOSE, "}");
    let filled = |word: String| match fill(&word, known, &value_of) {
        Ok(word) => Ok(shown(word)),
        Err(error) => Err(format!("{}; write `{{{{` and `}}}}` for braces", shown(error))),
    };
    words(&without_doubled(line)).into_iter().map(filled).collect()
}

/// Replaces doubled braces outside placeholders by the stand-ins [`OPEN`] and [`CLOSE`].
fn without_doubled(line: &str) -> String {
    let mut hidden = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, found) = rest.split_at(at);
        hidden.push_str(before);
        let (part, length) = if found.starts_with("{{") {
            (OPEN, 2)
        } else if found.starts_with("}}") {
            (CLOSE, 2)
        } else {
            // The brace that closes a placeholder may stand before a doubled brace.
            let is_open = found.starts_with('{');
            let length = found.find('}').filter(|_| is_open).map_or(1, |end| end + 1);
            (&found[..length], length)
        };
        hidden.push_str(part);
        rest = &found[length..];
    }
    hidden.push_str(rest);
    hidden
}

/// Returns the word, quoted for a shell if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"'\"\\$`;&|<>()*?#!~".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Stand-ins for doubled braces: no command line contains these characters.
const OPEN: &str = "\u{1}";
const CLOSE: &str = "\u{2}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_with_blanks_in_its_value_is_one_word() {
        let value = |name: &str| match name {
            "server" => Some("10.0.0.1".to_owned()),
            "option" => Some("; rm -rf / 'x".to_owned()),
            _ => None,
        };
        let words = |line| command_words(line, &["server", "option"], value);
        assert_eq!(words("curl http://{server}/f").unwrap(), ["curl", "http://10.0.0.1/f"]);
        assert_eq!(words("a {option} 'b c'").unwrap(), ["a", "; rm -rf / 'x", "b c"]);
        assert_eq!(words("-w %{{time_total}}").unwrap(), ["-w", "%{time_total}"]);
        assert_eq!(words("-d '{{\"at\":{server}}}'").unwrap(), ["-d", "{\"at\":10.0.0.1}"]);
        assert_eq!(words("{{{server}}}").unwrap(), ["{10.0.0.1}"]);
        let wrong = words("{sever}").unwrap_err();
        assert!(wrong.contains("did you mean `server`"), "{wrong}");
        let wrong = words("awk '{print}'").unwrap_err();
        assert!(wrong.ends_with("write `{{` and `}}` for braces"), "{wrong}");
        let wrong = words("awk {{a{b").unwrap_err();
        assert!(wrong.contains("in `{a{b` is never closed"), "{wrong}");
    }

    #[test]
    fn shown_words_are_quoted_for_a_shell() {
        assert_eq!(quoted("http://x/?a=1"), "'http://x/?a=1'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("-o"), "-o");
        assert_eq!(quoted(""), "''");
    }
}
