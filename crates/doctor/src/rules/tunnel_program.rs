//! The program behind a TUN or TAP interface takes no packet: it hangs, or it is stopped. The
//! kernel counts a packet as sent on such an interface when the program reads it.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::span;
use units::Span;

pub(super) const RULE: Rule =
    Rule::new("tunnel-program", "a tunnel whose program takes no packets").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = flow.sender.as_ref().filter(|_| flow.is_opening() || flow.is_stalled())
    else {
        return Outcome::Irrelevant;
    };
    let used = flow.interface().and_then(|name| view.interface(name));
    let Some(used) = used.filter(|used| used.facts.kind.as_deref() == Some("tun")) else {
        return Outcome::Irrelevant;
    };
    let name = used.name;
    let again = sender.last().retransmits.max(u32::from(sender.tcp().backoff.unwrap_or(0)));
    let times = view.counter("TcpExtTCPSynRetrans").filter(|_| flow.is_opening()).unwrap_or(0);
    let tries = u64::from(again).max(times);
    if used.sent_packets > 0 || tries == 0 || view.elapsed() < LEAST {
        return Outcome::ruled_out(format!(
            "the program behind {name} took {} packets",
            used.sent_packets
        ));
    }
    let processes = &view.last().processes;
    let opens = |tunnels: &[String]| tunnels.iter().any(|tunnel| tunnel == name);
    let program = processes.iter().find(|process| opens(&process.tunnels));
    let program = program.map(|program| format!("{} (process {})", program.name, program.pid));
    Finding::new(format!(
        "the tunnel {name} is the limit: its program took none of the packets that this machine sent for {}",
        span(view.elapsed())
    ))
    .limits()
    .seen(format!("packets that the program behind {name} took"), "none")
    .seen("times that this connection sent again", tries.to_string())
    .seen_if("program", program)
    .advise(
        Advice::new("Look at the program of the tunnel: it hangs, waits, or is stopped")
            .run(format!("grep -l {name} /proc/[0-9]*/fdinfo/*   (iff: {name})"))
            .run(format!("ip -s link show {name}"))
            .not("The path and the far end have no part in it: the packets never left"),
    )
    .holds()
}

/// Shortest silence that is a fault: a program may sleep between two reads.
const LEAST: Span = Span::from_millis(900);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::ConnectionState;
    use crate::{Question, diagnose};

    /// Builds a SYN over a tunnel whose program takes `packets` packets a second.
    fn over_tunnel(packets: u64) -> Sketch {
        let sketch = Sketch::new().interface(|eth0| eth0.kind = Some("tun".to_owned()));
        let opening = sketch.sender(|_, sender| {
            sender.state = ConnectionState::SynSent;
            sender.retransmits = 2;
            sender.tcp = Default::default();
        });
        opening.each(move |at, sample| {
            sample.interfaces.get_mut("eth0").unwrap().sent_packets = 9 + at * packets;
        })
    }

    #[test]
    fn a_tunnel_program_that_takes_no_packet_is_the_limit() {
        assert!(over_tunnel(0).holds(RULE) > 0.95);
        let verdict = diagnose(over_tunnel(0).recording(), Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("tunnel-program"), "{verdict:?}");
    }

    #[test]
    fn a_program_that_reads_its_tunnel_or_another_interface_is_no_fault() {
        over_tunnel(1).holds_not(RULE);
        over_tunnel(0).interface(|eth0| eth0.kind = None).holds_not(RULE);
        Sketch::new().interface(|eth0| eth0.kind = Some("tun".to_owned())).holds_not(RULE);
    }
}
