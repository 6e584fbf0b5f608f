use serde_json::Value;
use std::fmt::{self, Display, Formatter, Write};

/// Text from outside, for a line of a log, a table or a report: a peer's reason, a requested name,
/// a file's title. `Display` shows one line of at most [`Foreign::LONGEST`] characters and an
/// ellipsis, without control sequences for a terminal.
///
/// Control characters, marks of direction and invisible characters are written as `\x1b` and
/// `\u{202e}`. A tab becomes a space. The output never exceeds the requested length, however long
/// the text is.
#[derive(Debug, Clone, Copy)]
pub struct Foreign<T> {
    text: T,
    longest: usize,
}

/// Wraps a text from outside; see [`Foreign`].
pub fn foreign<T: Display>(text: T) -> Foreign<T> {
    Foreign { text, longest: Foreign::<T>::LONGEST }
}

/// Escapes a document that contains text from outside, line by line, as [`Foreign`] does, but
/// without shortening it.
pub fn visible(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.replace("\r\n", "\n").chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c => push(&mut out, c),
        }
    }
    out
}

/// Escapes the strings and member names of a JSON document from outside, each as in [`Foreign`].
pub fn foreign_json(document: &mut Value, longest: usize) {
    let shown = |text: &str| foreign(text).up_to(longest).to_string();
    match document {
        Value::String(text) => *text = shown(text),
        Value::Array(values) => values.iter_mut().for_each(|one| foreign_json(one, longest)),
        Value::Object(fields) => {
            let named = std::mem::take(fields).into_iter();
            *fields = named.map(|(name, value)| (shown(&name), value)).collect();
            fields.values_mut().for_each(|one| foreign_json(one, longest));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl<T> Foreign<T> {
    /// Default maximum length of the output, in characters after escaping; the ellipsis is not
    /// counted.
    pub const LONGEST: usize = 256;

    /// Sets another maximum length.
    pub fn up_to(self, longest: usize) -> Self {
        Self { longest, ..self }
    }
}

impl<T: Display> Display for Foreign<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { out: f, left: self.longest, is_full: false };
        // A full line only ends the output of the text, and is not an error.
        match write!(cut, "{}", self.text) {
            Err(_) if cut.is_full => f.write_char('…'),
            written => written,
        }
    }
}

/// Writes at most `left` characters to `out`.
struct Cut<'a, 'b> {
    out: &'a mut Formatter<'b>,
    left: usize,
    is_full: bool,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut shown = String::new();
        for c in text.chars() {
            shown.clear();
            match c {
                '\t' => shown.push(' '),
                c => push(&mut shown, c),
            }
            let length = shown.chars().count();
            if length > self.left {
                self.is_full = true;
                return Err(fmt::Error);
            }
            self.left -= length;
            self.out.write_str(&shown)?;
        }
        Ok(())
    }
}

fn push(out: &mut String, c: char) {
    let written = match c {
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        c if !is_obeyed(c) => return out.push(c),
        c if c < '\u{100}' => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
    debug_assert!(written.is_ok(), "a String takes everything");
}

/// Whether a terminal would obey the character or hide it: control characters (C0, DEL, C1), and
/// the Unicode general categories Cf, Zl and Zp, which change the display of other characters or
/// are invisible.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn terminal_control_sequences_are_escaped() {
        let text = "a\nb\r\x1b[31mc\u{7f}\u{9b}2J\u{202e}d\u{200b}\te\u{2028}\0";
        let shown = foreign(text).to_string();
        let expected = r"a\nb\r\x1b[31mc\x7f\x9b2J\u{202e}d\u{200b} e\u{2028}\x00";
        assert_eq!(shown, expected);
    }

    #[test]
    fn text_without_control_characters_stays_unchanged() {
        for text in ["", "no rule allows tcp:[::1]:22", "Ünïcödé – “語” 5\u{a0}ms", r"C:\x1b"]
        {
            assert_eq!(foreign(text).to_string(), text);
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn a_long_text_ends_in_an_ellipsis() {
        let exact = "ä".repeat(256);
        assert_eq!(foreign(&exact).to_string(), exact);
        let shown = foreign(format!("{exact}x")).to_string();
        assert_eq!(shown, format!("{exact}…"));
        assert_eq!(foreign("\x1b\x1b").up_to(7).to_string(), r"\x1b…");
    }

    #[test]
    fn escaping_a_document_keeps_its_lines() {
        assert_eq!(visible("a\tb\r\n\x1b[2Jc\n"), "a\tb\n\\x1b[2Jc\n");
    }

    #[test]
    fn strings_and_member_names_of_json_are_escaped_alike() {
        let mut document = json!({"a\u{9b}": [{"b": "\x1b"}, 1.5, null], "c": "xxxx"});
        foreign_json(&mut document, 6);
        assert_eq!(document, json!({r"a\x9b": [{"b": r"\x1b"}, 1.5, null], "c": "xxxx"}));
        foreign_json(&mut document, 3);
        assert_eq!(document["c"], "xxx…");
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_line_of_bounded_length(text in "(?s).{0,400}") {
            let shown = foreign(&text).to_string();
            prop_assert!(shown.chars().count() <= 257);
            prop_assert!(!shown.chars().any(is_obeyed), "{shown:?}");
            prop_assert!(!visible(&text).chars().any(|c| is_obeyed(c) && !"\n\t".contains(c)));
        }
    }
}
