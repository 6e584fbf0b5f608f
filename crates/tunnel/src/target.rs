//! A tunnel's target in its text form: `tcp:example.org:22`, `udp:[::1]:53`, `unix:/run/app.sock`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use units::foreign;

/// A destination for the other end to dial, or a listening address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    Tcp(HostPort),
    Udp(HostPort),
    Unix(PathBuf),
    /// A service that a client offers at the server by this name.
    Service(String),
}

/// A name or an address, without brackets, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("'{}' has no kind: write tcp:HOST:PORT, udp:HOST:PORT, unix:/PATH or service:NAME", foreign(.0))]
    Kind(String),
    #[error("'{}' cannot name a service: 1 to 64 letters, digits, dots, dashes and underscores", foreign(.0))]
    Service(String),
    #[error("'{}' is not a host and port: write HOST:PORT, and an IPv6 address in brackets", foreign(.0))]
    HostPort(String),
    #[error("'{}' is not the path of a UNIX socket: write an absolute one of at most 107 bytes", foreign(.0))]
    Path(String),
}

impl Target {
    pub fn is_datagrams(&self) -> bool {
        matches!(self, Self::Udp(_))
    }
}

impl HostPort {
    pub fn new(host: &str, port: u16) -> Result<Self, TargetError> {
        let refusal = || TargetError::HostPort(format!("{host}:{port}"));
        // A name has at most 255 octets (RFC 1035, 2.3.4).
        if host.is_empty() || host.len() > 255 {
            return Err(refusal());
        }
        let address = host.parse::<std::net::Ipv6Addr>().is_ok();
        let name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if !address && !name {
            return Err(refusal());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<std::net::SocketAddr> for HostPort {
    fn from(address: std::net::SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("tcp", rest)) => Ok(Self::Tcp(rest.parse()?)),
            Some(("udp", rest)) => Ok(Self::Udp(rest.parse()?)),
            Some(("unix", rest)) => {
                let path = Path::new(rest);
                // The path must fit in sockaddr_un's sun_path, with its final zero (unix(7)).
                if !path.is_absolute() || rest.len() > 107 || rest.contains('\0') {
                    return Err(TargetError::Path(rest.to_owned()));
                }
                Ok(Self::Unix(path.to_owned()))
            }
            Some(("service", name)) if is_service_name(name) => Ok(Self::Service(name.to_owned())),
            Some(("service", name)) => Err(TargetError::Service(name.to_owned())),
            _ => Err(TargetError::Kind(text.to_owned())),
        }
    }
}

pub(crate) fn is_service_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}

impl FromStr for HostPort {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || TargetError::HostPort(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(refusal)?;
        let port = port.parse().map_err(|_| refusal())?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':')),
            None => Some(host).filter(|host| !host.contains(':')),
        };
        Self::new(bare.ok_or_else(refusal)?, port).map_err(|_| refusal())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Service(name) => write!(f, "service:{name}"),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_target_parses_to_itself() {
        for text in ["tcp:example.org:22", "udp:[::1]:53", "unix:/run/app.sock", "tcp:10.0.0.1:0"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_malformed_target_is_refused() {
        let long = format!("unix:/{}", "a".repeat(107));
        for text in [
            "",
            "tcp",
            "tcp:",
            "tcp:host",
            "tcp:host:",
            "tcp:host:65536",
            "tcp:::1:22",
            "tcp:[host]:22",
            "tcp:a b:22",
            "tcp:[::1:22",
            "http:host:80",
            "unix:relative",
            "tcp::22",
            &long,
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
