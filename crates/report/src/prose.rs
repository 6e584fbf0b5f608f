//! Sentences with names between backticks, which a page shows as code.

use maud::{Markup, html};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Plain(&'a str),
    /// Code, without its backticks.
    Code(&'a str),
}

/// Splits a sentence. A backtick without a partner, or beside another backtick, is plain text.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while let Some(found) = text[at..].find('`') {
        let open = at + found;
        let behind = &text[open + 1..];
        match code(behind) {
            Some(code) => {
                parts.push(Part::Plain(&text[plain..open]));
                parts.push(Part::Code(code));
                at = open + code.len() + 2;
                plain = at;
            }
            None => at = text.len() - behind.trim_start_matches('`').len(),
        }
    }
    parts.push(Part::Plain(&text[plain..]));
    parts.retain(|part| *part != Part::Plain(""));
    parts
}

pub(crate) fn markup(text: &str) -> Markup {
    html! {
        @for part in parts(text) {
            @match part {
                Part::Plain(plain) => { (plain) }
                Part::Code(code) => { code { (code) } }
            }
        }
    }
}

/// Returns the code up to the next backtick; `None` for a text that Markdown would change:
/// CommonMark strips spaces at the ends of code, a bar in code ends the column of a table on GitHub
/// (GFM 4.10), and code has no escapes.
fn code(behind: &str) -> Option<&str> {
    let (code, rest) = behind.split_once('`')?;
    let fits = !code.is_empty() && code.trim() == code && !code.contains(['|', '<', '&', '\n']);
    (fits && !rest.starts_with('`')).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_between_backticks_are_code() {
        let text = "Does `weir doctor` agree with `tc`?";
        let expected = [
            Part::Plain("Does "),
            Part::Code("weir doctor"),
            Part::Plain(" agree with "),
            Part::Code("tc"),
            Part::Plain("?"),
        ];
        assert_eq!(parts(text), expected);
        let shown = markup("a <b> `c`").into_string();
        assert_eq!(shown, "a &lt;b&gt; <code>c</code>");
    }

    #[test]
    fn other_backticks_are_plain() {
        for text in
            ["a ` b", "``a``", "`a``", "` a`", "``", "`", "a `b | c`", "`a\nb`", "`<b>`", ""]
        {
            let plain = if text.is_empty() { Vec::new() } else { vec![Part::Plain(text)] };
            assert_eq!(parts(text), plain, "{text}");
        }
        assert_eq!(parts("` `a`"), [Part::Plain("` "), Part::Code("a")]);
    }

    proptest! {
        #[test]
        fn the_parts_of_a_sentence_add_up_to_the_sentence(text in "[a` |ä]{0,20}") {
            let joined: String = parts(&text)
                .iter()
                .map(|part| match part {
                    Part::Plain(plain) => (*plain).to_owned(),
                    Part::Code(code) => format!("`{code}`"),
                })
                .collect();
            prop_assert_eq!(joined, text);
        }
    }
}
