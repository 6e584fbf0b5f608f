use super::start_barrier::Tally;
use super::wire::Report;
use super::{Confidence, Cpu, Kind, Latencies, LatencySummary, Size};
use stats::MeanEstimate;
use units::{Share, Span};

#[derive(Debug, Clone)]
pub struct RoundsOutcome {
    pub kind: Kind,
    pub size: Size,
    pub connections: u32,
    pub depth: u32,
    pub runs: Vec<Run>,
    /// Estimate of [`Run::rate`] over the repeats.
    pub rate: MeanEstimate,
    pub confidence: Option<ConfidenceOutcome>,
    /// Latency of all repeats together.
    pub latency: Option<LatencySummary>,
}

/// The required confidence, and whether the estimate reached it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfidenceOutcome {
    pub asked: Confidence,
    pub met: bool,
}

#[derive(Debug, Clone)]
pub struct Run {
    /// Transactions a second; for streams, bits of payload received a second.
    pub rate: f64,
    pub elapsed: Span,
    /// Number of transactions, or of messages sent.
    pub count: u64,
    /// Payload that the client sent, and payload that the server received, in bytes.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Number of requests without a response, of lost datagrams, or of failed connections.
    pub lost: u64,
    /// Number of responses that arrived after their request counted as lost.
    pub late: u64,
    pub latency: Option<LatencySummary>,
    pub client: Cpu,
    pub server: Cpu,
}

impl RoundsOutcome {
    pub(super) fn of(
        (kind, size): (Kind, Size),
        (connections, depth): (u32, u32),
        (runs, latencies): (Vec<Run>, &Latencies),
        asked: Option<Confidence>,
    ) -> Option<Self> {
        let rate = estimate(&runs, asked)?;
        let met = |asked: Confidence| ConfidenceOutcome { asked, met: asked.is_met_by(&rate) };
        let confidence = asked.map(met);
        let latency = latencies.summary();
        Some(Self { kind, size, connections, depth, runs, rate, confidence, latency })
    }

    /// True if no confidence was required, or if the estimate reached it.
    pub fn is_sure(&self) -> bool {
        self.confidence.is_none_or(|confidence| confidence.met)
    }

    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|run| run.lost).sum()
    }

    pub fn late(&self) -> u64 {
        self.runs.iter().map(|run| run.late).sum()
    }

    /// Returns the share of lost requests or datagrams; `None` for TCP, which loses nothing.
    pub fn loss(&self) -> Option<Share> {
        if !self.kind.is_udp() {
            return None;
        }
        let count: u64 = self.runs.iter().map(|run| run.count).sum();
        let all = if self.kind.has_latency() { count + self.lost() } else { count };
        Share::new(self.lost() as f64 / all.max(1) as f64)
    }

    pub fn client(&self) -> Option<Cpu> {
        over(self.runs.iter().map(|run| &run.client))
    }

    pub fn server(&self) -> Option<Cpu> {
        over(self.runs.iter().map(|run| &run.server))
    }

    /// Returns the CPU cost of a unit of work (netperf's service demand): microseconds of the CPU
    /// time `time` per transaction, or per KiB received of a stream. `None` if no work was done.
    pub fn demand(&self, time: Span) -> Option<f64> {
        let work: f64 = match self.kind.has_latency() {
            true => self.runs.iter().map(|run| run.count as f64).sum(),
            false => self.runs.iter().map(|run| run.bytes_received as f64 / 1024.0).sum(),
        };
        (work > 0.0).then(|| time.micros_f64() / work)
    }
}

impl Run {
    /// Combines the counts of client and server. The error names an impossible value from the
    /// server.
    pub(super) fn of(
        kind: Kind,
        tallies: &[Tally],
        latencies: &Latencies,
        (report, client): (&Report, Cpu),
    ) -> Result<Self, String> {
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
        let began = tallies.iter().map(|tally| tally.began).min();
        let ended = tallies.iter().map(|tally| tally.ended).max();
        let elapsed = began.zip(ended).map(|(began, ended)| ended - began).unwrap_or_default();
        let (count, bytes_sent) = (sum(|tally| tally.count), sum(|tally| tally.bytes));
        if !kind.has_latency() && (report.bytes > bytes_sent || report.count > count) {
            return Err(format!(
                "it received {} bytes of the {bytes_sent} that were sent",
                report.bytes
            ));
        }
        if !report.seconds.is_finite() || !(0.0..=MOST_SECONDS).contains(&report.seconds) {
            return Err(format!("its measurement took {} seconds", report.seconds));
        }
        // Data in flight at the end arrives after the client's time is over.
        let elapsed = match kind.has_latency() {
            true => elapsed.as_secs_f64(),
            false => elapsed.as_secs_f64().max(report.seconds),
        };
        let work = if kind.has_latency() { count as f64 } else { report.bytes as f64 * 8.0 };
        let lost = match kind {
            Kind::UdpStream => count - report.count,
            _ => sum(|tally| tally.lost),
        };
        let server = Cpu::from_wire(&report.cpu).ok_or("it used more CPU than it has")?;
        Ok(Self {
            rate: if elapsed > 0.0 { work / elapsed } else { 0.0 },
            elapsed: Span::from_secs_f64(elapsed),
            count,
            bytes_sent,
            bytes_received: report.bytes,
            lost,
            late: sum(|tally| tally.late),
            latency: latencies.summary(),
            client,
            server,
        })
    }
}

pub(super) fn estimate(runs: &[Run], asked: Option<Confidence>) -> Option<MeanEstimate> {
    let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
    MeanEstimate::of(&rates, asked.unwrap_or_else(Confidence::usual).level)
}

fn over<'a>(mut cpus: impl Iterator<Item = &'a Cpu>) -> Option<Cpu> {
    let first = cpus.next()?.clone();
    Some(cpus.fold(first, |sum, cpu| sum.and(cpu)))
}

const MOST_SECONDS: f64 = 2.0 * 86_400.0;
