//! A route fixes a window or a congestion window for everything that takes it.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{bytes, rate};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("route-limits", "a limit of the route").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(path) = flow.path else { return Outcome::not_seen("the route of the connection") };
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let mss = sender.tcp().mss.unwrap_or(Bytes::new(1448));
    let by_cwnd =
        path.congestion_window.map(|n| Bytes::new(u64::from(n).saturating_mul(mss.count())));
    let by_window = path.window.map(|n| Bytes::new(n.into()));
    let Some(window) = by_cwnd.into_iter().chain(by_window).min() else {
        return Outcome::ruled_out("the route fixes no window");
    };
    let allows = sender.rtt().and_then(|rtt| bound::window(window, rtt));
    let share = allows.map_or(0.0, |allows| {
        flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64
    });
    if share < NEAR {
        return Outcome::ruled_out(format!(
            "the route's window of {} is not reached",
            bytes(window)
        ));
    }
    Finding::new(format!("the route is the limit: it fixes a window of {}", bytes(window)))
        .explains(share.min(0.97))
        .allows(allows)
        .seen_if("route's window / round trip", allows.map(rate))
        .advise(
            Advice::new("Remove `window` and `cwnd` from the route")
                .run(format!("ip route get {}", flow.addresses().1.ip()))
                .not("Buffers and congestion control change nothing while the route fixes the window"),
        )
        .holds()
}

const NEAR: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn fixed(window: u32) -> Sketch {
        Sketch::new().machine(|machine| {
            machine.paths.values_mut().for_each(|path| path.congestion_window = Some(window));
        })
    }

    #[test]
    fn a_fixed_congestion_window() {
        assert!(fixed(700).holds(RULE) > 0.9);
        fixed(5000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }
}
