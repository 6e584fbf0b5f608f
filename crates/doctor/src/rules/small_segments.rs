//! The segments are much smaller than the path allows: a middlebox clamps the MSS, or the far end
//! offers a small MSS. Each byte then costs more CPU time, and the headers of tiny segments take a
//! large part of the link.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent, rate};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("small-segments", "small segments").flow(judge);
pub(super) const HEADERS_COST: Case = Case::new("headers are a third of each packet");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some((mss, path)) = sender.tcp().mss.zip(sender.tcp().path_mtu) else {
        return Outcome::not_seen("the size of segments");
    };
    let used = flow.interface().and_then(|name| view.interface(name));
    let named = flow.path.and_then(|path| path.mtu).filter(|mtu| *mtu < LEAST_LEARNED);
    let carries = used.as_ref().and_then(|used| used.facts.mtu).filter(|_| named.is_some());
    let path = carries.map_or(path, |mtu| mtu.max(path));
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
    let sentence = format!(
        "segments are small: they hold {} although the path carries packets of {}",
        bytes(mss),
        bytes(path)
    );
    let finding = Finding::new(sentence.clone())
    .when_silenced(sentence)
    .seen("segment", bytes(mss))
    .seen("path MTU", bytes(path))
    .seen_if("MTU that the route names", named.map(|mtu| bytes(Bytes::new(mtu.into()))))
    .seen("rate now", rate(flow.rate()))
    .advise(
        Advice::new("Find who names the small MSS: the far end's interface or route, or a filter that clamps it")
            .run(format!("ip route get {}", flow.addresses().1.ip()))
            .run("tcpdump -nvi any 'tcp[tcpflags] & tcp-syn != 0'   (option mss, on both ends)")
            .run("nft list ruleset   (maxseg size set)")
            .not("A larger MTU changes nothing while the option in the SYN is small"),
    );
    // If the device does not divide super-packets, a super-packet of small segments costs as much
    // CPU time as one of large segments.
    let each = used.map(|used| used.sent.count() / used.sent_packets.max(1));
    let is_small = each.is_some_and(|each| each / 2 <= mss.count().saturating_add(HEADERS));
    let headers = HEADERS_ON_WIRE as f64 / (mss.count() + HEADERS_ON_WIRE) as f64;
    match is_tiny(flow, sender, mss) {
        true => finding.limits().case(HEADERS_COST).seen_from(
            "headers, of the bytes on the link",
            percent(headers),
            "34 %",
        ),
        false if is_small => finding.limits(),
        false => finding,
    }
    .seen_if("bytes for each packet sent", each.map(|each| each.to_string()))
    .holds()
}

/// Whether headers are a third of each packet, and data waits for the link: the windows hold many
/// segments.
fn is_tiny(flow: &Flow<'_>, sender: &End<'_>, mss: Bytes) -> bool {
    let window = sender.values(|c| c.tcp.peer_window).into_iter().min().unwrap_or_default();
    mss <= TINY
        && window.count() >= mss.count().saturating_mul(MANY)
        && sender.has_data()
        && !flow.is_stalled()
}

/// Bytes of the headers of IPv6 and TCP with timestamps.
const HEADERS: u64 = 72;
/// Bytes of the headers of Ethernet, IPv4, and TCP with timestamps.
const HEADERS_ON_WIRE: u64 = 66;
/// Smallest MTU that the kernel learns from ICMP messages (net.ipv4.route.min_pmtu).
const LEAST_LEARNED: u32 = 552;
const TINY: Bytes = Bytes::new(128);
/// Minimum number of segments in the peer's window.
const MANY: u64 = 16;

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
    fn a_clamped_mss_limits_if_each_segment_costs_cpu_time() {
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
    fn headers_of_tiny_segments_are_the_limit_if_data_waits() {
        assert!(clamped(88, 1500).holds(RULE) > 0.95);
        let explains = |sketch: Sketch| sketch.judge(RULE).finding().unwrap().explains;
        let closed = clamped(88, 1500).tcp(|_, tcp| tcp.peer_window = Some(Bytes::new(500)));
        assert_eq!(explains(closed), None);
        let sent = clamped(88, 1500).tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(explains(sent), None);
    }

    #[test]
    fn a_tiny_mtu_of_a_route_is_the_limit() {
        let route = |mtu: u32| {
            clamped(u64::from(mtu) - 52, mtu.into()).machine(|machine| {
                let path = machine.paths.values_mut().next().unwrap();
                path.mtu = Some(mtu);
            })
        };
        assert!(route(150).holds(RULE) > 0.95);
        // A router may have reported an MTU of 576 bytes.
        route(576).holds_not(RULE);
    }

    #[test]
    fn a_small_path_mtu_or_a_usual_mss_rules_out_small_segments() {
        clamped(524, 576).holds_not(RULE);
        clamped(1448, 1500).holds_not(RULE);
    }
}
