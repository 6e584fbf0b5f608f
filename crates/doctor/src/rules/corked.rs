//! The application corks its socket (TCP_CORK or MSG_MORE, tcp(7)): the kernel holds the last part
//! of a message back until the application removes the cork, or for 200 ms.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Connection;
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("corked", "a corked socket").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some((end, held)) = held_back(flow) else {
        let mut ends = [&flow.sender, &flow.receiver].into_iter().flatten();
        return match ends.any(|end| end.tcp().unsent.is_some()) {
            true => Outcome::ruled_out("no part of a message waits while nothing is in flight"),
            false => Outcome::not_seen("the unsent data of the connection"),
        };
    };
    // sendfile(2) holds a part back while it reads the disk.
    let blocked = end.tasks(view).iter().filter_map(|task| task.blocked).fold(0.0, f64::max);
    if blocked >= BLOCKED {
        return Outcome::Irrelevant;
    }
    let part = end.median(|c| c.tcp.unsent.filter(|_| is_held(c))).unwrap_or_default();
    Finding::new(format!(
        "a corked socket is the limit: {} leaves {} in the kernel while nothing is in flight, and the kernel sends that after 200 ms",
        end.name(),
        bytes(part)
    ))
    .limits_for(held)
    .seen_from(
        "samples with less than a segment held back and nothing in flight",
        percent(held),
        percent(HELD),
    )
    .advise(
        Advice::new("Let the application remove the cork at the end of each message, or write it at once with TCP_NODELAY")
            .run("strace -f -e trace=setsockopt,sendto,sendmsg -p PID   (TCP_CORK, MSG_MORE)")
            .not("A faster link and larger buffers change nothing"),
    )
    .holds()
}

/// Returns the end whose cork holds data back, and the share of the samples. An end whose data this
/// machine refuses to send has equal samples, but moves no data.
fn held_back<'f, 'a>(flow: &'f Flow<'a>) -> Option<(&'f End<'a>, f64)> {
    let moves = |end: &&End<'_>| end.bytes(|tcp| tcp.bytes_acked).unwrap_or_default() > Bytes::ZERO;
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    ends.filter(moves)
        .map(|end| (end, end.often(is_held)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, held)| *held >= HELD)
}

/// Whether a cork holds data back: Nagle's algorithm holds none back while no data is in flight.
/// The kernel sends corked data by the timer of window probes.
fn is_held(connection: &Connection) -> bool {
    let tcp = &connection.tcp;
    let (Some(unsent), Some(mss)) = (tcp.unsent, tcp.mss) else { return false };
    connection.probing
        && unsent > Bytes::ZERO
        && unsent < mss
        && tcp.unacked == Some(0)
        && tcp.pacing_most.is_none()
        && tcp.peer_window.is_none_or(|window| window >= mss)
}

/// Minimum share of the samples with corked data.
const HELD: f64 = 0.3;
/// Minimum share of disk waits at which the disk, and not a cork, holds data back.
const BLOCKED: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::super::{application, local_drops};
    use super::*;

    /// Builds a sender of five messages of 300 bytes a second.
    fn corked(unsent: u64, flying: u32, acked: u64) -> Sketch {
        let sketch = Sketch::new().counter("TcpExtTCPRetransFail", 0);
        sketch.sender(move |at, sender| {
            sender.probing = true;
            sender.tcp.unsent = Some(Bytes::new(unsent));
            sender.tcp.unacked = Some(flying);
            sender.tcp.bytes_acked = Some(Bytes::new(at * acked));
        })
    }

    #[test]
    fn a_cork_that_is_never_removed_holds_data_back() {
        let stays = corked(300, 0, 1_500);
        assert!(stays.holds(RULE) > 0.95);
        stays.holds_not(local_drops::RULE);
        stays.holds_not(application::RULE);
    }

    #[test]
    fn data_in_flight_a_whole_segment_or_refused_data_rules_out_a_cork() {
        corked(300, 1, 1_500).holds_not(RULE);
        corked(9_000, 0, 1_500).holds_not(RULE);
        corked(0, 0, 1_500).holds_not(RULE);
        let refused = corked(300, 0, 0);
        refused.holds_not(RULE);
        assert!(refused.holds(local_drops::RULE) > 0.95);
        let disk = corked(300, 0, 1_500).each(|at, sample| {
            sample.tasks[0].io_waited = Some(units::Span::from_millis(at * 600));
        });
        disk.holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }
}
