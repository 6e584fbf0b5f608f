//! The segments are much smaller than the path carries: a middlebox clamps the MSS, or the far end
//! names a small one. Every byte costs more CPU time.

use super::{Advice, Finding, Outcome, Rule, cpu};
use crate::view::{Flow, View};
use crate::words::{bytes, rate};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("small-segments", "small segments").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some((mss, path)) = sender.tcp().mss.zip(sender.tcp().path_mtu) else {
        return Outcome::not_seen("the size of segments");
    };
    if mss == Bytes::ZERO
        || flow.is_opening()
        || mss.count().saturating_mul(2) > path.count().saturating_sub(HEADERS)
    {
        return Outcome::ruled_out(format!(
            "segments hold {} on a path of {}",
            bytes(mss),
            bytes(path)
        ));
    }
    let finding = Finding::new(format!(
        "segments are small: they hold {} although the path carries packets of {}",
        bytes(mss),
        bytes(path)
    ))
    .seen("segment", bytes(mss))
    .seen("path MTU", bytes(path))
    .seen("rate now", rate(flow.rate()))
    .advise(
        Advice::new("Find who names the small MSS: the far end's interface or route, or a filter that clamps it")
            .run(format!("ip route get {}", flow.addresses().1.ip()))
            .run("tcpdump -nvi any 'tcp[tcpflags] & tcp-syn != 0'   (option mss, on both ends)")
            .run("nft list ruleset   (maxseg size set)")
            .not("A larger MTU changes nothing while the option in the SYN is small"),
    );
    // A super-packet that no device segments costs as much as one of large segments.
    let used = flow.interface().and_then(|name| view.interface(name));
    let each = used.map(|used| used.sent.count() / used.sent_packets.max(1));
    let is_small = each.is_some_and(|each| each / 2 <= mss.count().saturating_add(HEADERS));
    match is_small && cpu::is_limit(flow, view) {
        true => finding.explains(1.0),
        false => finding,
    }
    .seen_if("bytes for each packet sent", each.map(|each| each.to_string()))
    .holds()
}

/// Headers of IPv6 and TCP with timestamps.
const HEADERS: u64 = 72;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn clamped(mss: u64, mtu: u64) -> Sketch {
        Sketch::new().tcp(move |_, tcp| {
            (tcp.mss, tcp.path_mtu) = (Some(Bytes::new(mss)), Some(Bytes::new(mtu)));
        })
    }

    #[test]
    fn a_clamped_mss() {
        assert_eq!(clamped(188, 1500).judge(RULE).finding().unwrap().explains, None);
        let full = [20, 50, 25, 0];
        let busy = || clamped(188, 1500).task(7, 80).core(0, full).core(1, full);
        assert_eq!(busy().judge(RULE).finding().unwrap().explains, None, "super-packets");
        let each = busy().each(|at, sample| {
            sample.interfaces.get_mut("eth0").unwrap().sent_packets = at * 220_000;
        });
        assert!(each.holds(RULE) > 0.95);
    }

    #[test]
    fn a_small_mtu_or_a_usual_segment() {
        clamped(524, 576).holds_not(RULE);
        clamped(1448, 1500).holds_not(RULE);
    }
}
