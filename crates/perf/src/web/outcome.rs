use super::tally::Tally;
use super::{Fault, WebOptions};
use crate::rounds::LatencySummary;
use std::collections::BTreeMap;
use units::Span;

#[derive(Debug, Clone)]
pub struct WebOutcome {
    pub elapsed: Span,
    /// Number of good responses: complete, with a status below 400.
    pub responses: u64,
    /// Bytes of the bodies of good responses.
    pub body: u64,
    /// The latency of good responses. In an open loop the latency counts from the time at which the
    /// request was due. `None` without responses.
    pub latency: Option<LatencySummary>,
    /// The latency of good responses, counted from the time of sending.
    pub service: Option<LatencySummary>,
    /// The time from the opening of a connection until it can carry a request.
    pub connect: Option<LatencySummary>,
    pub faults: BTreeMap<Fault, u64>,
    /// The number of responses for each status of 300 and above.
    pub statuses: BTreeMap<u16, u64>,
    /// The system's or the library's text about the first fault of each kind.
    pub words: BTreeMap<Fault, String>,
    /// Number of requests in progress at the end. These requests do not count as errors.
    pub unfinished: u64,
    /// Number of requests of an open loop that were due but had no free connection until the end.
    pub unsent: u64,
    /// TLS version and cipher suite.
    pub protocol: Option<String>,
    /// CPU time of this process.
    pub cpu: Span,
}

impl WebOutcome {
    pub(super) fn new(tally: Tally, elapsed: Span, cpu: Span) -> Self {
        Self {
            elapsed,
            responses: tally.responses,
            body: tally.body,
            latency: tally.latency.summary(),
            service: tally.service.summary(),
            connect: tally.connect.summary(),
            faults: tally.faults,
            statuses: tally.statuses,
            words: tally.words,
            unfinished: tally.unfinished,
            unsent: tally.unsent,
            protocol: tally.protocol,
            cpu,
        }
    }

    pub fn requests_s(&self) -> f64 {
        self.responses as f64 / self.elapsed.secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the goodput of the bodies in Mbit/s.
    pub fn mbit_s(&self) -> f64 {
        self.body as f64 * 8.0 / 1e6 / self.elapsed.secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn errors(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns the CPU time of this process per good response, in microseconds.
    pub fn cpu_us(&self) -> Option<f64> {
        (self.responses > 0).then(|| self.cpu.micros_f64() / self.responses as f64)
    }

    /// True if there were good responses and no errors, at the requested rate.
    pub fn is_fine(&self, options: &WebOptions) -> bool {
        self.responses > 0 && self.errors() == 0 && !self.lags(options)
    }

    /// True if an open loop left more requests unsent than it has connections.
    pub fn lags(&self, options: &WebOptions) -> bool {
        options.rate.is_some() && self.unsent > u64::from(options.connections)
    }
}
