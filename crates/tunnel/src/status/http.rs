//! A minimal HTTP server for Prometheus, health checks and the page: GET of four paths, one
//! response per connection.

use super::directory::StatusSource;
use super::{PATIENCE, page, prometheus};
use crate::config::MetricsAddress;
use crate::hand_over::{Handed, METRICS, SocketOwner};
use crate::local::UnixPathListener;
use host::{HttpResponse, LONGEST_HTTP_REQUEST, http_response, is_whole_http_request};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A bound listener. The listener is bound before the end starts, so that an address in use is
/// reported.
#[derive(Debug)]
pub struct MetricsListener(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(UnixPathListener),
}

impl MetricsListener {
    pub async fn bind(address: &MetricsAddress) -> io::Result<Self> {
        Ok(Self(match address {
            MetricsAddress::Tcp(address) => Bound::Tcp(TcpListener::bind(address).await?),
            MetricsAddress::Unix(path) => Bound::Unix(UnixPathListener::open(path).await?),
        }))
    }

    /// Takes over the listener that another process has at `address`, if it has one there.
    pub(crate) fn taken_over(
        address: &MetricsAddress,
        handed: &mut Handed,
    ) -> Option<io::Result<Self>> {
        let name = format!("{METRICS} {address}");
        match address {
            MetricsAddress::Tcp(_) => handed.take(&name).map(|file| {
                let listener = std::net::TcpListener::from(file);
                listener.set_nonblocking(true)?;
                Ok(Self(Bound::Tcp(TcpListener::from_std(listener)?)))
            }),
            MetricsAddress::Unix(path) => handed
                .take_path(&name, path)
                .map(|taken| Ok(Self(Bound::Unix(UnixPathListener::taken_over(taken)?)))),
        }
    }

    /// Returns a copy of this listener at `address`, for another process.
    pub(crate) fn share(&self, address: &MetricsAddress) -> io::Result<Shared> {
        let name = format!("{METRICS} {address}");
        Ok(match &self.0 {
            Bound::Tcp(listener) => (name, listener.as_fd().try_clone_to_owned()?, None),
            Bound::Unix(listener) => {
                let (file, owner) = listener.shared()?;
                (name, file, Some(owner))
            }
        })
    }
}

/// A copy of a listener's socket, its name, and the file of a UNIX socket.
pub(crate) type Shared = (String, OwnedFd, Option<SocketOwner>);

/// Serves metrics and health for ever.
pub async fn serve_metrics(listener: MetricsListener, tell: StatusSource) {
    serve_http(listener, Arc::new(move |request| response(request, &tell))).await;
}

/// A function that returns the response to a request.
pub(crate) type Respond = Arc<dyn Fn(&[u8]) -> HttpResponse + Send + Sync>;

/// Serves each request with the response of `respond`, for ever.
pub(crate) async fn serve_http(listener: MetricsListener, respond: Respond) {
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let respond = Arc::clone(&respond);
        let accepted = match &listener.0 {
            Bound::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                tokio::spawn(async move {
                    answer(stream, &respond).await;
                    drop(place);
                })
            }),
            Bound::Unix(listener) => listener.accept().await.map(|stream| {
                tokio::spawn(async move {
                    answer(stream, &respond).await;
                    drop(place);
                })
            }),
        };
        if accepted.is_err() {
            tokio::time::sleep(PATIENCE / 50).await;
        }
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, respond: &Respond) {
    let exchange = async {
        let mut request = Vec::with_capacity(1024);
        while !is_whole_http_request(&request) {
            if request.len() > LONGEST_HTTP_REQUEST || stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        stream.write_all(respond(&request).to_string().as_bytes()).await?;
        stream.shutdown().await
    };
    let _: Result<io::Result<()>, _> = tokio::time::timeout(PATIENCE, exchange).await;
}

fn response(request: &[u8], tell: &StatusSource) -> HttpResponse {
    http_response(request, "/, /metrics, /healthz, /readyz", |path| {
        let Some(status) = tell() else { return Some(HttpResponse::unavailable("ending")) };
        Some(match path {
            // A web page could reach this machine by a name in the page's own domain (DNS
            // rebinding).
            "/" if !is_addressed(request) => {
                HttpResponse::forbidden("use the address of this listener, or localhost")
            }
            "/" => HttpResponse::page(page::page(&status)),
            "/metrics" => HttpResponse::metrics(prometheus::exposition(&status)),
            "/healthz" if status.has_stalled => HttpResponse::unavailable("a thread has stalled"),
            "/readyz" if status.is_draining => HttpResponse::unavailable("draining"),
            "/readyz" if !status.is_ready() => HttpResponse::unavailable("no connection"),
            "/healthz" | "/readyz" => HttpResponse::ok(),
            _ => return None,
        })
    })
}

/// Whether the request's host is an address or `localhost`.
pub(crate) fn is_addressed(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let mut hosts = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then_some(value.trim())
    });
    hosts.all(|host| {
        let bare = host.rsplit_once(':').map_or(host, |(bare, _)| bare);
        let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
        let unbracketed = |text: &str| text.trim_matches(['[', ']']).to_owned();
        bare.eq_ignore_ascii_case("localhost")
            || [host, bare].iter().any(|text| is_address(&unbracketed(text)))
    })
}

const MOST_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    #[tokio::test]
    async fn a_regular_file_stays_and_a_socket_is_removed_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let address = MetricsAddress::Unix(path.clone());
        std::fs::write(&path, "mine").unwrap();
        let refused = MetricsListener::bind(&address).await.unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        std::fs::remove_file(&path).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = MetricsListener::bind(&address).await.unwrap();
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn the_status_server_answers_known_paths_only() {
        let ready: StatusSource = Arc::new(|| Some(status()));
        let reported = |request: &str| response(request.as_bytes(), &ready).to_string();
        assert!(reported("GET /metrics HTTP/1.1\r\n\r\n").contains("weir_tunnel_up_seconds"));
        assert!(reported("GET /readyz?x=1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        let page = reported("GET / HTTP/1.1\r\nHost: 127.0.0.1:9150\r\n\r\n");
        assert!(page.contains("text/html") && page.contains("<h2>Sessions</h2>"), "{page}");
        assert!(page.contains("Content-Security-Policy: default-src 'none';"), "{page}");
        let rebound = reported("GET / HTTP/1.1\r\nHost: evil.example:9150\r\n\r\n");
        assert!(rebound.starts_with("HTTP/1.1 403 "), "{rebound}");
        assert!(reported("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(reported("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(reported("\0\u{ff}").starts_with("HTTP/1.1 405 "));
        let mut stalled = status();
        stalled.has_stalled = true;
        let stalled: StatusSource = Arc::new(move || Some(stalled.clone()));
        assert!(reported("GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        let of_stalled = response(b"GET /healthz HTTP/1.1\r\n\r\n", &stalled);
        assert_eq!(of_stalled, HttpResponse::unavailable("a thread has stalled"));
        let mut lonely = status();
        lonely.role = "client".to_owned();
        lonely.connections.clear();
        let lonely: StatusSource = Arc::new(move || Some(lonely.clone()));
        let of_lonely = response(b"GET /readyz HTTP/1.1\r\n\r\n", &lonely);
        assert_eq!(of_lonely, HttpResponse::unavailable("no connection"));
    }
}
