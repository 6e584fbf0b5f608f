//! Limits the log lines about connections and refusals for each source address.
//!
//! Each line has the address of the other end in a separate field, without the port, as fail2ban's
//! filters expect it. If a source causes many events, the log omits some, and the source's next
//! line has the number of omitted events.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kinds of events whose log lines are limited separately: a flood of refusals must not hide a
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Connection,
    Stranger,
    Handshake,
    Denial,
    /// The end failed to accept a connection.
    Accept,
    /// A client has no connection to a server.
    NoServer,
}

/// The number of lines that each source may still cause, per kind of event.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<HashMap<(IpAddr, Kind), Source>>);

#[derive(Debug, Clone, Copy)]
struct Source {
    /// The remaining lines at the time `since`.
    lines: f64,
    since: Instant,
    omitted: u64,
}

/// The permission to write a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// Events of this source and kind since its last line.
    pub(crate) omitted: u64,
}

impl Journal {
    /// Counts an event. Returns `None` if the source has already caused too many lines.
    pub(crate) fn line(&self, now: Instant, from: IpAddr, kind: Kind) -> Option<Line> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= MOST_SOURCES {
            let is_idle = |source: &Source| source.filled(now) >= BURST;
            sources.retain(|_, source| !is_idle(source) || source.omitted > 0);
        }
        if sources.len() >= MOST_SOURCES {
            // In a flood from many networks, forget the oldest sources.
            sources.retain(|_, source| now.duration_since(source.since) < EVERY);
        }
        let key = (network(from), kind);
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&key) {
            return None;
        }
        let source = sources.entry(key).or_insert(Source { lines: BURST, since: now, omitted: 0 });
        source.lines = source.filled(now);
        source.since = now;
        if source.lines < 1.0 {
            source.omitted += 1;
            return None;
        }
        source.lines -= 1.0;
        Some(Line { omitted: std::mem::take(&mut source.omitted) })
    }
}

/// Returns the network of an address: the IPv4 address itself, or the first 64 bits of an IPv6
/// address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
    }
}

impl Source {
    fn filled(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        (self.lines + passed / EVERY.as_secs_f64()).min(BURST)
    }
}

const NETWORK: u128 = !(u64::MAX as u128);
/// Maximum number of lines that one source may cause at once, per kind of event. fail2ban usually
/// bans after five lines.
const BURST: f64 = 10.0;
/// Time that a source waits for one more line.
const EVERY: Duration = Duration::from_secs(10);
/// Maximum number of sources. A source takes about 100 bytes, so all take a few hundred kilobytes.
const MOST_SOURCES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_source_gets_ten_log_lines_at_once_and_one_more_every_ten_seconds() {
        let (journal, begun) = (Journal::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let lines = |now, number| {
            let line = |_: &i32| journal.line(now, address(number), Kind::Denial).is_some();
            (0..1000).filter(line).count()
        };
        assert_eq!(lines(at(0), 1), 10);
        // Other sources and other kinds of events still get their lines.
        assert_eq!(lines(at(0), 2), 10);
        assert_eq!(journal.line(at(0), address(1), Kind::Connection), Some(Line { omitted: 0 }));
        assert_eq!(journal.line(at(10), address(1), Kind::Denial), Some(Line { omitted: 990 }));
        assert_eq!(lines(at(10), 1), 0);
        assert_eq!(lines(at(1000), 1), 10);
    }

    #[test]
    fn the_log_limit_keeps_a_bounded_number_of_sources() {
        let (journal, now) = (Journal::default(), Instant::now());
        for number in 0..20_000 {
            journal.line(now, address(number), Kind::Handshake);
        }
        assert!(journal.0.lock().unwrap().len() <= MOST_SOURCES);
        let later = now + Duration::from_secs(3600);
        assert!(journal.line(later, address(1 << 30), Kind::Handshake).is_some());
    }

    #[test]
    fn addresses_of_one_network_count_as_one_source_of_log_lines() {
        let (journal, now) = (Journal::default(), Instant::now());
        let host = |host: u16| format!("2001:db8::{host:x}").parse().unwrap();
        let lines = (0..100).filter(|n| journal.line(now, host(*n), Kind::Stranger).is_some());
        assert_eq!(lines.count(), 10);
    }
}
