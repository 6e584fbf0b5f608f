//! The test with a far end was not possible, for a reason that no other cause explains.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Refusal;
use crate::view::View;

pub(super) const RULE: Rule =
    Rule::new("test-failed", "a test that was not possible").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(attempt) = &view.period.attempt else { return Outcome::Irrelevant };
    let message = attempt.message.clone().unwrap_or_else(|| "it did not say why".to_owned());
    let advice = match attempt.refusal {
        None => return Outcome::Irrelevant,
        // The rules for refused and unanswered connections report these refusals.
        Some(Refusal::Refused | Refusal::Silent | Refusal::Unreachable | Refusal::NoPort) => {
            return Outcome::Irrelevant;
        }
        Some(Refusal::Unknown) => Advice::new("Check the name and the name servers")
            .run(format!("getent ahosts {}", attempt.host)),
        Some(Refusal::Busy) => Advice::new("Try again when the server is free, or start another")
            .run("weir perf server --port 5202   (on the far end)"),
        Some(Refusal::Foreign) => {
            Advice::new("Name the port of a `weir perf server` or an iperf3 with --port")
        }
        Some(Refusal::Broken | Refusal::Local) => {
            Advice::new("Run the transfer alone, and read its message")
                .run(format!("weir perf client {} -p {}", attempt.host, attempt.port))
        }
    };
    Finding::new(format!("no test was possible: {message}"))
        .limits()
        .seen("far end", format!("{} port {}", attempt.host, attempt.port))
        .advise(advice)
        .holds()
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Attempt;

    #[test]
    fn a_failed_test_is_a_finding_unless_another_cause_explains_it() {
        let failed = |refusal| {
            Sketch::idle().attempt(Attempt {
                host: "far".to_owned(),
                refusal: Some(refusal),
                message: Some("far is busy".to_owned()),
                ..Attempt::default()
            })
        };
        assert!(failed(Refusal::Busy).holds_machine(RULE).is_some());
        failed(Refusal::Refused).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }
}
