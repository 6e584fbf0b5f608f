//! A route lets connections begin with fewer segments than usual, so that short connections need
//! more round trips.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::Path;
use crate::view::View;
use crate::words::counted;

pub(super) const RULE: Rule = Rule::new("initial-window", "a small initial window").machine(judge);
pub(super) const SEVERAL_HOSTS: Case =
    Case::new("the short connections may go to hosts with a usual window");

/// Judges the routes. The initial window matters only for connections that end after a few round
/// trips.
fn judge(view: &View<'_>) -> Outcome {
    let small = view.machine().paths.iter().filter_map(|(address, path)| {
        Some((address, path.initial_window.filter(|segments| *segments < USUAL_INITIAL)?))
    });
    let Some((address, segments)) = small.min_by_key(|(_, segments)| *segments) else {
        return Outcome::Irrelevant;
    };
    let short = view.period.short_lived.unwrap_or_default();
    let per_second = short.connections as f64 / view.elapsed().secs_f64();
    let finding = Finding::new(format!(
        "the route to {address} lets each connection begin with {} instead of {USUAL_INITIAL}",
        counted(segments.into(), "segment", "segments")
    ))
    .seen("initcwnd of the route", segments.to_string())
    .seen_from(
        "connections that opened and ended",
        format!("{per_second:.1} a second"),
        format!("{SHORT_LIVED} a second"),
    )
    .advise(
        Advice::new(
            "Remove `initcwnd` from the route, so that short connections need fewer round trips",
        )
        .run(format!("ip route get {address}"))
        .not("Connections that last for many round trips have a larger window soon"),
    );
    // A recording does not count short connections by destination.
    let is_usual = |path: &Path| path.initial_window.is_none_or(|few| few >= USUAL_INITIAL);
    let others = view.machine().paths.values().filter(|path| is_usual(path)).count() as u64;
    match (per_second >= SHORT_LIVED && short.connections >= FEWEST, others) {
        (true, 0) => finding.limits(),
        (true, _) => finding.limits().case(SEVERAL_HOSTS).against(format!(
            "the short connections may go to {} with a usual initial window",
            counted(others, "other host", "other hosts")
        )),
        (false, _) => finding,
    }
    .holds()
}

/// The usual initial window in segments: RFC 6928, and Linux since 2.6.39.
const USUAL_INITIAL: u32 = 10;
/// Minimum rate of short connections, per second. An observation of 3 s takes a little longer, so
/// that three connections are less than one each second.
const SHORT_LIVED: f64 = 0.9;
const FEWEST: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use crate::recording::{Machine, Recording, ShortLived};
    use crate::{Question, diagnose};

    fn judged(segments: u32, connections: u64) -> Option<&'static str> {
        let sketch = Sketch::idle().machine(|machine: &mut Machine| {
            let path = machine.paths.get_mut(&"10.0.0.2".parse().unwrap()).unwrap();
            path.initial_window = Some(segments);
        });
        let mut recording: Recording = sketch.recording().clone();
        recording.focus = Some("port 5201".to_owned());
        let bytes = units::Bytes::new(60_000 * connections);
        recording.periods[0].short_lived = Some(ShortLived { connections, bytes });
        diagnose(&recording, Question::Flow).verdict.cause
    }

    /// The short connections may go to the other host.
    #[test]
    fn a_small_initial_window_to_one_of_two_hosts_explains_half_of_the_connections() {
        let sketch = Sketch::idle().machine(|machine: &mut Machine| {
            let path = machine.paths.values_mut().next().unwrap();
            let usual = path.clone();
            path.initial_window = Some(1);
            machine.paths.insert("10.0.0.3".parse().unwrap(), usual);
        });
        let mut recording: Recording = sketch.recording().clone();
        let bytes = units::Bytes::new(60_000 * 60);
        recording.periods[0].short_lived = Some(ShortLived { connections: 60, bytes });
        let diagnosis = diagnose(&recording, Question::Machine);
        let found = diagnosis.periods[0].machine.iter();
        let found = found.clone().find(|one| one.cause == "initial-window").unwrap();
        assert_eq!(found.finding.explains, Some(0.5));
        assert_eq!(found.finding.against.len(), 1);
    }

    #[test]
    fn an_initial_window_of_one_segment_limits_short_connections() {
        assert_eq!(judged(1, 60), Some("initial-window"));
        assert_eq!(judged(10, 60), Some("short-connections"));
        assert_eq!(judged(1, 0), None);
        // At a round trip of 400 ms, 3 s have room for three connections of some segments.
        assert_eq!((judged(1, 3), judged(1, 2)), (Some("initial-window"), None));
    }
}
