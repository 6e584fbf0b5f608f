use std::fmt;
use std::str::FromStr;

/// A header field that each request carries, as `Authorization: Bearer TOKEN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

impl Header {
    /// True if the field has this name. Capitals do not matter.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write a name and a value, as in 'Authorization: Bearer TOKEN'";
        let (name, value) = text.split_once(':').ok_or(form)?;
        let header = Self { name: name.to_owned(), value: value.trim().to_owned() };
        let is_token = |letter: char| letter.is_ascii_alphanumeric() || TOKEN.contains(letter);
        let is_text = |letter: char| letter == '\t' || letter == ' ' || letter.is_ascii_graphic();
        if name.is_empty() || !name.chars().all(is_token) || !header.value.chars().all(is_text) {
            return Err(form.to_owned());
        }
        match OWN.into_iter().find(|own| header.is(own)) {
            Some(own) => Err(format!(
                "weir perf web sets `{own}` itself: leave it out; --short closes each connection"
            )),
            None => Ok(header),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

/// Letters of a field's name beside ASCII letters and digits (RFC 9110 section 5.6.2).
const TOKEN: &str = "!#$%&'*+-.^_`|~";
/// Fields that describe the connection or a body, which requests of this client lack.
const OWN: [&str; 5] = ["Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Expect"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_field_is_a_name_and_a_value() {
        let header: Header = "X-Id:  a b ".parse().unwrap();
        assert_eq!(header.to_string(), "X-Id: a b");
        assert!(header.is("x-id") && !header.is("x"));
        for (text, says) in [
            ("no colon", "Bearer TOKEN"),
            (": x", "Bearer TOKEN"),
            ("a b: x", "Bearer TOKEN"),
            ("a: x\r\nb: y", "Bearer TOKEN"),
            ("connection: close", "leave it out"),
        ] {
            let error = text.parse::<Header>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
