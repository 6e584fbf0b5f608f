//! The application opens a connection for a little data and closes it: the handshake and the slow
//! start (RFC 5681) take most of the connection's time. The cause is a verdict only if the user
//! asks about the connection.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::ShortLived;
use crate::signs::late_answers::among_short;
use crate::view::{Flow, View};
use crate::words::bytes;
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("short-connections", "short connections").flow(of_flow).machine(of_machine);

/// Judges a flow that is a short connection itself: it may last longer than the other short
/// connections.
fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let end = flow.end();
    let longest = LONGEST.max(end.tcp().min_rtt.unwrap_or_default() * ShortLived::ROUND_TRIPS);
    let is_short = end.elapsed() * 2 < view.elapsed() && end.elapsed() <= longest;
    if is_short { judge(view) } else { Outcome::Irrelevant }
}

fn of_machine(view: &View<'_>) -> Outcome {
    if view.flows.iter().any(Flow::is_busy) { Outcome::Irrelevant } else { judge(view) }
}

fn judge(view: &View<'_>) -> Outcome {
    let Some(short) = view.period.short_lived else { return Outcome::Irrelevant };
    if view.recording.focus.is_none() {
        return Outcome::Irrelevant;
    }
    let per_second = short.connections as f64 / view.elapsed().secs_f64();
    if per_second < FROM || short.connections < FEWEST {
        return Outcome::ruled_out(format!(
            "{} connections opened and ended during the observation",
            short.connections
        ));
    }
    let each = Bytes::new(short.bytes.count() / short.connections.max(1));
    let started = view.sysctl("net.ipv4.tcp_slow_start_after_idle").map(str::to_owned);
    if among_short(view).is_some() {
        return Outcome::ruled_out("they wait for their answers most of the time");
    }
    Finding::new(format!(
        "short connections are the limit: at least {per_second:.0} a second open and end, and each begins with a handshake and a small window"
    ))
    .limits()
    .healthy()
    .seen_from("connections that opened and ended", format!("{per_second:.1} a second"), format!("{FROM} a second"))
    .seen("bytes of one, when it was seen", bytes(each))
    .seen_if("net.ipv4.tcp_slow_start_after_idle", started)
    .advise(
        Advice::new("Keep connections open and use them again (keep-alive, a pool of connections)")
            .not("Larger buffers and a faster link change little: the window has no time to grow"),
    )
    .advise(
        Advice::new("If they must be short, let them begin with a larger window")
            .run("ip route change ROUTE initcwnd 32")
            .not("It saves a few round trips, and not the handshake"),
    )
    .holds()
}

/// Minimum rate of short connections, per second. An observation of 3 s takes a little longer, so
/// that three connections are fewer than one each second.
const FROM: f64 = 0.9;
/// Maximum length of a short connection, because half of a long observation is no short time.
const LONGEST: Span = Span::from_secs(2);
/// Minimum number of short connections: two in half a second would be four a second.
const FEWEST: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Recording;
    use crate::{Question, diagnose};

    fn verdict(connections: u64, asked: bool) -> Option<&'static str> {
        verdict_of(Sketch::idle().recording().clone(), connections, asked)
    }

    /// Returns the verdict if `connections` open and end between two samples.
    fn brief_verdict(connections: u64) -> Option<&'static str> {
        let mut recording = Sketch::idle().recording().clone();
        recording.periods[0].samples.truncate(2);
        verdict_of(recording, connections, true)
    }

    fn verdict_of(mut recording: Recording, connections: u64, asked: bool) -> Option<&'static str> {
        recording.focus = asked.then(|| "port 80".to_owned());
        let bytes = Bytes::new(connections * 90_000);
        recording.periods[0].short_lived = Some(ShortLived { connections, bytes });
        diagnose(&recording, Question::of(&recording)).verdict.cause
    }

    #[test]
    fn short_connections_are_a_verdict_if_the_user_asks_about_them() {
        assert_eq!(verdict(8, true), Some("short-connections"));
        assert_eq!(verdict(1, true), None);
        // A transfer whose far end goes away has a control connection and a stream.
        assert_eq!(brief_verdict(2), None);
        assert_eq!(brief_verdict(8), Some("short-connections"));
        assert_eq!(verdict(8, false), None);
    }
}
