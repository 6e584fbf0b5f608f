//! This machine has no route for packets that it should send.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Refusal;
use crate::view::View;

pub(super) const RULE: Rule = Rule::new("no-route", "a missing route").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    if let Some(attempt) = &view.period.attempt
        && attempt.refusal == Some(Refusal::Unreachable)
    {
        return Finding::new(format!(
            "no way leads to {}: {}",
            attempt.host,
            attempt.message.clone().unwrap_or_else(|| "it is unreachable".to_owned())
        ))
        .explains(0.9)
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
        .explains(0.65)
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

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn packets_without_a_route() {
        assert!(Sketch::idle().counter("IpOutNoRoutes", 5).holds_machine(RULE).is_some());
        Sketch::idle().counter("IpOutNoRoutes", 0).machine_holds_not(RULE);
    }
}
