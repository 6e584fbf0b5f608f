//! Downloads in virtual time: the server's TCP sends the file over each link in a separate world.

use super::account;
use super::ideal::Path;
use super::settings::{DownloadSettings, Way};
use crate::bench::simulator::SimulatorStep;
use crate::bench::simulator::carrier::Carrier;
use crate::model::file::DirectionSettings;
use crate::model::{Failure, Measurement, Member};
use cc::{Algorithm, Memory};
use link::{Capacity, LinkConfig};
use sim::{Demand, FlowSpec, LinkOutcome, Opening, TcpConfig, Topology, World, WorldConfig};
use std::sync::Arc;
use std::time::Duration;
use units::{Bytes, Share, Span, Time};

pub(super) fn measure(
    settings: &DownloadSettings,
    step: &SimulatorStep<'_>,
) -> Result<Measurement, Failure> {
    let job = step.job;
    let carrier = Carrier::of(job.system).map_err(Failure::Workload)?;
    let Carrier::Tcp(algorithm) = carrier else {
        return Err(Failure::Workload("a download is carried by TCP".to_owned()));
    };
    let warmed_at = job.system.warmed_at().map_err(Failure::Workload)?;
    let mut result = Measurement::default();
    let mut hash = FNV_OFFSET;
    for (number, way) in settings.ways.iter().enumerate() {
        let line = Line::of(settings, way)?;
        let mut memory = None;
        // All systems at a place have the same seeds, and so the same losses.
        let mut seed = step.seed.wrapping_add(1_000_003 * number as u64);
        let mut fetch = |line: &Line, memory: Option<Memory>| {
            let hosts = hosts(job.system.first_window(), memory);
            seed = seed.wrapping_add(1);
            line.fetch(algorithm, settings.size, hosts, seed)
        };
        if job.system.is_warm() {
            memory = fetch(&line.at(warmed_at), None)?.noted;
        }
        let (mut fetched, mut elapsed) = (Vec::new(), Span::ZERO);
        while fetched.is_empty() || elapsed < job.plan.duration {
            if job.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            let one = fetch(&line, memory)?;
            elapsed = elapsed + one.took.unwrap_or(line.patience(settings.size));
            if job.system.is_warm() {
                memory = one.noted.or(memory);
            }
            hash = (hash ^ one.hash).wrapping_mul(FNV_PRIME);
            fetched.push(one);
        }
        let measurement = account_of(&line.path, settings.size, &fetched);
        result.members.push(Member { name: way.name.clone(), measurement });
    }
    account::summarise(&mut result);
    result.congestion_control = Some(carrier.name());
    result.fingerprint = Some(format!("{hash:016x}"));
    Ok(result)
}

/// Estimates the computing time, if all paths are busy throughout.
pub(super) fn lasting(settings: &DownloadSettings, duration: Span) -> Duration {
    let lines = settings.ways.iter().filter_map(|way| Line::of(settings, way).ok());
    let of_one = |line: Line| {
        let once = line.path.ideal(settings.size).max(duration).secs_f64();
        line.path.rate.bits_per_second() as f64 * once / BITS_OF_A_PACKET * SECONDS_A_PACKET
    };
    Duration::from_secs_f64(lines.map(of_one).sum())
}

/// The link to one client, simulated apart from the other links.
struct Line {
    path: Path,
    there: DirectionSettings,
    back: LinkConfig,
}

/// The result of one download in a simulated world.
struct Fetched {
    /// The time of the download. `None` for a download that was not complete in time.
    took: Option<Span>,
    connected: Span,
    sent: Bytes,
    again: Bytes,
    noted: Option<Memory>,
    queue_ms: [Option<f64>; 3],
    queue_bdp: Option<f64>,
    hash: u64,
}

impl Line {
    fn of(settings: &DownloadSettings, way: &Way) -> Result<Self, Failure> {
        let link = settings.links.iter().find(|link| link.joins(&settings.server, &way.to));
        let there = link.and_then(|link| link.direction_from(&settings.server));
        let back = link.and_then(|link| link.way_from(&way.to));
        let path = there.zip(back).and_then(|(there, back)| Path::of(&there.config, back));
        match (path, there, back) {
            (Some(path), Some(there), Some(back)) => {
                Ok(Self { path, there: there.clone(), back: back.clone() })
            }
            _ => Err(Failure::Workload(format!("no link with a rate leads to {}", way.to))),
        }
    }

    /// Returns this link with a multiple of its rate.
    fn at(&self, multiple: f64) -> Self {
        let mut there = self.there.clone();
        let rate = super::scaled(self.path.rate, multiple);
        there.config.rate = Capacity::Fixed(rate);
        Self { path: Path { rate, ..self.path }, there, back: self.back.clone() }
    }

    fn patience(&self, size: Bytes) -> Span {
        self.path.expected(size, Some("cubic")) * 6 + Span::from_secs(20)
    }

    fn fetch(
        &self,
        algorithm: Algorithm,
        size: Bytes,
        hosts: TcpConfig,
        seed: u64,
    ) -> Result<Fetched, Failure> {
        let mut topology = Topology::new();
        let (server, client) = (topology.node(), topology.node());
        let there = topology.link("there", server, client, &self.there.config);
        topology.link("back", client, server, &self.back);
        if let Some(policer) = self.there.policer {
            topology.police(there, policer);
        }
        let flow = FlowSpec::tcp(server, client, algorithm, Demand::Size(size), Arc::new(hosts));
        let config =
            WorldConfig { seed, until: Time::ZERO + self.patience(size), ..WorldConfig::default() };
        let world = World::new(&topology, vec![flow], config);
        let outcome = world.map_err(|error| Failure::Workload(error.to_string()))?.run();
        let flow = &outcome.flows[0];
        let link = outcome.link(there);
        let delay = |percent: f64| {
            let bytes = link?.occupancy.quantile(Share::from_percent(percent)?);
            Some(self.path.rate.time_for(bytes).millis_f64())
        };
        let product = self.path.rate.bytes_in(self.path.round_trip).count() as f64;
        let p95 = |link: &LinkOutcome| {
            let bytes = link.occupancy.quantile(Share::from_percent(95.0)?);
            (product > 0.0).then(|| bytes.count() as f64 / product)
        };
        Ok(Fetched {
            took: flow.completion,
            connected: flow.connected.unwrap_or_default(),
            sent: flow.sent,
            again: flow.retransmitted,
            noted: flow.noted,
            queue_ms: [delay(50.0), delay(95.0), delay(99.0)],
            queue_bdp: link.and_then(p95),
            hash: outcome.hash(),
        })
    }
}

/// Returns the TCP settings of Linux hosts, with the buffers of the reference report's server, for
/// a download.
fn hosts(first_window: Option<u32>, memory: Option<Memory>) -> TcpConfig {
    let usual = TcpConfig::default();
    TcpConfig {
        opening: Opening::ByReceiver,
        initial_window: first_window.unwrap_or(usual.initial_window),
        memory,
        ..usual
    }
}

fn account_of(path: &Path, size: Bytes, fetched: &[Fetched]) -> Measurement {
    let mut own = Measurement::default();
    let done: Vec<(&Fetched, Span)> =
        fetched.iter().filter_map(|one| Some((one, one.took?))).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let kbytes = size.count() as f64 / 1024.0;
    let speed = mean(&mut done.iter().map(|(_, took)| kbytes / took.secs_f64())).unwrap_or(0.0);
    let transfer = mean(
        &mut done
            .iter()
            .map(|(one, took)| kbytes / took.saturating_sub(one.connected).secs_f64().max(1e-9)),
    );
    own.record("kbyte_s", Some(speed));
    own.record("transfer_kbyte_s", transfer.or(Some(0.0)));
    account::record_ideals(path, size, speed, &mut own);
    own.record("availability_percent", Some(done.len() as f64 / fetched.len() as f64 * 100.0));
    let sum = |part: fn(&Fetched) -> Bytes| -> f64 {
        fetched.iter().map(|one| part(one).count() as f64).sum()
    };
    let sent = sum(|one| one.sent);
    own.record("retransmit_percent", (sent > 0.0).then(|| sum(|one| one.again) / sent * 100.0));
    for (place, part) in ["p50", "p95", "p99"].into_iter().enumerate() {
        let delays = mean(&mut fetched.iter().filter_map(|one| one.queue_ms[place]));
        own.record(&format!("queue_ms.{part}"), delays);
    }
    own.record("queue_bdp.p95", mean(&mut fetched.iter().filter_map(|one| one.queue_bdp)));
    own.record("downloads", Some(fetched.len() as f64));
    own
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// Size of a full frame in bits, for the estimate.
const BITS_OF_A_PACKET: f64 = 12_112.0;
const SECONDS_A_PACKET: f64 = 1.2e-6;
