//! A CPU core has no time left: the machine's only core, or the core of a thread of an end.

mod tunnel;

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::recording::{Connection, Origin};
use crate::view::{CoreUse, End, Flow, Occupancy, TaskUse, View, without_interrupts};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("cpu", "the CPU").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let far = flow.far.and_then(|far| far.busiest.map(|busiest| (busiest, far.cores)));
    if view.cores.is_empty() && view.tasks.is_empty() && far.is_none() {
        return Outcome::not_seen("the CPU time of cores and threads");
    }
    only_core(flow, view)
        .or_else(|| confined(flow, view))
        .or_else(|| thread(flow, view))
        .or_else(|| tunnel::program(flow, view))
        .or_else(|| all_cores(flow, view))
        .or_else(|| all_cores_saved(flow, view))
        .or_else(|| far_end(flow))
        .unwrap_or_else(|| ruled_out(flow, view))
}

fn only_core(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let (core, shares) = view.busiest_core().filter(|_| view.cores.len() == 1)?;
    if !is_full(shares) || throttled(flow, view) {
        return None;
    }
    // If another program takes the core, the cause is contention.
    let others = Occupancy::of(flow, view, Some(core)).strangers();
    if others > MOST_OF_CORE {
        return None;
    }
    let finding = Finding::new(format!(
        "one CPU core is the limit: the only core is busy {} of the time ({} system, {} softirq) at {}{}",
        percent(shares.busy()),
        percent(shares.system),
        percent(shares.softirq),
        rate(flow.rate()),
        of_link(flow, view),
    ))
    .limits_for(shares.busy() - others)
    .allows(bound::of_resource(flow.rate(), shares.busy()))
    .seen_from(format!("core {core} busy, of the observation"), percent(shares.busy()), percent(FULL))
    .seen("user, system, interrupt, softirq, of the core", four(shares))
    .seen("other programs, of the core", percent(others))
    .advise(
        Advice::new("Give the machine a faster core, or a second one")
            .not("RPS, RFS, XPS and more queues do not help: there is no other core to spread to"),
    );
    Some(cheaper(finding, shares.softirq).holds())
}

/// Judges a thread that may use only one of several cores, by affinity or a cpuset. The interrupts
/// of the thread's packets run on the same core.
fn confined(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let full = ends.into_iter().filter_map(|(side, end)| {
        let task = end.as_ref()?.busiest(view)?;
        let core = task.confined_to?;
        let shares = *view.cores.get(&core)?;
        let found = Occupancy::of(flow, view, Some(core));
        let own = found.own + shares.interrupts();
        let theirs = found.wait_for_others(task.waited.unwrap_or(0.0), task.cpu);
        (is_full(shares) && own >= MOST_OF_CORE && theirs < CONFINED_WAITS).then_some((
            side,
            task,
            core,
            shares,
            found.strangers(),
        ))
    });
    let (side, task, core, shares, others) = full.max_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu))?;
    if throttled(flow, view) {
        return None;
    }
    let finding = Finding::new(format!(
        "one CPU core is the limit: core {core}, the only one that {}, the {side}, may use, is busy {} of the time ({} system, {} softirq) at {}{}",
        task.name,
        percent(shares.busy()),
        percent(shares.system),
        percent(shares.softirq),
        rate(flow.rate()),
        of_link(flow, view),
    ))
    .limits_for(shares.busy() - others)
    .allows(bound::of_resource(flow.rate(), shares.busy()))
    .seen_from(format!("core {core} busy, of the observation"), percent(shares.busy()), percent(FULL))
    .seen("user, system, interrupt, softirq, of the core", four(shares))
    .seen("other programs, of the core", percent(others))
    .seen(thread_of(task), format!("{} of a core", percent(task.cpu)))
    .advise(
        Advice::new("Give it a second core, or a faster one")
            .run(format!("taskset -pc 0-{} {}", view.cores.len().saturating_sub(1), task.pid))
            .not("RPS, RFS, XPS and more queues do not help while there is one core to spread to"),
    );
    Some(cheaper(finding, shares.softirq).holds())
}

fn thread(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let busiest = ends
        .into_iter()
        .filter_map(|(side, end)| {
            let end = end.as_ref()?;
            Some((side, end, end.busiest(view)?))
        })
        .filter(|(side, end, task)| *side == "sender" || !polls_for_data(end, task, view))
        .max_by(|(.., a), (.., b)| a.cpu.total_cmp(&b.cpu))?;
    let (side, end, task) = busiest;
    let shares = task.core.and_then(|core| view.cores.get(&core)).copied();
    // A thread shares its core with the softirqs of its own packets.
    let with_interrupts = task.cpu + shares.map_or(0.0, |shares| shares.interrupts());
    let waits = task.waited.unwrap_or(0.0);
    // The thread also waits while its core does other work for the connection. If other programs
    // took at least half as much time as the connection's work, contention is the cause.
    let theirs = Occupancy::of(flow, view, task.place()).wait_for_others(waits, task.cpu);
    let own = task.cpu + waits - theirs;
    let wanted = with_interrupts + waits;
    let full = task.cpu >= FULL || own >= MOST_OF_CORE && wanted >= FULL;
    if !full || throttled(flow, view) || theirs >= own / 2.0 {
        return None;
    }
    if let Some(polls) = polls(flow, shares) {
        return Some(polls);
    }
    let share = (with_interrupts + waits - theirs).min(1.0);
    // A share below the threshold alone would contradict the verdict.
    let whole = match task.cpu < FULL {
        true => format!(" ({} with its interrupts and waits)", percent(share)),
        false => String::new(),
    };
    let mut finding = Finding::new(format!(
        "one CPU core is the limit: a thread of {}, the {side}, uses {} of a core{whole} at {}{}",
        task.name,
        percent(task.cpu.min(1.0)),
        rate(flow.rate()),
        of_link(flow, view),
    ))
    .limits_for(share)
    .allows(bound::of_resource(flow.rate(), share))
    .seen_from(
        thread_of(task),
        format!("{} of a core", percent(task.cpu.min(1.0))),
        percent(FULL),
    );
    if let Some((each, mss)) = end.segments().filter(|_| side == "sender")
        && each.count() < mss.count() / SMALL
    {
        finding = finding
            .seen("bytes in a segment, at most", format!("{}, {}", each.count(), mss.count()))
            .advise(
                Advice::new("Let the application write more at a time: each write is a packet now")
                    .not("A faster link changes nothing"),
            );
    }
    if let Some((core, shares)) = task.core.zip(shares) {
        finding = finding.seen(
            format!("core {core}: user, system, interrupt, softirq, of the core"),
            four(shares),
        );
    }
    if waits >= WAITS {
        finding = finding.seen(
            "the thread waits for other work of the connection, of the observation",
            percent(waits - theirs),
        );
    }
    finding = finding.advise(
        Advice::new("Use several connections from several threads")
            .run("iperf3 -P 4 (3.16 and later), or more workers in the application's settings")
            .not("RPS, RFS and more queues do not help: they spread packets, not a thread"),
    );
    Some(cheaper(finding, shares.map_or(0.0, |shares| shares.softirq)).holds())
}

/// Whether a reader polls, which fills a core without need. If a reader lacks CPU time, data waits
/// in its queue.
fn polls_for_data(end: &End<'_>, task: &TaskUse<'_>, view: &View<'_>) -> bool {
    let shares = task.core.and_then(|core| view.cores.get(&core));
    let is_needed = shares.is_none_or(|shares| shares.interrupts() >= NEEDED);
    let is_known = view.recording.origin != Origin::Saved && end.last().receive_limit.is_some();
    let is_empty = |c: &Connection| c.receive_queue.count() == 0;
    is_known && !is_needed && !end.alternates() && end.often(is_empty) >= EMPTY
}

/// Judges a thread that polls: it fills a core and holds no data back, because its data waits in
/// the kernel for the window of a long path. With softirqs on its core, the connection would need
/// the core's time.
fn polls(flow: &Flow<'_>, shares: Option<CoreUse>) -> Option<Outcome> {
    let is_needed = shares.is_none_or(|shares| shares.interrupts() >= NEEDED);
    let waits = flow.sender.as_ref().is_some_and(End::waits_for_window);
    (waits && !is_needed).then(|| {
        Outcome::ruled_out(
            "a thread fills a core, and its data waits for a full congestion window meanwhile",
        )
    })
}

/// Judges all cores together: no thread fills a core alone, but no core has time left.
fn all_cores(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let count = view.cores.len() as f64;
    let sum = |of: fn(&CoreUse) -> f64| view.cores.values().map(of).sum::<f64>();
    let busy = sum(CoreUse::busy) / count.max(1.0);
    let steal = view.steal().unwrap_or(0.0);
    // A far end on this machine uses the same cores.
    let threads = Occupancy::of(flow, view, None).own;
    let interrupts = sum(CoreUse::interrupts);
    let own = match view.period.nothing_else_ran {
        true => 1.0,
        false => (threads + interrupts) / sum(CoreUse::busy).max(1e-9),
    };
    if view.cores.len() < 2
        || busy + steal < ALL_FULL
        || busy < MOST_OF_CORE
        || own < MOST_OF_CORE
        || throttled(flow, view)
    {
        return None;
    }
    let finding = Finding::new(format!(
        "the CPU is the limit: all {} cores are busy {} of the time at {}{}",
        view.cores.len(),
        percent(busy),
        rate(flow.rate()),
        of_link(flow, view),
    ))
    .limits_for(busy)
    .allows(bound::of_resource(flow.rate(), busy))
    .seen_from("busy time, of all cores", percent(busy), percent(ALL_FULL))
    .seen("threads of the connection's ends", format!("{threads:.2} cores"))
    .seen("interrupts and softirqs", format!("{interrupts:.2} cores"))
    .advise(
        Advice::new("Use a machine with more or faster cores, or run one of the ends elsewhere")
            .not("More connections or queues do not help: no core has time left"),
    );
    Some(cheaper(finding, interrupts / count).holds())
}

/// Judges all cores of a saved test, whose result has no other processes: a far end on the same
/// machine, or other programs. The test had no further CPU time, whichever programs filled the
/// cores.
fn all_cores_saved(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let is_saved = view.recording.origin == Origin::Saved && flow.tested;
    let count = view.cores.len() as f64;
    let sum = |of: fn(&CoreUse) -> f64| view.cores.values().map(of).sum::<f64>();
    let busy = sum(CoreUse::busy) / count.max(1.0);
    let found = Occupancy::of(flow, view, None);
    let own = found.own + found.network;
    let waits = flow.sender.as_ref().is_some_and(End::waits_for_window);
    // A test with its own limit of the rate uses little CPU time.
    let needs = own >= NEEDS_CPU && found.own >= NEEDS_THREADS;
    if !is_saved || count == 0.0 || busy < ALL_FULL || !needs || waits {
        return None;
    }
    let finding = Finding::new(format!(
        "the CPU is the limit: all cores of this machine are busy {} of the time at {}",
        percent(busy),
        rate(flow.rate()),
    ))
    .limits_for(busy)
    .allows(bound::of_resource(flow.rate(), busy))
    .seen_from("busy time, of all cores", percent(busy), percent(ALL_FULL))
    .seen("the test's own threads", format!("{:.2} cores", found.own))
    .seen("interrupts and softirqs", format!("{:.2} cores", found.network))
    .seen(
        "a far end on this machine, or other programs",
        format!("{:.2} cores", (busy * count - own).max(0.0)),
    )
    .advise(
        Advice::new(
            "Run the test again without other programs on this machine, or with more cores",
        )
        .run("weir doctor HOST   (it names the programs)")
        .not("Buffers and congestion control change nothing while no core has time left"),
    );
    Some(finding.holds())
}

fn far_end(flow: &Flow<'_>) -> Option<Outcome> {
    let far = flow.far?;
    let (busy, softirq) = far.busiest?;
    // The softirqs of the test's packets take time of the same core.
    let (server, softirqs) = (far.user?.fraction() + far.system?.fraction(), softirq.fraction());
    let programs = (busy.fraction() - softirqs).max(0.0);
    let own = without_interrupts(server, programs, softirqs) + softirqs;
    // The far end's machine may be busy with other work.
    (busy.fraction() >= FULL && own >= MOST_OF_CORE * 0.8).then(|| {
        Finding::new(format!(
            "one CPU core of the far end is the limit: the core is busy {} of the time at {}",
            percent(busy.fraction()),
            rate(flow.rate())
        ))
        .limits_for(busy.fraction())
        .allows(bound::of_resource(flow.rate(), busy.fraction()))
        .seen_from(
            "busiest core of the far end, of the test",
            percent(busy.fraction()),
            percent(FULL),
        )
        .seen("softirq on that core, of the test", percent(softirq.fraction()))
        .seen("CPU time of its server process and softirqs, of a core", percent(own.min(1.0)))
        .advise(
            Advice::new("Run `weir doctor` on the far end for its cores and interrupts")
                .run("weir doctor"),
        )
        .holds()
    })
}

fn ruled_out(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    let busiest = ends.filter_map(|end| end.busiest(view)).map(|task| task.cpu).reduce(f64::max);
    let core = view.busiest_core().map(|(core, shares)| {
        format!("core {core}, the busiest, is busy {} of the time", percent(shares.busy()))
    });
    match (busiest, core) {
        (Some(thread), core) => Outcome::ruled_out(format!(
            "its busiest thread uses {} of a core{}",
            percent(thread.min(1.0)),
            core.map_or_else(String::new, |core| format!(", {core}"))
        )),
        (None, Some(core)) if view.busiest_core().is_some_and(|(_, s)| s.busy() < FULL) => {
            Outcome::ruled_out(core)
        }
        _ => Outcome::not_seen("the threads of the flow's processes"),
    }
}

/// Whether the core has no idle time, and the hypervisor leaves most of the time to this machine.
fn is_full(shares: CoreUse) -> bool {
    shares.busy() + shares.steal >= FULL && shares.busy() >= MOST_OF_CORE
}

/// Names the thread in a sentence. A saved result has no thread IDs.
fn thread_of(task: &TaskUse<'_>) -> String {
    match task.pid {
        0 => format!("thread of {}", task.name),
        pid => format!("thread {} of {} (process {pid})", task.tid, task.name),
    }
}

fn throttled(flow: &Flow<'_>, view: &View<'_>) -> bool {
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    ends.filter_map(|end: &End<'_>| end.throttled(view)).any(|group| group.is_held_back())
}

fn of_link(flow: &Flow<'_>, view: &View<'_>) -> String {
    let speed = flow.interface().and_then(|name| view.machine().interfaces.get(name)?.speed);
    speed.map_or_else(String::new, |speed| format!(" of a {} link", rate(speed)))
}

fn cheaper(finding: Finding, softirq: f64) -> Finding {
    let finding = finding.advise(
        Advice::new("Make each byte cheaper: larger writes, zero copy, offloads")
            .run("ethtool -K DEV tso on gso on gro on")
            .not("It does not raise the link's speed or its latency"),
    );
    match softirq >= 0.2 {
        true => finding.advise(
            Advice::new("Take fewer interrupts")
                .run("ethtool -C DEV rx-usecs 100")
                .not("It adds up to 100 µs of latency, and does not make a packet itself cheaper"),
        ),
        false => finding,
    }
}

fn four(shares: CoreUse) -> String {
    [shares.user, shares.system, shares.irq, shares.softirq].map(percent).join(", ")
}

/// Minimum utilisation at which a core counts as full (measured).
const FULL: f64 = 0.9;
const ALL_FULL: f64 = 0.9;
const MOST_OF_CORE: f64 = 0.6;
/// Maximum share of the time in which a confined thread waits for other programs.
const CONFINED_WAITS: f64 = 0.4;
/// Minimum CPU time of a test that could use more, in cores.
const NEEDS_CPU: f64 = 0.2;
/// Minimum CPU time of the test's own threads, in cores: packets of other programs cause softirqs,
/// too.
const NEEDS_THREADS: f64 = 0.1;
const WAITS: f64 = 0.15;
/// Minimum share of interrupts and softirqs with which the connection needs the core.
const NEEDED: f64 = 0.1;
/// Minimum share of the samples in which the queue of a reader that polls is empty.
const EMPTY: f64 = 0.95;
/// A segment smaller than the largest segment divided by this number counts as small.
const SMALL: u64 = 4;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn alone(core: [u64; 4]) -> Sketch {
        let single = Sketch::new().each(|_, sample| {
            sample.cores.remove(&1);
        });
        single.core(0, core)
    }

    /// The case of a board with one core: 63 % system, 36 % softirq.
    #[test]
    fn the_only_core_of_a_machine_is_the_limit_if_it_is_full() {
        let outcome = alone([1, 63, 36, 0]).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.sentence.contains("the only core"), "{}", finding.sentence);
        let advice = &finding.advice[0];
        assert!(advice.limits.as_deref().unwrap().contains("RPS"), "{advice:?}");
    }

    #[test]
    fn a_core_with_a_fifth_of_softirq_gets_the_advice_to_take_fewer_interrupts() {
        let advises = |core| {
            let outcome = alone(core).judge(RULE);
            let advice = &outcome.finding().unwrap().advice;
            advice.iter().any(|advice| advice.action.starts_with("Take fewer interrupts"))
        };
        assert!(advises([1, 63, 36, 0]));
        assert!(!advises([1, 89, 10, 0]));
    }

    #[test]
    fn the_only_allowed_core_of_several_is_the_limit_if_it_is_full() {
        let confined = Sketch::new().core(0, [1, 62, 36, 0]).task(7, 62).each(|_, sample| {
            sample.tasks[0].allowed = Some(vec![0]);
        });
        let outcome = confined.judge(RULE);
        assert!(
            outcome.finding().unwrap().sentence.contains("core 0, the only one"),
            "{outcome:?}"
        );
        confined.core(0, [1, 42, 36, 0]).task(7, 42).holds_not(RULE);
    }

    /// Builds a sender on a path that takes all written data.
    fn writing() -> Sketch {
        Sketch::new().tcp(|_, tcp| tcp.unsent = Some(units::Bytes::ZERO))
    }

    #[test]
    fn a_thread_that_fills_a_core_is_the_limit() {
        assert!(writing().task(7, 97).core(0, [10, 87, 2, 0]).holds(RULE) > 0.9);
        assert!(Sketch::new().task(7, 65).core(0, [5, 60, 33, 0]).holds(RULE) > 0.9);
        let said = |sketch: Sketch| sketch.judge(RULE).finding().unwrap().sentence.clone();
        let whole = said(writing().task(7, 97).core(0, [10, 87, 2, 0]));
        assert!(whole.contains("uses 97 % of a core at "), "{whole}");
        let shared = said(Sketch::new().task(7, 65).core(0, [5, 60, 33, 0]));
        assert!(
            shared.contains("65 % of a core (98 % with its interrupts and waits) at"),
            "{shared}"
        );
    }

    #[test]
    fn a_sender_that_polls_while_data_waits_for_the_window_is_no_limit() {
        Sketch::new().task(7, 97).core(0, [60, 37, 2, 0]).holds_not(RULE);
        let short = Sketch::new().task(7, 97).core(0, [60, 37, 2, 0]).tcp(|_, tcp| {
            (tcp.rtt, tcp.min_rtt) =
                (Some(units::Span::from_micros(200)), Some(units::Span::from_micros(90)));
        });
        assert!(short.holds(RULE) > 0.9);
    }

    #[test]
    fn a_reader_that_polls_an_empty_queue_is_no_limit() {
        let reads = |waiting: u64| {
            let sketch = Sketch::new().receiving(move |_, receiver| {
                receiver.receive_queue = units::Bytes::new(waiting);
            });
            sketch.task(7, 1).task(8, 99).core(0, [50, 49, 1, 0])
        };
        reads(0).holds_not(RULE);
        assert!(reads(90_000).holds(RULE) > 0.9);
    }

    #[test]
    fn a_full_thread_with_small_writes_gets_the_advice_to_write_more() {
        let writes = |segments: u32| {
            let sketch = writing().task(7, 97).core(0, [10, 87, 2, 0]);
            let sketch = sketch.tcp(move |at, tcp| {
                tcp.data_segments_out = Some(at as u32 * segments);
            });
            let outcome = sketch.judge(RULE);
            outcome.finding().unwrap().advice.iter().any(|one| one.action.contains("write more"))
        };
        assert!(writes(5_000_000) && !writes(34_530));
    }

    #[test]
    fn full_cores_together_are_the_limit() {
        let full = [20, 50, 25, 0];
        let both = Sketch::new().task(7, 80).core(0, full).core(1, full);
        assert!(both.holds(RULE) > 0.9);
        // Programs beside the flow's own fill the cores.
        Sketch::new().task(7, 10).core(0, [90, 5, 0, 0]).core(1, [90, 5, 0, 0]).holds_not(RULE);
    }

    #[test]
    fn spare_cpu_time_rules_out_the_cpu() {
        Sketch::new().holds_not(RULE);
        alone([1, 43, 36, 0]).holds_not(RULE);
        Sketch::new().task(7, 65).core(0, [5, 60, 5, 0]).holds_not(RULE);
    }

    #[test]
    fn a_little_stolen_or_shared_time_leaves_the_core_the_limit() {
        let stolen = writing().task(7, 85).core(0, [5, 80, 5, 8]).core(1, [0, 5, 0, 8]);
        assert!(stolen.holds(RULE) > 0.8);
        let shared = |ran: u64, waited: u64| {
            writing().task(7, ran).core(0, [20, 75, 5, 0]).each(move |at, sample| {
                sample.tasks[0].waited = Some(units::Span::from_millis(10 * waited * at));
            })
        };
        assert!(shared(78, 20).holds(RULE) > 0.7);
        shared(50, 48).holds_not(RULE);
    }
}
