//! Signs of packets that this machine refuses to send.

use super::loss_model::paces_itself;
use crate::recording::Connection;
use units::{Bytes, Span};

/// Whether the timer of window probes runs although the window is open and nothing is in flight:
/// the kernel got an error for the last packet, and keeps the data.
pub(crate) fn is_refused(connection: &Connection) -> bool {
    let window = connection.tcp.peer_window.zip(connection.tcp.mss);
    connection.probing
        && connection.tcp.unacked.is_none_or(|flying| flying == 0)
        && window.is_some_and(|(window, mss)| window >= mss)
        && !may_wait_for_pace(connection)
}

/// Whether the sender may only wait for its pace. A kernel that paces a socket without `fq` starts
/// the timer of window probes, too, while nothing is in flight (`tcp_write_xmit`). On a short path
/// a burst is acknowledged long before the pace allows the next burst.
fn may_wait_for_pace(connection: &Connection) -> bool {
    let tcp = &connection.tcp;
    let is_paced =
        tcp.pacing_most.is_some() || connection.congestion.as_deref().is_some_and(paces_itself);
    let (Some(pace), Some(rtt), Some(mss)) =
        (tcp.pacing_rate.or(tcp.pacing_most), tcp.rtt, tcp.mss)
    else {
        return false;
    };
    // The size of a burst (tcp_tso_autosize): a millisecond of data, and on a path of less than
    // a few milliseconds up to a whole super-packet.
    let halvings = tcp.min_rtt.unwrap_or(rtt).nanos() / HALVES.nanos();
    let near = LARGEST.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0);
    let burst = pace.bytes_in(Span::from_millis(1)).count().saturating_add(near).min(LARGEST);
    let burst = Bytes::new(burst.max(mss.count().saturating_mul(2)));
    is_paced && pace.bytes_in(rtt) < burst
}

/// The largest super-packet.
const LARGEST: u64 = 65_536;
/// Each such part of the shortest round trip halves the burst (net.ipv4.tcp_tso_rtt_log).
const HALVES: Span = Span::from_micros(512);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sketch::Sketch;
    use units::Rate;

    /// Builds a sender whose timer of window probes runs while nothing is in flight.
    fn waits(congestion: &'static str, micros: u64, mbit: u64) -> bool {
        let sketch = Sketch::new().sender(move |_, sender| {
            sender.congestion = Some(congestion.to_owned());
            let tcp = &mut sender.tcp;
            let trip = Some(Span::from_micros(micros));
            (sender.probing, tcp.unacked) = (true, Some(0));
            (tcp.rtt, tcp.min_rtt) = (trip, trip);
            tcp.pacing_rate = Some(Rate::from_mbit(mbit));
        });
        is_refused(&sketch.recording().periods[0].samples[3].connections[0])
    }

    /// A policer beyond a cable passes 32 Mbit/s.
    #[test]
    fn a_sender_that_waits_for_its_pace_on_a_cable_is_not_refused() {
        assert!(!waits("bbr", 80, 32) && !waits("tcpa", 80, 32));
        assert!(waits("cubic", 80, 32), "its pace is no limit");
        // Several bursts are in flight on a long path.
        assert!(waits("bbr", 20_000, 32));
        assert!(!waits("bbr", 20_000, 1));
    }
}
