//! The path, or the peer, drops SYNs that ask for congestion marks (RFC 3168). A second later the
//! kernel sends the second SYN without the request, and the peer answers the second SYN.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::ConnectionState;
use crate::view::View;
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("ecn-refused", "handshakes that ask for congestion marks").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(setting) = view.sysctl(SETTING) else { return Outcome::not_seen(SETTING) };
    if !ASKS.contains(&setting) {
        return Outcome::ruled_out("this machine does not ask for congestion marks");
    }
    let (Some(again), Some(opened)) =
        (view.counter("TcpExtTCPSynRetrans"), view.counter("TcpActiveOpens"))
    else {
        return Outcome::not_seen("the handshakes that were repeated");
    };
    // A handshake that still waits has not shown that a SYN without the request succeeds.
    let waits = view.last().connections.iter().filter(|one| one.state == ConnectionState::SynSent);
    let waiting: u64 = waits.map(|one| u64::from(one.retransmits)).sum();
    let again = again.saturating_sub(waiting);
    let share = again as f64 / opened.max(1) as f64;
    // On a path that drops all SYNs the kernel repeats each SYN several times.
    if again < FEWEST || !ONE_EACH.contains(&share) {
        return Outcome::ruled_out(format!(
            "{again} SYNs were sent again, and answered, for {opened} connections"
        ));
    }
    let samples = view.samples().iter().flat_map(|sample| &sample.connections);
    let open = || {
        samples.clone().filter(|one| {
            one.state == ConnectionState::Established && !one.remote.ip().is_loopback()
        })
    };
    let marked = open().filter(|one| one.tcp.ecn == Some(true)).count();
    if marked > 0 {
        return Outcome::ruled_out("a peer agreed to congestion marks");
    }
    Finding::new(format!(
        "handshakes that ask for congestion marks are dropped: {again} of {opened} connections began a second late, with a second SYN that does not ask for marks"
    ))
    .limits()
    .seen_from("SYNs sent again, of the connections opened", percent(share), percent(ONE_EACH.start))
    .seen(SETTING, setting)
    .seen("connections that agreed to congestion marks", "none")
    .against("a peer whose accept queue is full drops first SYNs too")
    .advise(
        Advice::new("Look for the firewall that drops SYNs with ECE and CWR, or switch the request for marks off")
            .run("tcpdump -ni any 'tcp[13] & 0xc2 == 0xc2'   (on both ends)")
            .run(format!("sysctl -w {SETTING}=2"))
            .not("Buffers and congestion control change nothing: no data was sent yet"),
    )
    .holds()
}

const SETTING: &str = "net.ipv4.tcp_ecn";
/// Values with which this machine's SYNs ask for marks, by RFC 3168 or by RFC 9768 (ip-sysctl.rst).
const ASKS: [&str; 3] = ["1", "3", "4"];
const FEWEST: u64 = 2;
/// Repeated SYNs per opened connection: about one.
const ONE_EACH: std::ops::Range<f64> = 0.8..1.3;

#[cfg(test)]
mod tests {
    use super::super::no_answer;
    use super::super::sketch::Sketch;
    use super::*;

    fn opening(again: u64, setting: &str) -> Sketch {
        let sketch =
            Sketch::idle().counter("TcpExtTCPSynRetrans", again).counter("TcpActiveOpens", 10);
        sketch.machine(|machine| {
            machine.sysctls.insert(SETTING.to_owned(), setting.to_owned());
        })
    }

    #[test]
    fn handshakes_that_still_wait_show_no_refusal_of_marks() {
        let sketch = Sketch::new().counter("TcpExtTCPSynRetrans", 10).counter("TcpActiveOpens", 10);
        let asks = sketch.machine(|machine| {
            machine.sysctls.insert(SETTING.to_owned(), "1".to_owned());
        });
        assert!(asks.holds_machine(RULE).is_some_and(|share| share > 0.6));
        // As many handshakes wait as SYNs were sent again.
        let waiting = asks.each(|_, sample| {
            let open = sample.connections.remove(0);
            let waits = |number: u16| {
                let mut one = open.clone();
                one.local.set_port(6000 + number);
                (one.cookie, one.state) = (number.into(), ConnectionState::SynSent);
                one.retransmits = 1;
                one.tcp.bytes_acked = Some(units::Bytes::ZERO);
                one
            };
            sample.connections = (0..30).map(waits).collect();
        });
        waiting.machine_holds_not(RULE);
    }

    #[test]
    fn one_repeated_syn_for_each_request_for_marks_shows_a_refusal() {
        for asks in ASKS {
            assert!(opening(10, asks).holds_machine(RULE).is_some_and(|share| share > 0.6));
        }
        opening(10, "1").machine_holds_not(no_answer::RULE);
        for passive in ["0", "2", "5"] {
            opening(10, passive).machine_holds_not(RULE);
        }
        opening(2, "1").machine_holds_not(RULE);
        opening(60, "1").machine_holds_not(RULE);
        assert!(opening(10, "2").holds_machine(no_answer::RULE).is_some());
    }
}
