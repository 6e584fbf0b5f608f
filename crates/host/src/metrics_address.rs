use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The address at which a program serves metrics without authentication: only an address of this
/// host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && path.len() <= 107 {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("`{path}` is no absolute path of a UNIX socket")),
            };
        }
        let address: SocketAddr =
            text.parse().map_err(|_| format!("`{text}` is neither ADDRESS:PORT nor unix:/PATH"))?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{address} can be reached from other hosts, and needs no authentication: \
                 write 127.0.0.1:{} or unix:/PATH",
                address.port()
            ));
        }
        Ok(Self::Tcp(address))
    }
}

impl Display for MetricsAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses during deserialisation, so that an error names the line of the value in its file.
impl<'de> Deserialize<'de> for MetricsAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = MetricsAddress;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MetricsAddress, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_metrics_addresses_are_accepted() {
        for text in ["127.0.0.1:9150", "[::1]:9150", "unix:/run/weir/metrics"] {
            let address: MetricsAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for text in ["0.0.0.0:9150", "192.0.2.1:9150", "unix:metrics", "9150", ""] {
            assert!(text.parse::<MetricsAddress>().is_err(), "{text}");
        }
    }
}
