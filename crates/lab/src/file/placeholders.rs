//! `{name}` in a value of the file stands for something known only later: an axis, an address.

use super::locate::nearest;

/// `text` with every `{name}` replaced; the message says which name is unknown.
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
                let hint = nearest(name, known.iter().copied());
                let list = known.join(", ");
                return Err(format!("`{{{name}}}` stands for nothing here{hint}; known: {list}"));
            }
        }
        rest = &rest[open + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_strangers_refused() {
        let value_of = |name: &str| (name == "loss").then(|| "1%".to_owned());
        assert_eq!(fill("a{loss}b{loss}", &["loss"], value_of).unwrap(), "a1%b1%");
        let error = fill("{los}", &["loss"], value_of).unwrap_err();
        assert_eq!(error, "`{los}` stands for nothing here (did you mean `loss`?); known: loss");
        assert!(fill("{loss", &["loss"], value_of).unwrap_err().contains("never closed"));
    }
}
