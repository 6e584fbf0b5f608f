//! Splits a stream of bytes into JSON documents, as JSON-RPC 1.0 sends them.

use serde_json::Value;

/// The parser of the documents on a connection.
#[derive(Debug)]
pub struct Documents {
    received: Vec<u8>,
    limit: usize,
    /// The state of the search for the end of the first document.
    scan: Scan,
}

/// The state of the search for a document's end.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// The peer has sent bytes that are not JSON, or a document that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON")]
pub struct Malformed;

impl Documents {
    /// Creates a parser that refuses documents of more than `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { received: Vec::new(), limit, scan: Scan::default() }
    }

    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.received.len() + bytes.len() > self.limit {
            return Err(Malformed);
        }
        self.received.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the number of bytes of an incomplete document.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.received.len()
    }

    /// Returns the next complete document; `None` if no document is complete.
    pub fn take(&mut self) -> Result<Option<Value>, Malformed> {
        let Some(end) = self.end_of_document()? else { return Ok(None) };
        let document = serde_json::from_slice(&self.received[..end]).map_err(|_| Malformed)?;
        self.received.drain(..end);
        self.scan = Scan::default();
        Ok(Some(document))
    }

    fn end_of_document(&mut self) -> Result<Option<usize>, Malformed> {
        let scan = &mut self.scan;
        while let Some(byte) = self.received.get(scan.at) {
            scan.at += 1;
            if scan.in_text {
                match byte {
                    _ if scan.escaped => scan.escaped = false,
                    b'\\' => scan.escaped = true,
                    b'"' => scan.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' => scan.depth += 1,
                b'}' | b']' => {
                    scan.depth = scan.depth.checked_sub(1).ok_or(Malformed)?;
                    if scan.depth == 0 {
                        return Ok(Some(scan.at));
                    }
                }
                b'"' if scan.depth > 0 => scan.in_text = true,
                byte if scan.depth == 0 && !byte.is_ascii_whitespace() => return Err(Malformed),
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_documents_are_parsed_at_any_split_of_the_stream() {
        let text = br#" {"id":0,"method":"a"}["}\"{"] "#;
        for cut in 0..text.len() {
            let mut documents = Documents::with_limit(100);
            let mut found = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                documents.receive(part).unwrap();
                while let Some(document) = documents.take().unwrap() {
                    found.push(document.to_string());
                }
            }
            assert_eq!(found, [r#"{"id":0,"method":"a"}"#, r#"["}\"{"]"#], "{cut}");
        }
    }

    #[test]
    fn a_json_document_that_is_too_long_is_refused() {
        let mut documents = Documents::with_limit(4);
        documents.receive(b"[[[").unwrap();
        assert_eq!(documents.receive(b"[["), Err(Malformed));
    }
}
