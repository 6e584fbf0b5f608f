use units::Span;

use super::Goal;
use super::bench::CALIBRATION;
use super::search::{Observed, Search, Step};
use super::tester::DRAIN;
use crate::Frequency;

/// Estimates the duration of a search, without the measurements after the search. Runs the search
/// on a model of a device that loses exactly the packets beyond its rate.
#[must_use]
pub fn usual_time(goals: &[Goal]) -> Span {
    let per_second = Frequency::per_second;
    let mut search = Search::new(goals, per_second(DEVICE / 10.0), per_second(GENERATOR));
    let of_trial = |duration: Span| duration + DRAIN + AROUND;
    let mut whole = of_trial(CALIBRATION) * 2;
    while let Step::Measure { load, duration } = search.next_step() {
        let forwarded = load.events().min(DEVICE);
        let lost = 1.0 - forwarded / load.events();
        let forwarded = per_second(forwarded);
        search.record(load, duration, Observed { offered: load, loss: lost, forwarded });
        whole = whole + of_trial(duration);
    }
    whole
}

/// The rates of the modelled device and of the modelled generator, which is faster by an arbitrary
/// ratio.
const DEVICE: f64 = 377_777.7;
const GENERATOR: f64 = 1e6;
/// Time in which the threads of a trial start and end.
const AROUND: Span = Span::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;
    use units::Share;

    #[test]
    fn a_search_takes_longer_if_it_measures_longer_at_each_load() {
        let goal =
            |sum| Goal { duration_sum: Span::from_secs(sum), ..Goal::with_loss(Share::ZERO) };
        let times = [1, 5, 20, 60].map(|sum| usual_time(&[goal(sum)]));
        assert!(times.is_sorted(), "{times:?}");
        // The search spends the full time at two loads, and decides one of these loads after half
        // of its time or later.
        assert!(times[2] > Span::from_secs(20) && times[2] < Span::from_secs(90), "{times:?}");
        let both = usual_time(&[goal(5), goal(5)]);
        assert!(both >= times[1] && both < times[1] * 2, "{both} {times:?}");
    }

    #[test]
    fn a_search_of_rfc_2544_takes_some_minutes() {
        let time = usual_time(&[Goal::rfc_2544()]);
        assert!((Span::from_secs(120)..Span::from_secs(900)).contains(&time), "{time}");
    }
}
