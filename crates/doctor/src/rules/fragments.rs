//! IP reassembly fails: a filter drops fragments of datagrams, or the path loses some of them.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;

pub(super) const RULE: Rule = Rule::new("fragments", "incomplete datagrams").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(came) = sum(view, ["IpReasmReqds", "Ip6ReasmReqds"]) else {
        return Outcome::not_seen("the counters of fragments");
    };
    let whole = sum(view, ["IpReasmOKs", "Ip6ReasmOKs"]).unwrap_or(0);
    let failed = sum(view, ["IpReasmFails", "Ip6ReasmFails"]).unwrap_or(0);
    let none_is_whole = came >= FEW && whole == 0;
    let many_fail = failed >= FEW && failed.saturating_mul(PART) >= whole;
    if !none_is_whole && !many_fail {
        return Outcome::ruled_out(format!(
            "{came} fragments came, and {failed} datagrams of them failed"
        ));
    }
    Finding::new(format!(
        "datagrams arrive in fragments and never become whole: {came} fragments came, and {whole} datagrams were complete"
    ))
    .limits()
    .seen_from("fragments", came.to_string(), FEW.to_string())
    .seen("datagrams that became whole", whole.to_string())
    .seen("datagrams that were given up", failed.to_string())
    .advise(
        Advice::new("Let the sender send smaller datagrams, or look for a filter that drops fragments")
            .run("tcpdump -ni any 'ip[6:2] & 0x3fff != 0'   (on both ends)")
            .run("nstat -az IpReasm* IpFrag*")
            .not("TCP has no part in it: it finds the path's MTU and sends no fragments"),
    )
    .holds()
}

fn sum(view: &View<'_>, names: [&str; 2]) -> Option<u64> {
    let known = names.iter().filter_map(|name| view.counter(name));
    known.reduce(u64::saturating_add)
}

const FEW: u64 = 10;
/// Reassembly counts as failing if one datagram fails per this number of complete datagrams.
const PART: u64 = 20;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn fragments(came: u64, whole: u64, failed: u64) -> Sketch {
        let sketch = Sketch::idle().counter("IpReasmReqds", came);
        sketch.counter("IpReasmOKs", whole).counter("IpReasmFails", failed)
    }

    #[test]
    fn failed_ip_reassembly_is_diagnosed() {
        assert!(fragments(20, 0, 0).holds_machine(RULE).is_some());
        assert!(fragments(90, 30, 15).holds_machine(RULE).is_some());
    }

    #[test]
    fn complete_datagrams_or_no_fragments_rule_out_failed_reassembly() {
        fragments(90, 45, 0).machine_holds_not(RULE);
        fragments(0, 0, 0).machine_holds_not(RULE);
        fragments(3, 0, 0).machine_holds_not(RULE);
    }
}
