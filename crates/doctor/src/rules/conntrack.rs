//! The table of tracked connections is full or nearly full.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{View, counted};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("conntrack", "connection tracking").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let (Some(earlier), Some(later)) = (&view.samples()[0].conntrack, &view.last().conntrack)
    else {
        return Outcome::Irrelevant;
    };
    let (Some(entries), Some(most)) = (later.entries, later.most.filter(|most| *most > 0)) else {
        return Outcome::not_seen("the limit of connection tracking");
    };
    // The table may have been full for a part of the observation only.
    let tables = view.samples().iter().filter_map(|sample| sample.conntrack.as_ref());
    let entries = tables.filter_map(|table| table.entries).max().unwrap_or(entries);
    let load = entries as f64 / most as f64;
    let failed = counted(later.insert_failed, earlier.insert_failed).unwrap_or(0);
    let dropped = counted(later.dropped, earlier.dropped).unwrap_or(0);
    let refused = failed.saturating_add(dropped);
    if load < NEAR && refused == 0 {
        return Outcome::ruled_out(format!("{entries} of {most} entries are used"));
    }
    let has_room = load < NEAR && dropped >= FEW;
    let finding = Finding::new(match has_room {
        true => format!(
            "connection tracking dropped {dropped} packets although its table has room: {entries} entries of {most} at most"
        ),
        false => {
            format!("the table of connection tracking holds {entries} entries of {most} at most")
        }
    })
    .seen_from("entries, of the table's maximum", percent(load), percent(NEAR))
    .seen("packets dropped because no entry was made", refused.to_string())
    .advise(match has_room {
        true => Advice::new("Look for a module nf_conntrack_* that drops packets, and for too few buckets of the table")
            .run("conntrack -S   (drop, insert_failed, chaintoolong)")
            .run("sysctl net.netfilter.nf_conntrack_buckets")
            .not("A larger net.netfilter.nf_conntrack_max changes nothing"),
        false => Advice::new("Enlarge the table, or do not track connections that need no state")
            .run(format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2)))
            .run("conntrack -S")
            .not("It does not help established connections, which have an entry"),
    });
    // If two cores take two packets of one new connection, both make the same entry. The kernel
    // counts one packet as failed, but mostly lets it pass (nf_ct_resolve_clash).
    let limits = refused > 0 && load >= NEAR || dropped >= FEW;
    if limits { finding.limits() } else { finding }.holds()
}

const NEAR: f64 = 0.9;
/// Minimum number of dropped packets for the table to be a limit.
const FEW: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Conntrack;

    fn tracking(entries: u64, failed: u64) -> Sketch {
        Sketch::idle().each(move |at, sample| {
            sample.conntrack = Some(Conntrack {
                entries: Some(entries),
                most: Some(1_000),
                insert_failed: at * failed,
                ..Conntrack::default()
            });
        })
    }

    #[test]
    fn a_table_that_is_nearly_full_or_refuses_entries_is_a_finding() {
        assert_eq!(tracking(950, 0).on_machine(RULE).finding().unwrap().explains, None);
        assert!(tracking(1_000, 5).holds_machine(RULE).is_some_and(|share| share > 0.5));
        let drops = tracking(500, 0).each(|at, sample| {
            sample.conntrack.as_mut().unwrap().dropped = at * 5;
        });
        assert!(drops.holds_machine(RULE).is_some_and(|share| share > 0.5));
    }

    /// The kernel drops five packets a second. The table has 1,000 entries at most.
    #[test]
    fn the_advice_names_a_larger_table_only_if_the_table_was_full() {
        let advised = |before: u64| {
            let sketch = tracking(500, 0).each(move |at, sample| {
                let table = sample.conntrack.as_mut().unwrap();
                table.dropped = at * 5;
                table.entries = Some(if at == 3 { 500 } else { before });
            });
            let outcome = sketch.on_machine(RULE);
            let finding = outcome.finding().unwrap();
            (finding.sentence.contains("has room"), finding.advice[0].action.clone())
        };
        let (has_room, action) = advised(500);
        assert!(has_room && action.starts_with("Look for a module"), "{action}");
        let (has_room, action) = advised(1_000);
        assert!(!has_room && action.starts_with("Enlarge the table"), "{action}");
    }

    /// The kernel refuses to send a SYN for which the table has no entry.
    #[test]
    fn a_full_table_explains_the_handshakes_that_this_machine_cannot_send() {
        let verdict = |dropped: u64| {
            let opening =
                Sketch::new().counter("TcpExtTCPRetransFail", 1).each(move |at, sample| {
                    let sender = &mut sample.connections[0];
                    sender.state = crate::recording::ConnectionState::SynSent;
                    (sender.retransmits, sender.tcp) = (2, Default::default());
                    sample.conntrack = Some(Conntrack {
                        entries: Some(1_000),
                        most: Some(1_000),
                        dropped: at * dropped,
                        ..Conntrack::default()
                    });
                });
            crate::diagnose(opening.recording(), crate::Question::Machine).verdict
        };
        assert_eq!(verdict(1).cause, Some("conntrack"), "{:?}", verdict(1));
        assert_eq!(verdict(0).cause, Some("local-drops"), "{:?}", verdict(0));
    }

    /// Two queries of one name on one socket.
    #[test]
    fn entries_that_two_packets_make_at_once_limit_nothing() {
        assert_eq!(tracking(500, 1).on_machine(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn a_table_with_room_or_no_table_is_no_limit() {
        tracking(500, 0).machine_holds_not(RULE);
        assert_eq!(Sketch::idle().on_machine(RULE), Outcome::Irrelevant);
    }
}
