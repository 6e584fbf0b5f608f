use super::Fault;
use crate::rounds::Latencies;
use std::collections::BTreeMap;
use std::time::Duration;

/// The counts of one thread, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Good responses.
    pub(super) responses: u64,
    /// Bytes of their bodies.
    pub(super) body: u64,
    /// From the time that a request was due (open loop) or sent (closed loop) to the end of its
    /// response.
    pub(super) latency: Latencies,
    /// From the moment of sending, in an open loop too.
    pub(super) service: Latencies,
    /// From before a connection is opened until it can carry a request, TLS included.
    pub(super) connect: Latencies,
    pub(super) faults: BTreeMap<Fault, u64>,
    /// The statuses of 400 and above.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// The system's or the library's words for the first fault of each kind.
    pub(super) words: BTreeMap<Fault, String>,
    /// Requests that were under way at the end.
    pub(super) unfinished: u64,
    /// Requests of an open loop whose time came and that were not sent by the end.
    pub(super) unsent: u64,
    pub(super) protocol: Option<String>,
}

impl Tally {
    pub(super) fn fault(&mut self, fault: Fault, words: impl FnOnce() -> Option<String>) {
        let count = self.faults.entry(fault).or_default();
        *count += 1;
        if *count == 1
            && let Some(words) = words()
        {
            self.words.insert(fault, words);
        }
    }

    pub(super) fn connected(&mut self, took: Duration) {
        self.connect.add(took);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.responses += other.responses;
        self.body += other.body;
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.connect.merge(&other.connect);
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (fault, words) in other.words {
            self.words.entry(fault).or_insert(words);
        }
        self.unfinished += other.unfinished;
        self.unsent += other.unsent;
        self.protocol = self.protocol.take().or(other.protocol);
    }
}
