//! A bottleneck beyond this machine is full: its queue never empties, or overflows from time to
//! time, while the rate stays the same.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::emulated::{EMULATES, emulated_queue};
use crate::signs::full_path::full_rate;
use crate::signs::loss_model::paces_itself;
use crate::signs::send_buffer::held;
use crate::view::{End, Flow, Occupancy, View};
use crate::words::{percent, rate, span};
use units::{Rate, Span};

pub(super) const RULE: Rule = Rule::new("path", "a bottleneck beyond this machine").flow(judge);
pub(super) const TOLD: Case = Case::new("the far sender tells the round trips of its queue");
pub(super) const ARRIVALS: Case = Case::new("the data that arrives tells the round trips");
pub(super) const CHANGES: Case = Case::new("the rate of the bottleneck changes");
pub(super) const PACE: Case = Case::new("the sender paces at the rate that the sender measured");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return at_receiver(flow, view) };
    if flow.is_inside() {
        return Outcome::Irrelevant;
    }
    let (Some(rtt), Some(least)) = (sender.rtt(), sender.tcp().min_rtt) else {
        return Outcome::not_seen("the round trips of the connection");
    };
    let held = sender.window_limited().unwrap_or(0.0) + held(flow);
    let busy = sender.busy().unwrap_or(1.0);
    let queue = rtt - least;
    let is_queued = queue >= SHORTEST && queue.nanos() >= least.nanos() / 4;
    let rates: Vec<_> =
        sender.values(|c| c.tcp.delivery_rate).into_iter().map(Rate::bits_per_second).collect();
    if rates.is_empty() {
        return Outcome::not_seen("the delivery rate of the connection (Linux 4.9 and later)");
    }
    let mean = flow.rate().bits_per_second() as f64;
    let near = rates.iter().filter(|rate| NEAR_MEAN.contains(&(**rate as f64 / mean.max(1.0))));
    let steady = near.count() as f64 / rates.len().max(1) as f64;
    // A queue of this machine is another cause. `fq` holds each packet until its time to send: its
    // queue shows the sender's pace, and no limit of this machine. `netem` holds each packet for
    // the delay that it emulates, and may also emulate a rate.
    let is_emulated = emulated_queue(flow, view).is_some();
    let holds_all = |kind: &str| kind == PACES || kind == EMULATES && !is_emulated;
    let own = view
        .samples()
        .iter()
        .filter(|sample| {
            sample.qdiscs.iter().any(|q| {
                Some(q.interface.as_str()) == flow.interface()
                    && !holds_all(q.kind.as_str())
                    && q.backlog.count() > 3_000
            })
        })
        .count() as f64
        / view.samples().len() as f64;
    if !sender.has_data() {
        return Outcome::ruled_out(format!(
            "data waited to be sent in {} of the samples",
            percent(sender.data_waits().unwrap_or(0.0))
        ));
    }
    // A veth pair within a machine is as fast as the CPU. If packets are dropped beyond the pair,
    // or if the ends use little of the CPU, something else on the way is slower.
    let is_path = least >= SHORTEST
        || flow
            .interface()
            .and_then(|name| view.interface(name))
            .is_some_and(|one| one.is_device())
        || sender.loss().unwrap_or(0.0) >= DROPS
        || uses_little(flow, view);
    let free = held < 0.5 && busy >= 0.8 && own < 0.5;
    if is_path
        && free
        && !is_queued
        && let Some(paced) = paced(sender, flow.rate())
    {
        return paced;
    }
    if steady < STEADY
        && is_path
        && free
        && let Some(changes) = changes(sender, least, &rates)
    {
        return changes;
    }
    // Within a machine, the CPU can also limit the flow to a steady rate.
    let full = full_rate(sender).filter(|_| is_path && !is_queued);
    let stands = is_queued || full.is_some();
    if !stands || held >= 0.5 || busy < 0.8 || steady < STEADY || own >= 0.5 {
        return Outcome::ruled_out(format!(
            "the round trip is {} above its minimum, and the rate was steady in {} of the samples",
            span(queue),
            percent(steady)
        ));
    }
    let finding = match full {
        None => Finding::new(format!(
            "a bottleneck beyond this machine is the limit: it passes {}, and a queue of {} stands before it",
            rate(flow.rate()),
            span(queue)
        ))
        .seen_from("round trip above its minimum", span(queue), span(SHORTEST)),
        Some(full) => Finding::new(format!(
            "a bottleneck beyond this machine is the limit: more data in flight makes the round trip longer, and at most {} pass",
            rate(full)
        ))
        .seen("round trip above its minimum", span(queue)),
    };
    finding
    .limits_for(steady)
    .allows(full.max(Some(flow.rate())))
    .seen("samples with a steady delivery rate", percent(steady))
    .seen("time with data to send, of the observation", percent(busy))
    .advise(
        Advice::new("Find the hop: measure to hosts along the path")
            .run("tracepath HOST")
            .run("weir doctor HOST-ON-THE-WAY")
            .not("No setting of this machine makes that hop faster; the queue shows that it is fully used"),
    )
    .holds()
}

/// Judges the receiver of a test, whose far end always has data. A queue shows in the round trips
/// that the far end reports, or else in the round trips of the data that arrives here.
fn at_receiver(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let unknown = || Outcome::not_seen("the far sender's round trips");
    let Some(receiver) = flow.receiver.as_ref().filter(|_| flow.tested) else { return unknown() };
    let told = flow.far.and_then(|far| far.mean_rtt.zip(far.min_rtt));
    let Some((rtt, least)) = told.or_else(|| of_arrivals(receiver)) else { return unknown() };
    let queue = rtt - least;
    let stands = queue >= SHORTEST && queue.nanos() >= least.nanos() / 4;
    let steady = steady_arrivals(receiver);
    let held = held_there(flow);
    let is_device =
        flow.interface().and_then(|name| view.interface(name)).is_some_and(|one| one.is_device());
    let is_path = least >= SHORTEST || is_device || uses_little(flow, view);
    if !stands || !is_path || held >= 0.5 || steady < STEADY {
        return Outcome::ruled_out(format!(
            "the round trip is {} above its minimum, and data arrived at a steady rate in {} of the samples",
            span(queue),
            percent(steady)
        ));
    }
    Finding::new(format!(
        "a bottleneck beyond this machine is the limit: it passes {} to this machine, and a queue of {} stands before it",
        rate(flow.rate()),
        span(queue)
    ))
    .limits().case(if told.is_some() { TOLD } else { ARRIVALS })
    .allows(Some(flow.rate()))
    .seen_from("round trip above its minimum", span(queue), span(SHORTEST))
    .seen(
        "round trips measured by",
        if told.is_some() { "the far sender" } else { "the timestamps of the data that arrives" },
    )
    .seen_from("samples with a steady rate of arrivals", percent(steady), percent(STEADY))
    .advise(
        Advice::new("Look at the far end's own queues first, then at the hops between")
            .run("tc -s qdisc show   (on the far end, and on routers)")
            .run("weir doctor   (on the far end)")
            .not("No setting of this machine makes that hop faster"),
    )
    .holds()
}

/// Returns the round trip of the arriving data and of the handshake.
fn of_arrivals(receiver: &End<'_>) -> Option<(Span, Span)> {
    let least = receiver.tcp().min_rtt.filter(|least| *least > Span::ZERO)?;
    let rtt = receiver.median(|c| c.tcp.receive_rtt)?;
    (rtt - least >= RESOLUTION).then_some((rtt, least))
}

/// Returns the share of the sampling intervals in which data arrived at about the mean rate.
fn steady_arrivals(receiver: &End<'_>) -> f64 {
    let mean = receiver.received().unwrap_or_default().bits_per_second() as f64;
    let pairs = receiver.all.windows(2);
    let near = pairs.clone().filter(|pair| {
        let bytes = pair[1].1.tcp.bytes_received.zip(pair[0].1.tcp.bytes_received);
        let bytes = bytes.map_or(0, |(later, earlier)| later.saturating_sub(earlier).count());
        let elapsed = (pair[1].0 - pair[0].0).secs_f64();
        NEAR_MEAN.contains(&(bytes as f64 * 8.0 / (mean * elapsed).max(1e-9)))
    });
    near.count() as f64 / pairs.len().max(1) as f64
}

/// Returns the share of the far sender's busy time in which a buffer at either end held it back.
fn held_there(flow: &Flow<'_>) -> f64 {
    let Some(far) = flow.far else { return 0.0 };
    let Some(busy) = far.busy.filter(|busy| *busy > Span::ZERO) else { return 0.0 };
    let held = far.window_limited.unwrap_or_default() + far.buffer_limited.unwrap_or_default();
    (held.secs_f64() / busy.secs_f64()).min(1.0)
}

/// Whether the ends and packet processing use little CPU time. A veth pair without a rate limit
/// fills the CPU.
fn uses_little(flow: &Flow<'_>, view: &View<'_>) -> bool {
    let found = Occupancy::of(flow, view, None);
    found.is_known && found.own + found.network < LITTLE
}

/// Finds a queue before a bottleneck whose rate changes, such as a radio link or a shared link.
fn changes(sender: &End<'_>, least: Span, rates: &[u64]) -> Option<Outcome> {
    let queued = sender.often(|c| {
        let queue = c.tcp.rtt.unwrap_or_default() - least;
        queue >= SHORTEST && queue.nanos() >= least.nanos() / 4
    });
    let (slowest, fastest) = (rates.iter().min()?, rates.iter().max()?);
    (queued >= MOSTLY_QUEUED).then(|| {
        Finding::new(format!(
            "a bottleneck beyond this machine is the limit: a queue stands before it, and its rate changes between {} and {}",
            rate(Rate::from_bits_per_second(*slowest)),
            rate(Rate::from_bits_per_second(*fastest))
        ))
        .limits().case(CHANGES)
        .seen_from("samples with a queue", percent(queued), percent(MOSTLY_QUEUED))
        .seen("round trip", sender.rtt().map_or_else(String::new, span))
        .seen("least round trip", span(least))
        .advise(
            Advice::new("Find the hop: a radio link, or one that others share")
                .run("tracepath HOST")
                .run("weir doctor HOST-ON-THE-WAY")
                .not("No setting of this machine makes that hop faster"),
        )
        .holds()
    })
}

/// Judges BBR, which sends at the rate that it measured on the path, so the queue at the bottleneck
/// stays short. BBR's window is twice as large as this rate needs, and never full.
fn paced(sender: &End<'_>, mean: Rate) -> Option<Outcome> {
    let name = sender.last().congestion.clone().filter(|name| paces_itself(name))?;
    let mean = (mean.bits_per_second() as f64).max(1.0);
    let near = |rate: Rate| PACED.contains(&(rate.bits_per_second() as f64 / mean));
    let paces = sender.often(|c| c.tcp.pacing_rate.is_some_and(near));
    let chooses = sender.often(|c| c.tcp.application_limited == Some(false));
    let pace = sender.median(|c| c.tcp.pacing_rate)?;
    (paces >= STEADY && chooses >= STEADY).then(|| {
        Finding::new(format!(
            "a bottleneck beyond this machine is the limit: {name} measured {} on the path, and sends at that pace",
            rate(pace)
        ))
        .limits().case(PACE)
        .estimate()
        .allows(Some(pace))
        .seen_from("samples whose pace is near the rate", percent(paces), percent(STEADY))
        .seen_from("samples measured with data waiting", percent(chooses), percent(STEADY))
        .seen("pace", rate(pace))
        .advise(
            Advice::new("Find the hop: measure to hosts along the path")
                .run("tracepath HOST")
                .run("weir doctor HOST-ON-THE-WAY")
                .not("No setting of this machine makes that hop faster"),
        )
        .holds()
    })
}

const SHORTEST: Span = Span::from_millis(1);
/// The queueing discipline that paces connections (tc-fq(8)).
const PACES: &str = "fq";
/// BBR's pace as a multiple of the rate that arrives: its gains are 0.75, 1 and 1.25.
const PACED: std::ops::Range<f64> = 0.7..1.45;
/// Shortest usable round trip at the receiver: the kernel's estimate has a resolution of a
/// millisecond.
const RESOLUTION: Span = Span::from_millis(4);
/// Delivery rates that count as steady, as multiples of the mean rate.
const NEAR_MEAN: std::ops::Range<f64> = 0.7..1.4;
const STEADY: f64 = 0.6;
const MOSTLY_QUEUED: f64 = 0.75;
/// Minimum share of lost segments.
const DROPS: f64 = 0.005;
/// Maximum CPU time of the ends and of packet processing that counts as little, in cores.
const LITTLE: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn a_standing_queue_at_a_steady_rate_is_the_limit() {
        let full = Sketch::new().tcp(|_, tcp| tcp.rtt = Some(Span::from_millis(35)));
        assert!(full.holds(RULE) > 0.7);
    }

    /// Builds a sender whose window changes between 80 and 108 segments at a round trip of 20 ms
    /// and more. `most`: the Mbit/s that the path passes.
    fn in_waves(congestion: &'static str, most: f64) -> Sketch {
        let mut sketch = Sketch::new();
        sketch.repeat_samples(12);
        sketch.sender(move |at, sender| {
            let window = |at: u64| 80 + at * 7 % 30;
            let mbit = |at: u64| (window(at) as f64 * 1448.0 * 8.0 / 20e3).min(most);
            let rtt = window(at) as f64 * 1448.0 * 8.0 / mbit(at);
            let sent = (0..at).map(mbit).sum::<f64>() * 125_000.0;
            sender.congestion = Some(congestion.to_owned());
            let tcp = &mut sender.tcp;
            tcp.rtt = Some(Span::from_micros(rtt as u64));
            (tcp.cwnd, tcp.unacked) = (Some(window(at) as u32), Some(window(at) as u32));
            tcp.delivery_rate = Some(Rate::from_bits_per_second((mbit(at) * 1e6) as u64));
            tcp.bytes_acked = Some(units::Bytes::new(sent as u64));
            tcp.data_segments_out = Some(at as u32 * 4_070);
            tcp.retransmitted = Some(at as u32 * 2);
        })
    }

    /// An AQM keeps the queue short, and drops a packet now and then.
    #[test]
    fn a_full_link_behind_an_aqm_is_the_limit_in_spite_of_its_drops() {
        use super::super::loss;
        for congestion in ["cubic", "reno"] {
            let full = in_waves(congestion, 47.8);
            assert!(full.holds(RULE) > 0.7, "{congestion}");
            assert_eq!(full.judge(loss::RULE).finding().unwrap().explains, None, "{congestion}");
            // The rate follows the window, so that losses are not those of a full queue.
            let random = in_waves(congestion, 1_000.0);
            random.holds_not(RULE);
            assert!(random.holds(loss::RULE) > 0.7, "{congestion}");
        }
    }

    #[test]
    fn packets_that_fq_paces_or_netem_delays_are_no_queue_of_this_machine() {
        let queued = |kind: &'static str| {
            Sketch::new().tcp(|_, tcp| tcp.rtt = Some(Span::from_millis(35))).each(|_, sample| {
                sample.qdiscs.push(crate::recording::Qdisc {
                    interface: "eth0".to_owned(),
                    kind: kind.to_owned(),
                    backlog: units::Bytes::new(60_000),
                    ..Default::default()
                });
            })
        };
        assert!(queued("fq").holds(RULE) > 0.7);
        assert!(queued("netem").holds(RULE) > 0.7);
        queued("pfifo").holds_not(RULE);
        let bbr = queued("fq").sender(|_, sender| {
            sender.congestion = Some("bbr".to_owned());
            sender.tcp.rtt = Some(Span::from_millis(20));
            (sender.tcp.unacked, sender.tcp.pacing_rate) = (Some(360), Some(Rate::from_mbit(400)));
        });
        assert!(bbr.holds(RULE) > 0.5);
    }

    #[test]
    fn no_queue_or_an_idle_sender_rules_out_the_path() {
        Sketch::new().holds_not(RULE);
        let idle = Sketch::new().tcp(|at, tcp| {
            tcp.rtt = Some(Span::from_millis(35));
            tcp.busy = Some(Span::from_millis(at * 300));
        });
        idle.holds_not(RULE);
    }

    #[test]
    fn a_queue_of_other_traffic_does_not_limit_a_sender_without_data() {
        let idle = Sketch::new().tcp(|_, tcp| {
            tcp.rtt = Some(Span::from_millis(35));
            tcp.unsent = Some(units::Bytes::ZERO);
        });
        idle.holds_not(RULE);
        let unknown = Sketch::new().tcp(|_, tcp| tcp.delivery_rate = None);
        assert!(matches!(unknown.judge(RULE), Outcome::NotSeen(_)));
    }

    #[test]
    fn a_bottleneck_whose_rate_changes_is_the_limit() {
        let radio = |queue: u64| {
            Sketch::new().tcp(move |at, tcp| {
                tcp.rtt = Some(Span::from_millis(20 + queue * (1 + at % 3)));
                tcp.delivery_rate = Some(Rate::from_mbit([90, 700, 1_000, 60][at as usize]));
            })
        };
        assert!((0.3..0.5).contains(&radio(30).holds(RULE)));
        radio(0).holds_not(RULE);
    }

    #[test]
    fn a_path_at_the_pace_of_bbr_is_the_limit_without_a_queue() {
        let paced = |pace: u64| {
            Sketch::new().sender(move |_, sender| {
                sender.congestion = Some("bbr".to_owned());
                sender.tcp.unacked = Some(360);
                sender.tcp.pacing_rate = Some(Rate::from_mbit(pace));
            })
        };
        assert!(paced(400).holds(RULE) > 0.5);
        paced(5_000).holds_not(RULE);
        let full = [20, 50, 25, 0];
        paced(400).task(7, 80).core(0, full).core(1, full).holds_not(RULE);
        paced(400).tcp(|_, tcp| tcp.application_limited = Some(true)).holds_not(RULE);
        let cable = paced(400).interface(|eth0| eth0.device = false).tcp(|_, tcp| {
            (tcp.rtt, tcp.min_rtt) = (Some(Span::from_micros(90)), Some(Span::from_micros(80)));
        });
        cable.holds_not(RULE);
    }

    /// BBR over a veth pair to a router that limits the rate or drops the excess.
    #[test]
    fn a_bottleneck_beyond_a_veth_pair_is_the_limit() {
        let cable = |lost: u32, cpu: u64| {
            let cable = Sketch::new().interface(|eth0| eth0.device = false);
            let cable = cable.sender(move |at, sender| {
                sender.congestion = Some("bbr".to_owned());
                sender.tcp.pacing_rate = Some(Rate::from_mbit(400));
                sender.tcp.retransmitted = Some(at as u32 * lost);
                sender.tcp.unacked = Some(360);
                (sender.tcp.rtt, sender.tcp.min_rtt) =
                    (Some(Span::from_micros(90)), Some(Span::from_micros(80)));
            });
            let core = [2, cpu, 2, 0];
            cable.task(7, cpu).core(0, core).core(1, [2, 2, 2, 0]).each(|_, sample| {
                sample.processes.push(crate::recording::Task { pid: 1, ..Default::default() });
            })
        };
        assert!(cable(0, 5).holds(RULE) > 0.5);
        assert!(cable(900, 40).holds(RULE) > 0.5);
        cable(0, 40).holds_not(RULE);
    }

    /// Builds a receiving test with these round trips in milliseconds.
    fn receives(
        queue: u64,
        cpu: u64,
        far: Option<crate::recording::FarEnd>,
        rate: impl Fn(u64) -> u64,
    ) -> Outcome {
        let sketch = Sketch::new().receiving(move |at, receiver| {
            receiver.tcp.bytes_received = Some(units::Bytes::new(rate(at) * 125_000));
            receiver.tcp.receive_rtt = Some(Span::from_millis(queue));
            receiver.tcp.min_rtt = Some(Span::from_micros(60));
        });
        let sketch = sketch.interface(|eth0| eth0.device = false).task(7, 1).task(8, cpu);
        let core = [2, cpu, 2, 0];
        let sketch = sketch.core(0, core).core(1, [1, 1, 1, 0]).each(|_, sample| {
            sample.processes.push(crate::recording::Task { pid: 1, ..Default::default() });
        });
        let (local, remote) = ("10.0.0.1:5201".parse().unwrap(), "10.0.0.2:5000".parse().unwrap());
        let connections = vec![(local, remote)];
        let attempt = crate::recording::Attempt { connections, far, ..Default::default() };
        sketch.attempt(attempt).judge(RULE)
    }

    /// The far end's own queue limits the data that it sends, over a veth pair.
    #[test]
    fn a_bottleneck_before_a_receiving_test_is_the_limit() {
        let steady = |at: u64| at * 50;
        let share = |outcome: Outcome| outcome.finding().and_then(|finding| finding.explains);
        assert!(share(receives(40, 3, None, steady)).is_some_and(|share| share > 0.5));
        // Losses stop the sender now and then.
        assert_eq!(share(receives(40, 3, None, |at| at / 2 * 150)), None);
        assert_eq!(share(receives(1, 3, None, steady)), None);
        assert_eq!(share(receives(40, 60, None, steady)), None, "a cable without a limit");
        let far = |mean: u64, held: u64| crate::recording::FarEnd {
            busy: Some(Span::from_secs(3)),
            window_limited: Some(Span::from_secs(held)),
            mean_rtt: Some(Span::from_millis(mean)),
            min_rtt: Some(Span::from_micros(60)),
            ..Default::default()
        };
        assert!(share(receives(0, 3, Some(far(9, 0)), steady)).is_some_and(|share| share > 0.7));
        assert_eq!(share(receives(0, 3, Some(far(9, 2)), steady)), None);
        assert_eq!(share(receives(0, 3, Some(far(0, 0)), steady)), None);
    }
}
