//! Parses requests of HTTP's CONNECT (RFC 9110, section 9.3.6). Pure, and strict: the parser
//! refuses a request that another parser could read differently.

use crate::target::HostPort;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A request for a tunnel to a target.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    pub to: HostPort,
    /// The name and the password of `Proxy-Authorization`.
    pub login: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("the application does not speak HTTP: give it this listener as an HTTP proxy")]
    NotHttp,
    #[error("the header is longer than {LONGEST_HEAD} bytes")]
    TooLong,
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    #[error("{0} is not supported: this proxy only opens tunnels, by CONNECT")]
    Method(String),
    #[error("the target is no HOST:PORT with a valid host name or address")]
    Target,
}

/// Maximum length of a request's header, in bytes.
pub const LONGEST_HEAD: usize = 8 * 1024;

impl ConnectRequest {
    /// Returns `None` if the header is incomplete, otherwise the request and the length of the
    /// header. The application's first bytes may follow the header.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, ConnectError> {
        if bytes.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
            return Err(ConnectError::NotHttp);
        }
        let within = &bytes[..bytes.len().min(LONGEST_HEAD)];
        let Some(end) = within.windows(4).position(|end| end == b"\r\n\r\n") else {
            return if bytes.len() < LONGEST_HEAD { Ok(None) } else { Err(ConnectError::TooLong) };
        };
        let head = std::str::from_utf8(&within[..end])
            .map_err(|_| ConnectError::Malformed("the header is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let to = target(lines.next().unwrap_or_default())?;
        let mut login = None;
        for line in lines {
            let (name, value) = field(line)?;
            // RFC 9110, 9.3.6: a CONNECT request has no content. Bytes after the header go to the
            // target.
            if name.eq_ignore_ascii_case("transfer-encoding")
                || name.eq_ignore_ascii_case("content-length") && value != "0"
            {
                return Err(ConnectError::Malformed("a CONNECT request has no content"));
            }
            if name.eq_ignore_ascii_case("proxy-authorization") && login.replace(value).is_some() {
                return Err(ConnectError::Malformed("two Proxy-Authorization fields"));
            }
        }
        let login = login.map(basic).transpose()?;
        Ok(Some((Self { to, login }, end + 4)))
    }
}

impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectRequest").field("to", &self.to).finish_non_exhaustive()
    }
}

/// The response that opens the tunnel.
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Returns a response that refuses the tunnel.
pub fn refusal(status: &str, why: &str) -> String {
    let login = match status == LOGIN_REQUIRED {
        true => "Proxy-Authenticate: Basic realm=\"weir tunnel\"\r\n",
        false => "",
    };
    let length = why.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\n{login}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
    )
}

pub const LOGIN_REQUIRED: &str = "407 Proxy Authentication Required";

impl ConnectError {
    /// Returns the status of the response to a request with this error.
    pub fn status(&self) -> &'static str {
        match self {
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Method(_) => "405 Method Not Allowed",
            _ => "400 Bad Request",
        }
    }
}

fn target(line: &str) -> Result<HostPort, ConnectError> {
    let malformed = ConnectError::Malformed("the first line is not METHOD TARGET HTTP/1.1");
    let [method, to, version] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(malformed);
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(malformed);
    }
    if method != "CONNECT" {
        let is_token = !method.is_empty() && method.bytes().all(is_token);
        return Err(if is_token { ConnectError::Method(method.to_owned()) } else { malformed });
    }
    let to: HostPort = to.parse().map_err(|_| ConnectError::Target)?;
    if to.port() == 0 { Err(ConnectError::Target) } else { Ok(to) }
}

/// Parses a header field. RFC 9112, section 5, allows no whitespace around the name; a line that
/// continues the previous line is refused.
fn field(line: &str) -> Result<(&str, &str), ConnectError> {
    let (name, value) =
        line.split_once(':').ok_or(ConnectError::Malformed("a field without a colon"))?;
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(ConnectError::Malformed("the name of a field has an invalid character"));
    }
    if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
        return Err(ConnectError::Malformed("a field with a control character"));
    }
    Ok((name, value.trim_matches([' ', '\t'])))
}

/// Decodes the credentials of HTTP Basic authentication (RFC 7617).
fn basic(value: &str) -> Result<(Vec<u8>, Vec<u8>), ConnectError> {
    let wrong = ConnectError::Malformed("Proxy-Authorization is not of the kind Basic");
    let (kind, text) = value.split_once(' ').ok_or(wrong.clone())?;
    if !kind.eq_ignore_ascii_case("basic") {
        return Err(wrong);
    }
    let decoded = STANDARD.decode(text.trim_matches(' ')).map_err(|_| wrong.clone())?;
    let colon = decoded.iter().position(|byte| *byte == b':').ok_or(wrong)?;
    Ok((decoded[..colon].to_owned(), decoded[colon + 1..].to_owned()))
}

/// Whether the byte may occur in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(text: &str) -> Result<Option<(ConnectRequest, usize)>, ConnectError> {
        ConnectRequest::decode(text.as_bytes())
    }

    #[test]
    fn a_connect_request_is_complete_at_its_empty_line() {
        let text = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\
                    proxy-authorization: basic bWU6eDp5\r\nContent-Length: 0\r\n\r\n\x16\x03\x01";
        let whole = text.len() - 3;
        for cut in 0..whole {
            assert_eq!(ConnectRequest::decode(&text.as_bytes()[..cut]), Ok(None));
        }
        let (request, taken) = decoded(text).unwrap().unwrap();
        assert_eq!((request.to.to_string().as_str(), taken), ("example.org:443", whole));
        assert_eq!(request.login, Some((b"me".to_vec(), b"x:y".to_vec())));
        let six = decoded("CONNECT [2001:db8::1]:22 HTTP/1.0\r\n\r\n").unwrap().unwrap().0;
        assert_eq!(six.to.to_string(), "[2001:db8::1]:22");
    }

    #[test]
    fn an_ambiguous_connect_request_is_refused() {
        for text in [
            "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /",
            "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 7\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n continued\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\0\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\n: b\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nnothing\r\n\r\n",
            "CONNECT  a:1 HTTP/1.1\r\n\r\n",
            "CONNECT a:1\tHTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/2.0\r\n\r\n",
            "CONNECT a:1 b:2 HTTP/1.1\r\n\r\n",
            "CONNECT a:1\r\n\r\n",
            "CONNECT a:0 HTTP/1.1\r\n\r\n",
            "CONNECT a HTTP/1.1\r\n\r\n",
            "CONNECT :1 HTTP/1.1\r\n\r\n",
            "CONNECT a@b:1 HTTP/1.1\r\n\r\n",
            "CONNECT http://a:1 HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic ????\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Bearer bWU6eA==\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic bWU6eA==\r\n\
             Proxy-Authorization: Basic bWU6eA==\r\n\r\n",
            "\r\n\r\n",
            "\x05\x01\x00",
        ] {
            let error = decoded(text).unwrap_err();
            assert_eq!(error.status(), "400 Bad Request", "{text:?}");
        }
    }

    #[test]
    fn another_http_method_and_a_long_header_get_their_own_status_codes() {
        let get = decoded("GET http://a/ HTTP/1.1\r\n\r\n").unwrap_err();
        assert!(get.to_string().starts_with("GET is not supported"), "{get}");
        assert_eq!(get.status(), "405 Method Not Allowed");
        let long = format!("CONNECT a:1 HTTP/1.1\r\nX: {}", "x".repeat(LONGEST_HEAD));
        assert_eq!(decoded(&long), Err(ConnectError::TooLong));
        assert_eq!(decoded(&long[..LONGEST_HEAD - 1]), Ok(None));
    }

    #[test]
    fn only_a_refusal_for_a_missing_login_asks_for_a_login() {
        let text = refusal(LOGIN_REQUIRED, "log in");
        assert!(text.contains("Proxy-Authenticate: Basic") && text.contains("Length: 7\r\n"));
        assert!(!refusal("403 Forbidden", "no").contains("Authenticate"));
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_as_a_connect_request_causes_no_panic(mut bytes: Vec<u8>, begins: bool, ends: bool) {
            if begins {
                bytes.splice(0..0, *b"CONNECT a:1 HTTP/1.1\r\n");
            }
            if ends {
                bytes.extend(b"\r\n\r\n");
            }
            if let Ok(Some((_, taken))) = ConnectRequest::decode(&bytes) {
                prop_assert!(taken <= bytes.len() && bytes[..taken].ends_with(b"\r\n\r\n"));
            }
        }
    }
}
