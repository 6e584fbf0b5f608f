//! A peer does not answer the handshake of a connection, or stops answering an open connection.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::{Attempt, ConnectionState, Listener, Refusal, Sample};
use crate::signs::rejected::ends_attempts;
use crate::signs::timeouts::backs_off;
use crate::view::{End, Flow, View};
use crate::words::{bytes, counted, percent, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("no-answer", "a connection that nobody answers").flow(judge).machine(of_machine);
pub(super) const FALLS_SILENT: Case =
    Case::new("a connection that moved data gets no answer any more");
pub(super) const REPEATS_SYNS: Case = Case::new("handshakes succeed with a second SYN");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = flow.sender.as_ref() else { return Outcome::Irrelevant };
    if !flow.is_opening() {
        return established(flow, sender, view);
    }
    let repeats = sender.last().retransmits;
    let (_, to) = flow.addresses();
    if flow.path.is_some_and(|path| path.refused.is_some()) {
        return Outcome::Irrelevant;
    }
    // The accept queue of this machine may be full, or an ICMP message may answer the SYN: these
    // two causes have rules of their own.
    let is_full =
        |one: &Listener| one.local.port() == to.port() && one.limit > 0 && one.waiting >= one.limit;
    let is_own = flow.path.is_some_and(|path| path.local) || to.ip().is_loopback();
    if is_own && view.last().listeners.iter().any(is_full) || ends_attempts(view) {
        return Outcome::Irrelevant;
    }
    // A single lost SYN does not show a filter.
    let waited = sender.elapsed().secs_f64() / view.elapsed().secs_f64().max(1e-9);
    if repeats < 2 && waited < MOSTLY {
        return Outcome::ruled_out("the handshake was repeated once");
    }
    let again = view.counter("TcpExtTCPSynRetrans");
    if repeats == 0 && again.unwrap_or(0) == 0 {
        return Outcome::ruled_out("the first SYN has waited for less than its timeout");
    }
    // A filter that limits the number of connections does not affect open connections.
    let is_open = |other: &&Flow<'_>| {
        let end = other.end().last();
        let moves = other.rate().bits_per_second() > 0;
        end.remote == to && end.state == ConnectionState::Established && moves
    };
    let open = view.flows.iter().filter(is_open).count() as u64;
    let others = match open {
        0 => String::new(),
        1 => ", while 1 other connection to it moves data".to_owned(),
        _ => format!(", while {open} other connections to it move data"),
    };
    let finding = Finding::new(format!(
        "nobody answers at {to}: this machine has sent its SYN {} again, and no answer or refusal came back{others}",
        counted(repeats.max(1).into(), "time", "times")
    ))
    .limits()
    .seen("retransmissions of this SYN", repeats.to_string())
    .seen_if("SYNs sent again by this machine", again.map(|count| count.to_string()))
    .seen_if("interface", flow.interface().map(str::to_owned))
    .seen_if("gateway", flow.path.and_then(|path| path.gateway).map(|gateway| gateway.to_string()));
    let finding = match open {
        0 => finding,
        _ => finding.seen("other connections to the same port", open.to_string()).advise(
            Advice::new(
                "Look for a limit of the number of connections, and for a full accept queue",
            )
            .run("nft list ruleset   (ct count, on both ends and between)")
            .run("iptables-save | grep connlimit")
            .run("ss -ltn   (on the other end: Recv-Q is the queue, Send-Q its limit)")
            .not("The path, the port and its program work: other connections move data"),
        ),
    };
    finding
        .advise(
            Advice::new("Look for a filter on the way, and for the SYNs at the other end")
                .run(format!("tcpdump -ni any 'tcp port {}'   (on the other end)", to.port()))
                .run("nft list ruleset   (on both ends)")
                .run(format!("ip route get {0}; ip neighbour show {0}", to.ip()))
                .not("A port without a listener answers with a reset: this one does not"),
        )
        .advise(
            Advice::new(
                "If the SYNs arrive there, look at its reverse-path filter and its accept queue",
            )
            .run("weir doctor   (on the other end)"),
        )
        .holds()
}

/// Judges a connection on which data or the handshake passed before, and now no segment is
/// acknowledged. Full segments that never passed may be too large for the path.
fn established(flow: &Flow<'_>, sender: &End<'_>, view: &View<'_>) -> Outcome {
    let tcp = sender.tcp();
    let repeats = u32::from(tcp.backoff.unwrap_or(0)).max(sender.last().retransmits);
    let open = tcp.peer_window.zip(tcp.mss).is_none_or(|(window, mss)| window >= mss)
        && !sender.last().probing;
    let flaps = flow.interface().and_then(|name| view.interface(name)?.carrier_changes);
    let flaps = flaps.unwrap_or(0) > 0;
    let ends = flow.is_stalled() || ends_in_silence(sender);
    let is_small = tcp.mss.is_some_and(|mss| sender.last().send_queue < mss);
    if !ends || !open || !(is_small || sender.has_passed_full()) || flaps {
        return Outcome::Irrelevant;
    }
    if backs_off(flow) {
        return Outcome::ruled_out(
            "the path loses segments, and the sender waits for its long timer",
        );
    }
    if repeats < REPEATS {
        return Outcome::ruled_out(format!("the oldest segment was sent again {repeats} times"));
    }
    let (_, to) = flow.addresses();
    Finding::new(format!(
        "nothing comes back from {to} any more: the oldest segment was sent {} again, after {} had arrived",
        counted(repeats.into(), "time", "times"),
        // The kernel counts the SYN.
        match tcp.bytes_acked.filter(|acked| *acked > Bytes::new(1)) {
            Some(acked) => bytes(acked),
            None => "the handshake".to_owned(),
        }
    ))
    .limits().case(FALLS_SILENT)
    .seen_from("retransmissions of the oldest segment", repeats.to_string(), REPEATS.to_string())
    .seen("waiting in the send queue", bytes(sender.last().send_queue))
    .seen("time without an acknowledgement, until the end", span(silence(sender)))
    .seen_if("interface", flow.interface().map(str::to_owned))
    .advise(
        Advice::new("Look whether the other end is still there, and for a link, a route, a quota or a filter that changed")
            .run(format!("ping -c 3 {}", to.ip()))
            .run(format!("ip route get {0}; ip neighbour show {0}", to.ip()))
            .run(format!("tcpdump -ni any 'tcp port {}'   (on both ends)", to.port()))
            .not("Buffers and congestion control change nothing while no segment arrives"),
    )
    .holds()
}

/// Whether the connection moved with few losses, until acknowledgements stopped.
fn ends_in_silence(sender: &End<'_>) -> bool {
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(u64::MAX);
    let sent = sender.count(|tcp| tcp.data_segments_out).unwrap_or(0);
    sender.last().send_queue > Bytes::ZERO
        && silence(sender) >= SILENT
        && again <= FEW_LOSSES.max(sent / 100)
}

/// Returns the time without acknowledgements at the end of the observation.
fn silence(sender: &End<'_>) -> Span {
    let acked = sender.tcp().bytes_acked;
    let since = sender.all.iter().find(|(_, one)| one.tcp.bytes_acked == acked);
    sender.elapsed() - since.map_or(sender.elapsed(), |(at, _)| *at - sender.all[0].0)
}

const MOSTLY: f64 = 0.6;
/// Minimum number of repeated SYNs. `OFTEN`: minimum share of repeated SYNs in the opened
/// connections.
const FEWEST: u64 = 2;
const OFTEN: f64 = 0.05;
const REPEATS: u32 = 2;
/// In this time the timer sends the oldest segment three times.
const SILENT: Span = Span::from_millis(1_300);
/// Maximum number of retransmissions during the silence.
const FEW_LOSSES: u64 = 8;

fn of_machine(view: &View<'_>) -> Outcome {
    match &view.period.attempt {
        Some(attempt) => of_test(attempt, view),
        None => repeated(view),
    }
}

/// Judges handshakes that need a second SYN and succeed a second later. No connection waits for
/// long, but each loses a second.
fn repeated(view: &View<'_>) -> Outcome {
    let (Some(again), Some(opened)) =
        (view.counter("TcpExtTCPSynRetrans"), view.counter("TcpActiveOpens"))
    else {
        return Outcome::not_seen("the handshakes that were repeated");
    };
    let share = again as f64 / opened.max(1) as f64;
    // The kernel also counts repeated answers to SYNs (tcp_rtx_synack): answers to strangers who
    // scan this machine, and to clients that went away.
    let answers = |sample: &Sample| sample.states.get("syn-received").is_some_and(|some| *some > 0);
    if opened == 0 || view.samples().iter().any(answers) {
        return Outcome::ruled_out(format!(
            "{again} SYNs, or answers to those of others, were sent again for {opened} connections"
        ));
    }
    if again < FEWEST || share < OFTEN {
        return Outcome::ruled_out(format!(
            "{again} SYNs were sent again for {opened} connections"
        ));
    }
    Finding::new(format!(
        "handshakes wait for a second SYN: this machine sent {again} again for {opened} connections, each a second late"
    ))
    .limits().case(REPEATS_SYNS)
    .seen_from("SYNs sent again", again.to_string(), FEWEST.to_string())
    .seen_from("SYNs sent again, of the connections opened", percent(share.min(1.0)), percent(OFTEN))
    .advise(
        Advice::new("Look whether the SYNs arrive at the other end, and whether its accept queue or a filter drops some of them")
            .run("tcpdump -ni any 'tcp[tcpflags] & tcp-syn != 0'   (on both ends)")
            .run("nstat -az TcpExtListenOverflows TcpExtListenDrops   (on the other end)")
            .not("Buffers and congestion control change nothing: no data was sent yet"),
    )
    .holds()
}

/// Judges a test whose SYN is in no sample.
fn of_test(attempt: &Attempt, view: &View<'_>) -> Outcome {
    if attempt.refusal != Some(Refusal::Silent) || view.flows.iter().any(Flow::is_opening) {
        return Outcome::Irrelevant;
    }
    Finding::new(format!(
        "nobody answers at {} port {}: no answer or refusal of the SYN came back",
        attempt.host, attempt.port
    ))
    .limits()
    .seen_if("message", attempt.message.clone())
    .advise(
        Advice::new("Look for a filter on the way, and for the SYNs at the other end")
            .run(format!("tcpdump -ni any 'tcp port {}'   (on the other end)", attempt.port)),
    )
    .holds()
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn opening(retransmits: u32) -> Sketch {
        Sketch::new().sender(move |_, sender| {
            sender.state = ConnectionState::SynSent;
            sender.retransmits = retransmits;
            sender.tcp = Default::default();
        })
    }

    /// A filter passes the handshake, and drops everything after it.
    #[test]
    fn a_request_that_is_sent_again_and_again_after_the_handshake_has_no_answer() {
        let request = |length: u64, repeats: u32| {
            Sketch::new().sender(move |_, sender| {
                sender.send_queue = Bytes::new(length);
                sender.retransmits = repeats;
                sender.tcp.bytes_acked = Some(Bytes::new(1));
                sender.tcp.data_segments_out = Some(1 + repeats);
                sender.tcp.unsent = Some(Bytes::ZERO);
            })
        };
        assert!(request(100, 3).holds(RULE) > 0.9);
        let said = request(100, 3).judge(RULE).finding().unwrap().sentence.clone();
        assert!(said.contains("after the handshake had arrived"), "{said}");
        request(100, 1).holds_not(RULE);
        // A path-MTU black hole looks like this.
        request(9_000, 3).holds_not(RULE);
    }

    #[test]
    fn a_repeated_syn_without_an_answer_is_the_limit() {
        assert!(opening(2).holds(RULE) > 0.9);
        assert!(opening(0).counter("TcpExtTCPSynRetrans", 1).holds(RULE) > 0.9);
    }

    /// A filter drops the SYNs, while datagrams of another program meet a closed port.
    #[test]
    fn icmp_messages_about_datagrams_do_not_answer_a_handshake() {
        let messages = |failed: u64| {
            let filtered = opening(2).counter("IcmpInDestUnreachs", 1);
            filtered.counter("TcpAttemptFails", failed)
        };
        assert!(messages(0).holds(RULE) > 0.9);
        messages(0).machine_holds_not(super::super::refused::RULE);
        messages(1).holds_not(RULE);
        let verdict = |failed: u64| {
            crate::diagnose(messages(failed).recording(), crate::Question::Machine).verdict
        };
        assert_eq!(verdict(0).cause, Some("no-answer"));
        assert_eq!(verdict(1).cause, Some("refused"));
    }

    /// A filter allows a number of connections and drops the SYN of the next connection.
    #[test]
    fn a_connection_limit_names_the_open_connections() {
        let limited = opening(2).each(|at, sample| {
            let mut other = sample.connections[0].clone();
            (other.state, other.cookie, other.retransmits) = (ConnectionState::Established, 9, 0);
            other.local.set_port(6000);
            other.tcp.bytes_acked = Some(Bytes::new(at * 1_000_000));
            sample.connections.push(other);
        });
        let outcome = limited.judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.sentence.ends_with("1 other connection to it moves data"), "{finding:?}");
        assert!(finding.advice[0].commands[0].contains("ct count"), "{finding:?}");
    }

    #[test]
    fn a_fresh_syn_or_an_open_connection_rules_out_no_answer() {
        opening(0).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn handshakes_that_need_a_second_syn_are_a_finding_on_the_machine() {
        let again = |opened: u64| {
            let idle = Sketch::idle().counter("TcpActiveOpens", opened);
            idle.counter("TcpExtTCPSynRetrans", 1)
        };
        assert!(again(9).holds_machine(RULE).is_some_and(|share| share > 0.4));
        again(900).machine_holds_not(RULE);
        // The SYNs of a scan get answers, which the kernel repeats.
        again(0).machine_holds_not(RULE);
        let scanned = again(9).each(|_, sample| {
            sample.states.insert("syn-received".to_owned(), 3);
        });
        scanned.machine_holds_not(RULE);
        // A connection that waits all the time has a verdict of its own.
        let waits = opening(2).counter("TcpActiveOpens", 9).counter("TcpExtTCPSynRetrans", 2);
        waits.machine_holds_not(RULE);
    }

    /// A filter's quota is used up after the first second.
    #[test]
    fn a_connection_that_falls_silent_is_the_limit() {
        let silent = |moves: u64, again: u32| {
            Sketch::new().sender(move |at, sender| {
                sender.retransmits = if at > moves { 3 } else { 0 };
                let at = at.min(moves);
                sender.tcp.bytes_acked = Some(Bytes::new(1_000_000 + at * 50_000_000));
                sender.tcp.data_segments_out = Some(1_000 + at as u32 * 34_530);
                sender.tcp.retransmitted = Some(at as u32 * again);
            })
        };
        assert!(silent(1, 4).holds(RULE) > 0.95);
        silent(2, 4).holds_not(RULE);
        silent(1, 3_000).holds_not(RULE);
    }

    #[test]
    fn answers_that_this_machine_drops_rule_out_no_answer() {
        let filtered = opening(2).counter("TcpExtIPReversePathFilter", 2);
        filtered.holds_not(RULE);
        opening(2).counter("IcmpInTimeExcds", 1).holds_not(RULE);
    }
}
