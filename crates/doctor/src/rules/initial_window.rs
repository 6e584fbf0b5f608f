//! A route lets connections begin with fewer segments than usual, so that short connections need
//! more round trips.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;
use crate::words::counted;

pub(super) const RULE: Rule = Rule::new("initial-window", "a small initial window").machine(judge);

/// The initial window counts only for connections that end after a few round trips.
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
        "connections seen once",
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
    match per_second >= SHORT_LIVED && short.connections >= FEWEST {
        true => finding.explains(1.0),
        false => finding,
    }
    .holds()
}

/// RFC 6928, and Linux since 2.6.39.
const USUAL_INITIAL: u32 = 10;
/// Connections that end before they are seen twice.
const SHORT_LIVED: f64 = 1.0;
const FEWEST: u64 = 4;

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

    #[test]
    fn short_connections_that_begin_with_one_segment() {
        assert_eq!(judged(1, 60), Some("initial-window"));
        assert_eq!(judged(10, 60), Some("short-connections"));
        assert_eq!(judged(1, 0), None);
    }
}
