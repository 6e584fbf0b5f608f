//! A queueing discipline of this machine limits the rate: tbf, htb and others count each packet
//! that they delay for the rate as an overlimit.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::Qdisc;
use crate::signs::emulated::{EmulatedQueue, emulated_queue};
use crate::view::{Flow, View, counted};
use crate::words::{bytes, percent, rate, span};
use units::Rate;

pub(super) const RULE: Rule =
    Rule::new("shaper", "a rate limit in a queueing discipline").flow(of_flow).machine(of_machine);
pub(super) const EACH_FLOW: Case = Case::new("the limit holds for each connection");

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(name) = flow.interface() else { return Outcome::Irrelevant };
    if let Some(outcome) = of_each_flow(flow, view, name) {
        return outcome;
    }
    let limits = limits(view);
    let is_own = |limit: &&Limit<'_>| flow.sender.is_some() && limit.qdisc.interface == name;
    let own = || limits.iter().filter(is_own);
    // A band or a class of the interface may limit other traffic alone.
    let passing = own().filter(|limit| limit.is_full() && limit.may_pass(flow));
    // The packets of a tunnel, a VLAN or a bridge leave through another interface, and received
    // packets may be redirected to another interface (ifb). A limit of the other interface belongs
    // to the connection if it passes about as much data.
    let other = || limits.iter().find(|limit| limit.is_full() && limit.carries(flow));
    let full = passing.max_by_key(|limit| limit.over).or_else(other);
    if full.is_none()
        && let Some(queue) = emulated_queue(flow, view)
    {
        return of_emulated(&queue);
    }
    match full {
        Some(limit) => limit.finding().limits_for(limit.waits).holds(),
        None if flow.sender.is_none() => of_answers(flow, view, &limits, name),
        None => Outcome::ruled_out(match own().max_by_key(|limit| limit.over) {
            None => format!("no queueing discipline on {name} limits a rate"),
            Some(own) => format!(
                "{} on {name} delayed {} packets; it held some in {} of the samples",
                own.qdisc.kind,
                own.over,
                percent(own.waits)
            ),
        }),
    }
}

/// Judges `fq`, which limits the rate of each connection and does not count overlimits.
fn of_each_flow(flow: &Flow<'_>, view: &View<'_>, name: &str) -> Option<Outcome> {
    let sender = flow.sender.as_ref()?;
    let queues = view.last().qdiscs.iter().filter(|qdisc| qdisc.interface == name);
    let most = queues.filter_map(|qdisc| qdisc.flow_limit).min()?;
    let share = flow.rate().bits_per_second() as f64 / most.bits_per_second().max(1) as f64;
    let is_reached = OF_FLOW_LIMIT.contains(&share) && sender.has_data();
    is_reached.then(|| {
        Finding::new(format!(
            "a rate limit of this machine is the limit: fq on {name} gives each connection {}",
            rate(most)
        ))
        .limits_for(share)
        .case(EACH_FLOW)
        .allows(Some(most))
        .seen_from("rate, of the limit with headers", percent(share), percent(OF_FLOW_LIMIT.start))
        .advise(
            Advice::new("Raise or remove `maxrate`, if it is not intended")
                .run(format!("tc -s -d qdisc show dev {name}"))
                .run(format!("tc qdisc replace dev {name} root fq"))
                .not("Buffers, congestion control and more CPU change nothing"),
        )
        .holds()
    })
}

/// Judges `netem`, which may emulate a rate and does not count overlimits.
fn of_emulated(queue: &EmulatedQueue<'_>) -> Outcome {
    let (kind, name, handle) = (&queue.qdisc.kind, &queue.qdisc.interface, &queue.qdisc.handle);
    Finding::new(format!(
        "a rate limit of this machine is the limit: {kind} on {name}, which emulates a path, passes {} and holds the rest back",
        rate(queue.passes)
    ))
    .limits_for(queue.share)
    .allows(Some(queue.passes))
    .seen_from(
        format!("time that packets wait in {kind}, against the shortest round trip"),
        span(queue.wait),
        span(queue.least),
    )
    .seen_from("samples in which packets wait so long", percent(queue.share), percent(WAITS))
    .advise(
        Advice::new(format!("Remove the rate of {kind} if it is not intended (handle {handle})"))
            .run(format!("tc -s -d qdisc show dev {name}"))
            .not("Buffers, congestion control and more CPU change nothing: the limit holds for all of them together"),
    )
    .holds()
}

/// Judges a rate limit on the interface that sends the acknowledgements, which holds back the
/// arriving data.
fn of_answers(flow: &Flow<'_>, view: &View<'_>, limits: &[Limit<'_>], name: &str) -> Outcome {
    let own = limits.iter().filter(|limit| limit.qdisc.interface == name && limit.is_full());
    let Some(limit) = own.max_by_key(|limit| limit.over) else { return Outcome::Irrelevant };
    let passes = limit.passes.bits_per_second();
    let sends = |other: &Flow<'_>| {
        let rate = other.rate().bits_per_second();
        other.sender.is_some() && other.interface() == Some(name) && rate >= passes / ANSWERS
    };
    let are_answers = flow.rate().bits_per_second() / ANSWERS >= passes;
    if !are_answers || view.flows.iter().any(sends) {
        return Outcome::Irrelevant;
    }
    limit
        .finding()
        .seen("rate of the data that comes in", rate(flow.rate()))
        .seen("it holds back", "the acknowledgements of that data")
        .limits_for(limit.waits)
        .holds()
}

/// Judges a limit that affects no busy connection. Forwarded packets and datagrams belong to no
/// connection of this machine.
fn of_machine(view: &View<'_>) -> Outcome {
    let is_of_flow = |flow: &Flow<'_>| flow.is_busy() && of_flow(flow, view).finding().is_some();
    if view.flows.iter().any(is_of_flow) {
        return Outcome::Irrelevant;
    }
    let limits = limits(view);
    let full = limits.iter().filter(|limit| limit.is_full());
    let Some(limit) = full.max_by_key(|limit| limit.over) else { return Outcome::Irrelevant };
    let is_beside = view.flows.iter().any(|flow| !limit.may_pass(flow));
    let finding = limit.finding();
    match is_beside {
        true => finding
            .allows(None)
            .against("faster connections of this machine do not pass this limit"),
        false => finding,
    }
    .limits()
    .holds()
}

/// A queueing discipline during the observation.
struct Limit<'a> {
    qdisc: &'a Qdisc,
    /// Packets that the queueing discipline delayed.
    over: u64,
    per_second: f64,
    /// Bytes that the queueing discipline passed.
    sent: u64,
    passes: Rate,
    /// The share of the samples in which the queueing discipline held packets.
    waits: f64,
}

fn limits<'a>(view: &View<'a>) -> Vec<Limit<'a>> {
    let seconds = view.elapsed().secs_f64();
    let counts_delays = |qdisc: &Qdisc| !qdisc.is_hook() && !MARKS.contains(&qdisc.kind.as_str());
    let queues = view.queues.iter().filter(|queue| counts_delays(queue.qdisc));
    let limits = queues.filter_map(|queue| {
        let (later, earlier) = (queue.qdisc, queue.earlier);
        let over = counted(later.overlimits, earlier.overlimits)?;
        let sent = counted(later.sent.count(), earlier.sent.count())?;
        Some(Limit {
            qdisc: later,
            over,
            per_second: over as f64 / seconds,
            sent,
            passes: Rate::from_bits_per_second((sent as f64 * 8.0 / seconds) as u64),
            waits: queue.waits,
        })
    });
    limits.collect()
}

impl Limit<'_> {
    fn is_full(&self) -> bool {
        // At a low rate few packets wait each second, but most of the packets wait.
        let most = self.over >= FEW && self.sent / self.over.max(1) <= EACH;
        (self.per_second >= OVERLIMITS || most) && self.waits >= WAITS
    }

    /// Whether the flow's bytes may be among the passed bytes.
    fn may_pass(&self, flow: &Flow<'_>) -> bool {
        flow.rate().bits_per_second() as f64 <= self.passes.bits_per_second() as f64 * MORE
    }

    /// Whether most of the passed bytes, with headers, may belong to the flow.
    fn carries(&self, flow: &Flow<'_>) -> bool {
        let passes = (self.passes.bits_per_second() as f64).max(1.0);
        CARRIED.contains(&(flow.rate().bits_per_second() as f64 / passes))
    }

    fn finding(&self) -> Finding {
        let (qdisc, name) = (self.qdisc, &self.qdisc.interface);
        Finding::new(format!(
            "a rate limit of this machine is the limit: {} on {name} passes {} and holds the rest back",
            qdisc.kind,
            rate(self.passes)
        ))
        .allows(Some(self.passes))
        .seen_from("packets delayed by the limit", format!("{:.0} a second", self.per_second), format!("{OVERLIMITS} a second"))
        .seen_from("samples with packets in its queue", percent(self.waits), percent(WAITS))
        .seen("queue now", bytes(qdisc.backlog))
        .advise(
            Advice::new(format!("Look at the limit, and raise or remove it if it is not intended (handle {})", qdisc.handle))
                .run(format!("tc -s -d qdisc show dev {name}"))
                .run(format!("tc -s class show dev {name}"))
                .not("Buffers, congestion control and more CPU change nothing: the limit holds for all of them together"),
        )
    }
}

/// Queueing disciplines that limit no rate: they count packets that they mark or drop as
/// overlimits.
const MARKS: [&str; 6] = ["red", "gred", "choke", "sfb", "etf", "dualpi2"];
const OVERLIMITS: f64 = 20.0;
const FEW: u64 = 5;
/// If most packets are delayed, the limit passes at most this many bytes per delayed packet: two
/// frames.
const EACH: u64 = 3_028;
/// Arriving data is at least this many times as much as the acknowledgements that pass the limit.
const ANSWERS: u64 = 5;
/// The rate of a connection as a share of `fq`'s limit for each connection, which includes headers.
const OF_FLOW_LIMIT: std::ops::Range<f64> = 0.8..1.1;
/// Minimum share of the samples with packets in the queue (measured).
const WAITS: f64 = 0.5;
/// Maximum rate of a connection as a multiple of the rate that the limit passes: at the start of an
/// observation the queue may hold bytes that the kernel has counted before.
const MORE: f64 = 1.25;
/// The rate of a connection as a share of the rate that the limit passes.
const CARRIED: std::ops::Range<f64> = 0.5..1.05;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Qdisc;
    use units::{Bytes, Span};

    fn shaped(overlimits: u64, backlog: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "tbf".to_owned(),
                handle: "1:".to_owned(),
                sent: Bytes::new(at * 12_000_000),
                drops: 0,
                overlimits: at * overlimits,
                backlog: Bytes::new(backlog),
                flow_limit: None,
            });
        })
    }

    #[test]
    fn a_full_shaper_is_the_limit() {
        let full = shaped(5_000, 90_000)
            .tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 11_500_000)));
        assert!(full.holds(RULE) > 0.9);
        let outcome = full.judge(RULE);
        let allows = outcome.finding().unwrap().allows.unwrap();
        assert_eq!(allows, Rate::from_mbit(96));
    }

    #[test]
    fn a_shaper_that_seldom_delays_packets_is_ruled_out() {
        shaped(3, 90_000).holds_not(RULE);
        shaped(5_000, 0).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn a_queue_that_marks_or_drops_early_limits_no_rate() {
        for kind in MARKS {
            let marks = shaped(5_000, 90_000).each(|_, sample| {
                sample.qdiscs[0].kind = kind.to_owned();
            });
            marks.holds_not(RULE);
        }
    }

    #[test]
    fn a_shaper_of_a_low_rate_that_delays_few_packets_is_the_limit() {
        // A shaper of 128 kbit/s.
        let slow = |overlimits: u64| {
            shaped(overlimits, 30_000)
                .each(|at, sample| sample.qdiscs[0].sent = Bytes::new(at * 16_000))
                .tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 15_000)))
        };
        assert!(slow(11).holds(RULE) > 0.9);
        slow(1).holds_not(RULE);
    }

    #[test]
    fn a_rate_limit_per_connection_in_fq_is_the_limit() {
        let limited = |mbit: u64| {
            shaped(0, 90_000)
                .each(move |_, sample| sample.qdiscs[0].flow_limit = Some(Rate::from_mbit(mbit)))
        };
        assert!(limited(420).holds(RULE) > 0.9);
        limited(800).holds_not(RULE);
        limited(100).holds_not(RULE);
        let idle = limited(420).tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        idle.holds_not(RULE);
    }

    /// 400 Mbit/s arrive, and the limit passes their acknowledgements.
    #[test]
    fn a_limit_of_a_receivers_acknowledgements_holds_its_data_back() {
        let answers = |passes: u64, backlog: u64| {
            let queue = shaped(500, backlog).recording().periods[0].samples.clone();
            Sketch::new().receiving(|_, _| {}).each(move |at, sample| {
                sample.qdiscs = queue[at as usize].qdiscs.clone();
                sample.qdiscs[0].sent = Bytes::new(at * passes);
            })
        };
        assert!(answers(60_000, 9_000).holds(RULE) > 0.9);
        answers(60_000, 0).holds_not(RULE);
        answers(20_000_000, 9_000).holds_not(RULE);
    }

    /// `netem` passes 418 Mbit/s, which are 1.05 MB in the shortest round trip of 20 ms.
    #[test]
    fn packets_that_wait_in_netem_beyond_the_round_trip_wait_for_a_rate() {
        use super::super::path;
        let emulated = |backlog: u64, varies: u64| {
            let sketch = Sketch::new().tcp(move |_, tcp| {
                (tcp.rtt, tcp.rttvar) =
                    (Some(Span::from_millis(35)), Some(Span::from_millis(varies)));
            });
            sketch.each(move |at, sample| {
                sample.qdiscs.push(Qdisc {
                    interface: "eth0".to_owned(),
                    kind: "netem".to_owned(),
                    handle: "1:".to_owned(),
                    sent: Bytes::new(at * 52_300_000),
                    backlog: Bytes::new(backlog),
                    ..Qdisc::default()
                });
            })
        };
        assert!(emulated(1_800_000, 1).holds(RULE) > 0.9);
        emulated(1_800_000, 1).holds_not(path::RULE);
        // Packets wait for the emulated delay alone, and the queue stands on the path.
        emulated(1_000_000, 1).holds_not(RULE);
        assert!(emulated(1_000_000, 1).holds(path::RULE) > 0.7);
        // The round trips vary by a jitter of 5 ms.
        emulated(1_800_000, 5).holds_not(RULE);
    }

    #[test]
    fn a_reset_counter_shows_no_limit() {
        let reset = shaped(5_000, 90_000)
            .each(|at, sample| sample.qdiscs[0].overlimits = 9_000 - at * 2_000);
        reset.holds_not(RULE);
    }

    /// Builds a limit of another interface, which passes `mbit` Mbit/s with headers.
    fn elsewhere(mbit: u64) -> Sketch {
        shaped(5_000, 90_000)
            .each(|_, sample| sample.qdiscs[0].interface = "ifb0".to_owned())
            .tcp(move |at, tcp| tcp.bytes_acked = Some(Bytes::new(at * mbit * 125_000)))
    }

    #[test]
    fn a_limit_of_another_interface_belongs_to_a_flow_of_about_its_rate() {
        assert!(elsewhere(91).holds(RULE) > 0.9);
        elsewhere(20).holds_not(RULE);
        elsewhere(400).holds_not(RULE);
        let received = Sketch::new().receiving(|at, receiver| {
            receiver.tcp.bytes_received = Some(Bytes::new(at * 91 * 125_000));
        });
        let received = received.each(|at, sample| {
            let queues = shaped(5_000, 90_000);
            let mut queue = queues.recording().periods[0].samples[at as usize].qdiscs[0].clone();
            queue.interface = "ifb0".to_owned();
            sample.qdiscs.push(queue);
        });
        assert!(received.holds(RULE) > 0.9);
    }

    /// A class of 96 Mbit/s holds datagrams back, and the connection passes another class.
    #[test]
    fn a_limit_that_passes_less_than_a_flow_is_a_limit_of_other_traffic() {
        let beside = shaped(5_000, 90_000);
        beside.holds_not(RULE);
        let outcome = beside.on_machine(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.explains.is_some_and(|share| share > 0.6) && finding.allows.is_none());
    }

    #[test]
    fn a_limit_without_a_connection_is_a_finding_on_the_machine() {
        let forwards = shaped(5_000, 90_000).each(|_, sample| sample.connections.clear());
        assert!(forwards.holds_machine(RULE).is_some_and(|share| share > 0.6));
        let of_flow = shaped(5_000, 90_000)
            .tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 11_500_000)));
        of_flow.machine_holds_not(RULE);
        shaped(3, 90_000).each(|_, sample| sample.connections.clear()).machine_holds_not(RULE);
    }
}
