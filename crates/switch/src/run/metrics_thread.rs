//! The HTTP server for Prometheus: answers GET requests for two paths.

use super::error::SwitchError;
use super::metrics;
use super::switch::Switch;
use super::waker::Waker;
use host::{HttpResponse, MetricsAddress, MetricsListener, http_response};
use std::os::fd::AsFd;

pub(super) fn bind(address: &MetricsAddress) -> Result<MetricsListener, SwitchError> {
    let refused = |error| SwitchError::Listen { place: address.to_string(), error };
    MetricsListener::bind(address).map_err(refused)
}

/// Serves requests until `end` is woken.
pub(super) fn run(switch: &Switch, listener: &MetricsListener, end: &Waker) {
    listener.serve(end.as_fd(), |request| response(request, || metrics::exposition(switch)));
}

fn response(request: &[u8], exposition: impl FnOnce() -> String) -> HttpResponse {
    http_response(request, "/metrics, /healthz", |path| match path {
        "/metrics" => Some(HttpResponse::metrics(exposition())),
        "/healthz" => Some(HttpResponse::ok()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_server_answers_only_get_of_its_path() {
        let status = |request: &str| {
            let answer = response(request.as_bytes(), || "figures\n".to_owned());
            answer.to_string()[..12].to_owned()
        };
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
        assert_eq!(status("GET /metrics?name=x HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
        assert_eq!(status("\r\n\r\n"), "HTTP/1.1 405");
    }
}
