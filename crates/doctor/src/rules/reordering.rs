//! Packets overtake one another, and the sender takes some of them for lost.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("reordering", "reordered packets").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else {
        let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
        return match receiver.count(|tcp| tcp.out_of_order) {
            Some(0) => Outcome::ruled_out("no segment came out of order"),
            _ => Outcome::not_seen("the far sender's count of reordered segments"),
        };
    };
    let counted = sender.count(|tcp| tcp.reordered).zip(sender.count(|tcp| tcp.data_segments_out));
    let Some((seen, sent)) = counted else { return Outcome::not_seen("reordered segments") };
    let share = seen as f64 / sent.max(1) as f64;
    let spurious = sender.count(|tcp| tcp.spurious).unwrap_or(0);
    if share < SHARE {
        return Outcome::ruled_out(format!("seen {seen} times in {sent} segments"));
    }
    let useless = spurious as f64 / sent.max(1) as f64;
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let finding = Finding::new(format!(
        "reordered packets are the limit: the sender saw reordering for {} of its segments, and retransmitted {spurious} segments that had arrived",
        percent(share)
    ))
    .seen_from("reordering seen, of the segments", percent(share), percent(SHARE))
    .seen("retransmissions that were not needed", percent(useless))
    .advise(
        Advice::new("Find the hop that spreads packets of one connection over several ways (per-packet balancing, bonding in round-robin mode)")
            .run("cat /proc/net/bonding/*")
            .not("Larger buffers do not help"),
    );
    let slows =
        !matches!(sender.last().congestion.as_deref(), Some(name) if name.starts_with("bbr"));
    match slows && held < 0.5 && sender.busy().is_none_or(|busy| busy > 0.5) && sender.has_data() {
        true => finding.explains((0.6 + share * 5.0 + useless * 5.0).min(0.95)),
        false => finding,
    }
    .holds()
}

/// Measured.
const SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn seen(per_second: u32) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.data_segments_out = Some(at as u32 * 10_000);
            tcp.reordered = Some(at as u32 * per_second);
            tcp.spurious = Some(at as u32 * per_second);
        })
    }

    #[test]
    fn five_percent() {
        assert!(seen(500).holds(RULE) > 0.9);
    }

    #[test]
    fn seldom_or_without_effect() {
        seen(50).holds_not(RULE);
        let bbr = seen(500).sender(|_, sender| sender.congestion = Some("bbr".to_owned()));
        assert_eq!(bbr.judge(RULE).finding().unwrap().explains, None);
    }
}
