//! Connections that ended between two listings. The kernel announces each socket that it destroys,
//! so that connections are seen which are shorter than the time between two listings.

use super::connections::add;
use crate::recording::{ShortLived, Unseen};
use probe::tcp::{EndedSockets, Notices, RawSocket, TcpInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use units::{Bytes, Span};

#[derive(Debug, Default)]
pub(super) struct Ended {
    notices: Option<EndedSockets>,
    /// The connections that no listing had.
    short: ShortLived,
    /// The ends of these connections. A connection within this machine has two sockets and counts
    /// once.
    ends: HashSet<(SocketAddr, SocketAddr)>,
    read: usize,
}

impl Ended {
    pub(super) fn begin(unseen: &mut BTreeSet<Unseen>) -> Self {
        let notices = EndedSockets::begin();
        if let Err(error) = &notices {
            add(unseen, "connections that end between two samples", error);
        }
        Self { notices: notices.ok(), ..Self::default() }
    }

    /// Passes each connection that ended, and whether it was brief, to `is_counted`, and counts the
    /// connection if the answer is `true`. Stops after many connections, because each costs CPU
    /// time.
    pub(super) fn read(&mut self, mut is_counted: impl FnMut(&RawSocket<'_>, bool) -> bool) {
        let Some(notices) = &mut self.notices else { return };
        let (most, mut read) = (MOST_READ.saturating_sub(self.read), 0);
        let (short, ends) = (&mut self.short, &mut self.ends);
        let outcome = notices.read(most, |socket| {
            read += 1;
            let (local, remote) = (socket.local(), socket.remote());
            let moved = socket.info().and_then(TcpInfo::moved).unwrap_or_default();
            if moved > NO_DATA
                && is_counted(&socket, is_brief(&socket))
                && !ends.contains(&(remote, local))
            {
                ends.insert((local, remote));
                short.connections += 1;
                short.bytes += moved;
            }
        });
        self.read += read;
        if !matches!(outcome, Ok(Notices::All)) {
            self.notices = None;
        }
    }

    pub(super) fn short(&self) -> ShortLived {
        self.short
    }

    /// Returns the addresses of the far ends with the most connections.
    pub(super) fn hosts(&self) -> BTreeSet<IpAddr> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (_, remote) in &self.ends {
            *counts.entry(remote.ip()).or_default() += 1;
        }
        let mut hosts: Vec<(IpAddr, usize)> = counts.into_iter().collect();
        hosts.sort_by_key(|(_, count)| Reverse(*count));
        hosts.into_iter().map(|(host, _)| host).take(MOST_HOSTS).collect()
    }
}

/// Whether the connection's window had no time to grow. The kernel counts the time in which data
/// was in flight, which is none at an end that only received.
fn is_brief(socket: &RawSocket<'_>) -> bool {
    let info = socket.info().map(TcpInfo::from_bytes).unwrap_or_default();
    lasts_briefly(info.busy_time, info.min_rtt)
}

fn lasts_briefly(busy: Option<Span>, rtt: Option<Span>) -> bool {
    let Some((busy, rtt)) = busy.zip(rtt) else { return true };
    busy <= (rtt * ShortLived::ROUND_TRIPS).max(SOON)
}

/// Maximum number of the kernel's notices about ended connections: many more than a verdict needs.
const MOST_READ: usize = 1024;
const MOST_HOSTS: usize = 16;
/// The kernel counts the SYN of this end and the FINs of both ends as a byte each.
const NO_DATA: Bytes = Bytes::new(3);
/// On a short path, the handshake and the programs take longer than many round trips.
const SOON: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_sent_for_many_round_trips_is_not_brief() {
        let is_brief =
            |busy, rtt| lasts_briefly(Some(Span::from_millis(busy)), Some(Span::from_millis(rtt)));
        assert!(is_brief(300, 20) && is_brief(19, 0) && is_brief(0, 50));
        assert!(!is_brief(700, 20) && !is_brief(50, 1));
        assert!(lasts_briefly(None, Some(Span::from_millis(9))));
    }

    #[test]
    fn a_host_of_a_single_connection_counts_beside_a_host_of_many() {
        let [here, many, single] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut ended = Ended::default();
        for port in 1..=1000 {
            ended.ends.insert((SocketAddr::new(here, port), SocketAddr::new(many, 80)));
        }
        ended.ends.insert((SocketAddr::new(here, 1), SocketAddr::new(single, 80)));
        assert_eq!(ended.hosts(), BTreeSet::from([many, single]));
    }
}
