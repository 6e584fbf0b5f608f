use super::NONE;
use crate::diagnosis::{FlowReport, Found};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use units::{Span, foreign};

/// The subject of a verdict: connections with the same labels, or the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Subject {
    pub cause: &'static str,
    pub scope: Scope,
    /// Whether the cause is no fault, such as a full link or a busy application.
    pub healthy: bool,
    pub program: String,
    /// The network of the peer: 24 bits of an IPv4 address, 48 of an IPv6 address.
    pub destination: String,
    /// The control group of the program.
    pub container: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Connection,
    Machine,
}

impl Subject {
    pub(super) fn of_flow(flow: &FlowReport, first: Option<&Found>) -> Self {
        let known = |text: String| if text.is_empty() { NONE.to_owned() } else { text };
        Self {
            cause: first.map_or(NONE, |found| found.cause),
            scope: Scope::Connection,
            healthy: first.is_none_or(|found| found.finding.healthy),
            program: known(short(&flow.program)),
            destination: network(flow.peer),
            container: known(flow.group.as_deref().map(container).unwrap_or_default()),
        }
    }

    pub(super) fn of_machine(cause: &'static str) -> Self {
        Self {
            cause,
            scope: Scope::Machine,
            healthy: false,
            program: String::new(),
            destination: String::new(),
            container: String::new(),
        }
    }

    fn other(self) -> Self {
        Self {
            program: OTHER.to_owned(),
            destination: OTHER.to_owned(),
            container: OTHER.to_owned(),
            ..self
        }
    }
}

/// Seconds of each subject. At most `most` subjects have series of their own, and each cause has
/// one more series.
#[derive(Debug)]
pub(super) struct Series {
    most: usize,
    apart: BTreeMap<Subject, Span>,
    others: BTreeMap<Subject, Span>,
    /// The number of additions that went to the series `other`.
    pub(super) refused: u64,
}

impl Series {
    pub(super) fn new(most: usize) -> Self {
        Self { most, apart: BTreeMap::new(), others: BTreeMap::new(), refused: 0 }
    }

    /// Returns the subject that the time counts for.
    pub(super) fn add(&mut self, subject: Subject, time: Span) -> Subject {
        if self.apart.len() < self.most || self.apart.contains_key(&subject) {
            add(&mut self.apart, subject.clone(), time);
            return subject;
        }
        self.refused += 1;
        let other = subject.other();
        add(&mut self.others, other.clone(), time);
        other
    }

    pub(super) fn len(&self) -> usize {
        self.apart.len()
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Subject, Span)> {
        self.apart.iter().chain(&self.others).map(|(subject, time)| (subject, *time))
    }
}

/// Adds `time` to the time that `times` has for `key`.
pub(super) fn add<K: Ord>(times: &mut BTreeMap<K, Span>, key: K, time: Span) {
    let sum = times.entry(key).or_default();
    *sum = *sum + time;
}

fn network(peer: IpAddr) -> String {
    match peer.to_canonical() {
        IpAddr::V4(v4) if v4.is_loopback() => "127.0.0.0/8".to_owned(),
        IpAddr::V4(v4) => format!("{}/24", Ipv4Addr::from_bits(v4.to_bits() & (!0 << 8))),
        IpAddr::V6(v6) if v6.is_loopback() => "::1/128".to_owned(),
        IpAddr::V6(v6) => format!("{}/48", Ipv6Addr::from_bits(v6.to_bits() & (!0 << 80))),
    }
}

/// Returns the name of a container or service, from the path of its control group. A container's
/// name keeps twelve digits of its number, as in `docker ps`. A user's sessions have the user's
/// name.
fn container(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((last, above)) = parts.split_last() else { return String::new() };
    let is_session = last.starts_with("session-") && last.ends_with(".scope");
    let name = match (is_session, above.last()) {
        (true, Some(user)) => user,
        _ => last,
    };
    let mut text = String::new();
    let mut digits = 0;
    for c in name.chars() {
        digits = if c.is_ascii_hexdigit() { digits + 1 } else { 0 };
        if digits <= NUMBER {
            text.push(c);
        }
    }
    short(text.strip_suffix(".scope").unwrap_or(&text))
}

fn short(text: &str) -> String {
    foreign(text).up_to(LONGEST).to_string()
}

const OTHER: &str = "other";
const LONGEST: usize = 64;
const NUMBER: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_have_the_names_of_their_containers_or_services() {
        let long = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (path, expected) in [
            ("/system.slice/nginx.service".to_owned(), "nginx.service"),
            (format!("/system.slice/docker-{long}.scope"), "docker-0123456789ab"),
            (format!("/kubepods/besteffort/pod1/{long}"), "0123456789ab"),
            ("/user.slice/user-1000.slice/session-3.scope".to_owned(), "user-1000.slice"),
            ("/".to_owned(), ""),
            (String::new(), ""),
        ] {
            assert_eq!(container(&path), expected, "{path}");
        }
    }

    #[test]
    fn destinations_are_aggregated_to_networks() {
        for (peer, expected) in [
            ("203.0.113.77", "203.0.113.0/24"),
            ("::ffff:203.0.113.77", "203.0.113.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
            ("127.0.0.9", "127.0.0.0/8"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(network(peer.parse().unwrap()), expected);
        }
    }
}
