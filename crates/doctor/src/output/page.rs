//! Lines of a terminal.

use std::fmt::Write;

/// Text that grows by whole lines.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) wide: usize,
}

impl Page {
    pub(super) fn new(wide: usize) -> Self {
        Self { text: String::new(), wide: wide.max(NARROWEST) }
    }

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}", text.trim_end());
    }

    pub(super) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n{text}");
    }

    pub(super) fn wrapped(&mut self, indent: &str, text: &str) {
        for line in wrapped(self.wide, indent, text) {
            self.line(&line);
        }
    }
}

/// Wraps text to the width. Later lines are indented as far as the text of the first line. A word
/// that is longer than a line is divided.
pub(super) fn wrapped(wide: usize, indent: &str, text: &str) -> Vec<String> {
    let blank = " ".repeat(indent.chars().count());
    let room = wide.saturating_sub(blank.len()).max(1);
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    let mut used = 0;
    // No line begins with a percent sign.
    let text = text.replace(" %", "\u{a0}%");
    for piece in text.split(' ').flat_map(|word| pieces(word, room)) {
        let length = piece.chars().count();
        if used > 0 && used + 1 + length > room {
            lines.push(std::mem::replace(&mut line, blank.clone()));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&piece);
        used += length;
    }
    lines.push(line);
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// Returns the word, or its parts of at most `longest` characters.
fn pieces(word: &str, longest: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    match letters.len() <= longest {
        true => vec![word.to_owned()],
        false => letters.chunks(longest).map(|part| part.iter().collect()).collect(),
    }
}

/// Returns the number of terminal rows that `line` takes.
pub(super) fn rows(wide: usize, line: &str) -> usize {
    line.chars().count().div_ceil(wide.max(1)).max(1)
}

const NARROWEST: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_words_and_long_words_are_divided() {
        assert_eq!(wrapped(10, "- ", "one two three"), ["- one two", "  three"]);
        assert_eq!(wrapped(6, "- ", "abcdefgh i"), ["- abcd", "  efgh", "  i"]);
        assert_eq!(wrapped(6, "", ""), [""]);
        assert_eq!(wrapped(6, "", "is 100 % of"), ["is", "100 %", "of"]);
    }

    #[test]
    fn a_long_line_takes_several_rows() {
        assert_eq!((rows(80, ""), rows(80, &"x".repeat(80)), rows(80, &"x".repeat(81))), (1, 1, 2));
    }
}
