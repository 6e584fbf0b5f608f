//! The kernel resets the congestion window after each pause of the application (RFC 5681,
//! section 4.1): every burst begins with a slow start.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Connection;
use crate::signs::loss_model::paces_itself;
use crate::view::{BURST, End, Flow, View};
use crate::words::{percent, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("idle-restart", "a window that starts again after pauses").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::not_seen("the far sender's window") };
    match view.sysctl(SETTING) {
        None => return Outcome::not_seen(SETTING),
        Some("0") => {
            return Outcome::ruled_out("the congestion window survives pauses of the application");
        }
        Some(_) => {}
    }
    let (Some(rtt), false) = (sender.rtt(), flow.is_inside()) else { return Outcome::Irrelevant };
    // The reset does not affect algorithms that set the rate themselves (`cong_control` of the
    // kernel).
    let congestion = sender.last().congestion.clone().unwrap_or_default();
    if paces_itself(&congestion) {
        return Outcome::ruled_out(format!("the setting does not affect {congestion}"));
    }
    let restarts = restarts(sender);
    let full = full_in_bursts(sender);
    if restarts.len() < FEWEST || rtt < LONG || full < FULL {
        return Outcome::ruled_out(format!(
            "the congestion window fell {} times after a pause",
            restarts.len()
        ));
    }
    let most = restarts.iter().map(|restart| restart.before).max().unwrap_or_default();
    let least = restarts.iter().map(|restart| restart.after).min().unwrap_or_default();
    let rounds = (f64::from(most) / f64::from(least.max(1))).log2().ceil() as u32;
    Finding::new(format!(
        "the congestion window starts again after each pause: it falls from {most} to {least} segments, and a burst needs {rounds} round trips of {} to open it",
        span(rtt)
    ))
    .limits_for(full)
    .seen_from(
        "falls of the congestion window after pauses, without a loss",
        restarts.len().to_string(),
        FEWEST.to_string(),
    )
    .seen_from("samples of bursts with a full window", percent(full), percent(FULL))
    .seen("congestion control", congestion)
    .advise(
        Advice::new("Let the window survive pauses, or send without pauses")
            .run(format!("sysctl -w {SETTING}=0"))
            .not("Larger buffers and a faster link change nothing: the window is small by then"),
    )
    .advise(
        Advice::new("Begin with a larger window, to which it falls back")
            .run("ip route change ROUTE initcwnd 32"),
    )
    .holds()
}

struct Restart {
    before: u32,
    after: u32,
}

/// Returns the falls of the congestion window to a fraction after a sample without data to send.
/// The sender retransmitted nothing and got no marks between the two samples, because losses and
/// marks also shrink the window.
fn restarts(sender: &End<'_>) -> Vec<Restart> {
    let pairs = sender.all.windows(2).map(|pair| (&pair[0].1.tcp, &pair[1].1.tcp));
    pairs
        .filter(|(earlier, later)| {
            earlier.unsent == Some(Bytes::ZERO)
                && earlier.retransmitted == later.retransmitted
                && earlier.delivered_marked == later.delivered_marked
        })
        .filter_map(|(earlier, later)| {
            let (before, after) = earlier.cwnd.zip(later.cwnd)?;
            (after <= before / FALLS).then_some(Restart { before, after })
        })
        .collect()
}

/// Returns the share of the samples with unsent data in which the window was full.
fn full_in_bursts(sender: &End<'_>) -> f64 {
    let flying = |c: &&Connection| c.has_unsent() == Some(true);
    let bursts: Vec<_> = sender.all.iter().map(|(_, c)| *c).filter(flying).collect();
    let is_full = |c: &&&Connection| {
        c.tcp
            .unacked
            .zip(c.tcp.cwnd)
            .is_some_and(|(sent, window)| f64::from(sent) >= f64::from(window) * BURST)
    };
    bursts.iter().filter(is_full).count() as f64 / bursts.len().max(1) as f64
}

const SETTING: &str = "net.ipv4.tcp_slow_start_after_idle";
/// Minimum number of falls of the window: a short observation may contain a single pause.
const FEWEST: usize = 1;
const FALLS: u32 = 3;
const FULL: f64 = 0.5;
const LONG: Span = Span::from_millis(5);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    /// Builds a sender with a burst in every second sample, which fills a window of `after`
    /// segments.
    fn bursts(after: u32, setting: &str) -> Sketch {
        let setting = setting.to_owned();
        Sketch::new()
            .machine(|machine| {
                machine.sysctls.insert(SETTING.to_owned(), setting);
            })
            .tcp(move |at, tcp| {
                let begins = at % 2 == 1;
                tcp.cwnd = Some(if begins { after } else { 200 });
                tcp.unacked = Some(if begins { after } else { 0 });
                tcp.unsent = Some(Bytes::new(if begins { 500_000 } else { 0 }));
            })
    }

    #[test]
    fn a_window_that_starts_again_after_each_pause_is_the_limit() {
        assert!(bursts(10, "1").holds(RULE) > 0.9);
    }

    #[test]
    fn losses_or_a_window_that_survives_pauses_rule_out_an_idle_restart() {
        bursts(10, "0").holds_not(RULE);
        bursts(150, "1").holds_not(RULE);
        bursts(10, "1").tcp(|at, tcp| tcp.retransmitted = Some(at as u32)).holds_not(RULE);
        bursts(10, "1").tcp(|_, tcp| tcp.unacked = Some(2)).holds_not(RULE);
        // A window that falls while data waits did not fall because of a pause.
        bursts(10, "1").tcp(|_, tcp| tcp.unsent = Some(Bytes::new(9_000))).holds_not(RULE);
        for own in ["bbr", "tcpa"] {
            let sets_its_rate = bursts(10, "1").sender(|_, connection| {
                connection.congestion = Some(own.to_owned());
            });
            sets_its_rate.holds_not(RULE);
        }
        Sketch::new().holds_not(RULE);
    }
}
