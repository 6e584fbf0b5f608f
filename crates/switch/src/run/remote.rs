//! Addresses of controllers, and addresses at which bridges listen for OpenFlow.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use openflow::Version;
use ovsdb::topology::{Carrier, Target};
use serde::Deserialize;
use units::foreign;

/// The address of a controller, or an address at which a bridge listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remote {
    pub carrier: Carrier,
    pub address: SocketAddr,
}

impl Remote {
    /// Parses the address of a controller, or with `listens` an address to listen at:
    /// `ADDRESS:PORT`, or Open vSwitch's syntax.
    fn parse(text: &str, listens: bool) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self { carrier: Carrier::Tcp, address });
        }
        let (what, address, tls) = match (Target::parse(text), listens) {
            (Target::Connect(carrier, place), false) | (Target::Listen(carrier, place), true) => {
                return Self::of(carrier, &place);
            }
            (_, false) => ("controller", "10.0.0.9:6653", "ssl:ADDRESS:PORT"),
            (_, true) => ("address to listen at", "127.0.0.1:6653", "pssl:PORT:ADDRESS"),
        };
        Err(format!(
            "`{}` is no {what}: write ADDRESS:PORT, such as {address}, or {tls} for TLS",
            foreign(text)
        ))
    }

    pub(super) fn of(carrier: Carrier, place: &str) -> Result<Self, String> {
        let address = place.parse().map_err(|_| {
            format!(
                "`{}` is no IP address and port: names of hosts are not looked up",
                foreign(place)
            )
        })?;
        Ok(Self { carrier, address })
    }
}

/// How long the switch waits for a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerTimes {
    /// The silence after which the controller gets an echo request; `None`: the controller gets no
    /// such requests.
    pub probe_ms: Option<u64>,
    /// The longest pause between two attempts to connect.
    pub longest_pause: Duration,
}

impl ControllerTimes {
    /// The usual value of `probe_ms`, and the lowest, as in Open vSwitch.
    pub(super) const PROBE_MS: u64 = 5_000;

    /// Converts the columns `inactivity_probe` and `max_backoff` of Open vSwitch's `Controller`. As
    /// in Open vSwitch, only whole seconds count.
    pub(super) fn of(inactivity_probe_ms: Option<u64>, max_backoff_ms: Option<u64>) -> Self {
        let usual = Self::default();
        let whole = |ms: u64| ms / 1000 * 1000;
        let probe_ms = match inactivity_probe_ms.map(whole) {
            None => usual.probe_ms,
            Some(0) => None,
            Some(probe_ms) => Some(probe_ms.max(Self::PROBE_MS)),
        };
        let pause = max_backoff_ms.map(|ms| Duration::from_millis(whole(ms).max(1000)));
        Self { probe_ms, longest_pause: pause.unwrap_or(usual.longest_pause) }
    }
}

impl Default for ControllerTimes {
    fn default() -> Self {
        Self { probe_ms: Some(Self::PROBE_MS), longest_pause: Duration::from_secs(8) }
    }
}

/// Prints `ADDRESS:PORT` for TCP, and `ssl:ADDRESS:PORT` for TLS.
impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.carrier {
            Carrier::Tcp => self.address.fmt(f),
            Carrier::Tls => write!(f, "ssl:{}", self.address),
        }
    }
}

/// The versions of OpenFlow that a bridge speaks. An empty list means all versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Protocols(Vec<Version>);

impl Protocols {
    #[must_use]
    pub fn versions(&self) -> &[Version] {
        if self.0.is_empty() { &Version::ALL } else { &self.0 }
    }
}

impl TryFrom<Vec<String>> for Protocols {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let known = |name: &String| {
            let version = Version::ALL.into_iter().find(|version| version.to_string() == *name);
            let name = foreign(name);
            version.ok_or_else(|| {
                format!("`{name}` is no version of OpenFlow: write OpenFlow10 to OpenFlow15")
            })
        };
        Ok(Self(names.iter().map(known).collect::<Result<_, _>>()?))
    }
}

/// The controllers of a bridge, or with `LISTENS` the addresses at which a bridge listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct RemoteList<const LISTENS: bool>(pub Vec<Remote>);

pub(super) type Controllers = RemoteList<false>;
pub(super) type Listeners = RemoteList<true>;

impl<const LISTENS: bool> Deref for RemoteList<LISTENS> {
    type Target = [Remote];

    fn deref(&self) -> &[Remote] {
        &self.0
    }
}

impl<const LISTENS: bool> TryFrom<Vec<String>> for RemoteList<LISTENS> {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        texts.iter().map(|text| Remote::parse(text, LISTENS)).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_intervals_have_at_least_five_seconds_and_zero_turns_probes_off() {
        let times = |probe, backoff| {
            let ControllerTimes { probe_ms, longest_pause } = ControllerTimes::of(probe, backoff);
            (probe_ms, longest_pause.as_secs())
        };
        assert_eq!(times(None, None), (Some(5000), 8));
        assert_eq!(times(Some(30_500), Some(2500)), (Some(30_000), 2));
        assert_eq!(times(Some(1000), Some(0)), (Some(5000), 1));
        assert_eq!(times(Some(0), Some(60_000)), (None, 60));
        assert_eq!(times(Some(999), None), (None, 8));
    }

    #[test]
    fn plain_addresses_mean_tcp_and_prefixes_have_their_meaning_in_open_vswitch() {
        let shown = |remote: Result<Remote, String>| remote.map(|remote| remote.to_string());
        for (text, expected) in [
            ("10.0.0.9:6653", "10.0.0.9:6653"),
            ("tcp:10.0.0.9", "10.0.0.9:6653"),
            ("ssl:10.0.0.9", "ssl:10.0.0.9:6653"),
            ("ssl:[::1]:6654", "ssl:[::1]:6654"),
        ] {
            assert_eq!(shown(Remote::parse(text, false)).as_deref(), Ok(expected));
        }
        let listener = shown(Remote::parse("pssl:6654:127.0.0.1", true));
        assert_eq!(listener.as_deref(), Ok("ssl:127.0.0.1:6654"));
        let error = Remote::parse("ssl:controller.example:6653", false).unwrap_err();
        assert!(error.contains("no IP address"), "{error}");
        let error = Remote::parse("pssl:6653", false).unwrap_err();
        assert!(error.contains("write ADDRESS:PORT, such as 10.0.0.9:6653"), "{error}");
        let protocols = |names: &[&str]| {
            Protocols::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(protocols(&[]).unwrap().versions().len(), 6);
        assert_eq!(protocols(&["OpenFlow13"]).unwrap().versions(), [Version::V13]);
        assert!(protocols(&["OpenFlow2"]).unwrap_err().contains("OpenFlow10 to OpenFlow15"));
        assert!(Remote::parse("ssl:10.0.0.9", true).unwrap_err().contains("pssl:PORT:ADDRESS"));
        let texts = || vec!["ssl:10.0.0.9".to_owned()];
        assert_eq!(Controllers::try_from(texts()).map(|list| list.len()), Ok(1));
        assert!(Listeners::try_from(texts()).unwrap_err().contains("no address to listen at"));
    }
}
