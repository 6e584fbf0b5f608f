//! This machine drops packets from a source that it would reach through another interface.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;

pub(super) const RULE: Rule =
    Rule::new("reverse-path-filter", "the reverse-path filter").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(dropped) = view.counter("TcpExtIPReversePathFilter") else {
        return Outcome::not_seen("the drops of the reverse-path filter");
    };
    if dropped < LEAST {
        return Outcome::ruled_out(format!("the reverse-path filter dropped {dropped} packets"));
    }
    Finding::new(format!(
        "the reverse-path filter of this machine drops packets: {dropped} came in through an interface that their source would not be reached by"
    ))
    .limits()
    .seen_from("packets dropped by it", dropped.to_string(), LEAST.to_string())
    .seen_if(
        "net.ipv4.conf.all.rp_filter",
        view.sysctl("net.ipv4.conf.all.rp_filter").map(str::to_owned),
    )
    .advise(
        Advice::new("Add the missing route to the source, or make the filter loose")
            .run("ip route get SOURCE")
            .run("sysctl -w net.ipv4.conf.all.rp_filter=2")
            .not("The filter has a reason where sources may be forged: 0 switches that protection off"),
    )
    .holds()
}

/// A single stray packet is no fault.
const LEAST: u64 = 2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn drops_of_the_reverse_path_filter_are_a_finding() {
        let dropped = Sketch::idle().counter("TcpExtIPReversePathFilter", 2);
        assert!(dropped.holds_machine(RULE).is_some_and(|share| share > 0.7));
        Sketch::idle().counter("TcpExtIPReversePathFilter", 0).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }
}
