//! Datagrams of this machine fill the path, and a connection through the same interface gets little
//! of the path.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::{percent, rate, span};
use units::{Rate, Span};

pub(super) const RULE: Rule =
    Rule::new("own-datagrams", "datagrams of this machine on the same path").flow(judge);
pub(super) const BY_LOSSES: Case = Case::new("losses alone show the full path");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = flow.sender.as_ref().filter(|_| !flow.is_inside()) else {
        return Outcome::Irrelevant;
    };
    let Some(used) = flow.interface().and_then(|name| view.interface(name)) else {
        return Outcome::Irrelevant;
    };
    let sent = ["UdpOutDatagrams", "Udp6OutDatagrams"];
    let sent = sent.iter().filter_map(|name| view.counter(name)).reduce(u64::saturating_add);
    let Some(datagrams) = sent else {
        return Outcome::not_seen("the datagrams that this machine sent");
    };
    let seconds = view.elapsed().secs_f64();
    let all = used.sent.count() as f64 * 8.0 / seconds;
    let is_same =
        |other: &&Flow<'_>| other.sender.is_some() && other.interface() == flow.interface();
    let connections = view.flows.iter().filter(is_same).map(|one| one.rate().bits_per_second());
    let connections: u64 = connections.fold(0, u64::saturating_add);
    // The interface also counts headers and retransmissions of the connections.
    let others = all - connections as f64 * WITH_HEADERS;
    let most = datagrams.saturating_mul(2) >= used.sent_packets;
    let times = others / (flow.rate().bits_per_second() as f64).max(1.0);
    if !most || times < TIMES || datagrams as f64 / seconds < FEWEST {
        return Outcome::ruled_out(format!(
            "this machine sent {datagrams} datagrams among {} packets on {}",
            used.sent_packets, used.name
        ));
    }
    let queue = match (sender.rtt(), sender.tcp().min_rtt) {
        (Some(rtt), Some(least)) if rtt - least >= SHORTEST && (rtt - least) * 4 >= least => {
            Some(rtt - least)
        }
        _ => None,
    };
    let loss = sender.loss().unwrap_or(0.0);
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let waits = sender.has_data() && held < HELD;
    if queue.is_none() && loss < LOSSES || !waits {
        return Outcome::ruled_out(
            "no queue and no losses on the path of the datagrams hold this connection",
        );
    }
    let others = Rate::from_bits_per_second(others.clamp(0.0, 1e18) as u64);
    Finding::new(format!(
        "datagrams of this machine fill the path: {} of datagrams leave through {} beside the {} of this connection",
        rate(others),
        used.name,
        rate(flow.rate())
    ))
    .limits()
    .case_if(queue.is_none(), BY_LOSSES)
    .seen_from(
        "datagrams, of the packets sent through the interface",
        percent((datagrams as f64 / used.sent_packets.max(1) as f64).min(1.0)),
        percent(0.5),
    )
    .seen_if("round trip above its minimum", queue.map(span))
    .seen("lost segments, of this connection's", percent(loss))
    .advise(
        Advice::new("Find the program that sends the datagrams, and lower its rate, or give the connection a queue of its own")
            .run("ss -unp   (sockets and their programs)")
            .run(format!("tc qdisc replace dev {} root fq_codel", used.name))
            .not("A larger buffer makes the queue longer, and the connection no faster"),
    )
    .holds()
}

/// Bytes on the link for each byte of data: Ethernet, IPv4 and TCP add 6 % to full segments.
const WITH_HEADERS: f64 = 1.06;
/// Minimum rate of the datagrams, as a multiple of the connection's rate.
const TIMES: f64 = 2.0;
/// Minimum number of datagrams a second.
const FEWEST: f64 = 50.0;
const SHORTEST: Span = Span::from_millis(1);
/// Minimum share of lost segments.
const LOSSES: f64 = 5e-3;
const HELD: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::super::{loss, path};
    use super::*;
    use units::Bytes;

    /// Builds a connection behind a queue that gets 1.6 Mbit/s, while this machine sends 47 Mbit/s
    /// more.
    fn beside(datagrams: u64, queue: u64) -> Sketch {
        Sketch::new().counter("UdpOutDatagrams", datagrams).each(move |at, sample| {
            let eth0 = sample.interfaces.get_mut("eth0").unwrap();
            (eth0.sent, eth0.sent_packets) = (Bytes::new(at * 6_100_000), at * 4_350);
            let tcp = &mut sample.connections[0].tcp;
            tcp.bytes_acked = Some(Bytes::new(at * 200_000));
            tcp.delivery_rate = Some(Rate::from_bits_per_second(1_600_000));
            (tcp.data_segments_out, tcp.retransmitted) =
                (Some(at as u32 * 150), Some(at as u32 * 11));
            tcp.rtt = Some(Span::from_millis(20 + queue));
        })
    }

    #[test]
    fn datagrams_that_fill_the_path_rank_above_its_queue_and_losses() {
        assert!(beside(4_200, 41).holds(RULE) > 0.9);
        beside(4_200, 41).holds_not(path::RULE);
        assert_eq!(beside(4_200, 41).judge(loss::RULE).finding().unwrap().explains, None);
    }

    /// A video call of 3 Mbit/s beside a connection whose path loses 1 % of all segments.
    #[test]
    fn losses_without_a_queue_rank_above_the_datagrams() {
        let call = Sketch::new().counter("UdpOutDatagrams", 350).each(|at, sample| {
            let eth0 = sample.interfaces.get_mut("eth0").unwrap();
            (eth0.sent, eth0.sent_packets) = (Bytes::new(at * 470_000), at * 430);
            let tcp = &mut sample.connections[0].tcp;
            (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(150)), Some(Span::from_millis(150)));
            (tcp.cwnd, tcp.unacked) = (Some(12), Some(11));
            tcp.bytes_acked = Some(Bytes::new(at * 80_000));
            tcp.delivery_rate = Some(Rate::from_bits_per_second(640_000));
            (tcp.data_segments_out, tcp.retransmitted) = (Some(at as u32 * 100), Some(at as u32));
        });
        assert!(call.judge(RULE).finding().is_none_or(|one| one.explains < Some(0.5)));
        assert!(call.holds(loss::RULE) > 0.5);
    }

    #[test]
    fn few_datagrams_explain_no_queue() {
        beside(100, 41).holds_not(RULE);
        Sketch::new().counter("UdpOutDatagrams", 9_000).holds_not(RULE);
    }
}
