//! The syntax of a link's components: `name:setting=value,flag`.

use crate::LinkError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term<'a> {
    Pair(&'a str, &'a str),
    Word(&'a str),
}

impl Term<'_> {
    /// Returns the error for a term that is not in `known` (each written `name=` or `flag`).
    pub(crate) fn unknown(self, of: &'static str, known: &[&'static str]) -> LinkError {
        let found = match self {
            Self::Pair(name, _) => name,
            Self::Word(word) => word,
        };
        let names: Vec<&str> = known.iter().map(|k| k.trim_end_matches('=')).collect();
        LinkError::UnknownSetting {
            of,
            found: found.to_owned(),
            hint: units::did_you_mean(found, names),
            known: known.join(", "),
        }
    }
}

/// Splits the text into the name before the colon and the terms after it.
pub(crate) fn name_and_terms(text: &str) -> (&str, &str) {
    let (name, terms) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
    (name.trim(), terms.trim())
}

pub(crate) fn terms(text: &str) -> impl Iterator<Item = Term<'_>> {
    text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(|term| {
        match term.split_once('=') {
            Some((name, value)) => Term::Pair(name.trim(), value.trim()),
            None => Term::Word(term),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_splits_into_name_and_terms() {
        let (name, rest) = name_and_terms(" red: limit=10p , ecn ");
        assert_eq!(name, "red");
        assert_eq!(
            terms(rest).collect::<Vec<_>>(),
            [Term::Pair("limit", "10p"), Term::Word("ecn")]
        );
        assert_eq!(name_and_terms("droptail"), ("droptail", ""));
    }
}
