//! Link conditions that only virtual time supports: rates that change, a policer, and deliveries in
//! batches.

use super::part::Part;
use super::workload_table::bounded;
use units::{Bytes, Rate, Span};

/// Parses rate changes: `none`, or `50% at 10s, 100mbit at 20s`.
pub(super) fn steps(text: &str) -> Result<Vec<(Span, Part)>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut steps: Vec<(Span, Part)> = Vec::new();
    for step in text.split(',').map(str::trim) {
        let Some((part, at)) = step.split_once(" at ") else {
            return Err(format!("`{step}` is no step: write `10mbit at 5s` or `50% at 5s`"));
        };
        let at: Span = at.trim().parse().map_err(|error| format!("{error}"))?;
        if at == Span::ZERO {
            return Err(format!("`{step}`: set the rate from the beginning by `rate`"));
        }
        if steps.last().is_some_and(|(before, _)| *before >= at) {
            return Err(format!("`{step}` is not after the step before it"));
        }
        steps.push((at, part.parse()?));
    }
    Ok(steps)
}

/// Parses `40mbit 1s, 1mbit 2s`: rates with their durations. `None` for any other text.
pub(super) fn rates(text: &str) -> Option<Vec<(Rate, Span)>> {
    let read = |part: &str| {
        let (rate, span) = part.trim().split_once(' ')?;
        Some((rate.parse().ok()?, span.trim().parse().ok()?))
    };
    text.split(',').map(read).collect()
}

/// A policer as written in the file: its rate, and its burst if the file names it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PolicerText {
    pub(super) part: Part,
    pub(super) burst: Option<String>,
}

/// Parses a policer: `none`, or `50%,burst=64KiB`.
pub(super) fn policer(text: &str) -> Result<Option<PolicerText>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (part, rest) = text.split_once(',').unwrap_or((text, ""));
    let part = part.parse().map_err(|error: String| {
        format!("{error}; a policer is written `50%,burst=64KiB`, or `none`")
    })?;
    let burst = match rest.trim() {
        "" => None,
        rest => match rest.split_once('=') {
            Some(("burst", size)) => Some(size.trim().to_owned()),
            _ => {
                return Err(format!("`{rest}` is no setting of a policer: it takes `burst=64KiB`"));
            }
        },
    };
    Ok(Some(PolicerText { part, burst }))
}

/// Returns a policer's burst if the file names no burst: one round trip at the policer's rate, but
/// at least ten full frames.
pub(super) fn usual_burst(rate: Rate, round_trip: Span) -> Bytes {
    rate.bytes_in(round_trip).max(Bytes::new(10 * 1514))
}

/// Parses the interval of batched deliveries: `none`, or a time of at most one second.
pub(super) fn aggregate(text: &str) -> Result<Option<Span>, String> {
    if text == "none" {
        return Ok(None);
    }
    let bounds = Span::from_nanos(1)..=Span::from_secs(1);
    bounded(text, bounds, || "`aggregate` is above 0 and at most 1s".to_owned()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Share;

    #[test]
    fn rate_steps_are_parsed_in_the_order_of_their_times() {
        assert_eq!(steps("none"), Ok(vec![]));
        let half = Part::Share(Share::new(0.5).unwrap());
        let ten = Part::Rate(Rate::from_mbit(10));
        let expected = vec![(Span::from_secs(5), half), (Span::from_secs(7), ten)];
        assert_eq!(steps("50% at 5s, 10mbit at 7s"), Ok(expected));
        assert!(steps("50%").unwrap_err().contains("write `10mbit at 5s`"));
        assert!(steps("50% at 0s").unwrap_err().contains("by `rate`"));
        assert!(steps("50% at 5s, 10% at 5s").unwrap_err().contains("not after"));
        assert!(steps("5 at 5s").unwrap_err().contains("no unit"));
    }

    #[test]
    fn rate_lists_are_distinguished_from_trace_paths() {
        let expected = vec![
            (Rate::from_mbit(40), Span::from_secs(1)),
            (Rate::from_mbit(1), Span::from_secs(2)),
        ];
        assert_eq!(rates("40mbit 1s, 1mbit 2s"), Some(expected));
        for path in ["lte.trace", "traces/40mbit 1s, 1mbit", "40mbit", ""] {
            assert_eq!(rates(path), None, "{path}");
        }
    }

    #[test]
    fn policers_and_aggregation_are_parsed() {
        assert_eq!(policer("none"), Ok(None));
        let read = policer("50%,burst=1bdp").unwrap().unwrap();
        assert_eq!(read.burst.as_deref(), Some("1bdp"));
        assert!(policer("50%,brst=1KB").unwrap_err().contains("it takes `burst=64KiB`"));
        assert!(policer("often").unwrap_err().contains("a policer is written"));
        assert_eq!(aggregate("4ms"), Ok(Some(Span::from_millis(4))));
        assert!(aggregate("2s").unwrap_err().contains("at most 1s"));
    }
}
