//! Signs about `netem`, which emulates a path on an interface of this machine (tc-netem(8)).

use super::full_path::is_queue_steady;
use crate::recording::Qdisc;
use crate::view::{Flow, View, counted};
use units::{Rate, Span};

/// The queueing discipline that emulates a path.
pub(crate) const EMULATES: &str = "netem";

/// A queue of `netem` before the rate that `netem` emulates.
pub(crate) struct EmulatedQueue<'a> {
    pub(crate) qdisc: &'a Qdisc,
    pub(crate) passes: Rate,
    /// The median time that packets wait in the queue.
    pub(crate) wait: Span,
    /// The shortest waiting time that shows a queue: longer than the shortest round trip.
    pub(crate) least: Span,
    /// The share of the samples in which packets waited for at least `least`.
    pub(crate) share: f64,
}

/// Returns the queue of a `netem` on the connection's interface. `netem` holds each packet for the
/// emulated delay, which is a part of the shortest round trip. Packets that wait for longer than
/// that round trip wait for the emulated rate. Jitter also makes packets wait for longer, but the
/// round trips then differ.
pub(crate) fn emulated_queue<'a>(flow: &Flow<'_>, view: &View<'a>) -> Option<EmulatedQueue<'a>> {
    let sender = flow.sender.as_ref()?;
    let shortest = sender.tcp().min_rtt.filter(|rtt| *rtt > Span::ZERO)?;
    if !sender.has_data() || !is_queue_steady(sender) {
        return None;
    }
    let is_own =
        |one: &Qdisc| one.kind == EMULATES && Some(one.interface.as_str()) == flow.interface();
    let passed = view.queues.iter().filter(|queue| is_own(queue.qdisc)).filter_map(|queue| {
        Some((queue.qdisc, counted(queue.qdisc.sent.count(), queue.earlier.sent.count())?))
    });
    let (qdisc, sent) = passed.max_by_key(|(_, sent)| *sent)?;
    let per_second = sent as f64 / view.elapsed().secs_f64().max(1e-9);
    let passes = Rate::from_bits_per_second((per_second * 8.0) as u64);
    if flow.rate().bits_per_second() as f64 > passes.bits_per_second() as f64 * MORE {
        return None;
    }
    let wait = |held: u64| Span::from_nanos((held as f64 / per_second.max(1.0) * 1e9) as u64);
    let is_same = |one: &&Qdisc| is_own(one) && one.handle == qdisc.handle;
    let queues = view.samples().iter().flat_map(|sample| &sample.qdiscs).filter(is_same);
    let mut waits: Vec<Span> = queues.map(|one| wait(one.backlog.count())).collect();
    waits.sort_unstable();
    let median = *waits.get(waits.len() / 2)?;
    let least = shortest.saturating_add((shortest / 4).max(SHORTEST_QUEUE));
    let long = waits.iter().filter(|wait| **wait >= least).count();
    (median >= least).then_some(EmulatedQueue {
        qdisc,
        passes,
        wait: median,
        least,
        share: long as f64 / waits.len() as f64,
    })
}

const SHORTEST_QUEUE: Span = Span::from_millis(1);
/// Maximum rate of the connection as a multiple of the rate that `netem` passes: at the start of an
/// observation the queue may hold bytes that TCP has counted before.
const MORE: f64 = 1.25;
