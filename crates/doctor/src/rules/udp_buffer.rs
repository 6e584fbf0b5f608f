//! UDP sockets drop packets because their receive buffer is full.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{View, counted};
use crate::words::bytes;
use units::Bytes;

pub(super) const RULE: Rule =
    Rule::new("udp-buffer", "full receive buffers of UDP sockets").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    if !view.has_counters() {
        return Outcome::not_seen("the counters of UDP");
    }
    let count = |name| view.counter(name).unwrap_or(0);
    // The memory of all UDP sockets has a limit too (net.ipv4.udp_mem).
    let memory = count("UdpMemErrors");
    let dropped = ["UdpRcvbufErrors", "Udp6RcvbufErrors"];
    let dropped = dropped.iter().map(|name| count(name)).fold(memory, u64::saturating_add);
    if dropped == 0 {
        return Outcome::ruled_out("no UDP packet was dropped at a socket");
    }
    let received = count("UdpInDatagrams").saturating_add(count("Udp6InDatagrams"));
    let earlier = &view.samples()[0];
    let worst = view
        .last()
        .udp
        .iter()
        .filter_map(|socket| {
            let before = earlier.udp.iter().find(|one| one.inode == socket.inode);
            let drops = before.map_or(Some(socket.drops), |b| counted(socket.drops, b.drops))?;
            Some((drops, socket))
        })
        .max_by_key(|(drops, _)| *drops)
        .filter(|(drops, _)| *drops > 0);
    let most = view.sysctl_number("net.core.rmem_max", 0).map(Bytes::new);
    let mut finding = Finding::new(match worst {
        Some((_, socket)) => {
            let holder = socket.holders.first();
            let name = holder.map_or_else(
                || "a process that could not be seen".to_owned(),
                |holder| format!("{} (process {})", holder.name, holder.pid),
            );
            format!("{name} does not read its UDP socket {} fast enough", socket.local)
        }
        None => "UDP sockets are not read fast enough".to_owned(),
    })
    .seen("UDP packets dropped at full buffers", dropped.to_string())
    .seen("of these by the limit of all UDP sockets' memory", memory.to_string())
    .seen("UDP packets delivered", received.to_string())
    .seen_if("net.core.rmem_max", most.map(bytes));
    if let Some((drops, socket)) = worst {
        finding = finding
            .seen("dropped at this socket", drops.to_string())
            .seen("waiting in it", bytes(socket.receive_queue));
    }
    let share = dropped as f64 / dropped.saturating_add(received) as f64;
    if share >= SHARE {
        finding = finding.limits_for(share);
    }
    finding
        .advise(
            Advice::new(
                "Let the program use a larger buffer (SO_RCVBUF), or read with more threads",
            )
            .run("sysctl -w net.core.rmem_max=8388608")
            .not("A larger buffer covers a burst, not a reader that is too slow in the mean"),
        )
        .holds()
}

const SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn many_drops_at_udp_sockets_are_a_limit() {
        let many = Sketch::new().counter("UdpRcvbufErrors", 500).counter("UdpInDatagrams", 1_000);
        assert!(many.holds_machine(RULE).is_some_and(|share| share > 0.6));
        let few = Sketch::new().counter("UdpRcvbufErrors", 1).counter("UdpInDatagrams", 10_000);
        assert_eq!(few.on_machine(RULE).finding().unwrap().explains, None);
        let v6 = Sketch::new().counter("Udp6RcvbufErrors", 1).counter("Udp6InDatagrams", 10_000);
        assert_eq!(v6.on_machine(RULE).finding().unwrap().explains, None);
        Sketch::new().machine_holds_not(RULE);
        let memory = Sketch::new().counter("UdpMemErrors", 500).counter("UdpInDatagrams", 1_000);
        assert!(memory.holds_machine(RULE).is_some_and(|share| share > 0.6));
    }
}
