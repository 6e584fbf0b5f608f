//! Keys and values in a rule: `key=value`, `key:value`, `key(value)` or `key`.

/// The keys and values of a text, in order. A key without a value has an empty value.
#[derive(Debug, Clone)]
pub(crate) struct KeyValues<'a> {
    rest: &'a str,
}

impl<'a> KeyValues<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Returns the text that was not read yet.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }
}

impl<'a> Iterator for KeyValues<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.rest = self.rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if self.rest.is_empty() {
            return None;
        }
        let end = until(self.rest, b":=(, \t\r\n");
        let key = &self.rest[..end];
        let delimiter = self.rest.as_bytes().get(end).copied();
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        let parenthesis = delimiter == Some(b'(');
        let stop: &[u8] = match delimiter {
            Some(b'(') => b")",
            Some(b':' | b'=') => b", \t\r\n",
            _ => return Some((key, "")),
        };
        let mut length = balanced(self.rest, stop);
        // In `check_pkt_larger(100)->reg0[0]`, the value includes the text after the parenthesis.
        if parenthesis && self.rest[length..].starts_with(")->") {
            length += balanced(&self.rest[length..], b", \t\r\n");
        }
        let value = &self.rest[..length];
        self.rest = self.rest.get(length + 1..).unwrap_or_default();
        Some((key, value))
    }
}

/// Returns the offset of the first byte that is in `stop`, or the length of `text`.
pub(crate) fn until(text: &str, stop: &[u8]) -> usize {
    text.bytes().position(|byte| stop.contains(&byte)).unwrap_or(text.len())
}

/// Like [`until`], but skips text in parentheses.
fn balanced(text: &str, stop: &[u8]) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && !stop.contains(&bytes[at]) {
        if bytes[at] != b'(' {
            at += 1;
            continue;
        }
        let mut depth = 0;
        loop {
            match bytes.get(at) {
                None => return at,
                Some(b'(') => depth += 1,
                Some(b')') => depth -= 1,
                Some(_) => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
    }
    at
}

/// The words of a text: the parts between runs of delimiters, as in C's `strtok`.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(crate) fn next(&mut self, delimiters: &[u8]) -> Option<&'a str> {
        let start = self.rest.bytes().position(|byte| !delimiters.contains(&byte))?;
        let text = &self.rest[start..];
        let end = until(text, delimiters);
        self.rest = text.get(end + 1..).unwrap_or_default();
        Some(&text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_split_at_the_first_delimiter() {
        let text = " a=1,b:2 c(d(e),f),g ,(x)->y,check(9)->r[0],h=(";
        let parts: Vec<_> = KeyValues::new(text).collect();
        let expected = [
            ("a", "1"),
            ("b", "2"),
            ("c", "d(e),f"),
            ("g", ""),
            ("", "x)->y"),
            ("check", "9)->r[0]"),
            ("h", "("),
        ];
        assert_eq!(parts, expected);
    }
}
