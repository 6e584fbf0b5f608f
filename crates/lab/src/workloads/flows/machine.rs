//! Flows of the kernel that share a link: flows under test and competing flows, started one after
//! the other.
//!
//! The workload works as in virtual time, so that one lab file can run in both worlds. The
//! competing flows begin first, the omitted start-up counts from the last flow's start, and the
//! figures are computed alike.

use super::caqm::Spoken;
use super::cell::FlowsCell;
use super::settings::FlowsSettings;
use crate::bench::machine::{
    MachineStep, Measured, PORT, ReceiveCounts, Roles, SeenLinks, Testbed, Watch, accept,
    send_until,
};
use crate::model::file::Shape;
use crate::model::{Cancel, Failure, Measurement};
use host::Namespace;
use link::LinkConfig;
use probe::tcp::TcpInfo;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use units::{Bytes, Span};

/// A flow. This process holds the sockets of both ends.
#[derive(Debug)]
struct Flow {
    sender: TcpStream,
    receiver: TcpStream,
    congestion: String,
    /// Whether the connection may fall back to Reno. A connection falls back if the hosts or ports
    /// do not agree on CAQM.
    may_fall_back: bool,
    own: bool,
    starts: Duration,
    received: AtomicU64,
}

/// A sample of the received bytes and of the senders' state.
#[derive(Debug, Clone)]
struct Sample {
    at: Instant,
    received: Vec<u64>,
    senders: Vec<TcpInfo>,
    congestion: Vec<String>,
}

/// A sample of the received bytes.
#[derive(Debug, Clone)]
struct Received {
    at: Instant,
    bytes: Vec<u64>,
}

/// The samples of flows and CPU time at the start and the end of the measured time.
#[derive(Debug)]
struct Seen {
    before: Watch,
    first: Sample,
    last: Sample,
    after: Watch,
    /// The receiving host's packet counts at the start and the end, if the lab file asks for these
    /// counts.
    counted: [Option<ReceiveCounts>; 2],
}

pub(super) fn measure(
    cell: &FlowsCell,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let FlowsCell { from, to, flows: settings, link, .. } = cell;
    let link = link.as_ref().map(|(link, _)| link);
    let back = link.and_then(|link| link.way_from(to));
    let product = link.and_then(|link| link.product_from(from));
    let link = link.and_then(|link| link.way_from(from));
    let link = link.ok_or_else(|| Failure::Workload("flows share an emulated link".to_owned()))?;
    let round_trip = link.delay + back.map_or(link.delay, |back| back.delay);
    let senders = cell.senders();
    let caqm = Spoken::start(step, testbed, &senders, product)?;
    let flows = connected(step, testbed, settings, &senders, caqm.as_ref().map(Spoken::name))?;
    settings.receiving.apply(step, testbed)?;
    let count = || match settings.receiving.is_set() {
        true => ReceiveCounts::read(step, testbed, &senders).map(Some),
        false => Ok(None),
    };
    let roles = Roles { emulator_tid: testbed.emulator_tid(), ..Roles::default() };
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let last = flows.iter().map(|flow| flow.starts).max().unwrap_or_default();
    let opens = begun + last + step.omit.as_duration();
    let closes = opens + step.duration.as_duration();
    let last_start = last;
    let (measured, received) = std::thread::scope(|scope| {
        let mut working = Vec::with_capacity(2 * flows.len());
        for flow in &flows {
            working.push(scope.spawn(|| pinned(&step.cpus.from, || flow.send(begun, &over))));
            working.push(scope.spawn(|| pinned(&step.cpus.to, || flow.receive(&over))));
        }
        let stepping = scope.spawn(|| sample_received(begun + last_start, &flows, &over));
        let measured = Seen::between(opens, closes, &flows, &roles, step.cancel, count);
        over.store(true, Ordering::Release);
        let received = stepping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for flow in &flows {
            // The shutdown wakes threads that wait for buffer space or for data.
            let _ = flow.sender.shutdown(Shutdown::Both);
            let _ = flow.receiver.shutdown(Shutdown::Both);
        }
        for thread in working {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, Failure>((measured, received))
    })?;
    let Seen { before, first, last, after, counted } = measured?;
    let window = before.taken()..after.taken();
    let (from, to, during) = (from.clone(), to.clone(), window.clone());
    let mut result = Measurement::default();
    account(&flows, &first, &last, link, &mut result);
    let all = result.metrics.get("goodput_mbit_s").map(|value| value.value);
    after.account(&before, step.cpus, all, &mut result);
    if let [Some(before), Some(after)] = &counted {
        after.account(before, &mut result);
    }
    let own = flows.iter().position(|flow| flow.own);
    result.congestion_control = own.map(|own| last.congestion[own].clone());
    if let Some(caqm) = &caqm {
        caqm.account(&mut result)?;
        if result.congestion_control.as_deref() == Some(caqm.name()) {
            result.congestion_control = Some(accel::caqm::NAME.to_owned());
        }
    }
    let shares = received.iter().map(|one| one.bytes.clone()).collect::<Vec<_>>();
    let whose: Vec<_> = flows.iter().map(|flow| flow.own).collect();
    let fair = fair_after(&shares, &whose)
        .map(|number| received[number].at.duration_since(begun + last_start).as_secs_f64());
    let rtts = fair.map(|seconds| seconds.max(0.0) / round_trip.secs_f64());
    result.record("fairness_rtts", rtts);
    let Measured { result, queues } = Measured::between_ends(step, window, result);
    let link = link.clone();
    let access = (cell.topology.shape == Shape::Incast).then(|| cell.topology.access.clone());
    let access = access.map(|access| access.unwrap_or_else(|| link.rate.clone()));
    let queues = move |seen: &SeenLinks<'_>, result: &mut Measurement| {
        queues(seen, result);
        account_queue(&link, round_trip, result);
        let way = seen.way(&from, &to);
        let tagged = way.map(|cable| cable.forward.tagged + cable.backward.tagged);
        result.record("caqm_wire_segments", tagged.map(|count| count as f64));
        if let (Some(cable), Some(access)) = (way, access) {
            seen.account_port(cable, &during, [&link.rate, &access], result);
        }
    };
    Ok(Measured { result, queues: Box::new(queues) })
}

/// Converts the queue from bytes to time at the link's rate and to bandwidth-delay products.
fn account_queue(link: &LinkConfig, round_trip: Span, result: &mut Measurement) {
    let Some(rate) = link.rate.mean_rate() else { return };
    let product = rate.bytes_in(round_trip).count() as f64 / 1000.0;
    for part in ["p50", "p95", "p99"] {
        let waiting = result.metrics.get(&format!("queue_kbyte.{part}")).map(|value| value.value);
        let delay = waiting
            .map(|kilobytes| rate.time_for(Bytes::new((kilobytes * 1000.0) as u64)).millis_f64());
        result.record(&format!("queue_ms.{part}"), delay);
        if part == "p95" {
            result.record("queue_bdp.p95", waiting.map(|waiting| waiting / product));
        }
    }
}

/// Opens all connections before any connection sends, and sets and reads back the connections'
/// algorithms.
fn connected(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    settings: &FlowsSettings,
    senders: &[String],
    caqm: Option<&str>,
) -> Result<Vec<Flow>, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let near = senders.iter().map(|name| testbed.namespace(name));
    let near = near.collect::<Result<Vec<_>, _>>()?;
    let far = testbed.namespace(to)?;
    let address = SocketAddr::new(testbed.address(to, from)?, PORT);
    let listener = far.run(|| Ok(TcpListener::bind(address)))?;
    let listener = listener.map_err(|error| Failure::io("listening", &error))?;
    let own = step.system.congestion.as_ref().map_or("", |name| name.get_ref().as_str());
    let own = caqm.unwrap_or(own);
    let beside = settings.beside.map_or(0, |beside| beside.count);
    let other = settings.beside.and_then(|beside| beside.algorithm);
    let mut flows = Vec::with_capacity((beside + settings.own) as usize);
    for number in 0..beside + settings.own {
        let is_own = number >= beside;
        let name = other.filter(|_| !is_own).map_or(own, |other| other.name());
        let near = &near[number as usize % near.len()];
        let (sender, receiver) = connect(near, &listener, address, step.cancel)?;
        // Keep the algorithm that both hosts negotiated. A connection without an agreement runs
        // Reno.
        let agreed = is_own && caqm.is_some();
        let declined = agreed && probe::tcp::congestion_control_of(&sender)? != name;
        let chosen = if declined { "reno" } else { name };
        probe::tcp::set_congestion_control(&sender, chosen)
            .map_err(|refused| Failure::Workload(refused.to_string()))?;
        flows.push(Flow {
            sender,
            receiver,
            congestion: name.to_owned(),
            may_fall_back: is_own && caqm.is_some(),
            own: is_own,
            starts: (settings.stagger * u64::from(number)).as_duration(),
            received: AtomicU64::new(0),
        });
    }
    Ok(flows)
}

fn connect(
    near: &Namespace,
    listener: &TcpListener,
    address: SocketAddr,
    cancel: &Cancel,
) -> Result<(TcpStream, TcpStream), Failure> {
    let sender = near.run(|| Ok(TcpStream::connect_timeout(&address, PATIENCE)))?;
    let sender = sender.map_err(|error| Failure::io("connecting", &error))?;
    let silent = "the far end accepted no connection";
    let receiver = accept(listener, cancel, "connecting", silent)?;
    Ok((sender, receiver))
}

impl Seen {
    fn between(
        opens: Instant,
        closes: Instant,
        flows: &[Flow],
        roles: &Roles,
        cancel: &Cancel,
        count: impl Fn() -> Result<Option<ReceiveCounts>, Failure>,
    ) -> Result<Self, Failure> {
        cancel.sleep_until(opens)?;
        let (before, first, begin) = (Watch::read(roles)?, sample(flows)?, count()?);
        cancel.sleep_until(closes)?;
        let (end, last) = (count()?, sample(flows)?);
        let after = Watch::read(roles)?;
        Ok(Self { before, first, last, after, counted: [begin, end] })
    }
}

impl Flow {
    fn send(&self, begun: Instant, over: &AtomicBool) -> Result<(), Failure> {
        let starts = begun + self.starts;
        std::thread::sleep(starts.saturating_duration_since(Instant::now()));
        send_until(&self.sender, over)
    }

    fn receive(&self, over: &AtomicBool) -> Result<(), Failure> {
        let mut block = vec![0_u8; BLOCK];
        let mut socket = &self.receiver;
        while !over.load(Ordering::Acquire) {
            match socket.read(&mut block) {
                Ok(0) => break,
                Ok(count) => {
                    self.received.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if over.load(Ordering::Acquire) => break,
                Err(error) => return Err(Failure::io("receiving", &error)),
            }
        }
        Ok(())
    }
}

fn pinned<T>(cpus: &[usize], work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    host::pin_to(cpus)?;
    work()
}

fn sample(flows: &[Flow]) -> Result<Sample, Failure> {
    let senders = flows.iter().map(|flow| probe::tcp::of_socket(&flow.sender));
    let senders = senders.collect::<Result<Vec<_>, _>>()?;
    let mut congestion = Vec::with_capacity(flows.len());
    for flow in flows {
        let has = probe::tcp::congestion_control_of(&flow.sender)?;
        let allowed = has == flow.congestion || flow.may_fall_back && has == "reno";
        congestion.push(has.clone());
        if !allowed {
            let wanted = &flow.congestion;
            let text = format!("a flow runs {has} though {wanted} was asked for");
            return Err(Failure::Workload(text));
        }
    }
    let received = flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).collect();
    Ok(Sample { at: Instant::now(), received, senders, congestion })
}

fn account(
    flows: &[Flow],
    first: &Sample,
    last: &Sample,
    link: &LinkConfig,
    result: &mut Measurement,
) {
    let elapsed = last.at.duration_since(first.at).as_secs_f64();
    let goodput = |number: usize| {
        (last.received[number] - first.received[number]) as f64 * 8e-6 / elapsed.max(1e-9)
    };
    let of = |own: bool| -> Vec<f64> {
        let numbers = flows.iter().enumerate().filter(|(_, flow)| flow.own == own);
        numbers.map(|(number, _)| goodput(number)).collect()
    };
    let (own, beside) = (of(true), of(false));
    let sum = |rates: &[f64]| rates.iter().sum::<f64>();
    result.record("goodput_mbit_s", Some(sum(&own)));
    let frame = Bytes::new((SEGMENT + HEADERS) as u64);
    let payload = SEGMENT / link.overhead.on_the_medium(frame).count() as f64;
    let rate = link.rate.mean_rate().unwrap_or_default().mbit_per_second();
    let ideal = rate * payload * (1.0 - link.loss.mean().fraction());
    result.record("share_of_ideal", Some((sum(&own) + sum(&beside)) / ideal));
    if !beside.is_empty() {
        let fair = ideal / flows.len() as f64;
        result.record("fair_share", Some(sum(&own) / own.len() as f64 / fair));
    }
    if own.len() > 1 {
        result.record("jain", Some(sim::jain(&own)));
        result.record("flow_mbit_s.min", own.iter().copied().reduce(f64::min));
        result.record("flow_mbit_s.max", own.iter().copied().reduce(f64::max));
    }
    let grown = |field: fn(&TcpInfo) -> Option<Bytes>| -> Option<f64> {
        let of = |sample: &Sample| -> Option<u64> {
            let own = flows.iter().zip(&sample.senders).filter(|(flow, _)| flow.own);
            own.map(|(_, info)| Some(field(info)?.count())).sum()
        };
        Some(of(last)?.saturating_sub(of(first)?) as f64)
    };
    let again = grown(|info| info.bytes_retrans).zip(grown(|info| info.bytes_sent));
    let share = again.filter(|(_, sent)| *sent > 0.0).map(|(again, sent)| again / sent * 100.0);
    result.record("retransmit_percent", share);
}

/// Takes samples at intervals from the last flow's start.
fn sample_received(from: Instant, flows: &[Flow], over: &AtomicBool) -> Vec<Received> {
    let mut samples = Vec::new();
    while !over.load(Ordering::Acquire) {
        if Instant::now() >= from {
            let bytes = flows.iter().map(|flow| flow.received.load(Ordering::Relaxed));
            samples.push(Received { at: Instant::now(), bytes: bytes.collect() });
        }
        std::thread::sleep(STEP);
    }
    samples
}

/// Returns the index of the first step after which the flows under test share the link fairly for
/// one fairness window.
fn fair_after(received: &[Vec<u64>], own: &[bool]) -> Option<usize> {
    let shares = |from: usize| -> Vec<f64> {
        let (before, after) = (&received[from], &received[from + STEPS]);
        let came = before.iter().zip(after).zip(own);
        came.filter(|(_, own)| **own).map(|((a, b), _)| (b - a) as f64).collect()
    };
    let windows = received.len().checked_sub(STEPS)?;
    (0..windows).find(|from| {
        let shares = shares(*from);
        shares.len() > 1 && shares.iter().all(|share| *share > 0.0) && sim::jain(&shares) >= FAIR
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
const BLOCK: usize = 128 * 1024;
const STEP: Duration = Duration::from_millis(10);
/// Number of steps in one fairness window of 200 ms.
const STEPS: usize = 20;
/// Minimum value of Jain's index for fair shares.
const FAIR: f64 = 0.98;
/// Size of the payload of a segment with timestamps, as in the simulator.
const SEGMENT: f64 = 1448.0;
const HEADERS: f64 = 66.0;
