//! Packets arrive with a wrong checksum: a cable, a card or a device on the path damages them. TCP
//! drops these packets, so the sender sees losses.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("damaged-packets", "damaged packets").flow(of_flow).machine(judge);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    // Damaged acknowledgements do not hold a sender back.
    if flow.receiver.is_none() || flow.sender.is_some() {
        return Outcome::Irrelevant;
    }
    judge(view)
}

fn judge(view: &View<'_>) -> Outcome {
    if !view.has_counters() {
        return Outcome::not_seen("the counters of damaged packets");
    }
    let count = |name: &str| view.counter(name).unwrap_or(0);
    // TCP's errors include segments with a wrong length.
    let damaged = count("TcpInErrs").max(count("TcpInCsumErrors"));
    let damaged =
        damaged.saturating_add(count("UdpInCsumErrors")).saturating_add(count("Udp6InCsumErrors"));
    let all = ["TcpInSegs", "UdpInDatagrams", "Udp6InDatagrams"];
    let all = all.iter().map(|name| count(name)).fold(damaged, u64::saturating_add);
    let share = damaged as f64 / all.max(1) as f64;
    if damaged < LEAST || share < SHARE {
        return Outcome::ruled_out(format!("{damaged} damaged packets came"));
    }
    let finding = Finding::new(format!(
        "packets arrive damaged: {damaged} had a wrong checksum, and this machine dropped them"
    ))
    .seen_from("damaged packets", format!("{damaged} of {all} ({})", percent(share)), percent(SHARE))
    .seen("TCP segments with errors", count("TcpInErrs").to_string())
    .seen("UDP datagrams with a wrong checksum", count("UdpInCsumErrors").to_string())
    .advise(
        Advice::new("Change the cable, then the port; switch checksum offloads off to find a card that miscalculates")
            .run("ethtool -S DEV | grep -iE 'crc|err|csum'")
            .run("ethtool -K DEV rx off tx off   (on each end, for a trial)")
            .not("Buffers and congestion control do not bring damaged packets back"),
    );
    if share >= LIMITS { finding.limits() } else { finding }.holds()
}

const LEAST: u64 = 3;
const SHARE: f64 = 1e-4;
/// Minimum share of damaged packets that slows a connection down.
const LIMITS: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn receiving(damaged: u64) -> Sketch {
        let all = Sketch::new().receiving(|_, _| {}).counter("TcpInSegs", 10_000);
        all.counter("TcpInErrs", damaged).counter("TcpInCsumErrors", damaged)
    }

    #[test]
    fn wrong_checksums_at_the_receiver_are_losses_of_the_flow() {
        assert!(receiving(100).holds(RULE) > 0.95);
        assert!(receiving(100).holds_machine(RULE).is_some_and(|share| share > 0.6));
        assert_eq!(receiving(2).judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn damage_to_acknowledgements_limits_no_flow() {
        receiving(0).holds_not(RULE);
        let sends = Sketch::new().counter("TcpInErrs", 90).counter("TcpInSegs", 5_000);
        assert_eq!(sends.judge(RULE), Outcome::Irrelevant);
    }
}
