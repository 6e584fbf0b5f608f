//! The HTTP exchange with a token source: a GET request, and a response with `{"token": …}`. Pure.

use super::token;
use crate::target::HostPort;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

/// The address of a token source: `http://HOST[:PORT]/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceUrl {
    pub host: HostPort,
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("https is not supported: name a source with http:// on this machine or in its network")]
    Https,
    #[error("write the source as http://HOST:PORT/PATH, without a user and a fragment")]
    Url,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    #[error("the response is no HTTP")]
    NotHttp,
    #[error("the response has the status {0}; only 200 carries a token")]
    Status(u16),
    #[error("the response redirects (status {0}), and redirects are not followed")]
    Redirect(u16),
    #[error("the response is longer than {LONGEST_RESPONSE} bytes")]
    TooLong,
    #[error("the response is incomplete")]
    Truncated,
    #[error(
        "the response is encoded (Transfer-Encoding, Content-Encoding): send the token unencoded"
    )]
    Encoded,
    #[error("the response is not JSON with a `token` of 1 to {} bytes", token::LONGEST)]
    NoToken,
}

/// Maximum length of a response that a client reads.
pub const LONGEST_RESPONSE: usize = 64 * 1024;

impl SourceUrl {
    /// Builds the request for the token of the application at `address`. HTTP/1.0 keeps servers
    /// from sending a chunked response.
    pub fn request(&self, address: &str) -> String {
        let Self { host, path } = self;
        let mut query = String::new();
        for byte in address.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    query.push(byte.into());
                }
                byte => query.push_str(&format!("%{byte:02X}")),
            }
        }
        format!(
            "GET {path}?addr={query} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\
             User-Agent: weir-tunnel\r\nConnection: close\r\n\r\n"
        )
    }
}

impl FromStr for SourceUrl {
    type Err = UrlError;

    /// Drops a query in the text, as quic-tun does.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
            return Err(UrlError::Https);
        }
        let start = text.get(..7).filter(|start| start.eq_ignore_ascii_case("http://"));
        let rest = &text[start.ok_or(UrlError::Url)?.len()..];
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let path = path.split('?').next().filter(|path| !path.is_empty()).unwrap_or("/");
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(UrlError::Url);
        }
        let bare = authority.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match (bare, authority.contains(':')) {
            (Some(host), _) => HostPort::new(host, PORT),
            (None, false) => HostPort::new(authority, PORT),
            (None, true) => authority.parse(),
        };
        let host = host.map_err(|_| UrlError::Url)?;
        if host.port() == 0 {
            return Err(UrlError::Url);
        }
        Ok(Self { host, path: path.to_owned() })
    }
}

impl Display for SourceUrl {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// Whether the bytes hold a complete response. A response without a length is complete only when
/// the server closes the connection.
pub fn is_whole(response: &[u8]) -> bool {
    let Ok(Some((_, Some(length), body))) = head(response) else { return false };
    response.len() - body >= length
}

/// Returns the token in a response. `response` holds all bytes that the connection carried.
pub fn token_of(response: &[u8]) -> Result<String, ResponseError> {
    if response.len() > LONGEST_RESPONSE {
        return Err(ResponseError::TooLong);
    }
    let (status, length, body) = head(response)?.ok_or(ResponseError::Truncated)?;
    match status {
        200 => {}
        300..400 => return Err(ResponseError::Redirect(status)),
        _ => return Err(ResponseError::Status(status)),
    }
    let body = &response[body..];
    let body = match length {
        Some(length) => body.get(..length).ok_or(ResponseError::Truncated)?,
        None => body,
    };
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).map_err(|_| ResponseError::NoToken)?;
    // Go's JSON, which quic-tun uses, ignores the case of keys.
    let token = object.iter().find(|(key, _)| key.eq_ignore_ascii_case("token"));
    // Encoders of base64 append a line break, which Go's decoder ignores.
    let token = token.and_then(|(_, value)| value.as_str());
    let token = token.map(|token| token.trim_end_matches(['\r', '\n']));
    let token = token.filter(|token| token::is_fit(token));
    token.map(str::to_owned).ok_or(ResponseError::NoToken)
}

/// Formats an application's address as quic-tun writes it in a query.
pub fn shown(client: Option<(IpAddr, u16)>) -> String {
    match client {
        Some((address, port)) => {
            std::net::SocketAddr::new(address.to_canonical(), port).to_string()
        }
        // Go's name for a UNIX socket's peer that has no path.
        None => "@".to_owned(),
    }
}

/// Returns the status, the length of the body if the header gives it, and the offset of the body;
/// `None` if the header is incomplete.
fn head(response: &[u8]) -> Result<Option<(u16, Option<usize>, usize)>, ResponseError> {
    let start = &response[..response.len().min(5)];
    if !b"HTTP/".starts_with(start) {
        return Err(ResponseError::NotHttp);
    }
    let Some(end) = response.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&response[..end]).map_err(|_| ResponseError::NotHttp)?;
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status: u16 =
        status.filter(|code| (100..600).contains(code)).ok_or(ResponseError::NotHttp)?;
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(ResponseError::NotHttp)?;
        let value = value.trim_matches([' ', '\t']);
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("transfer-encoding") || is("content-encoding") && value != "identity" {
            return Err(ResponseError::Encoded);
        }
        if is("content-length") {
            let value: usize = value.parse().map_err(|_| ResponseError::NotHttp)?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err(ResponseError::NotHttp);
            }
            if value > LONGEST_RESPONSE {
                return Err(ResponseError::TooLong);
            }
        }
    }
    Ok(Some((status, length, end + 4)))
}

const PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_url_parses_to_host_port_and_path() {
        for (text, shown) in [
            ("http://172.18.31.36:8081/get", "http://172.18.31.36:8081/get"),
            ("HTTP://tokens.example", "http://tokens.example:80/"),
            ("http://[::1]:81/a/b?addr=x", "http://[::1]:81/a/b"),
            ("http://[::1]/", "http://[::1]:80/"),
            ("http://a?b", "http://a:80/"),
        ] {
            assert_eq!(text.parse::<SourceUrl>().unwrap().to_string(), shown);
        }
        assert_eq!("https://a/".parse::<SourceUrl>(), Err(UrlError::Https));
        for text in [
            "",
            "a/b",
            "http:///get",
            "http://user@a/",
            "http://a:0/",
            "http://a:x/",
            "http://a/ b",
            "http://a/\r\nX: y",
            "http://a/#b",
        ] {
            assert_eq!(text.parse::<SourceUrl>(), Err(UrlError::Url), "{text}");
        }
    }

    #[test]
    fn the_token_request_names_the_applications_address() {
        let url: SourceUrl = "http://a:81/get".parse().unwrap();
        let request = url.request(&shown(Some(([192, 168, 110, 116].into(), 61313))));
        assert!(
            request.starts_with("GET /get?addr=192.168.110.116%3A61313 HTTP/1.0\r\nHost: a:81\r\n"),
            "{request}"
        );
        let six = shown(Some(("::1".parse().unwrap(), 5)));
        assert!(url.request(&six).contains("addr=%5B%3A%3A1%5D%3A5 "));
        assert!(url.request(&shown(None)).contains("addr=%40 "));
    }

    #[test]
    fn only_a_complete_response_with_status_200_has_a_token() {
        let with = |head: &str, body: &str| token_of(format!("{head}\r\n\r\n{body}").as_bytes());
        let json = r#"{"token": "tcp:a:1", "more": [1]}"#;
        assert_eq!(with("HTTP/1.1 200 OK", json).unwrap(), "tcp:a:1");
        let length = format!("HTTP/1.0 200 OK\r\nContent-Length: {}", json.len());
        assert_eq!(with(&length, &format!("{json}more")).unwrap(), "tcp:a:1");
        assert_eq!(with("HTTP/1.0 200", r#"{"Token":"x"}"#).unwrap(), "x");
        let encoded = with("HTTP/1.0 200 OK", r#"{"token": "dGNwOmE6MQ==\n"}"#);
        assert_eq!(encoded.unwrap(), "dGNwOmE6MQ==");
        assert!(is_whole(format!("{length}\r\n\r\n{json}").as_bytes()));
        assert!(!is_whole(format!("{length}\r\n\r\n{{").as_bytes()));
        assert!(!is_whole(b"HTTP/1.0 200 OK\r\n\r\n{}"));
        let long = format!(r#"{{"token": "{}"}}"#, "x".repeat(token::LONGEST + 1));
        for (head, body, error) in [
            ("HTTP/1.1 302 Found\r\nLocation: http://b/", json, ResponseError::Redirect(302)),
            ("HTTP/1.1 404 Not Found", json, ResponseError::Status(404)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 500", json, ResponseError::Truncated),
            ("HTTP/1.1 200 OK\r\nContent-Length: 70000", json, ResponseError::TooLong),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2",
                json,
                ResponseError::NotHttp,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", json, ResponseError::Encoded),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", json, ResponseError::Encoded),
            ("HTTP/1.1 200 OK", "[]", ResponseError::NoToken),
            ("HTTP/1.1 200 OK", r#"{"token": 7}"#, ResponseError::NoToken),
            ("HTTP/1.1 200 OK", r#"{"token": ""}"#, ResponseError::NoToken),
            ("HTTP/1.1 200 OK", "{\"token\": \"a\\u0000b\"}", ResponseError::NoToken),
            ("HTTP/1.1 200 OK", &long, ResponseError::NoToken),
            ("SSH-2.0-x", "", ResponseError::NotHttp),
            ("HTTP/1.1 2000 OK", json, ResponseError::NotHttp),
        ] {
            assert_eq!(with(head, body), Err(error), "{head}");
        }
        assert_eq!(token_of(b"HTTP/1.1 200 OK\r\n"), Err(ResponseError::Truncated));
        assert_eq!(token_of(b""), Err(ResponseError::Truncated));
        let flood = [b"HTTP/1.1 200 OK\r\n\r\n", &[b' '; LONGEST_RESPONSE][..]].concat();
        assert_eq!(token_of(&flood), Err(ResponseError::TooLong));
    }
}
