//! Listeners whose applications name their own targets.

use super::ForwardTable;
use crate::client::{ListenAt, Listener, Route};
use crate::proxy::Users;
use crate::target::Target;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// A listener of a client, `socks5:ADDRESS:PORT` or `http:ADDRESS:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    pub kind: ProxyKind,
    pub listen_on: SocketAddr,
    /// The users who may log in; `None` on a loopback address, which needs no login.
    pub users: Option<Arc<Users>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    Socks5,
    /// HTTP's CONNECT.
    Http,
}

/// The address at which a client listens for applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenOn {
    Target(Target),
    Proxy(ProxyKind, SocketAddr),
}

impl Proxy {
    pub(super) fn listener(&self) -> Listener {
        let users = self.users.clone();
        let route = match self.kind {
            ProxyKind::Socks5 => Route::Socks5(users),
            ProxyKind::Http => Route::HttpConnect(users),
        };
        Listener { listen: ListenAt::Tcp(self.listen_on), route }
    }
}

/// Reads a users file. Refuses a file that users other than its owner and group may read.
pub(super) fn users(path: &Path) -> Result<Users, String> {
    let shown = path.display();
    let text = host::read_regular_file(path)
        .map_err(|error| format!("cannot read {shown}: {error}; check the path"))?;
    let mode = std::fs::metadata(path).map_or(0, |about| about.mode());
    if mode & 0o007 != 0 {
        return Err(format!(
            "anyone on this machine may read the passwords in {shown}: chmod 600 {shown}"
        ));
    }
    Users::parse(&text).map_err(|error| format!("{shown}: {error}"))
}

impl FromStr for ListenOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = match text.split_once(':') {
            Some(("socks5", at)) => Some((ProxyKind::Socks5, at)),
            Some(("http", at)) => Some((ProxyKind::Http, at)),
            _ => None,
        };
        let Some((kind, at)) = kind else {
            return text.parse().map(Self::Target).map_err(|error: crate::TargetError| {
                format!("{error}; a proxy is socks5:ADDRESS:PORT or http:ADDRESS:PORT")
            });
        };
        let address = at.parse().map_err(|_| {
            format!(
                "`{at}` is not ADDRESS:PORT, as in 127.0.0.1:1080: write an address, not a name"
            )
        })?;
        Ok(Self::Proxy(kind, address))
    }
}

/// Parses `LISTEN=TARGET`, or only the listener if applications name their targets.
impl FromStr for ForwardTable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (listen_on, target) = match text.split_once('=') {
            Some((listen_on, target)) => (listen_on, Some(target)),
            None => (text, None),
        };
        let listen_on: ListenOn = match (listen_on.parse(), target) {
            (Ok(ListenOn::Target(_)) | Err(_), None) if !is_proxy(text) => {
                return Err(format!(
                    "`{text}` is no LISTEN=TARGET, as in tcp:127.0.0.1:2222=tcp:10.0.0.5:22; alone \
                     stands socks5:ADDRESS:PORT or http:ADDRESS:PORT"
                ));
            }
            (listen_on, _) => listen_on?,
        };
        let target = target.map(|target| target.parse()).transpose();
        let target = target.map_err(|error: crate::TargetError| error.to_string())?;
        Ok(Self { listen_on, target, users_file: None })
    }
}

fn is_proxy(text: &str) -> bool {
    ["socks5:", "http:"].iter().any(|kind| text.starts_with(kind))
}

impl Display for ListenOn {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target(target) => write!(f, "{target}"),
            Self::Proxy(ProxyKind::Socks5, at) => write!(f, "socks5:{at}"),
            Self::Proxy(ProxyKind::Http, at) => write!(f, "http:{at}"),
        }
    }
}

impl Display for Proxy {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", ListenOn::Proxy(self.kind, self.listen_on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_needs_a_listening_address_and_accepts_no_target() {
        for text in ["socks5:127.0.0.1:1080", "http:[::1]:3128", "tcp:127.0.0.1:1", "unix:/a"] {
            assert_eq!(text.parse::<ListenOn>().unwrap().to_string(), text);
        }
        let forward: ForwardTable = "socks5:127.0.0.1:1080".parse().unwrap();
        assert!(forward.target.is_none());
        for (text, reported) in [
            ("socks5:localhost:1080", "an address, not a name"),
            ("socks5:1080", "an address, not a name"),
            ("socks:127.0.0.1:1080", "is no LISTEN=TARGET"),
            ("tcp:127.0.0.1:2222", "is no LISTEN=TARGET"),
            ("tcp:127.0.0.1:2222=10.0.0.5:22", "has no kind"),
            ("", "is no LISTEN=TARGET"),
        ] {
            let error = text.parse::<ForwardTable>().unwrap_err();
            assert!(error.contains(reported), "{text}: {error}");
        }
    }

    #[test]
    fn a_users_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(users(&path).unwrap_err().contains("cannot read"));
        std::fs::write(&path, "me:secret\n").unwrap();
        let allow = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        allow(0o644);
        assert!(users(&path).unwrap_err().contains("chmod 600"));
        allow(0o640);
        assert!(users(&path).unwrap().admit(b"me", b"secret"));
        std::fs::write(&path, "me\n").unwrap();
        assert!(
            users(&path)
                .unwrap_err()
                .ends_with("line 1 is not NAME:PASSWORD with 1 to 255 bytes each")
        );
    }
}
