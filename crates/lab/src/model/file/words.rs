//! The words of a command line.

/// Splits a command line into words at blanks. Single and double quotes keep blanks in a word.
pub(crate) fn words(line: &str) -> Vec<String> {
    split(line).0
}

/// Returns the quote that `line` opens and never closes.
pub(crate) fn open_quote(line: &str) -> Option<char> {
    split(line).1
}

fn split(line: &str) -> (Vec<String>, Option<char>) {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, begun) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (c, None) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    (words, quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_in_a_word() {
        assert_eq!(words("a  'b c' d\"e f\" ''"), ["a", "b c", "de f", ""]);
        assert!(words("  ").is_empty());
        assert_eq!(open_quote("a 'b"), Some('\''));
    }
}
