//! The counts of the emulator and of the receiver's interface that show a fault at work.

use crate::model::Flaw;
use emu::{DirectionStatistics, EmulatorStatistics};

/// Bounds of counts. A turn outside the bounds is invalid: the fault did not limit the traffic.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Proof {
    /// Bounds of the Mbit/s that arrived at the receiver's interface while the doctor watched.
    pub(super) carried: Option<(f64, f64)>,
    /// Minimum number of packets that the link dropped at random in the forward direction.
    pub(super) lost: u64,
    /// Minimum number of packets that found the queue full, in the forward and in the backward
    /// direction.
    pub(super) overflowed: u64,
    pub(super) overflowed_back: u64,
    /// Minimum median time in the queue in milliseconds, in the forward and in the backward
    /// direction.
    pub(super) waited_ms: f64,
    pub(super) waited_back_ms: f64,
    /// Minimum number of packets that the link held back.
    pub(super) reordered: u64,
}

impl Proof {
    pub(super) fn at_most(mbit: f64) -> Self {
        Self::within(0.0, mbit)
    }

    pub(super) fn at_least(mbit: f64) -> Self {
        Self::within(mbit, f64::INFINITY)
    }

    pub(super) fn within(low: f64, high: f64) -> Self {
        Self { carried: Some((low, high)), ..Self::default() }
    }

    /// Returns the flaw if the carried Mbit/s are outside the bounds.
    pub(in super::super) fn of_rate(&self, carried: f64) -> Option<Flaw> {
        let (low, high) = self.carried?;
        let bound = match carried {
            _ if carried < low => format!("at least {low:.2}"),
            _ if carried > high => format!("at most {high:.2}"),
            _ => return None,
        };
        Some(flaw(format!("{carried:.2} Mbit/s arrived, with the fault {bound}")))
    }

    /// Returns the flaw if the counts of the link from `from` to its neighbour are outside the
    /// bounds.
    pub(in super::super) fn of_link(&self, seen: &EmulatorStatistics, from: &str) -> Option<Flaw> {
        let cable = seen.cables.first()?;
        let (forward, back) = match cable.name.starts_with(&format!("{from}-")) {
            true => (&cable.forward, &cable.backward),
            false => (&cable.backward, &cable.forward),
        };
        let waited = |way: &DirectionStatistics| way.sojourn_us.p50 / 1e3;
        let checks = [
            ("packets lost at random", forward.dropped_loss.frames as f64, self.lost as f64),
            ("packets found a full queue", overflows(forward), self.overflowed as f64),
            ("packets found a full queue back", overflows(back), self.overflowed_back as f64),
            ("packets were held back", forward.reordered.frames as f64, self.reordered as f64),
            ("ms in the queue", waited(forward), self.waited_ms),
            ("ms in the queue back", waited(back), self.waited_back_ms),
        ];
        let (words, seen, least) = checks.into_iter().find(|(_, seen, least)| seen < least)?;
        Some(flaw(format!("{seen:.0} {words}, with the fault at least {least:.0}")))
    }
}

fn overflows(way: &DirectionStatistics) -> f64 {
    (way.dropped_overflow.frames + way.dropped_early.frames) as f64
}

fn flaw(detail: String) -> Flaw {
    Flaw { what: "the fault did not limit the traffic".to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carried_rate_outside_the_proof_invalidates_the_turn() {
        let proof = Proof::within(2.0, 8.0);
        assert!(proof.of_rate(5.0).is_none());
        let flaw = proof.of_rate(9.5).unwrap();
        assert_eq!(flaw.detail, "9.50 Mbit/s arrived, with the fault at most 8.00");
        assert!(proof.of_rate(1.0).unwrap().detail.contains("at least 2.00"));
        assert!(Proof::default().of_rate(0.0).is_none());
    }
}
