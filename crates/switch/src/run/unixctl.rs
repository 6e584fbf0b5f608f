//! The control protocol of ovs-appctl: a sequence of JSON-RPC 1.0 documents over a UNIX socket.

use ovsdb::documents::Documents;
use serde_json::{Value, json};

/// Maximum length of a request. `weir switch add-flows` sends a whole file in one request.
const LONGEST_REQUEST: usize = 256 << 20;

/// The parser of the requests on a connection.
#[derive(Debug)]
pub struct Requests {
    documents: Documents,
}

impl Default for Requests {
    fn default() -> Self {
        Self { documents: Documents::with_limit(LONGEST_REQUEST) }
    }
}

/// A request of a client that the switch runs a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub id: Value,
    pub method: String,
    pub arguments: Vec<String>,
}

/// The client sent something that is not a request, so the switch closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed request")]
pub struct Malformed;

impl Requests {
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.documents.receive(bytes).map_err(|_| Malformed)
    }

    /// Returns the number of bytes of an incomplete request.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.documents.waiting()
    }

    /// Returns the next complete request.
    pub fn take(&mut self) -> Result<Option<Request>, Malformed> {
        let document = self.documents.take().map_err(|_| Malformed)?;
        document.as_ref().map(request).transpose()
    }
}

fn request(document: &Value) -> Result<Request, Malformed> {
    let method = document.get("method").and_then(Value::as_str).ok_or(Malformed)?;
    let parameters = document.get("params").and_then(Value::as_array).ok_or(Malformed)?;
    let arguments = parameters.iter().map(|value| value.as_str().map(str::to_owned));
    Ok(Request {
        id: document.get("id").cloned().ok_or(Malformed)?,
        method: method.to_owned(),
        arguments: arguments.collect::<Option<_>>().ok_or(Malformed)?,
    })
}

/// Builds the reply to a request: the command's output or error, each ended by a newline.
#[must_use]
pub fn reply(id: &Value, outcome: &Result<String, String>) -> Vec<u8> {
    let line = |text: &str| match text {
        "" => String::new(),
        text if text.ends_with('\n') => text.to_owned(),
        text => format!("{text}\n"),
    };
    let document = match outcome {
        Ok(text) => json!({ "id": id, "result": line(text), "error": null }),
        Err(text) => json!({ "id": id, "result": null, "error": line(text) }),
    };
    document.to_string().into_bytes()
}

/// Builds the bytes of a request that calls a command, for a client.
#[must_use]
pub fn call(method: &str, arguments: &[String]) -> Vec<u8> {
    json!({ "id": 0, "method": method, "params": arguments }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unixctl_requests_are_parsed_at_any_split_of_the_stream() {
        let text =
            br#" {"id":0,"method":"a","params":[]}{"id":"x","method":"b","params":["}\"{"]} "#;
        for cut in 0..text.len() {
            let mut requests = Requests::default();
            let mut found = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                requests.receive(part).unwrap();
                while let Some(request) = requests.take().unwrap() {
                    found.push((request.method, request.arguments));
                }
            }
            let expected = [("a".to_owned(), vec![]), ("b".to_owned(), vec!["}\"{".to_owned()])];
            assert_eq!(found, expected, "{cut}");
        }
    }

    #[test]
    fn a_unixctl_reply_ends_with_a_line_break() {
        let text = |outcome| String::from_utf8(reply(&json!(1), &outcome)).unwrap();
        assert!(text(Ok("warped".to_owned())).contains(r#""result":"warped\n""#));
        assert!(text(Ok("a\nb\n".to_owned())).contains(r#""result":"a\nb\n""#));
        assert!(text(Ok(String::new())).contains(r#""result":"""#));
        assert!(text(Err("no such bridge".to_owned())).contains(r#""error":"no such bridge\n""#));
    }

    #[test]
    fn malformed_unixctl_requests_are_errors() {
        for text in [
            "x",
            "]",
            "{}",
            "[]",
            r#"{"id":0,"method":1,"params":[]}"#,
            r#"{"id":0,"method":"a","params":[1]}"#,
            "{\"}",
        ] {
            let mut requests = Requests::default();
            requests.receive(text.as_bytes()).unwrap();
            let outcome = requests.take();
            assert!(matches!(outcome, Err(Malformed) | Ok(None)), "{text}: {outcome:?}");
        }
    }
}
