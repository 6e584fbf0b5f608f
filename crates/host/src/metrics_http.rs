//! The part of HTTP that Prometheus and health checks use: GET, and one response a connection.

use std::fmt::{Display, Formatter};

/// Maximum length of a request that the server reads, in bytes.
pub const LONGEST_HTTP_REQUEST: usize = 8 * 1024;

/// A response without the header fields that all responses share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl HttpResponse {
    /// Builds a response with metrics in the text format of Prometheus.
    pub fn metrics(text: String) -> Self {
        Self { status: OK, kind: PROMETHEUS, body: text }
    }

    /// Builds a response with a JSON document.
    pub fn json(status: &'static str, document: String) -> Self {
        Self { status, kind: JSON, body: document }
    }

    /// Builds a response with a page that loads nothing and runs no script.
    pub fn page(html: String) -> Self {
        Self { status: OK, kind: HTML, body: html }
    }

    pub fn forbidden(reason: &str) -> Self {
        Self::plain("403 Forbidden", reason)
    }

    pub fn ok() -> Self {
        Self::plain(OK, "ok")
    }

    pub fn unavailable(reason: &str) -> Self {
        Self::plain("503 Service Unavailable", reason)
    }

    fn plain(status: &'static str, line: &str) -> Self {
        Self { status, kind: PLAIN, body: format!("{line}\n") }
    }
}

impl Display for HttpResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { status, kind, body } = self;
        let length = body.len();
        write!(
            f,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    }
}

/// Whether the header of the request has arrived.
pub fn is_whole_http_request(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n")
}

/// Builds the response to a request. `find` returns the response to a GET of a path without its
/// query; `known` names the paths that have a response.
pub fn http_response(
    request: &[u8],
    known: &str,
    find: impl FnOnce(&str) -> Option<HttpResponse>,
) -> HttpResponse {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "GET" {
        return HttpResponse::plain("405 Method Not Allowed", "GET only");
    }
    let path = path.split('?').next().unwrap_or_default();
    find(path).unwrap_or_else(|| HttpResponse::plain("404 Not Found", known))
}

const OK: &str = "200 OK";
const JSON: &str = "application/json";
/// The type of a page, with fields that keep a browser from loading anything else, and from caching
/// the page.
const HTML: &str = "text/html; charset=utf-8\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
    base-uri 'none'; form-action 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store";
const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_get_of_a_known_path_gets_its_response() {
        let response = |request: &str| {
            http_response(request.as_bytes(), "/metrics", |path| match path {
                "/metrics" => Some(HttpResponse::metrics("up 1\n".to_owned())),
                "/healthz" => Some(HttpResponse::unavailable("stalled")),
                _ => None,
            })
            .to_string()
        };
        assert_eq!(
            response("GET /metrics?x=1 HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 5\r\nConnection: close\r\n\r\nup 1\n"
        );
        for (request, begins, ends) in [
            ("GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 ", "\r\n\r\nstalled\n"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", "\r\n\r\n/metrics\n"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", "\r\n\r\nGET only\n"),
            ("\0\u{ff}", "HTTP/1.1 405 ", "\r\n\r\nGET only\n"),
            ("\r\n\r\n", "HTTP/1.1 405 ", "\r\n\r\nGET only\n"),
        ] {
            let response = response(request);
            assert!(response.starts_with(begins) && response.ends_with(ends), "{response}");
        }
        assert!(is_whole_http_request(b"GET / HTTP/1.1\r\n\r\n"));
        assert!(!is_whole_http_request(b"GET / HTTP/1.1\r\n"));
    }
}
