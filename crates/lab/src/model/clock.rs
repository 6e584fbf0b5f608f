//! Offsets between the clocks of real hosts and the controller's clock.

use super::outcome::Outcome;
use super::{Measurement, Value, Verdict};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The lead of a host's clock over the controller's clock, in seconds, and the bound of its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    pub ahead_s: f64,
    pub error_s: f64,
}

/// The clock of a host at the start and at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TurnClock {
    pub start: ClockReading,
    pub end: ClockReading,
}

impl TurnClock {
    /// Returns the time by which this clock was ahead of `other` during the turn, and the bound of
    /// the error. A clock that drifts evenly stays within the bound for the whole turn.
    pub(crate) fn ahead_of(&self, other: &Self) -> ClockReading {
        let at = |own: ClockReading, other: ClockReading| {
            let (ahead, error) = (own.ahead_s - other.ahead_s, own.error_s + other.error_s);
            (ahead - error, ahead + error)
        };
        let (start, end) = (at(self.start, other.start), at(self.end, other.end));
        let (low, high) = (start.0.min(end.0), start.1.max(end.1));
        ClockReading { ahead_s: f64::midpoint(low, high), error_s: (high - low) / 2.0 }
    }
}

/// Returns, for each host, the range of its clock over all turns, and the largest error.
pub(crate) fn summary(outcomes: &[Outcome]) -> Option<serde_json::Value> {
    let mut hosts: IndexMap<&str, Vec<ClockReading>> = IndexMap::new();
    for outcome in outcomes {
        let Verdict::Measured(measured) = &outcome.verdict else { continue };
        for (name, clock) in &measured.clocks {
            hosts.entry(name).or_default().extend([clock.start, clock.end]);
        }
    }
    let each = hosts.into_iter().map(|(name, readings)| {
        let ahead = readings.iter().map(|reading| millis(reading.ahead_s));
        let error = readings.iter().map(|reading| millis(reading.error_s));
        let clock = json!({
            "ahead_ms_least": ahead.clone().fold(f64::INFINITY, f64::min),
            "ahead_ms_most": ahead.fold(f64::NEG_INFINITY, f64::max),
            "error_ms_most": error.fold(0.0, f64::max),
        });
        (name.to_owned(), clock)
    });
    let each: serde_json::Map<String, serde_json::Value> = each.collect();
    (!each.is_empty()).then_some(serde_json::Value::Object(each))
}

/// Converts seconds to milliseconds, rounded to the microsecond.
pub(crate) fn millis(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

impl Measurement {
    /// Subtracts from a delay the offset between the clocks of its hosts, and records the bound of
    /// the remaining error. `second`: one second in the unit of the metric.
    pub(crate) fn correct_delay(
        &mut self,
        [metric, of_error]: [&str; 2],
        arrival_ahead: ClockReading,
        second: f64,
    ) {
        let Some(delay) = self.metrics.get_mut(metric) else { return };
        delay.value -= arrival_ahead.ahead_s * second;
        let error = Value { value: arrival_ahead.error_s * second, unit: delay.unit.clone() };
        self.metrics.insert(of_error.to_owned(), error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(start: (f64, f64), end: (f64, f64)) -> TurnClock {
        let of = |(ahead_s, error_s)| ClockReading { ahead_s, error_s };
        TurnClock { start: of(start), end: of(end) }
    }

    #[test]
    fn the_error_of_two_clocks_covers_both_errors_and_the_drift_of_a_turn() {
        let (server, client) = (clock((5.0, 0.1), (5.4, 0.1)), clock((1.0, 0.2), (1.0, 0.2)));
        let ahead = server.ahead_of(&client);
        assert!((ahead.ahead_s - 4.2).abs() < 1e-9, "{ahead:?}");
        // The true lead is at least 3.7 and at most 4.7 seconds.
        assert!((ahead.error_s - 0.5).abs() < 1e-9, "{ahead:?}");
        let back = client.ahead_of(&server);
        assert!((back.ahead_s + 4.2).abs() < 1e-9 && (back.error_s - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_one_way_delay_is_corrected_by_the_clock_offset_with_its_error() {
        let mut measured = Measurement::default();
        let printed = Value { value: 4210.0, unit: "ms".to_owned() };
        measured.metrics.insert("own.delay".to_owned(), printed);
        let ahead = ClockReading { ahead_s: 4.2, error_s: 0.002 };
        measured.correct_delay(["own.delay", "own.delay_error"], ahead, 1e3);
        let value = |name: &str| measured.metrics[name].value;
        assert!((value("own.delay") - 10.0).abs() < 1e-6);
        assert!((value("own.delay_error") - 2.0).abs() < 1e-9);
    }
}
