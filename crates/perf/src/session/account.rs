mod extras;

use crate::control::{Results, StreamResult, count};
use crate::event::{CpuUse, Datagrams, End, Ended, PathFacts, StreamTotal};
use crate::observe::tcp::far;
use crate::observe::{Observed, Series};
use crate::options::{Protocol, TestOptions};
use crate::stream::StreamSnapshot;
use extras::Extras;
use units::{Bytes, Span};

#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(super) options: TestOptions,
    pub(super) elapsed: Span,
    pub(super) congestion: Option<String>,
    pub(super) snapshots: Vec<StreamSnapshot>,
    pub(super) observed: Option<Observed>,
}

/// The results beyond iperf3's keys that a peer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Additions {
    Nothing,
    Ours,
    /// As [`Self::Ours`], and TCP_INFO over time of the streams that this side sends, for a peer
    /// that asked for the series.
    Series,
}

impl Account {
    /// Returns this side's results in iperf3's keys, with weir's additions for a peer that reads
    /// them.
    pub(crate) fn results(&self, additions: Additions) -> Results {
        let cpu = self.cpu();
        let sends = self.snapshots.iter().any(|stream| stream.sends);
        Results {
            cpu_util_total: cpu.user + cpu.system,
            cpu_util_user: cpu.user,
            cpu_util_system: cpu.system,
            sender_has_retransmits: match (sends, self.options.protocol) {
                (true, Protocol::Tcp) => 1.0,
                (true, Protocol::Udp) => 0.0,
                (false, _) => -1.0,
            },
            congestion_used: self.congestion.clone(),
            server_output_text: None,
            server_output_json: None,
            streams: self.snapshots.iter().map(|stream| self.stream_result(stream)).collect(),
            weir: (additions != Additions::Nothing).then(|| {
                let with_series = additions == Additions::Series;
                extras::write(&self.snapshots, self.observed.as_ref(), with_series)
            }),
        }
    }

    /// Combines the results of this side and of the peer. Checks every number from the peer: a
    /// number that cannot be a count is treated as unknown.
    pub(crate) fn ended(&self, peer: &Results) -> Ended {
        let theirs = peer.weir.as_ref().map(extras::read).unwrap_or_default();
        let mut warnings = self.observed.as_ref().map(|o| o.warnings.clone()).unwrap_or_default();
        let streams = self
            .snapshots
            .iter()
            .map(|own| {
                let reported = peer.streams.iter().find(|stream| stream.id == f64::from(own.id));
                if reported.is_none() {
                    warnings.push(format!("the peer reported nothing about stream {}", own.id));
                }
                self.total(own, reported, &theirs)
            })
            .collect();
        let loaded = self.observed.as_ref().and_then(|observed| observed.loaded.clone());
        Ended {
            duration: self.elapsed,
            streams,
            local_cpu: self.cpu(),
            remote_cpu: match (percent(peer.cpu_util_user), percent(peer.cpu_util_system)) {
                (None, None) => None,
                (user, system) => Some(CpuUse {
                    user: user.unwrap_or(0.0),
                    system: system.unwrap_or(0.0),
                    cores: theirs.cores.clone(),
                }),
            },
            local_congestion: self.congestion.clone(),
            remote_congestion: peer.congestion_used.as_deref().and_then(algorithm),
            idle_latency: self.observed.as_ref().and_then(|observed| observed.idle.clone()),
            loaded_latency: loaded,
            server_output: None,
            peer_extras: peer.weir.as_ref().map(extras::without_series),
            observed: self.observed_with(&theirs.series),
            warnings,
        }
    }

    pub(crate) fn alone(&self) -> Ended {
        let mut ended = self.ended(&Results::default());
        ended.warnings = vec!["the other end's figures are missing: the test broke off".to_owned()];
        ended
    }

    fn observed_with(&self, theirs: &[Series]) -> Option<Observed> {
        let mut observed = self.observed.clone()?;
        let received: Vec<u32> =
            self.snapshots.iter().filter(|stream| !stream.sends).map(|stream| stream.id).collect();
        far::merge(&mut observed.series, theirs, &received);
        Some(observed)
    }

    fn cpu(&self) -> CpuUse {
        self.observed.as_ref().map(|observed| observed.cpu.clone()).unwrap_or_default()
    }

    fn stream_result(&self, stream: &StreamSnapshot) -> StreamResult {
        let datagrams = stream.datagrams.unwrap_or_default();
        let omitted = stream.omitted.datagrams.unwrap_or_default();
        let known = self.retransmits(stream);
        StreamResult {
            id: stream.id.into(),
            bytes: stream.bytes.count() as f64,
            retransmits: known.map_or(-1.0, |retransmits| retransmits as f64),
            jitter: datagrams.jitter.secs_f64(),
            // iperf3 counts from the very start, and reports the omitted part separately.
            errors: (datagrams.lost + omitted.lost) as f64,
            omitted_errors: omitted.lost as f64,
            packets: (datagrams.count + omitted.count) as f64,
            omitted_packets: omitted.count as f64,
            start_time: 0.0,
            end_time: self.elapsed.secs_f64(),
        }
    }

    fn retransmits(&self, stream: &StreamSnapshot) -> Option<u64> {
        let path = self.observed.as_ref()?.path(stream.id)?;
        stream.sends.then_some(path.retransmits)?
    }

    fn total(
        &self,
        own: &StreamSnapshot,
        reported: Option<&StreamResult>,
        theirs: &Extras,
    ) -> StreamTotal {
        let ours = End { bytes: own.bytes, elapsed: self.elapsed };
        let peers = reported
            .and_then(|reported| {
                let bytes = Bytes::new(count(reported.bytes)?);
                Some(End { bytes, elapsed: self.elapsed_at_peer(reported) })
            })
            .unwrap_or_default();
        let is_udp = self.options.protocol == Protocol::Udp;
        let (sent, received) = if own.sends { (ours, peers) } else { (peers, ours) };
        let received_datagrams = if own.sends {
            theirs.datagrams(own.id).or_else(|| datagrams(own, reported?))
        } else {
            own.datagrams
        };
        let datagrams_sent = if own.sends {
            own.datagrams.map(|sent| sent.count)
        } else {
            reported.and_then(|reported| packets(own, reported))
        };
        let retransmits = if own.sends {
            self.retransmits(own)
        } else {
            reported.and_then(|reported| count(reported.retransmits))
        };
        StreamTotal {
            id: own.id,
            sends: own.sends,
            sent,
            received,
            retransmits: retransmits.filter(|_| !is_udp),
            datagrams_sent: datagrams_sent.filter(|_| is_udp),
            datagrams: received_datagrams.filter(|_| is_udp),
            path: if own.sends { self.path(own.id) } else { theirs.path(own.id) },
        }
    }

    fn path(&self, id: u32) -> Option<PathFacts> {
        self.observed.as_ref()?.path(id).map(|path| path.facts)
    }

    /// Returns the time that the peer reported, or this side's time if the peer's is impossible.
    fn elapsed_at_peer(&self, reported: &StreamResult) -> Span {
        let seconds = reported.end_time - reported.start_time;
        if seconds > 0.0 && seconds <= MOST_SECONDS {
            return Span::from_secs_f64(seconds);
        }
        self.elapsed
    }
}

/// Returns the datagrams of the measured time, as the receiving peer counted them. iperf3 before
/// 3.13 does not report its omitted datagrams. Client and server omit the same time, so the local
/// count of omitted datagrams replaces the missing count.
fn datagrams(own: &StreamSnapshot, reported: &StreamResult) -> Option<Datagrams> {
    let count_known = packets(own, reported)?;
    let all_lost = count(reported.errors).unwrap_or(0);
    let omitted_lost = count(reported.omitted_errors).unwrap_or(0);
    let lost = all_lost.saturating_sub(omitted_lost).min(count_known);
    let jitter = if (0.0..MOST_SECONDS).contains(&reported.jitter) { reported.jitter } else { 0.0 };
    Some(Datagrams {
        count: count_known,
        received: count_known - lost,
        lost,
        reordered: 0,
        duplicates: 0,
        jitter: Span::from_secs_f64(jitter),
    })
}

fn packets(own: &StreamSnapshot, reported: &StreamResult) -> Option<u64> {
    let all = count(reported.packets)?;
    let omitted = match count(reported.omitted_packets).unwrap_or(0) {
        0 => own.omitted.datagrams.map_or(0, |omitted| omitted.count),
        omitted => omitted,
    };
    Some(all.saturating_sub(omitted))
}

/// Checks a CPU use in percent of a core; the sum over cores may exceed 100.
fn percent(reported: f64) -> Option<f64> {
    (0.0..1e6).contains(&reported).then_some(reported)
}

/// Checks the name of a congestion control: within the kernel's maximum length (TCP_CA_NAME_MAX)
/// and safe to print.
fn algorithm(reported: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!reported.is_empty() && reported.len() < 16 && reported.chars().all(plain))
        .then(|| reported.to_owned())
}

/// Maximum duration that a peer may report: a day and an hour, longer than any test of iperf3.
const MOST_SECONDS: f64 = 90_000.0;

#[cfg(test)]
mod tests;
