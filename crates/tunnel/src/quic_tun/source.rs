//! The source of a client's tokens: a fixed text, a file, or an HTTP server.

use super::http::{LONGEST_RESPONSE, ResponseError, SourceUrl, is_whole, shown, token_of};
use super::token::{find_in_lines, is_fit};
use crate::access::Resolve;
use crate::access::special::{Special, special};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use units::foreign;

/// Where a client gets the token of each connection.
#[derive(Debug)]
pub struct TokenSource {
    kind: SourceKind,
    /// Limits concurrent queries, so that a source that does not answer holds up only a bounded
    /// number.
    queries: Semaphore,
    patience: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    Fixed(String),
    /// A file with an address and a token in each line.
    File(PathBuf),
    Http(SourceUrl),
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("a token is 1 to 512 printable characters, for example tcp:10.0.0.5:22")]
    Unfit,
    #[error("cannot read the token file {0}: {1}; check the path and the permissions")]
    File(PathBuf, #[source] io::Error),
    #[error("{file} has no token for {client}: add a line `{client} tcp:HOST:PORT`")]
    NoLine { file: PathBuf, client: IpAddr },
    #[error(
        "{0} lists tokens by address, and an application at a UNIX socket has no address: listen on tcp:ADDRESS:PORT, or choose the plugin Fixed"
    )]
    NoAddress(PathBuf),
    #[error(
        "the token source {0} cannot be reached: {1}; check its address, and that its server runs"
    )]
    Unreachable(SourceUrl, #[source] io::Error),
    #[error(
        "the name of the token source {0} leads to {1}, {2}: write the address in place of the name, or another name"
    )]
    Special(SourceUrl, IpAddr, Special),
    #[error("the token source {0} has given no token: {1}")]
    Response(SourceUrl, #[source] ResponseError),
    #[error(
        "the token source has not answered within {0:?}, or too many of its queries are under way: check the source's server"
    )]
    TimedOut(Duration),
}

impl TokenSource {
    pub fn new(kind: SourceKind) -> Result<Self, SourceError> {
        if let SourceKind::Fixed(token) = &kind
            && !is_fit(token)
        {
            return Err(SourceError::Unfit);
        }
        Ok(Self { kind, queries: Semaphore::new(QUERIES), patience: PATIENCE })
    }

    pub fn kind(&self) -> &SourceKind {
        &self.kind
    }

    /// Gets the token of the application at `client`, which is `None` for a UNIX socket.
    pub async fn token(
        &self,
        client: Option<SocketAddr>,
        resolver: &dyn Resolve,
    ) -> Result<String, SourceError> {
        match &self.kind {
            SourceKind::Fixed(token) => Ok(token.clone()),
            SourceKind::File(path) => self.bounded(of_file(path, client)).await,
            SourceKind::Http(url) => self.bounded(of_http(url, client, resolver)).await,
        }
    }

    async fn bounded(
        &self,
        query: impl Future<Output = Result<String, SourceError>>,
    ) -> Result<String, SourceError> {
        let query = async {
            let _place = self.queries.acquire().await;
            query.await
        };
        let outcome = timeout(self.patience, query).await;
        outcome.map_err(|_| SourceError::TimedOut(self.patience))?
    }
}

/// Reads the file for each connection, so that a change needs no reload.
async fn of_file(path: &Path, client: Option<SocketAddr>) -> Result<String, SourceError> {
    let (owned, failed) = (path.to_owned(), |error| SourceError::File(path.to_owned(), error));
    // Reading may block, so leave it to a thread that may wait.
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let file = host::open_regular_file(&owned)?;
        if file.take(LONGEST_FILE + 1).read_to_string(&mut text)? as u64 > LONGEST_FILE {
            return Err(io::Error::other(format!("the file is longer than {LONGEST_FILE} bytes")));
        }
        Ok(text)
    });
    let text = read.await.map_err(io::Error::other).and_then(|text| text).map_err(failed)?;
    let client = client.ok_or_else(|| SourceError::NoAddress(path.to_owned()))?.ip();
    let found = find_in_lines(&text, client).map(str::to_owned);
    let client = client.to_canonical();
    found.ok_or_else(|| SourceError::NoLine { file: path.to_owned(), client })
}

/// Queries an HTTP source. Dials the same address that it has checked.
async fn of_http(
    url: &SourceUrl,
    client: Option<SocketAddr>,
    resolver: &dyn Resolve,
) -> Result<String, SourceError> {
    let unreachable = |error| SourceError::Unreachable(url.clone(), error);
    let host = url.host.host();
    let addresses = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => {
            let found = resolver.resolve(host).await.map_err(unreachable)?;
            // An attacker may make a name resolve to a service that answers only this machine, so
            // check the address.
            let is_special = |address: &IpAddr| match special(*address) {
                None | Some(Special::Loopback) => None,
                Some(special) => Some((*address, special)),
            };
            if let Some((address, special)) = found.iter().find_map(is_special) {
                return Err(SourceError::Special(url.clone(), address, special));
            }
            found
        }
    };
    let addresses: Vec<_> =
        addresses.into_iter().map(|address| SocketAddr::new(address, url.host.port())).collect();
    let mut stream = TcpStream::connect(&*addresses).await.map_err(unreachable)?;
    let request = url.request(&shown(client.map(|client| (client.ip(), client.port()))));
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    let mut response = Vec::with_capacity(1024);
    while response.len() <= LONGEST_RESPONSE && !is_whole(&response) {
        if stream.read_buf(&mut response).await.map_err(unreachable)? == 0 {
            break;
        }
    }
    token_of(&response).map_err(|error| SourceError::Response(url.clone(), error))
}

impl SourceError {
    /// Formats the error for the log, without control characters: file names and responses are not
    /// trusted.
    pub(crate) fn shown(&self) -> String {
        foreign(self).to_string()
    }
}

/// Timeout for a token. A source in the same network answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const QUERIES: usize = 64;
const LONGEST_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{BoxFuture, SystemResolver};
    use tokio::net::TcpListener;

    /// Serves each connection with this text.
    async fn serving(response: &'static [u8], then_hangs: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request).await;
                    let _ = stream.write_all(response).await;
                    if then_hangs {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        address
    }

    async fn asked(url: String) -> Result<String, SourceError> {
        let source = TokenSource::new(SourceKind::Http(url.parse().unwrap())).unwrap();
        source.token(Some(([10, 0, 0, 1], 5).into()), &SystemResolver).await
    }

    #[tokio::test]
    async fn an_http_source_gives_a_token_and_its_redirects_are_not_followed() {
        let good =
            serving(b"HTTP/1.0 200 OK\r\nContent-Length: 19\r\n\r\n{\"token\":\"tcp:a:1\"}", true);
        assert_eq!(asked(format!("http://{}/get", good.await)).await.unwrap(), "tcp:a:1");
        let elsewhere =
            serving(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", false);
        let error = asked(format!("http://{}/", elsewhere.await)).await.unwrap_err();
        assert!(error.shown().contains("redirects are not followed"), "{error}");
        let endless = serving(&[b'H'; 1 << 20], true);
        assert!(asked(format!("http://{}/", endless.await)).await.is_err());
    }

    #[tokio::test]
    async fn a_query_to_a_token_source_that_hangs_times_out() {
        #[derive(Debug)]
        struct Silent;
        impl Resolve for Silent {
            fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
                Box::pin(std::future::pending())
            }
        }
        let url = "http://silent.example/".parse().unwrap();
        let mut source = TokenSource::new(SourceKind::Http(url)).unwrap();
        source.patience = Duration::from_millis(50);
        let queries = (0..QUERIES + 1).map(|_| source.token(None, &Silent));
        for query in futures_of(queries).await {
            assert!(matches!(query, Err(SourceError::TimedOut(_))), "{query:?}");
        }
    }

    /// Runs the futures concurrently and returns their results.
    async fn futures_of<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
        let mut pending: Vec<_> = all.map(Box::pin).collect();
        let mut done = Vec::new();
        std::future::poll_fn(|context| {
            pending.retain_mut(|future| match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => {
                    done.push(value);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if pending.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        done
    }

    #[tokio::test]
    async fn a_source_whose_name_resolves_to_a_metadata_service_is_not_queried() {
        #[derive(Debug)]
        struct Rebound;
        impl Resolve for Rebound {
            fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
                Box::pin(async { Ok(vec![[169, 254, 169, 254].into()]) })
            }
        }
        let url = "http://tokens.example/".parse().unwrap();
        let source = TokenSource::new(SourceKind::Http(url)).unwrap();
        let error = source.token(None, &Rebound).await.unwrap_err();
        assert!(matches!(error, SourceError::Special(..)), "{error}");
    }

    #[tokio::test]
    async fn a_token_file_is_read_for_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let source = TokenSource::new(SourceKind::File(path.clone())).unwrap();
        let client = Some(([10, 0, 0, 1], 5).into());
        let error = source.token(client, &SystemResolver).await.unwrap_err().shown();
        assert!(error.contains("check the path and the permissions"), "{error}");
        std::fs::write(&path, "10.0.0.1 tcp:a:1\n").unwrap();
        assert_eq!(source.token(client, &SystemResolver).await.unwrap(), "tcp:a:1");
        std::fs::write(&path, "10.0.0.2 tcp:a:1\n").unwrap();
        let error = source.token(client, &SystemResolver).await.unwrap_err().shown();
        assert!(error.contains("add a line `10.0.0.1 tcp:HOST:PORT`"), "{error}");
        let error = source.token(None, &SystemResolver).await.unwrap_err().shown();
        assert!(error.contains("a UNIX socket has no address: listen on tcp:"), "{error}");
        std::fs::write(&path, vec![b'#'; (LONGEST_FILE + 1) as usize]).unwrap();
        let error = source.token(client, &SystemResolver).await.unwrap_err().shown();
        assert!(error.contains("longer than"), "{error}");
        assert!(TokenSource::new(SourceKind::Fixed("a\nb".to_owned())).is_err());
    }
}
