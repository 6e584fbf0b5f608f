//! The receiving application does not read as fast as data arrives.

use super::receiver_window::is_reader_slow;
use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::{bytes, percent};

pub(super) const RULE: Rule = Rule::new("slow-reader", "the receiving application").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if let Some(receiver) = &flow.receiver {
        let full = receiver.often(|c| {
            c.receive_limit.is_some_and(|limit| c.receive_queue.count() * 4 >= limit.count())
        });
        let reader = receiver.busiest(view);
        let queue = receiver.median(|c| Some(c.receive_queue)).unwrap_or_default();
        if full < FULL {
            return Outcome::ruled_out(format!(
                "its receive queue holds {}, and was filled in {} of the samples",
                bytes(queue),
                percent(full)
            ));
        }
        // A reader without CPU time has a cause of its own.
        let throttled = receiver.throttled(view).is_some_and(|g| g.throttled_share() > 0.1);
        let starved = reader.is_some_and(|task| task.waited.unwrap_or(0.0) > 0.3);
        if throttled || starved || reader.is_some_and(|task| task.cpu >= 0.9 || task.blocked > 0.2)
        {
            return Outcome::Irrelevant;
        }
        return advised(
            Finding::new(format!(
                "the receiving application is the limit: {} leaves {} unread",
                receiver.name(),
                bytes(queue)
            ))
            .explains(full)
            .seen_from("samples with a full receive queue", percent(full), percent(FULL))
            .seen("receive queue", bytes(queue))
            .seen_if("its limit", receiver.last().receive_limit.map(bytes))
            .seen_if("CPU time of the reader", reader.map(|task| percent(task.cpu))),
        )
        .holds();
    }
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(limited) = sender.window_limited() else {
        return Outcome::not_seen("the time limited by the receiver's window");
    };
    if limited < LIMITED && !flow.is_stalled() || !is_reader_slow(flow) {
        return Outcome::ruled_out(format!(
            "the far window held the sender for {} of the time and did not close",
            percent(limited)
        ));
    }
    let windows = sender.values(|c| c.tcp.peer_window);
    let least = windows.iter().min().copied().unwrap_or_default();
    let most = windows.iter().max().copied().unwrap_or_default();
    advised(
        Finding::new(format!(
            "the receiving application is the limit: the far end's window falls from {} to {}",
            bytes(most),
            bytes(least)
        ))
        .explains(limited.max(if flow.is_stalled() { 0.95 } else { 0.0 }))
        .seen_from("time limited by the receiver's window", percent(limited), percent(LIMITED))
        .seen("samples in which a closed window was probed", percent(sender.often(|c| c.probing)))
        .seen(
            "window of the far end, least and most",
            format!("{}, {}", bytes(least), bytes(most)),
        ),
    )
    .holds()
}

fn advised(finding: Finding) -> Finding {
    finding.advise(
        Advice::new("Look at the receiving program: its disk, its locks, its own output")
            .run("ss -tnmi   (on the receiver: Recv-Q)")
            .not("A larger receive buffer only moves the waiting data; the path is not the reason"),
    )
}

const FULL: f64 = 0.5;
const LIMITED: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::{Bytes, Span};

    fn limited(percent: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.window_limited = Some(Span::from_millis(10 * percent * at));
        })
    }

    #[test]
    fn a_full_queue_or_a_window_that_closes() {
        let here = limited(80).with_receiver(|_, c| c.receive_queue = Bytes::new(3_000_000));
        assert!(here.holds(RULE) > 0.9);
        let far = limited(80).tcp(|at, tcp| {
            tcp.peer_window = Some(Bytes::new(if at % 2 == 0 { 0 } else { 500_000 }));
        });
        assert!(far.holds(RULE) > 0.7);
    }

    #[test]
    fn an_empty_queue_or_a_steady_window_is_another_cause() {
        limited(80).with_receiver(|_, _| {}).holds_not(RULE);
        limited(80).holds_not(RULE);
        limited(10).tcp(|at, tcp| tcp.peer_window = Some(Bytes::new(at * 9))).holds_not(RULE);
    }

    #[test]
    fn a_reader_without_cpu_time_is_another_cause() {
        let busy =
            limited(80).with_receiver(|_, c| c.receive_queue = Bytes::new(3_000_000)).task(8, 97);
        busy.holds_not(RULE);
    }
}
