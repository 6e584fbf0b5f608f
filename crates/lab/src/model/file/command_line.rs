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
    let hidden = line.replace("{{", OPEN).replace("}}", CLOSE);
    let shown = |word: String| word.replace(OPEN, "{").replace(CLOSE, "}");
    let words = words(&hidden).into_iter().map(|word| fill(&word, known, &value_of).map(shown));
    words.collect()
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
        let wrong = words("{sever}").unwrap_err();
        assert!(wrong.contains("did you mean `server`"), "{wrong}");
    }

    #[test]
    fn shown_words_are_quoted_for_a_shell() {
        assert_eq!(quoted("http://x/?a=1"), "'http://x/?a=1'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("-o"), "-o");
        assert_eq!(quoted(""), "''");
    }
}
