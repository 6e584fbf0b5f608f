//! A filter of this machine's traffic control drops packets above a rate (`police`), or all packets
//! that it selects. The kernel counts the drops at the `ingress` or `clsact` hook, which has no
//! queue.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Qdisc;
use crate::signs::own_refusals::is_refused;
use crate::view::{Flow, View, counted};
use crate::words::{percent, rate};

pub(super) const RULE: Rule =
    Rule::new("policer", "a policer of this machine").flow(of_flow).machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(name) = flow.interface() else { return Outcome::Irrelevant };
    match judge(view, |hook| hook.interface == name) {
        Ok((finding, takes)) => {
            let finding = finding.seen("rate of this connection", rate(flow.rate()));
            let has_data = flow.sender.as_ref().is_none_or(|sender| sender.has_data());
            match has_data && loses(flow) && takes.may_concern(flow) {
                true => finding.limits(),
                false => finding,
            }
            .holds()
        }
        Err(outcome) => outcome,
    }
}

/// Whether the connection loses packets. A filter may drop only packets of strangers. A packet that
/// the hook drops on its way out is no loss: the sender keeps the packet, and waits for its timer.
fn loses(flow: &Flow<'_>) -> bool {
    let again = flow.sender.as_ref().map(|end| end.count(|tcp| tcp.retransmitted));
    let behind = flow.receiver.as_ref().map(|end| end.count(|tcp| tcp.out_of_order));
    let lost = again.or(behind).flatten();
    let refused = flow.sender.as_ref().map_or(0.0, |end| end.often(is_refused));
    lost.is_none_or(|lost| lost > 0) || refused >= REFUSED || flow.is_opening() || flow.is_stalled()
}

/// Judges drops without a busy connection. Forwarded packets and datagrams belong to no connection
/// of this machine.
fn of_machine(view: &View<'_>) -> Outcome {
    if view.flows.iter().any(Flow::is_busy) {
        return Outcome::Irrelevant;
    }
    match judge(view, |_| true) {
        Ok((finding, _)) => finding.limits().holds(),
        Err(outcome) => outcome,
    }
}

/// The packets that a hook drops.
struct Takes {
    /// The hook sees received packets alone.
    is_ingress: bool,
    /// Drops as a share of the interface's received packets.
    of_received: f64,
}

impl Takes {
    /// Whether the drops may be packets of the connection. The `ingress` hook of a sender sees
    /// acknowledgements and no data. A later acknowledgement replaces a dropped one, so that a few
    /// drops cause no retransmission.
    fn may_concern(&self, flow: &Flow<'_>) -> bool {
        let takes_answers = self.is_ingress && flow.sender.is_some() && flow.receiver.is_none();
        !takes_answers || self.of_received >= ANSWERS || flow.is_opening() || flow.is_stalled()
    }
}

/// Judges the hook that dropped most packets, among the hooks for which `is_asked` holds.
fn judge(view: &View<'_>, is_asked: impl Fn(&Qdisc) -> bool) -> Result<(Finding, Takes), Outcome> {
    let hooks = view.last().qdiscs.iter().filter(|q| is_asked(q) && q.is_hook());
    let dropped = hooks.filter_map(|later| {
        let is_same = |q: &&Qdisc| q.interface == later.interface && q.kind == later.kind;
        let earlier = view.samples()[0].qdiscs.iter().find(is_same)?;
        Some((later, counted(later.drops, earlier.drops)?))
    });
    let Some((hook, drops)) = dropped.max_by_key(|(_, drops)| *drops) else {
        return Err(Outcome::Irrelevant);
    };
    let name = &hook.interface;
    let per_second = drops as f64 / view.elapsed().secs_f64();
    let used = view.interface(name);
    let received = used.as_ref().map_or(0, |one| one.received_packets);
    let packets = used.map(|one| one.received_packets.saturating_add(one.sent_packets));
    let share = drops as f64 / packets.unwrap_or(0).saturating_add(drops).max(1) as f64;
    if per_second < DROPS || share < SHARE {
        return Err(Outcome::ruled_out(format!(
            "filters at {} of {name} dropped {drops} packets",
            hook.kind
        )));
    }
    let takes = Takes {
        is_ingress: hook.kind == "ingress",
        of_received: drops as f64 / received.max(drops).max(1) as f64,
    };
    let finding = Finding::new(format!(
        "a policer of this machine is the limit: a filter at {} of {name} dropped {drops} packets",
        hook.kind
    ))
    .seen_from("packets dropped there", format!("{per_second:.0} a second"), format!("{DROPS} a second"))
    .seen_from("drops, of the interface's packets", percent(share), percent(SHARE))
    .advise(
        Advice::new("Look for the rate of the filter and its burst, or replace it by a shaper, which queues what it delays")
            .run(format!("tc -s filter show dev {name} ingress"))
            .run(format!("tc -s filter show dev {name} egress"))
            .not("Buffers, more CPU and the path beyond this machine have no part in these losses"),
    );
    Ok((finding, takes))
}

const DROPS: f64 = 3.0;
/// Minimum share of the samples in which the sender waits after a refused packet.
const REFUSED: f64 = 0.1;
/// Minimum share of the received packets, for drops of acknowledgements.
const ANSWERS: f64 = 0.2;
/// Minimum share of the interface's packets that the hook dropped.
const SHARE: f64 = 1e-4;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    fn hook(per_second: u64) -> Sketch {
        Sketch::new().each(move |at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "clsact".to_owned(),
                handle: "ffff:".to_owned(),
                drops: 7 + at * per_second,
                ..Qdisc::default()
            });
        })
    }

    /// Builds a flow that loses `segments` segments a second.
    fn losing(segments: u32) -> Sketch {
        hook(40).tcp(move |at, tcp| tcp.retransmitted = Some(at as u32 * segments))
    }

    #[test]
    fn drops_of_a_filter_limit_a_flow_that_loses_segments() {
        assert!(losing(40).holds(RULE) > 0.95);
        losing(40).holds_not(super::super::queue_drops::RULE);
        // The filter drops packets of strangers.
        assert_eq!(losing(0).judge(RULE).finding().unwrap().explains, None);
        let idle = losing(40).tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(idle.judge(RULE).finding().unwrap().explains, None);
    }

    /// The connection gets 17,000 acknowledgements a second, and loses segments on the path.
    #[test]
    fn few_dropped_acknowledgements_limit_no_sender() {
        let explains = |per_second: u64| {
            let sketch = losing(40).each(move |at, sample| {
                let hook = &mut sample.qdiscs[0];
                (hook.kind, hook.drops) = ("ingress".to_owned(), at * per_second);
            });
            sketch.judge(RULE).finding().unwrap().explains
        };
        assert_eq!(explains(40), None);
        assert!(explains(9_000).is_some_and(|share| share > 0.95));
    }

    /// The kernel does not count a packet that it could not send as sent.
    #[test]
    fn a_filter_that_refuses_what_this_machine_sends_is_a_policer() {
        let refused = |unacked: u32| {
            losing(0).counter("TcpExtTCPRetransFail", 0).sender(move |_, sender| {
                (sender.probing, sender.tcp.unacked) = (true, Some(unacked));
            })
        };
        assert!(refused(0).holds(RULE) > 0.95);
        refused(0).holds_not(super::super::local_drops::RULE);
        assert_eq!(refused(9).judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn a_hook_without_drops_or_no_hook_rules_out_a_policer() {
        hook(0).holds_not(RULE);
        assert_eq!(Sketch::new().judge(RULE), Outcome::Irrelevant);
    }

    #[test]
    fn drops_without_a_connection_are_a_finding_on_the_machine() {
        let forwards = hook(90).each(|_, sample| sample.connections.clear());
        assert!(forwards.holds_machine(RULE).is_some_and(|share| share > 0.5));
        assert_eq!(hook(90).on_machine(RULE), Outcome::Irrelevant);
    }
}
