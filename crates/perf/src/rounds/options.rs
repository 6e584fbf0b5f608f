use super::wire::Order;
use super::{Confidence, Kind};
use crate::PerfError;
use crate::accounts::Credentials;
use crate::options::{ClientOptions, Family, PORT};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use units::{Bytes, Span};

#[derive(Debug, Clone, PartialEq)]
pub struct RoundsOptions {
    pub host: String,
    pub port: u16,
    pub family: Option<Family>,
    pub bind: Option<IpAddr>,
    pub bind_device: Option<String>,
    pub connect_timeout: Duration,
    /// Timeout for a silent server.
    pub patience: Duration,
    pub kind: Kind,
    /// The sizes to measure; each gives a row of the table.
    pub sizes: Vec<Size>,
    /// Number of concurrent connections; each has its own thread.
    pub connections: u32,
    /// Number of requests in flight on each connection of [`Kind::Rr`].
    pub depth: u32,
    pub time: Span,
    pub repeats: Repeats,
    /// `Some`: the repeats end as soon as the mean reaches this confidence.
    pub confidence: Option<Confidence>,
    /// A datagram counts as lost after this time without a response.
    pub loss_timeout: Duration,
    /// The CPUs to which the client and the server are pinned.
    pub affinity: Option<usize>,
    pub server_affinity: Option<usize>,
    /// The first of the ports that the server opens for `crr` and UDP, so that firewalls can allow
    /// them.
    pub server_port: Option<u16>,
    /// The client's account, for a server that has accounts.
    pub credentials: Option<Credentials>,
}

/// Size of requests and responses: `1`, `128/8K` (request/response).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes of a request, or of a stream's message.
    pub request: Bytes,
    pub response: Bytes,
}

/// The minimum and maximum number of measurements of each size, written `3,30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    pub least: u32,
    pub most: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoundsError {
    #[error(
        "`{text}`: write the level and the interval's whole width in percent, as in 99,5 for ±2.5 % at 99 %"
    )]
    Confidence { text: String },
    #[error("`{text}`: write a number of repeats, or the least and the most, as in 3,30")]
    Repeats { text: String },
    #[error("`{text}`: write a size, or those of request and response, as in 128/8K: {reason}")]
    Size { text: String, reason: String },
}

impl RoundsOptions {
    pub fn new(host: impl Into<String>, kind: Kind) -> Self {
        Self {
            host: host.into(),
            port: PORT,
            family: None,
            bind: None,
            bind_device: None,
            connect_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            kind,
            sizes: vec![Size::both(Bytes::new(1))],
            connections: 1,
            depth: 1,
            time: Span::from_secs(1),
            repeats: Repeats::ONCE,
            confidence: None,
            loss_timeout: Duration::from_millis(250),
            affinity: None,
            server_affinity: None,
            server_port: None,
            credentials: None,
        }
    }

    pub fn check(&self) -> Result<(), PerfError> {
        let refuse = |text: String| Err(PerfError::Usage(text));
        let (kind, most) = (self.kind, self.kind.most_bytes());
        if self.sizes.is_empty() {
            return refuse("no size to measure: name one, as in --size 1".to_owned());
        }
        for size in &self.sizes {
            let response = kind.has_latency().then_some(size.response);
            if [Some(size.request), response]
                .into_iter()
                .flatten()
                .any(|bytes| bytes.count() == 0 || bytes.count() > most)
            {
                return refuse(format!("--size {size}: {kind} carries 1 to {most} bytes"));
            }
        }
        if self.depth == 0 || self.depth > MOST_DEPTH {
            return refuse(format!("--depth {}: 1 to {MOST_DEPTH} are possible", self.depth));
        }
        if self.depth > 1 && kind != Kind::Rr {
            return refuse(format!("--depth: {kind} has one request in flight at a time"));
        }
        if self.connections == 0 || self.time == Span::ZERO {
            return refuse("no connection or no time leaves nothing to measure".to_owned());
        }
        if self.repeats.least == 0 || self.repeats.most < self.repeats.least {
            return refuse(format!("--repeats {}: the least comes first", self.repeats));
        }
        if self.confidence.is_some() && self.repeats.most < 2 {
            return refuse("--confidence needs two repeats at least: --repeats 3,30".to_owned());
        }
        if let Some(cpu) = self.affinity {
            let allowed = probe::cpu::affinity()?;
            if !allowed.contains(&cpu) {
                return refuse(format!("--affinity {cpu}: this process may run on {allowed:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn order(&self, size: &Size) -> Order {
        Order {
            kind: self.kind,
            request: size.request.count(),
            response: if self.kind.has_latency() { size.response.count() } else { 0 },
            connections: self.connections,
            depth: self.depth,
            seconds: self.time.secs_f64(),
            server_affinity: self.server_affinity.map(|cpu| cpu as u64),
            port: self.server_port,
        }
    }

    pub(super) fn path(&self) -> ClientOptions {
        ClientOptions {
            host: self.host.clone(),
            port: self.port,
            family: self.family,
            bind: self.bind,
            bind_device: self.bind_device.clone(),
            connect_timeout: self.connect_timeout,
            receive_timeout: self.patience,
            ..ClientOptions::default()
        }
    }
}

impl Size {
    pub fn both(bytes: Bytes) -> Self {
        Self { request: bytes, response: bytes }
    }
}

impl Repeats {
    pub const ONCE: Self = Self { least: 1, most: 1 };
    /// The default if the user requires a confidence.
    pub const USUAL: Self = Self { least: 3, most: 30 };
}

impl FromStr for Size {
    type Err = RoundsError;

    fn from_str(text: &str) -> Result<Self, RoundsError> {
        let bytes = |part: &str| {
            part.trim().parse::<Bytes>().map_err(|error| RoundsError::Size {
                text: text.to_owned(),
                reason: error.to_string(),
            })
        };
        match text.split_once('/') {
            Some((request, response)) => {
                Ok(Self { request: bytes(request)?, response: bytes(response)? })
            }
            None => bytes(text).map(Self::both),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, response) = (self.request.count(), self.response.count());
        if request == response { write!(f, "{request}") } else { write!(f, "{request}/{response}") }
    }
}

impl FromStr for Repeats {
    type Err = RoundsError;

    fn from_str(text: &str) -> Result<Self, RoundsError> {
        let refused = || RoundsError::Repeats { text: text.to_owned() };
        let number = |text: &str| text.trim().parse().map_err(|_| refused());
        let repeats = match text.split_once(',') {
            Some((least, most)) => Self { least: number(least)?, most: number(most)? },
            None => number(text).map(|count| Self { least: count, most: count })?,
        };
        let sensible = repeats.least > 0 && repeats.least <= repeats.most;
        (sensible && repeats.most <= MOST_REPEATS).then_some(repeats).ok_or_else(refused)
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{},{}", self.least, self.most)
        }
    }
}

const MOST_DEPTH: u32 = 1024;
const MOST_REPEATS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_parses_from_one_number_or_two() {
        let read = |text: &str| text.parse::<Size>().map(|size| size.to_string());
        assert_eq!(read("1").unwrap(), "1");
        assert_eq!(read("128/8K").unwrap(), "128/8192");
        assert_eq!(read("1KiB/1KiB").unwrap(), "1024");
        assert!(read("1/").is_err() && read("x").is_err() && read("1/2/3").is_err());
    }

    #[test]
    fn repeats_parse_from_one_number_or_two() {
        assert_eq!("3,30".parse(), Ok(Repeats::USUAL));
        assert_eq!("5".parse(), Ok(Repeats { least: 5, most: 5 }));
        for wrong in ["0", "30,3", "3,", "-1", "3,100000"] {
            assert!(wrong.parse::<Repeats>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn impossible_measurements_are_refused() {
        let message = |change: fn(&mut RoundsOptions)| {
            let mut options = RoundsOptions::new("host", Kind::UdpRr);
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(message(|o| o.sizes = vec![Size::both(Bytes::kib(64))]).contains("1 to 65507"));
        assert!(message(|o| o.sizes = vec!["1/0".parse().unwrap()]).contains("--size 1/0"));
        assert!(message(|o| o.sizes.clear()).contains("no size"));
        assert!(message(|o| o.depth = 2).contains("one request in flight"));
        assert!(message(|o| o.depth = 0).contains("--depth 0"));
        assert!(message(|o| o.affinity = Some(4711)).contains("--affinity 4711"));
        assert!(message(|o| o.confidence = Some(Confidence::usual())).contains("--repeats 3,30"));
        assert!(RoundsOptions::new("host", Kind::Rr).check().is_ok());
    }
}
