//! Peers refuse connections of this machine at once, by a reset or by an ICMP message of a filter.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::{Attempt, Origin, Refusal};
use crate::signs::rejected::{ends_attempts, unreachable};
use crate::view::{Flow, View};

pub(super) const RULE: Rule = Rule::new("refused", "refused connections").machine(judge);
pub(super) const TEST: Case = Case::new("the connection of the test is refused");

fn judge(view: &View<'_>) -> Outcome {
    if let Some(attempt) = refused_test(view) {
        return of_test(attempt);
    }
    let Some(failed) = view.counter("TcpAttemptFails") else {
        return Outcome::not_seen("the count of failed connections");
    };
    // An attempt that ends by its timeout has sent its SYN again.
    let repeated = view.counter("TcpExtTCPSynRetrans").unwrap_or(0);
    let rejected = unreachable(view);
    // The kernel also counts clients that reset their handshake with this machine (tcp_check_req).
    // Port scans and many health checks of load balancers do so.
    let theirs = view.counter("TcpExtEmbryonicRsts").unwrap_or(0);
    let tried = view.counter("TcpActiveOpens");
    let resets = failed.saturating_sub(repeated).saturating_sub(theirs);
    let resets = tried.map_or(resets, |tried| resets.min(tried));
    let opening = view.flows.iter().any(Flow::is_opening);
    // Routers limit the rate of these messages, so that some SYNs get none.
    let by_icmp = ends_attempts(view) && (opening || rejected.saturating_mul(2) >= resets.max(1));
    // In a capture a single refused attempt counts, because the user chose the packets.
    let least = if view.recording.origin == Origin::Captured { 1 } else { LEAST };
    if resets < least && !(by_icmp && opening) {
        return Outcome::ruled_out(format!("{failed} attempts to connect failed"));
    }
    let opened = tried.unwrap_or(0);
    let share = if by_icmp { 1.0 } else { resets as f64 / opened.max(resets) as f64 };
    let finding = Finding::new(match by_icmp {
        true => format!(
            "connections are refused: a filter or router rejects them with ICMP messages, of which {rejected} came"
        ),
        false => format!(
            "connections are refused: {resets} attempts of this machine were answered with a reset, because nobody listens there or a filter resets them"
        ),
    })
    .seen_from("attempts that failed at once", resets.to_string(), least.to_string())
    .seen("attempts in all", opened.to_string())
    .seen("ICMP destination unreachable received", rejected.to_string())
    .advise(match by_icmp {
        true => Advice::new("Find the filter that rejects them")
            .run("tcpdump -ni any 'icmp[0] == 3 or (icmp6 and ip6[40] == 1)'")
            .not("The program at the other end never sees these attempts"),
        false => Advice::new("Look whether the program listens there, and at the right address")
            .run("ss -ltn   (on the other end)")
            .not("A filter that drops packets does not look like this: it gives no answer"),
    });
    if share >= SHARE { finding.limits_for(share) } else { finding }.holds()
}

fn refused_test<'a>(view: &View<'a>) -> Option<&'a Attempt> {
    let attempt = view.period.attempt.as_ref()?;
    (attempt.refusal == Some(Refusal::Refused)).then_some(attempt)
}

fn of_test(attempt: &Attempt) -> Outcome {
    Finding::new(format!(
        "the connection is refused: {} answered at port {} with a reset, because nobody listens there or a filter resets it",
        attempt.host, attempt.port
    ))
    .limits().case(TEST)
    .seen("answer to the SYN", "RST")
    .advise(
        Advice::new("Start a server there, or name another port with --port")
            .run("weir perf server   (on the far end; or iperf3 -s)")
            .not("The path and this machine work: the answer came back"),
    )
    .holds()
}

const LEAST: u64 = 3;
const SHARE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn resets_or_icmp_messages_refuse_connections() {
        let reset = Sketch::idle().counter("TcpAttemptFails", 9).counter("TcpActiveOpens", 9);
        assert!(reset.holds_machine(RULE).is_some_and(|share| share > 0.7));
        let rejected = reset.counter("IcmpInDestUnreachs", 9).on_machine(RULE);
        assert!(rejected.finding().unwrap().sentence.contains("ICMP"));
        let six = Sketch::idle().counter("TcpAttemptFails", 9).counter("TcpActiveOpens", 9);
        let six = six.counter("Icmp6InDestUnreachs", 9).on_machine(RULE);
        assert!(six.finding().unwrap().sentence.contains("ICMP"));
    }

    #[test]
    fn few_failed_attempts_or_timeouts_are_no_refusal() {
        let few = Sketch::idle().counter("TcpAttemptFails", 9).counter("TcpActiveOpens", 900);
        assert_eq!(few.on_machine(RULE).finding().unwrap().explains, None);
        Sketch::idle().counter("TcpAttemptFails", 0).machine_holds_not(RULE);
        let silent = Sketch::idle().counter("TcpAttemptFails", 2);
        silent.counter("TcpExtTCPSynRetrans", 9).machine_holds_not(RULE);
    }

    #[test]
    fn handshakes_that_clients_reset_are_no_refusal() {
        let scanned = || Sketch::idle().counter("TcpAttemptFails", 90);
        scanned().counter("TcpActiveOpens", 0).machine_holds_not(RULE);
        let serving = scanned().counter("TcpExtEmbryonicRsts", 90);
        serving.counter("TcpActiveOpens", 9).machine_holds_not(RULE);
    }
}
