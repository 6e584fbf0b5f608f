//! The next hop does not answer ARP or neighbour discovery, so that no packet leaves.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Sample;
use crate::view::{Flow, View};
use std::net::IpAddr;

pub(super) const RULE: Rule =
    Rule::new("neighbour", "a silent next hop").flow(judge).machine(of_machine);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if !flow.is_opening() && !flow.is_stalled() {
        return Outcome::Irrelevant;
    }
    let hop = hop(flow);
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

/// Returns the next hop to the receiver of the flow.
fn hop(flow: &Flow<'_>) -> IpAddr {
    flow.path.and_then(|path| path.gateway).unwrap_or(flow.addresses().1.ip())
}

/// Judges the machine: a next hop to which its answers of handshakes do not leave, and the
/// neighbour table. If the table is full, a new next hop gets no entry.
fn of_machine(view: &View<'_>) -> Outcome {
    if let Some(finding) = of_answers(view) {
        return finding.holds();
    }
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

/// Finds handshakes of clients whose answers wait for a silent next hop: an address or netmask of
/// this machine that is wrong makes a far client a neighbour.
fn of_answers(view: &View<'_>) -> Option<Finding> {
    let waiting = |sample: &Sample| sample.states.get(HALF_OPEN).copied().unwrap_or(0);
    let least = view.samples().iter().map(waiting).min().filter(|least| *least > 0)?;
    let repeated = view.counter("TcpExtTCPSynRetrans").filter(|repeated| *repeated > 0)?;
    let machine = view.machine();
    let is_hop = |address: IpAddr| {
        let mut paths = machine.paths.iter();
        paths.any(|(peer, path)| path.gateway.unwrap_or(*peer) == address)
    };
    // A hop that does not answer this machine's own connections is no reason why clients wait.
    let opening = view.flows.iter().chain(&view.beside).filter(|flow| flow.is_opening());
    let called: Vec<IpAddr> = opening.map(hop).collect();
    let is_of_clients = |address: IpAddr| is_hop(address) && !called.contains(&address);
    let silent = machine.neighbours.iter().find(|one| is_of_clients(one.address))?;
    let finding = Finding::new(format!(
        "the next hop {} on {} does not answer, so that the handshakes of clients get no answer",
        silent.address, silent.interface
    ));
    Some(
        finding
            .limits()
            .seen("neighbour state", silent.state.clone())
            .seen_from("handshakes that wait in every sample, at least", least.to_string(), "1")
            .seen("SYNs, or answers to them, that were sent again", repeated.to_string())
            .advise(
                Advice::new("Compare the address and the netmask of this machine with those of its neighbours")
                    .run(format!("ip route get {}", silent.address))
                    .run(format!("ip address show dev {}", silent.interface))
                    .not("The program that listens and its queues cannot be the reason"),
            ),
    )
}

/// The kernel's state of a handshake whose SYN was answered.
const HALF_OPEN: &str = "syn-received";
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

    /// A server with a netmask of eight bits looks for its clients on its own link.
    #[test]
    fn answers_of_handshakes_that_wait_for_a_silent_next_hop_blame_that_hop() {
        let made = |sketch: Sketch, waiting: u64, repeated: u64| {
            let sketch = sketch.counter("TcpExtTCPSynRetrans", repeated);
            let sketch = sketch.each(move |_, sample| {
                sample.states.insert(HALF_OPEN.to_owned(), waiting);
            });
            sketch.machine(|machine| {
                let (interface, state) = ("eth0".to_owned(), "incomplete".to_owned());
                let address = "10.0.0.2".parse().unwrap();
                machine.neighbours.push(Neighbour { address, interface, state });
            })
        };
        let server = |waiting, repeated| made(Sketch::idle(), waiting, repeated);
        assert!(server(1, 1).holds_machine(RULE).is_some_and(|share| share > 0.6));
        server(0, 1).machine_holds_not(RULE);
        server(1, 0).machine_holds_not(RULE);
        let answers = server(1, 1).machine(|machine| machine.neighbours.clear());
        answers.machine_holds_not(RULE);
        // A server whose own connection to that hop does not open has other clients that wait.
        let opening = Sketch::new().sender(|_, sender| sender.state = ConnectionState::SynSent);
        made(opening, 1, 1).machine_holds_not(RULE);
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
