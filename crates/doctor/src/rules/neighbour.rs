//! The next hop does not answer ARP or neighbour discovery, so that no packet leaves.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};

pub(super) const RULE: Rule =
    Rule::new("neighbour", "a silent next hop").flow(judge).machine(of_machine);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if !flow.is_opening() && !flow.is_stalled() {
        return Outcome::Irrelevant;
    }
    let remote = flow.addresses().1.ip();
    let hop = flow.path.and_then(|path| path.gateway).unwrap_or(remote);
    let Some(silent) = view.machine().neighbours.iter().find(|one| one.address == hop) else {
        return Outcome::ruled_out(format!("the next hop {hop} has a hardware address"));
    };
    Finding::new(format!(
        "the next hop {hop} on {} does not answer: its neighbour entry is {}",
        silent.interface, silent.state
    ))
    .limits()
    .seen("neighbour state", silent.state.clone())
    .seen("interface", silent.interface.clone())
    .advise(
        Advice::new("Check the address, the netmask, the VLAN and the cable to that hop")
            .run(format!("ip neighbour show {hop}"))
            .run(format!("tcpdump -ni {} arp", silent.interface))
            .not("Nothing above the link layer can be the reason while no packet leaves"),
    )
    .holds()
}

/// Judges the neighbour table: if it is full, a new next hop gets no entry.
fn of_machine(view: &View<'_>) -> Outcome {
    let Some(full) = view.counter(TABLE_FULL) else { return Outcome::Irrelevant };
    if full == 0 {
        return Outcome::ruled_out("the table of neighbours had room");
    }
    let most = format!("{THRESHOLD}3");
    Finding::new(format!(
        "the table of neighbours is full: {full} packets found no place for the address of their next hop"
    ))
    .limits()
    .seen("times that no entry was made", full.to_string())
    .seen_if(&most, view.sysctl(&most).map(str::to_owned))
    .advise(
        Advice::new("Enlarge the table, or divide the network")
            .run(format!("sysctl -w {THRESHOLD}1=4096 {THRESHOLD}2=8192 {THRESHOLD}3=16384"))
            .run("ip -s neighbour | wc -l"),
    )
    .holds()
}

/// The counter of full tables, for IPv4 and IPv6 together.
const TABLE_FULL: &str = "NeighbourTableFull";
const THRESHOLD: &str = "net.ipv4.neigh.default.gc_thresh";

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::{ConnectionState, Neighbour};

    fn silent(address: &str) -> Sketch {
        let address = address.parse().unwrap();
        let opening = Sketch::new().sender(|_, sender| sender.state = ConnectionState::SynSent);
        opening.machine(|machine| {
            machine.neighbours.push(Neighbour {
                address,
                interface: "eth0".to_owned(),
                state: "failed".to_owned(),
            });
        })
    }

    #[test]
    fn a_next_hop_that_does_not_answer_is_the_limit() {
        assert!(silent("10.0.0.2").holds(RULE) > 0.9);
        silent("10.0.0.3").holds_not(RULE);
    }

    #[test]
    fn a_full_table_of_neighbours_is_a_finding_on_the_machine() {
        assert!(Sketch::idle().counter(TABLE_FULL, 4).holds_machine(RULE).is_some());
        Sketch::idle().counter(TABLE_FULL, 0).machine_holds_not(RULE);
        assert_eq!(Sketch::idle().on_machine(RULE), Outcome::Irrelevant);
    }
}
