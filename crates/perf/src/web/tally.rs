use super::Fault;
use crate::rounds::Latencies;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) responses: u64,
    pub(super) body: u64,
    /// The time from when a request was due (open loop) or sent (closed loop) to the end of its
    /// response.
    pub(super) latency: Latencies,
    /// The time from the sending of a request to the end of its response, in both loops.
    pub(super) service: Latencies,
    /// The time from the opening of a connection until it can carry a request, TLS included.
    pub(super) connect: Latencies,
    pub(super) faults: BTreeMap<Fault, u64>,
    /// The number of responses for each status of 300 and above.
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) words: BTreeMap<Fault, String>,
    pub(super) unfinished: u64,
    /// Number of requests of an open loop that were due but were not sent until the end.
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
