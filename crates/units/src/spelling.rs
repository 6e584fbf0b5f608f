use crate::foreign;
use std::fmt::Display;

/// Returns ` (did you mean `x`?)` for the word of `known` nearest to `word`, or an empty text if
/// none is near.
///
/// ```
/// assert_eq!(units::did_you_mean("dely", ["rate", "delay"]), " (did you mean `delay`?)");
/// assert_eq!(units::did_you_mean("colour", ["rate", "delay"]), "");
/// ```
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, suggestion)
}

/// Returns the word of `known` that is nearest to `word`. A known word is near if it begins with
/// `word`, or if the number of letters that differ is small and less than the length of `word`.
/// Capitals count as small letters, and `_` as `-`. Among known words at the same distance, a word
/// that begins with `word` is preferred, and else the first word.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = folded(word);
    let letters = word.chars().count();
    known
        .into_iter()
        .filter_map(|name| {
            let known = folded(name);
            let distance = strsim::damerau_levenshtein(&word, &known);
            let begins = known.starts_with(&word);
            let longer = letters.max(known.chars().count());
            // Without this bound, `64` would be near `cs4`, and `m` near `ms`.
            let is_near = distance <= 1 + longer / 3 && distance < letters;
            (is_near || begins && word.len() > 2).then_some((distance, !begins, name))
        })
        .min_by_key(|(distance, begins, _)| (*distance, *begins))
        .map(|(.., name)| name)
}

/// Formats the suggestion of a spelling, which is the same in every message. `right` may come from
/// outside.
pub fn suggestion(right: impl Display) -> String {
    format!(" (did you mean `{}`?)", foreign(right))
}

fn folded(word: &str) -> String {
    word.to_ascii_lowercase().replace('_', "-")
}

/// Maximum length of a word, in bytes. All known words are shorter, and computing the distance
/// takes quadratic time.
const LONGEST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_few_wrong_letters_gets_a_suggestion() {
        for (word, known, expected) in [
            ("rat", &["rate", "delay"][..], Some("rate")),
            ("dropptail", &["droptail", "red"], Some("droptail")),
            ("codle", &["droptail", "codel"], Some("codel")),
            ("banana", &["droptail", "codel"], None),
            ("AlpHa", &["beta", "alpha"], Some("alpha")),
            ("listen_on", &["listen", "listen-on"], Some("listen-on")),
            // The word lacks its ending.
            ("goodput", &["rtt_us", "goodput_mbit_s"], Some("goodput_mbit_s")),
            ("ms", &["msec-per-round"], None),
            // At the same distance, a word with the same beginning wins, then the first word.
            ("los", &["low", "loss"], Some("loss")),
            ("af44", &["af41", "af42"], Some("af41")),
            ("x", &["s", "h"], None),
            ("m", &["ms", "s"], None),
            ("64", &["cs3", "cs4"], None),
            ("äöü", &["abc"], None),
            ("", &["s", "on"], None),
        ] {
            assert_eq!(nearest(word, known.iter().copied()), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(101), ["x"]), None);
    }

    #[test]
    fn a_suggested_name_from_outside_is_escaped() {
        assert_eq!(suggestion("ser\0ver"), " (did you mean `ser\\x00ver`?)");
    }
}
