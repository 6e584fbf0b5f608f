//! `{name}` in a value of the file stands for text that is known later, such as an axis value or an
//! address.

use super::locate::FileError;
use super::schema::{Document, NumberOrText};
use results::Axes;
use toml::Spanned;

/// Replaces every `{name}` in `text`. The error names the first unknown name.
pub(crate) fn fill(
    text: &str,
    known: &[&str],
    value_of: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        let Some(length) = rest[open..].find('}') else {
            return Err(format!("`{{` in `{text}` is never closed by `}}`"));
        };
        let name = &rest[open + 1..open + length];
        match value_of(name) {
            Some(value) => filled.push_str(&value),
            None => {
                let hint = units::did_you_mean(name, known.iter().copied());
                let list = known.join(", ");
                return Err(format!("unknown placeholder `{{{name}}}`{hint}; known: {list}"));
            }
        }
        rest = &rest[open + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

impl Document {
    /// Fills in the placeholders of `written` in the cell at `axes`.
    pub(crate) fn filled(
        &self,
        axes: &Axes,
        written: &Spanned<String>,
    ) -> Result<String, FileError> {
        self.filled_text(axes, written.get_ref())
            .map_err(|message| self.source.error(written.span(), message))
    }

    pub(crate) fn filled_text(&self, axes: &Axes, text: &str) -> Result<String, String> {
        let drawn = self.drawn_names().map(|name| name.get_ref().as_str());
        let known: Vec<&str> = axes.keys().map(String::as_str).chain(drawn).collect();
        let plain = |name: &str| axes.get(name).or_else(|| self.drawn_at(axes, name)).cloned();
        // A word's text may name axes but no other words. A word that names words could make the
        // expansion endless.
        let meant = |name: &str| {
            let value = plain(name)?;
            let word = self.words.get(value.as_str()).map(Spanned::get_ref);
            Some(match word {
                Some(word) => fill(word, &known, plain),
                None => Ok(value),
            })
        };
        let wrong = std::cell::OnceCell::new();
        let filled = fill(text, &known, |name| {
            meant(name)?.map_err(|message| wrong.set(message)).ok().or_else(|| Some(String::new()))
        })?;
        match wrong.into_inner() {
            Some(message) => Err(message),
            None => Ok(filled),
        }
    }

    /// Parses `written` as a number from 1 to `most`.
    pub(super) fn count_at(
        &self,
        axes: &Axes,
        written: &Spanned<NumberOrText>,
        key: &str,
        most: u32,
    ) -> Result<u32, FileError> {
        let wrong = |message| self.source.error(written.span(), message);
        let count = match written.get_ref() {
            NumberOrText::Number(count) => *count,
            NumberOrText::Text(text) => {
                let filled = self.filled_text(axes, text).map_err(wrong)?;
                filled.parse().map_err(|_| wrong(format!("`{filled}` is no number of {key}")))?
            }
        };
        match (1..=most).contains(&count) {
            true => Ok(count),
            false => Err(wrong(format!("`{key}` is from 1 to {most}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_placeholders_are_filled_and_unknown_placeholders_are_refused() {
        let value_of = |name: &str| (name == "loss").then(|| "1%".to_owned());
        assert_eq!(fill("a{loss}b{loss}", &["loss"], value_of).unwrap(), "a1%b1%");
        let error = fill("{los}", &["loss"], value_of).unwrap_err();
        assert_eq!(error, "unknown placeholder `{los}` (did you mean `loss`?); known: loss");
        assert!(fill("{loss", &["loss"], value_of).unwrap_err().contains("never closed"));
    }
}
