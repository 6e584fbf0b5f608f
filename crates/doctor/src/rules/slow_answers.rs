//! The program at the other end answers late: the other end has acknowledged all data, and no data
//! comes back for many round trips. The cause is a verdict only if the user asks about the
//! connection.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::Tcp;
use crate::signs::late_answers::{FEWEST_SHORT, MOSTLY, among_short, least};
use crate::view::{End, Flow, View};
use crate::words::{percent, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("slow-answers", "a program that answers late").flow(of_flow).machine(of_machine);
pub(super) const UNANSWERED: Case = Case::new("no answer came in the whole observation");
pub(super) const SHORT: Case = Case::new("connections open for one request each");

fn of_flow(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let ends = || [&flow.sender, &flow.receiver].into_iter().flatten();
    let Some((end, waits)) = waiting(flow) else {
        return match ends().any(|end| end.tcp().last_sent.is_some()) {
            true => Outcome::ruled_out("no end waits for the other's answer for long"),
            false => Outcome::not_seen("the times at which data was sent and received"),
        };
    };
    let (ties, remote) = (counts_ties(end), end.last().remote);
    let times = end.values(|connection| connection.waits_for_answer(ties));
    let longest = times.into_iter().max().unwrap_or_default();
    let peer = match ends().find(|other| other.last().local == remote) {
        Some(other) => other.name(),
        None => format!("the program at {remote}"),
    };
    let is_left = flow.is_left_waiting();
    let sentence = match is_left {
        true => format!(
            "{peer} is the limit: it has taken all that {} sent, and has not answered for {} and more",
            end.name(),
            span(longest)
        ),
        false => format!(
            "{peer} is the limit: it takes up to {} and more to answer, and {} has nothing to send until then",
            span(longest),
            end.name()
        ),
    };
    let (out, back) = segments(end).unwrap_or_default();
    let finding = Finding::new(sentence)
        .limits_for(waits)
        .case_if(is_left, UNANSWERED)
        .healthy()
        .seen_from(
            "samples in which all is acknowledged, and no answer has come",
            percent(waits),
            percent(WAITS),
        )
        .seen("time since its last data was sent, at most", span(longest))
        .seen_if("least round trip", end.tcp().min_rtt.map(span))
        .seen("data segments sent, received", format!("{out}, {back}"))
        .against_if(
            is_left && has_never_answered(end),
            "a program that expects no answer, and has nothing to send, looks like this too",
        );
    advised(finding).holds()
}

/// Judges all connections that open for one request together: each connection is too short to be
/// judged alone.
fn of_machine(view: &View<'_>) -> Outcome {
    let is_long = |flow: &Flow<'_>| flow.is_busy() && flow.end().elapsed() * 3 >= view.elapsed();
    if view.flows.iter().any(is_long) {
        return Outcome::Irrelevant;
    }
    let Some(short) = among_short(view) else { return Outcome::Irrelevant };
    let finding = Finding::new(format!(
        "the program at {} is the limit: connections wait for {} and more for its answer",
        short.remote,
        span(short.longest)
    ))
    .limits()
    .case(SHORT)
    .healthy()
    .seen_from(
        "samples in which a connection waits for its answer",
        percent(short.share),
        percent(MOSTLY),
    )
    .seen_from("connections that waited", short.waited.to_string(), FEWEST_SHORT.to_string());
    advised(finding).holds()
}

fn advised(finding: Finding) -> Finding {
    finding.advise(
        Advice::new("Look at the program at the other end: its own requests, its locks, its disk, its threads")
            .run("weir doctor   (on the other end)")
            .run("strace -f -tt -p PID   (on the other end)")
            .not("The path passes each message at once: a faster link and larger buffers change nothing"),
    )
}

/// Returns the end that waits, and the share of the samples in which it waits.
fn waiting<'f, 'a>(flow: &'f Flow<'a>) -> Option<(&'f End<'a>, f64)> {
    // The control connection of a test is silent while data moves.
    if flow.in_test {
        return None;
    }
    let mut ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    if flow.is_left_waiting() {
        return ends.find(|end| end.is_left_waiting()).map(|end| (end, 1.0));
    }
    ends.filter(|end| end.all.len() >= LEAST_SAMPLES && is_answered(end))
        .map(|end| (end, late(end)))
        .find(|(_, share)| *share >= WAITS)
}

/// Returns the share of the samples in which an answer has been due for several round trips.
fn late(end: &End<'_>) -> f64 {
    let (ties, least) = (counts_ties(end), least(end.last()));
    end.often(|c| c.waits_for_answer(ties).is_some_and(|waited| waited >= least))
}

/// Whether the peer answers this end's data. A peer that only receives sends a little data at
/// times.
fn is_answered(end: &End<'_>) -> bool {
    segments(end)
        .is_some_and(|(out, back)| out > 0 && back >= FEWEST && back.saturating_mul(3) >= out)
}

/// Returns the numbers of data segments sent and received.
fn segments(end: &End<'_>) -> Option<(u64, u64)> {
    end.count(|tcp| tcp.data_segments_out).zip(end.count(|tcp| tcp.data_segments_in))
}

/// Whether data that was sent and received within one tick of the kernel's clock counts as sent
/// last. The order is unknown within a tick: a request may follow an answer at once, or an answer
/// its request. On a path of several ticks only a request can follow. On a shorter path
/// acknowledgements without data decide: if a program takes longer than 40 ms to answer, its kernel
/// sends an acknowledgement without data.
fn counts_ties(end: &End<'_>) -> bool {
    if has_never_answered(end) || end.tcp().min_rtt.is_some_and(|least| least >= TICKS) {
        return true;
    }
    let theirs = without_data(end, |tcp| tcp.segments_in, |tcp| tcp.data_segments_in);
    let own = without_data(end, |tcp| tcp.segments_out, |tcp| tcp.data_segments_out);
    let (Some((theirs, own)), Some((out, back))) = (theirs.zip(own), segments(end)) else {
        return false;
    };
    let peer_is_late = theirs.saturating_mul(2) >= out;
    let end_is_not = own.saturating_mul(2) < back || back >= out.saturating_mul(3);
    peer_is_late && end_is_not
}

fn has_never_answered(end: &End<'_>) -> bool {
    end.tcp().bytes_received == Some(Bytes::ZERO)
}

/// Returns the number of segments without data, which are acknowledgements.
fn without_data(
    end: &End<'_>,
    all: fn(&Tcp) -> Option<u32>,
    data: fn(&Tcp) -> Option<u32>,
) -> Option<u64> {
    Some(end.count(all)?.saturating_sub(end.count(data)?))
}

/// Minimum share of the samples in which an end waits.
const WAITS: f64 = 0.3;
const LEAST_SAMPLES: usize = 4;
/// Minimum number of answers of a peer that answers.
const FEWEST: u64 = 2;
/// Round trip of several ticks of the kernel's clock: more than two ticks with HZ=250.
const TICKS: Span = Span::from_millis(10);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::{Recording, ShortLived};
    use crate::{Question, diagnose};

    /// Builds an end that sends five requests a second. `sent`, `received`: milliseconds since the
    /// last data in each direction.
    fn asking(sent: u64, received: u64) -> Sketch {
        Sketch::new().sender(move |at, sender| {
            sender.send_queue = Bytes::ZERO;
            let (tcp, messages) = (&mut sender.tcp, 1 + 5 * at as u32);
            tcp.min_rtt = Some(Span::from_micros(200));
            (tcp.unsent, tcp.unacked) = (Some(Bytes::ZERO), Some(0));
            tcp.last_sent = Some(Span::from_millis(sent));
            tcp.last_received = Some(Span::from_millis(received));
            tcp.bytes_acked = Some(Bytes::new(u64::from(messages) * 200));
            tcp.bytes_received = Some(Bytes::new(u64::from(messages)));
            (tcp.data_segments_out, tcp.data_segments_in) = (Some(messages), Some(messages));
            (tcp.segments_out, tcp.segments_in) = (Some(messages), Some(messages));
            tcp.busy = Some(Span::from_millis(40 * at));
        })
    }

    fn asked(sketch: &Sketch) -> Option<&'static str> {
        let mut recording = sketch.recording().clone();
        recording.focus = Some("port 5201".to_owned());
        diagnose(&recording, Question::Flow).verdict.cause
    }

    #[test]
    fn an_answer_that_comes_late_blames_the_peers_program() {
        let late = asking(150, 155);
        assert!(late.holds(RULE) > 0.8);
        assert!(late.judge(RULE).finding().unwrap().healthy);
        assert_eq!(asked(&late), Some("slow-answers"));
        // An answer within three round trips is not late.
        asking(150, 155).tcp(|_, tcp| tcp.min_rtt = Some(Span::from_millis(60))).holds_not(RULE);
    }

    #[test]
    fn an_answer_sooner_than_the_peer_blames_the_application() {
        asking(150, 149).holds_not(RULE);
        asking(10, 30).holds_not(RULE);
        assert_eq!(asked(&asking(150, 149)), Some("application"));
    }

    #[test]
    fn acknowledgements_decide_if_the_order_of_data_is_unknown() {
        asking(150, 150).holds_not(RULE);
        let theirs = asking(150, 150).tcp(|at, tcp| tcp.segments_in = Some(2 + 10 * at as u32));
        assert!(theirs.holds(RULE) > 0.8);
        let both = theirs.tcp(|at, tcp| tcp.segments_out = Some(2 + 10 * at as u32));
        both.holds_not(RULE);
        let acked = |since: u64| {
            asking(150, 150).tcp(move |_, tcp| {
                tcp.last_acknowledged = Some(Span::from_millis(since));
            })
        };
        assert!(acked(110).holds(RULE) > 0.8);
        acked(150).holds_not(RULE);
    }

    #[test]
    fn pauses_of_a_sender_that_gets_no_answers_blame_the_sender() {
        let one_way = asking(150, 900).tcp(|_, tcp| {
            (tcp.data_segments_in, tcp.bytes_received) = (Some(1), Some(Bytes::new(1)));
        });
        one_way.holds_not(RULE);
    }

    #[test]
    fn a_program_that_hangs_is_a_verdict_about_its_connection_only() {
        let hangs = || {
            asking(4_000, 4_000).tcp(|_, tcp| {
                tcp.bytes_acked = Some(Bytes::new(201));
                tcp.bytes_received = Some(Bytes::ZERO);
                (tcp.data_segments_out, tcp.data_segments_in) = (Some(1), Some(0));
            })
        };
        assert_eq!(asked(&hangs()), Some("slow-answers"));
        // The user asked about the machine, not the connection.
        assert_eq!(diagnose(hangs().recording(), Question::Machine).verdict.cause, None);
        let connected = hangs().tcp(|_, tcp| tcp.bytes_acked = Some(Bytes::new(1)));
        assert_eq!(asked(&connected), None);
        let has_answered = hangs().tcp(|_, tcp| tcp.bytes_received = Some(Bytes::new(7)));
        assert_eq!(asked(&has_answered), None, "the order is unknown");
        let acked = has_answered.tcp(|_, tcp| {
            tcp.last_acknowledged = Some(Span::from_millis(3_960));
        });
        assert_eq!(asked(&acked), Some("slow-answers"));
    }

    /// A connection for each request, which only one sample sees.
    #[test]
    fn a_server_that_answers_each_of_many_connections_late_is_the_limit() {
        let each = |sent: u64| {
            let sketch = asking(sent, sent).sender(|at, sender| {
                sender.cookie = at;
                sender.tcp.bytes_received = Some(Bytes::ZERO);
            });
            let mut recording = sketch.recording().clone();
            let bytes = Bytes::new(9_000);
            recording.periods[0].short_lived = Some(ShortLived { connections: 9, bytes });
            recording
        };
        let cause = |mut recording: Recording| {
            recording.focus = Some("port 5201".to_owned());
            diagnose(&recording, Question::Flow).verdict.cause
        };
        assert_eq!(cause(each(150)), Some("slow-answers"));
        assert_eq!(cause(each(5)), Some("short-connections"));
        assert_eq!(diagnose(&each(150), Question::Machine).verdict.cause, None);
    }
}
