//! IPv6 does not work, and IPv4 works: each connection first waits for an answer over IPv6 that
//! does not come (RFC 8305 describes how programs try both protocols).

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::{Connection, ConnectionState};
use crate::view::{Flow, View};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

pub(super) const RULE: Rule = Rule::new("ipv6-broken", "IPv6 that does not work beside IPv4")
    .flow(of_flow)
    .machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let (_, to) = flow.addresses();
    if !flow.is_opening() || !is_far(to.ip(), true) || is_refused(flow) {
        return Outcome::Irrelevant;
    }
    if flow.end().last().retransmits == 0 {
        return Outcome::ruled_out("the first SYN has waited for less than its timeout");
    }
    finding(view, 1).map_or(Outcome::Irrelevant, |found| found.limits().holds())
}

fn of_machine(view: &View<'_>) -> Outcome {
    finding(view, FEWEST).map_or(Outcome::Irrelevant, |found| found.limits().holds())
}

fn is_refused(flow: &Flow<'_>) -> bool {
    flow.path.is_some_and(|path| path.refused.is_some())
}

/// Handshakes of IPv6 wait, no handshake of IPv6 has succeeded, and connections of IPv4 to the same
/// ports are open. An open connection to another service says nothing about IPv6.
fn finding(view: &View<'_>, fewest: usize) -> Option<Finding> {
    let all = || view.samples().iter().flat_map(|sample| &sample.connections);
    let is_open = |one: &&Connection| one.state == ConnectionState::Established;
    let six = || all().filter(|one| is_far(one.remote.ip(), true));
    let waiting = six().filter(|one| one.state == ConnectionState::SynSent);
    let tried: BTreeSet<(SocketAddr, SocketAddr)> =
        waiting.map(|one| (one.local, one.remote)).collect();
    let ports: BTreeSet<u16> = tried.iter().map(|(_, remote)| remote.port()).collect();
    let four: BTreeSet<_> = all()
        .filter(is_open)
        .filter(|one| is_far(one.remote.ip(), false) && ports.contains(&one.remote.port()))
        .map(|one| (one.local, one.remote))
        .collect();
    let works = six().any(|one| is_open(&one));
    (tried.len() >= fewest && !works && !four.is_empty()).then(|| {
        Finding::new(
            "IPv6 is broken beside IPv4: handshakes to IPv6 addresses wait without an answer, and connections of IPv4 work",
        )
        .seen_from("handshakes of IPv6 that wait", tried.len().to_string(), fewest.to_string())
        .seen("open connections of IPv6", "none")
        .seen("open connections of IPv4 to the same ports", four.len().to_string())
        .advise(
            Advice::new("Repair the IPv6 route, or the filter that drops IPv6 packets, and let programs prefer IPv4 until then")
                .run("ip -6 route get ADDRESS; ip -6 route show default")
                .run("ping -6 -c 3 ADDRESS")
                .run("echo 'precedence ::ffff:0:0/96 100' >> /etc/gai.conf")
                .not("The path of IPv4 and the program at its end work"),
        )
    })
}

fn is_far(address: IpAddr, six: bool) -> bool {
    // A socket of IPv6 writes an IPv4 address as ::ffff:a.b.c.d.
    let address = address.to_canonical();
    address.is_ipv6() == six && !address.is_loopback() && !address.is_unspecified()
}

const FEWEST: usize = 2;

#[cfg(test)]
mod tests {
    use super::super::no_answer;
    use super::super::sketch::Sketch;
    use super::*;

    fn beside(state: ConnectionState) -> Sketch {
        Sketch::new().each(move |_, sample| {
            let mut six = sample.connections[0].clone();
            six.local = "[2001:db8::1]:5002".parse().unwrap();
            six.remote = "[2001:db8::2]:5201".parse().unwrap();
            (six.cookie, six.state, six.retransmits) = (3, state, 3);
            six.tcp.bytes_acked = Some(units::Bytes::ZERO);
            sample.connections.insert(0, six);
        })
    }

    #[test]
    fn a_handshake_of_ipv6_waits_while_ipv4_works() {
        assert!(beside(ConnectionState::SynSent).holds(RULE) > 0.9);
        beside(ConnectionState::SynSent).holds_not(no_answer::RULE);
    }

    /// An ssh session over IPv4, and a web server of IPv6 that is down.
    #[test]
    fn ipv4_to_another_port_does_not_show_that_ipv6_is_broken() {
        let other = beside(ConnectionState::SynSent).each(|_, sample| {
            let four = sample.connections.iter_mut().filter(|one| one.remote.is_ipv4());
            four.for_each(|one| one.remote.set_port(22));
        });
        other.holds_not(RULE);
    }

    #[test]
    fn an_open_connection_of_ipv6_shows_that_ipv6_works() {
        beside(ConnectionState::Established).holds_not(RULE);
    }
}
