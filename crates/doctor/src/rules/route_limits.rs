//! A route fixes a congestion window for this machine's data, or a window for the data that this
//! machine receives.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::bound;
use crate::recording::Path;
use crate::signs::far_window::{far_held, shortest};
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent, rate};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("route-limits", "a limit of the route").flow(judge);
pub(super) const RECEIVES: Case = Case::new("the route of a receiver fixes the window");

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(path) = flow.path else { return Outcome::not_seen("the route of the connection") };
    match (&flow.sender, &flow.receiver) {
        (Some(sender), _) => of_sender(flow, path, sender),
        (None, Some(receiver)) => of_receiver(flow, path, receiver),
        (None, None) => Outcome::Irrelevant,
    }
}

fn of_sender(flow: &Flow<'_>, path: &Path, sender: &End<'_>) -> Outcome {
    let Some(segments) = path.congestion_window else {
        return Outcome::ruled_out("the route fixes no congestion window");
    };
    let mss = sender.tcp().mss.unwrap_or(Bytes::new(1448));
    let window = Bytes::new(u64::from(segments).saturating_mul(mss.count()));
    let allows = sender.rtt().and_then(|rtt| bound::window(window, rtt));
    let share = allows.map_or(0.0, |allows| {
        flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64
    });
    // A route that was set after the connection opened holds for later connections only.
    if !(NEAR..MOST).contains(&share) {
        return Outcome::ruled_out(format!(
            "{} of what the route's window of {} allows pass",
            percent(share),
            bytes(window)
        ));
    }
    Finding::new(format!("the route is the limit: it fixes a window of {}", bytes(window)))
        .limits_for(share)
        .allows(allows)
        .seen_if("route's window / round trip", allows.map(rate))
        .advise(
            Advice::new("Remove `cwnd` from the route; new connections have the usual window")
                .run(format!("ip route get {}", flow.addresses().1.ip()))
                .not("Buffers and congestion control change nothing while the route fixes the window"),
        )
        .holds()
}

/// Judges the receiver. The `window` of a route is the largest window that this machine offers
/// (tcp_select_initial_window).
fn of_receiver(flow: &Flow<'_>, path: &Path, receiver: &End<'_>) -> Outcome {
    let Some(most) = path.window.map(|window| Bytes::new(window.into())) else {
        return Outcome::ruled_out("the route fixes no window");
    };
    let Some(window) = receiver.median(|c| c.tcp.own_window) else {
        return Outcome::not_seen("the window that this machine offers");
    };
    if window > most {
        return Outcome::ruled_out(format!(
            "this machine offers {}, more than the route's window of {}",
            bytes(window),
            bytes(most)
        ));
    }
    let told = far_held(flow).unwrap_or(0.0);
    let allows = shortest(receiver).and_then(|rtt| bound::window(most, rtt));
    let share = allows.map_or(0.0, |allows| {
        flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64
    });
    let finding = Finding::new(format!(
        "the route fixes the window that this machine offers: {}",
        bytes(most)
    ))
    .allows(allows)
    .seen("window offered", bytes(window))
    .seen_if("route's window / round trip", allows.map(rate))
    .seen_if(
        "time that the window held the far sender, of the sender's busy time",
        far_held(flow).map(percent),
    )
    .advise(
        Advice::new("Remove `window` from the route; new connections have the usual one")
            .run(format!("ip route get {}", flow.addresses().0.ip()))
            .not("Larger buffers change nothing while the route fixes the window"),
    );
    match told >= TOLD || (NEAR..MOST).contains(&share) {
        true => finding.limits().case(RECEIVES),
        false => finding,
    }
    .holds()
}

/// Minimum observed rate as a share of the rate that the window allows.
const NEAR: f64 = 0.6;
const MOST: f64 = 2.0;
/// Minimum share of the far sender's busy time in which the window held that sender.
const TOLD: f64 = 0.2;

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
    fn a_fixed_congestion_window_is_the_limit() {
        assert!(fixed(700).holds(RULE) > 0.9);
        fixed(5000).holds_not(RULE);
        // More data passes than the route allows: the route was set later.
        fixed(70).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn a_fixed_window_limits_what_this_machine_receives() {
        let route = |sketch: Sketch, window: u32| {
            sketch.machine(|machine| {
                machine.paths.values_mut().for_each(|path| path.window = Some(window));
            })
        };
        let receiving = |window: u32| {
            let sketch = Sketch::new().receiving(|_, receiver| {
                receiver.tcp.own_window = Some(Bytes::new(1_000_000));
            });
            route(sketch, window)
        };
        assert!(receiving(1_000_000).holds(RULE) > 0.95);
        receiving(900_000).holds_not(RULE);
        assert_eq!(receiving(4_000_000).judge(RULE).finding().unwrap().explains, None);
        route(Sketch::new(), 8_192).holds_not(RULE);
    }
}
