//! The receiving application does not read as fast as data arrives.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::accepting::waits_at;
use crate::signs::far_window::{is_reader_slow, is_scale_lost, moves_with_reads, offered};
use crate::signs::send_buffer::waits_for_reader;
use crate::view::{End, Flow, TaskUse, View};
use crate::words::{bytes, percent, rate};
use std::net::SocketAddr;
use units::Rate;

pub(super) const RULE: Rule = Rule::new("slow-reader", "the receiving application").flow(judge);
pub(super) const UNREAD: Case = Case::new("no byte was read during the observation");
pub(super) const MOVES: Case = Case::new("the far window moves with the reads");
pub(super) const STALLED: Case = Case::new("the window stays closed, and no data arrives");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    // A peer that has not answered the handshake has offered no window.
    if flow.is_opening() {
        return Outcome::Irrelevant;
    }
    if let Some(receiver) = &flow.receiver {
        let full = receiver.often(|c| {
            c.receive_limit.is_some_and(|limit| c.receive_queue.count() >= limit.count() / 4)
        });
        let reader = receiver.busiest(view);
        let queue = receiver.median(|c| Some(c.receive_queue)).unwrap_or_default();
        let unread = flow.is_left_unread();
        if full < FULL && !unread {
            return Outcome::ruled_out(format!(
                "its receive queue holds {}, and was filled in {} of the samples",
                bytes(queue),
                percent(full)
            ));
        }
        // If no program has accepted the connection, another cause explains the queue.
        if receiver.last().holders.is_empty() && waits_at(view, receiver.last().local) {
            return Outcome::Irrelevant;
        }
        // The rules of CPU time report a reader that lacks CPU time.
        let throttled = receiver.throttled(view).is_some_and(|group| group.is_held_back());
        let starved = reader.is_some_and(|task| task.waited.unwrap_or(0.0) > 0.3);
        // A program of the reader's pipeline may wait for the disk.
        let lacks = |task: &&TaskUse<'_>| task.cpu >= 0.9 || waits_for_disk(task, view);
        if throttled || starved || receiver.tasks(view).iter().any(lacks) {
            return Outcome::Irrelevant;
        }
        if let Some(onward) = passes_on(receiver, flow, view) {
            return Finding::new(format!(
                "{} leaves {} unread because it passes the data on to {onward}, where data waits to be sent",
                receiver.name(),
                bytes(queue)
            ))
            .seen("samples with a full receive queue", percent(full))
            .holds();
        }
        return advised(
            Finding::new(format!(
                "the receiving application is the limit: {} leaves {} unread",
                receiver.name(),
                bytes(queue)
            ))
            .limits_for(full)
            .case_if(unread, UNREAD)
            .seen_from("samples with a full receive queue", percent(full), percent(FULL))
            .seen("receive queue", bytes(queue))
            .seen_if("its limit", receiver.last().receive_limit.map(bytes))
            .seen_if("CPU time of the reader, of a core", reader.map(|task| percent(task.cpu))),
        )
        .holds();
    }
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(limited) = sender.window_limited() else {
        return Outcome::not_seen("the time limited by the receiver's window");
    };
    if is_scale_lost(sender) {
        return Outcome::Irrelevant;
    }
    // While the window and the send buffer are both full, the kernel counts only the send buffer.
    let (full, pauses) = (waits_for_reader(flow), pauses(flow) && !lacks_cores(flow, view));
    let bursts = full || pauses;
    let limited = match bursts {
        true if pauses => limited.max(PAUSES_EXPLAIN),
        true => limited + sender.buffer_limited().unwrap_or(0.0),
        false => limited,
    };
    if limited < LIMITED && !flow.is_stalled() || !is_reader_slow(flow) && !bursts {
        return Outcome::ruled_out(format!(
            "the far window held the sender for {} of the observation and did not close",
            percent(limited)
        ));
    }
    let moves = limited >= LIMITED && moves_with_reads(sender);
    let windows = offered(sender);
    let least = windows.iter().min().copied().unwrap_or_default();
    let most = windows.iter().max().copied().unwrap_or_default();
    advised(
        Finding::new(match bursts {
            true => format!(
                "the receiving end is the limit: it takes the data in bursts, of {} at most, and pauses in between",
                fastest(sender).map_or_else(|| "an unknown rate".to_owned(), rate)
            ),
            false => format!(
                "the receiving application is the limit: the far end's window falls from {} to {}",
                bytes(most),
                bytes(least)
            ),
        })
        .limits_for(limited)
        .case_if(moves, MOVES)
        .case_if(flow.is_stalled(), STALLED)
        .seen_from("time limited by the receiver, of the observation", percent(limited), percent(LIMITED))
        .seen("samples in which a closed window was probed", percent(sender.often(|c| c.probing)))
        .seen(
            "window of the far end, least and most",
            format!("{}, {}", bytes(least), bytes(most)),
        ),
    )
    .holds()
}

/// Returns the peer of another connection on which the reader sends data at about this rate, if
/// unsent data waits on it. A proxy reads only as fast as it can write.
fn passes_on(receiver: &End<'_>, flow: &Flow<'_>, view: &View<'_>) -> Option<SocketAddr> {
    let rate = flow.rate().bits_per_second();
    let alike = |other: &&Flow<'_>| {
        let other_rate = other.rate().bits_per_second();
        other.addresses() != flow.addresses() && other_rate >= rate / 2 && other_rate / 2 <= rate
    };
    view.flows.iter().filter(alike).find_map(|other| {
        let sender = other.sender.as_ref()?;
        let is_same = sender.pids().any(|pid| receiver.pids().any(|one| one == pid));
        let waits = sender.data_waits().unwrap_or(0.0) >= WAITS;
        (is_same && waits).then(|| sender.last().remote)
    })
}

/// Whether the peer's kernel has room and acknowledges in bursts: its machine lacks CPU time, or
/// stops the reader while it holds the socket. The mean deviation of the round trips is then as
/// large as the round trips (RFC 6298), and the path delivers many times faster than the mean rate.
fn pauses(flow: &Flow<'_>) -> bool {
    let Some(sender) = flow.sender.as_ref().filter(|_| flow.receiver.is_none()) else {
        return false;
    };
    let (Some(rtt), Some(varies)) = (sender.rtt(), sender.median(|c| c.tcp.rttvar)) else {
        return false;
    };
    let least = sender.tcp().min_rtt.unwrap_or(rtt);
    let goodput = flow.rate().bits_per_second() as f64;
    let fast = fastest(sender).is_some_and(|most| most.bits_per_second() as f64 >= BURST * goodput);
    let steady = sender.loss().unwrap_or(0.0) < 1e-3 && sender.busy().unwrap_or(0.0) >= BUSY;
    fast && steady && varies * 2 >= rtt && rtt.nanos() / 4 >= least.nanos() && sender.has_data()
}

/// Whether the far end runs on this machine too, and all cores are full: the far end then lacks CPU
/// time, which is another cause.
fn lacks_cores(flow: &Flow<'_>, view: &View<'_>) -> bool {
    let (from, to) = flow.addresses();
    let is_here = view.period.far_ends.iter().any(|end| (end.local, end.remote) == (to, from));
    let busy: f64 = view.cores.values().map(|core| core.busy() + core.steal).sum();
    is_here && busy >= FULL_CORES * view.cores.len() as f64
}

/// Whether the process waits for its disk. A frozen process is in the same state, but nothing waits
/// for I/O.
fn waits_for_disk(task: &TaskUse<'_>, view: &View<'_>) -> bool {
    let blocked = task.blocked.unwrap_or(0.0);
    blocked > 0.2 && view.pressure("io").is_none_or(|(some, _)| some >= blocked / 3.0)
}

fn fastest(sender: &End<'_>) -> Option<Rate> {
    sender.values(|c| c.tcp.delivery_rate).into_iter().max()
}

fn advised(finding: Finding) -> Finding {
    finding.advise(
        Advice::new("Look at the receiving program: its disk, its locks, its own output")
            .run("ss -tnmi   (on the receiver: Recv-Q)")
            .not("A larger receive buffer only moves the waiting data; the path is not the reason"),
    )
}

const FULL: f64 = 0.5;
const BURST: f64 = 5.0;
const BUSY: f64 = 0.8;
const PAUSES_EXPLAIN: f64 = 0.8;
const LIMITED: f64 = 0.2;
/// Minimum share of the samples in which a proxy has unsent data.
const WAITS: f64 = 0.5;
const FULL_CORES: f64 = 0.9;

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
    fn a_full_queue_or_a_window_that_closes_blames_the_reader() {
        let here = limited(80).with_receiver(|_, c| c.receive_queue = Bytes::new(3_000_000));
        assert!(here.holds(RULE) > 0.9);
        let far = limited(80).tcp(|at, tcp| {
            tcp.peer_window = Some(Bytes::new(if at % 2 == 0 { 0 } else { 500_000 }));
        });
        assert!(far.holds(RULE) > 0.7);
    }

    #[test]
    fn an_empty_queue_or_a_steady_window_rules_out_the_reader() {
        limited(80).with_receiver(|_, _| {}).holds_not(RULE);
        limited(80).holds_not(RULE);
        limited(10).tcp(|at, tcp| tcp.peer_window = Some(Bytes::new(at * 9))).holds_not(RULE);
    }

    #[test]
    fn a_reader_without_cpu_time_is_not_blamed_as_slow() {
        let busy =
            limited(80).with_receiver(|_, c| c.receive_queue = Bytes::new(3_000_000)).task(8, 97);
        busy.holds_not(RULE);
    }

    /// The reader of one connection sends the same data on over another connection.
    #[test]
    fn a_proxy_that_waits_to_write_is_no_slow_reader() {
        let proxy = |unsent: u64, pid: u32| {
            let came = Sketch::new().receiving(|_, receiver| {
                receiver.receive_queue = Bytes::new(3_000_000);
            });
            let sent = Sketch::new().tcp(move |_, tcp| tcp.unsent = Some(Bytes::new(unsent)));
            let sent = sent.recording().periods[0].samples.clone();
            let both = came.each(move |at, sample| {
                let mut onward = sent[at as usize].connections[0].clone();
                onward.remote = "10.0.0.3:80".parse().unwrap();
                onward.cookie = 9;
                onward.holders[0].pid = pid;
                sample.connections.push(onward);
            });
            let view = View::of(both.recording(), &both.recording().periods[0]).unwrap();
            let flow = view.flows.iter().find(|flow| flow.sender.is_none()).unwrap();
            judge(flow, &view).finding().unwrap().claim.map(|claim| claim.measured[0])
        };
        assert_eq!(proxy(500_000, 8), None);
        assert!(proxy(0, 8).is_some_and(|share| share > 0.9));
        assert!(proxy(500_000, 77).is_some_and(|share| share > 0.9));
    }

    #[test]
    fn a_connection_that_nobody_accepted_has_no_reader() {
        let waits = Sketch::new().receiving(|_, receiver| {
            receiver.receive_queue = Bytes::new(5_000_000);
            receiver.tcp.bytes_received = Some(Bytes::new(5_000_000));
            receiver.holders.clear();
        });
        assert!(waits.holds(RULE) > 0.9);
        let queued = waits.each(|_, sample| {
            let local = "0.0.0.0:5201".parse().unwrap();
            let (holders, waiting, limit) = (Vec::new(), 2, 128);
            sample.listeners.push(crate::recording::Listener { local, holders, waiting, limit });
        });
        assert_eq!(queued.judge(RULE), Outcome::Irrelevant);
        let verdict = crate::diagnose(queued.recording(), crate::Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("accept-queue"));
    }

    #[test]
    fn a_reader_in_uninterruptible_sleep_is_slow_unless_it_waits_for_the_disk() {
        let blocked = |pressure: u64| {
            let full = limited(80).with_receiver(|_, c| c.receive_queue = Bytes::new(3_000_000));
            full.each(move |at, sample| {
                sample.tasks[1].state = "D".to_owned();
                let some = Span::from_millis(10 * pressure * at);
                let stall = crate::recording::Stall { some, full: None };
                sample.pressure.insert("io".to_owned(), stall);
            })
        };
        assert!(blocked(0).holds(RULE) > 0.9);
        blocked(80).holds_not(RULE);
    }

    /// A server that hangs does not read a request of 300 bytes.
    #[test]
    fn an_unread_request_is_a_verdict_if_the_user_asks_about_it() {
        let hangs = Sketch::new().receiving(|_, receiver| {
            receiver.receive_queue = Bytes::new(300);
            receiver.tcp.bytes_received = Some(Bytes::new(300));
        });
        let mut recording = hangs.recording().clone();
        let verdict = |recording: &crate::Recording| {
            crate::diagnose(recording, crate::Question::Flow).verdict
        };
        assert_eq!(verdict(&recording).cause, None);
        recording.focus = Some("port 5201".to_owned());
        assert_eq!(verdict(&recording).cause, Some("slow-reader"));
    }

    #[test]
    fn a_full_buffer_that_allows_much_more_blames_the_reader() {
        // 4 MB in each millisecond would be 16 Gbit/s, and 400 Mbit/s pass.
        let bursts = Sketch::new().tcp(|at, tcp| {
            tcp.rtt = Some(Span::from_millis(1));
            tcp.buffer_limited = Some(Span::from_millis(900 * at));
        });
        assert!(bursts.holds(RULE) > 0.8);
        bursts.holds_not(super::super::send_buffer::RULE);
    }

    #[test]
    fn bursts_of_acknowledgements_at_an_open_window_blame_the_reader() {
        let answers = |varies: u64, gbit: u64| {
            Sketch::new().tcp(move |_, tcp| {
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(5)), Some(Span::from_micros(100)));
                tcp.rttvar = Some(Span::from_micros(varies));
                tcp.delivery_rate = Some(Rate::from_mbit(gbit * 1000));
            })
        };
        assert!(answers(9_000, 20).holds(RULE) > 0.7);
        answers(900, 20).holds_not(RULE);
        answers(9_000, 1).holds_not(RULE);
        // The receiver is in another network namespace of this machine.
        let here = |busy: u64| {
            let core = [busy, 5, 5, 0];
            let mut recording = answers(9_000, 20).core(0, core).core(1, core).recording().clone();
            let (local, remote) = ("10.0.0.2:5201", "10.0.0.1:5000");
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let end = crate::recording::InnerEnd { local, remote, holders: Vec::new() };
            recording.periods[0].far_ends.push(end);
            let view = View::of(&recording, &recording.periods[0]).unwrap();
            judge(&view.flows[0], &view).finding().is_some()
        };
        assert!(here(20) && !here(88), "it lacks CPU time");
    }

    #[test]
    fn a_handshake_without_an_answer_has_no_window() {
        let opening = limited(95).sender(|_, sender| {
            sender.state = crate::recording::ConnectionState::SynSent;
            sender.tcp.peer_window = Some(Bytes::ZERO);
        });
        assert_eq!(opening.judge(RULE), Outcome::Irrelevant);
        // The peer answered the second SYN, and has offered a wide window since then.
        let late = Sketch::new().sender(|at, sender| {
            sender.tcp.bytes_acked = Some(Bytes::new(at * 10));
            if at < 2 {
                sender.state = crate::recording::ConnectionState::SynSent;
                sender.tcp.peer_window = Some(Bytes::ZERO);
            }
        });
        late.holds_not(RULE);
    }

    #[test]
    fn a_window_that_is_closed_in_every_sample_blames_the_reader() {
        let closed = limited(95).tcp(|_, tcp| tcp.peer_window = Some(Bytes::new(700)));
        assert!(closed.holds(RULE) > 0.9);
        // A small window that stays open shows a small buffer.
        limited(95).tcp(|_, tcp| tcp.peer_window = Some(Bytes::new(16_384))).holds_not(RULE);
    }
}
