//! Splits a command line into words, and finds words that only a shell understands.

/// Splits a command line into words at blanks. Single and double quotes keep blanks in a word.
pub(crate) fn words(line: &str) -> Vec<String> {
    split(line, |c| c).0
}

/// Returns the quote that `line` opens and never closes.
pub(crate) fn open_quote(line: &str) -> Option<char> {
    split(line, |c| c).1
}

/// Returns the first word of `line` that only a shell interprets: an operator, a redirection, a
/// variable, or an assignment in front of the program. Characters in quotes do not count.
pub(crate) fn word_for_a_shell(line: &str) -> Option<String> {
    let bare = split(line, |_| QUOTED).0;
    let place = bare.iter().enumerate().position(|(place, word)| is_for_a_shell(place, word))?;
    words(line).into_iter().nth(place)
}

fn is_for_a_shell(place: usize, word: &str) -> bool {
    let is_operator = ["|", "||", "&", "&&"].contains(&word) || word.ends_with(';');
    let redirects = ["<", ">", "1>", "2>", "&>"].iter().any(|start| word.starts_with(start));
    let names_a_variable = word.match_indices('$').any(|(at, _)| {
        word[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic() || "_({".contains(c))
    });
    let is_home = word.starts_with("~/");
    is_operator
        || redirects
        || names_a_variable
        || is_home
        || word.contains('`')
        || (place == 0 && is_assignment(word))
}

/// Whether the word is an assignment such as `LANG=C`.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Splits a line into words. `in_quotes` replaces each character in quotes. The second value is the
/// quote that `line` opens and never closes.
fn split(line: &str, in_quotes: impl Fn(char) -> char) -> (Vec<String>, Option<char>) {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.push(in_quotes(c)),
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

/// Stands for a character in quotes. No command line contains this character.
const QUOTED: char = '\u{0}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_in_a_word() {
        assert_eq!(words("a  'b c' d\"e f\" ''"), ["a", "b c", "de f", ""]);
        assert!(words("  ").is_empty());
        assert_eq!(open_quote("a 'b"), Some('\''));
    }
    #[test]
    fn words_for_a_shell_are_found_outside_quotes_only() {
        for (line, found) in [
            ("curl {server} | wc -c", "|"),
            ("cd /srv && run", "&&"),
            ("cd /srv; run", "/srv;"),
            ("run 2>/dev/null", "2>/dev/null"),
            ("run > log", ">"),
            ("echo 'a b' --home=$HOME", "--home=$HOME"),
            ("echo $(date)", "$(date)"),
            ("echo `date`", "`date`"),
            ("~/bin/run", "~/bin/run"),
            ("LANG=C sort", "LANG=C"),
        ] {
            assert_eq!(word_for_a_shell(line).as_deref(), Some(found), "{line}");
        }
        for line in [
            "sh -c 'cd /srv && LANG=C run | wc -c > $HOME/log'",
            "sh -c \"echo $HOME; echo `date`\"",
            "sysctl -w net.ipv4.tcp_sack=0",
            "curl http://{server}/?a=1&b=2",
            "grep ^end$ file~ a|b",
            "env LANG=C sort",
        ] {
            assert_eq!(word_for_a_shell(line), None, "{line}");
        }
    }
}
