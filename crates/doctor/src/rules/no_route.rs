//! This machine has no route for packets that it should send.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::Refusal;
use crate::view::{Flow, View};

pub(super) const RULE: Rule =
    Rule::new("no-route", "a missing route").flow(of_flow).machine(of_machine);
pub(super) const UNREACHABLE: Case = Case::new("the test was told that no way leads to its host");

/// Judges an open connection whose route is gone: its interface is down, or somebody removed the
/// route.
fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if !flow.is_opening() && !flow.is_stalled() {
        return Outcome::Irrelevant;
    }
    let Some(path) = flow.path else { return Outcome::not_seen("the route of the connection") };
    let to = flow.end().last().remote.ip();
    let Some(reason) = &path.refused else {
        return Outcome::ruled_out(format!("a route leads to {to}"));
    };
    let interfaces = view.machine().interfaces.iter().filter(|(name, _)| *name != "lo");
    let down: Vec<_> = interfaces
        .filter_map(|(name, facts)| Some(format!("{name}: {}", facts.down()?)))
        .take(MOST_NAMED)
        .collect();
    Finding::new(format!("no way leads to {to} any more: {reason}"))
        .limits()
        .seen("route", reason.clone())
        .seen_if("interfaces that are down", (!down.is_empty()).then(|| down.join("; ")))
        .advise(
            Advice::new("Bring back the interface, or add the route")
                .run(format!("ip route get {to}"))
                .run("ip -br link; ip -br address")
                .not("The path and the far end have no part in it: the packets never left"),
        )
        .holds()
}

fn of_machine(view: &View<'_>) -> Outcome {
    if let Some(attempt) = &view.period.attempt
        && attempt.refusal == Some(Refusal::Unreachable)
    {
        return Finding::new(format!(
            "no way leads to {}: {}",
            attempt.host,
            attempt.message.clone().unwrap_or_else(|| "it is unreachable".to_owned())
        ))
        .limits()
        .case(UNREACHABLE)
        .advise(
            Advice::new("Look at the route, and at the router or filter that reports it")
                .run(format!("ip route get {}", attempt.host))
                .run(format!("tracepath -n {}", attempt.host)),
        )
        .holds();
    }
    let Some(dropped) = view.counter("IpOutNoRoutes") else {
        return Outcome::not_seen("the count of packets without a route");
    };
    if dropped < LEAST {
        return Outcome::ruled_out(format!("{dropped} packets had no route"));
    }
    Finding::new(format!("a route is missing: this machine had none for {dropped} packets"))
        .limits()
        .seen_from("packets without a route", dropped.to_string(), LEAST.to_string())
        .advise(
            Advice::new("Look at the routes for the address that programs fail to reach")
                .run("ip route get ADDRESS")
                .run("ip rule; ip route show table all")
                .not("Filters and buffers are not the reason: the packets never left"),
        )
        .holds()
}

const LEAST: u64 = 3;
const MOST_NAMED: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn packets_without_a_route_are_a_finding_on_the_machine() {
        assert!(Sketch::idle().counter("IpOutNoRoutes", 5).holds_machine(RULE).is_some());
        Sketch::idle().counter("IpOutNoRoutes", 0).machine_holds_not(RULE);
    }

    #[test]
    fn a_connection_whose_route_is_gone_is_limited() {
        let gone = |acked: u64| {
            let stalled = Sketch::new().tcp(move |at, tcp| {
                tcp.bytes_acked = Some(units::Bytes::new(9_000_000 + at * acked));
            });
            stalled.machine(|machine| {
                for path in machine.paths.values_mut() {
                    path.interface = None;
                    path.refused = Some("there is no route".to_owned());
                }
                machine.interfaces.get_mut("eth0").unwrap().enabled = false;
            })
        };
        let outcome = gone(0).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.explains.is_some_and(|share| share > 0.95), "{finding:?}");
        assert!(finding.evidence.iter().any(|one| one.value.contains("eth0")), "{finding:?}");
        assert_eq!(gone(1_000_000).judge(RULE), Outcome::Irrelevant);
    }
}
