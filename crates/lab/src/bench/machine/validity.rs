//! The bounds within which a measurement over an emulated link, on a shared machine, is valid.
//!
//! Lateness lengthens the round trip, so its bounds are shares of the round trip. The mean matters
//! to a flow that losses limit, because its rate falls as the round trip grows. `weir sim run
//! lateness-bound` holds deliveries back for up to a known time, which makes frames late by half of
//! this time on average. Change of the median goodput at 200 Mbit/s:
//!
//! | mean lateness by round trip | CUBIC at 0.1 % loss | CUBIC at 1 % | BBR | tunnel |
//! | --- | --- | --- | --- | --- |
//! | 1 ms: 0.5 % | 0.0 % | -0.4 % | 0.0 % | 0.0 % |
//! | 1 ms: 1 % | -0.5 % | -1.2 % | 0.0 % | 0.0 % |
//! | 1 ms: 2.5 % | -0.4 % | -3.7 % | 0.0 % | 0.0 % |
//! | 1 ms: 5 % | -0.9 % | -7.4 % | -0.1 % | -0.1 % |
//! | 20 ms: 0.5 % | -0.9 % | -1.7 % | +0.3 % | 0.0 % |
//! | 20 ms: 1 % | -2.8 % | -3.5 % | +0.3 % | 0.0 % |
//! | 20 ms: 2.5 % | -7.4 % | -7.3 % | +1.9 % | -0.1 % |
//! | 20 ms: 5 % | -14.9 % | -15.0 % | +2.1 % | -0.2 % |
//!
//! 1 ms: 20 runs of 4 s. 20 ms: 40 runs of 10 s, CUBIC 1,500 runs of 10 s with intervals of ±0.9 %.
//! A mean lateness of 0.5 % of the round trip, or of 1 % at 1 ms, keeps each change below 2 %. The
//! bound at p99 keeps the bursts of late frames small beside the queue.

use super::links::Emulation;
use crate::model::Flaw;
use results::{CpuLimit, Results};
use units::{Span, shown};

/// The bounds on the lateness of one cell's emulated links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LatenessBound {
    /// The shortest round trip of the cell's links. Zero if the links have no delay.
    round_trip: Span,
}

impl LatenessBound {
    pub(crate) fn of(round_trips: impl Iterator<Item = Span>) -> Self {
        Self { round_trip: round_trips.min().unwrap_or(Span::ZERO) }
    }

    /// Returns the maximum lateness for 99 % of the frames.
    fn late(&self) -> Span {
        self.share(LATEST_PERCENT).max(LATEST_FLOOR)
    }

    /// Returns the maximum mean lateness of the frames.
    fn mean(&self) -> Span {
        self.share(MEAN_PERCENT).max(MEAN_FLOOR)
    }

    fn share(&self, percent: f64) -> Span {
        Span::from_secs_f64(self.round_trip.secs_f64() * percent / 100.0)
    }

    /// Converts a time to percent of the round trip. `None` if the links have no delay.
    pub(crate) fn percent(&self, late: Span) -> Option<f64> {
        (self.round_trip > Span::ZERO).then(|| late.secs_f64() / self.round_trip.secs_f64() * 100.0)
    }

    /// Returns the flaw of a turn if the emulated links were later than the bounds allow.
    pub(crate) fn exceeded(&self, seen: &Emulation) -> Option<Flaw> {
        self.judge(seen.mean, seen.p99, seen.max, seen.running)
    }

    fn judge(&self, mean: Span, late: Span, worst: Span, running: Span) -> Option<Flaw> {
        let flaw = |what: &str, detail| Some(Flaw { what: what.to_owned(), detail });
        let beyond = [(mean, self.mean(), "on average"), (late, self.late(), "at p99")];
        if let Some((late, bound, of)) = beyond.into_iter().find(|(late, bound, _)| late > bound) {
            let what = "the emulated link was late (was the machine busy with something else?)";
            let of_trip = self.percent(late).map(|percent| {
                format!(
                    ", which is {} of the round trip of {}",
                    shown::percent(percent),
                    self.round_trip
                )
            });
            let of_trip = of_trip.unwrap_or_default();
            let (late, bound) = (late.micros_f64(), bound.micros_f64());
            return flaw(what, format!("{late:.0} µs {of}{of_trip}; the bound is {bound:.0} µs"));
        }
        // A stalled link counts few frames, so a quantile does not show the stall.
        let bound = standstill(running);
        if worst > bound {
            let what = "the emulated link stalled (was the machine busy with something else?)";
            let (worst, bound) = (worst.millis_f64(), bound.millis_f64());
            return flaw(what, format!("for {worst:.0} ms; the bound is {bound:.0} ms"));
        }
        None
    }
}

/// Describes the bounds, and the lateness of the cells of a run, for the report.
pub(crate) fn method(results: &Results) -> Vec<(String, String)> {
    let bounds = format!(
        "{}; if the hypervisor took at most \
         {MOST_STOLEN_PERCENT} % of the workload's CPUs; if the lab's programs waited \
         for at most {MOST_WAITED_PERCENT} % of the time for CPUs that another program used; and if \
         no other program used more than 25 % of a CPU that was less than 5 % idle",
        bounds_of_links()
    );
    with_lateness(bounds, results)
}

/// Describes the bounds for links that a machine between the hosts emulates.
pub(crate) fn method_of_middles(results: &Results) -> Vec<(String, String)> {
    with_lateness(bounds_of_links(), results)
}

fn bounds_of_links() -> String {
    format!(
        "a turn is valid if the frames were late by at most {MEAN_PERCENT} % of the round trip on \
         average ({MEAN_FLOOR} where that is more) and 99 % of them by at most {LATEST_PERCENT} % \
         ({LATEST_FLOOR} where that is more); if no stall was longer than \
         {LONGEST_STALL_PERCENT} % of the turn"
    )
}

fn with_lateness(bounds: String, results: &Results) -> Vec<(String, String)> {
    let mut said = vec![("bounds of the emulated link".to_owned(), bounds)];
    let most = |name: &str| {
        let figures = results.cells.iter().filter_map(|cell| cell.metrics.get(name));
        figures.map(|figure| figure.median).max_by(f64::total_cmp)
    };
    if let Some(late) = most("lateness_us.p99") {
        let of_trip = most("lateness_rtt_percent.p99").map(|percent| {
            format!(", and at most {} % of the round trip", report::number::format(percent))
        });
        let late = report::number::format(late);
        let text = format!(
            "in the latest cell 99 % of the frames were late by at most {late} µs{}",
            of_trip.unwrap_or_default()
        );
        said.push(("lateness of the emulated link".to_owned(), text));
    }
    said
}

/// Returns the flaw of a turn if the hypervisor took too much of the workload's CPUs.
pub(crate) fn stolen(percent: f64) -> Option<Flaw> {
    (percent > MOST_STOLEN_PERCENT).then(|| Flaw {
        what: "the hypervisor took CPU time away from the workload".to_owned(),
        detail: format!("{}; the bound is {MOST_STOLEN_PERCENT} %", shown::percent(percent)),
    })
}

/// Returns the flaw of a turn if a program beside the lab used the workload's CPUs while a busy
/// program of the lab waited for a CPU.
pub(crate) fn shared(user: &CpuLimit, waited_percent: f64) -> Option<Flaw> {
    let share = user.percent / user.cpus.len().max(1) as f64;
    (share > MOST_SHARED_PERCENT && waited_percent > MOST_WAITED_PERCENT).then(|| Flaw {
        what: "the lab's programs waited for a CPU that another program used".to_owned(),
        detail: format!(
            "{user}, and they waited {} of the time; the bound is {MOST_WAITED_PERCENT} %",
            shown::percent(waited_percent)
        ),
    })
}

/// Returns the flaw of a turn to which a program beside the lab left no CPU time. A failed turn is
/// invalid too: the program may have caused the failure.
pub(crate) fn starved(user: &CpuLimit) -> Flaw {
    Flaw { what: STARVED.to_owned(), detail: user.to_string() }
}

/// Returns the flaw of a turn whose transfer ended before the lab read the transfer's sockets. The
/// turn is measured again.
pub(crate) fn unread(failure: &str) -> Flaw {
    Flaw { what: UNREAD.to_owned(), detail: failure.to_owned() }
}

/// Names the program beside the lab that used the emulator's CPU, in flaws that the program may
/// have caused.
pub(crate) fn blame(flaws: &mut [Flaw], user: &CpuLimit) {
    let is_of_emulator =
        |flaw: &&mut Flaw| [LATE, STALLED].iter().any(|kind| flaw.what.starts_with(kind));
    for flaw in flaws.iter_mut().filter(is_of_emulator) {
        flaw.detail += &format!("; meanwhile {user}, where the emulator runs");
    }
}

/// Returns advice on a kind of flaw. Empty for a kind without advice.
pub(crate) fn mend(what: &str) -> &'static str {
    let known = [
        (LATE, "end other programs, leave the emulator a CPU of its own, or choose a lower `rate`"),
        (STALLED, "end other programs, or give the virtual machine CPUs of its own"),
        (LOST, "choose a lower `rate` or fewer links in one lab"),
        (STARVED, "end that program, or leave the lab CPUs of its own (`taskset`)"),
        (SHARED, "end that program, or leave the lab CPUs of its own (`taskset`)"),
        (STOLEN, "give the virtual machine CPUs of its own, or measure when its host is idle"),
        (UNREAD, "end other programs, or give the virtual machine CPUs of its own"),
    ];
    known.iter().find(|(start, _)| what.starts_with(start)).map_or("", |(_, advice)| *advice)
}

fn standstill(running: Span) -> Span {
    Span::from_secs_f64(running.secs_f64() * LONGEST_STALL_PERCENT / 100.0)
}

/// The texts with which the kinds of flaws begin.
const LATE: &str = "the emulated link was late";
const STALLED: &str = "the emulated link stalled";
const LOST: &str = "the emulator's ports lost frames";
const SHARED: &str = "the lab's programs waited for a CPU";
const STARVED: &str = "a program beside the lab left its CPUs no time";
const STOLEN: &str = "the hypervisor took CPU time";
const UNREAD: &str = "the lab read the transfer too late";
const MEAN_PERCENT: f64 = 0.5;
const MEAN_FLOOR: Span = Span::from_micros(10);
const LATEST_PERCENT: f64 = 5.0;
const LATEST_FLOOR: Span = Span::from_micros(250);
/// Maximum stall as a share of a turn: the flow loses the same share of its time.
const LONGEST_STALL_PERCENT: f64 = 1.0;
/// Maximum percentage of stolen time, chosen without a measurement. The axis `stolen` of the lab
/// `lateness` measures the effect of stolen time.
const MOST_STOLEN_PERCENT: f64 = 5.0;
/// Maximum share of the workload's CPUs that a program beside the lab may use, in percent, chosen
/// without a measurement: smaller shares are common beside a terminal, a log or a desktop. The
/// lab's own programs wait for each other where they share a CPU, so that waiting alone is no flaw.
const MOST_SHARED_PERCENT: f64 = 20.0;
const MOST_WAITED_PERCENT: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(rtt_ms: u64) -> LatenessBound {
        LatenessBound::of([Span::from_millis(rtt_ms), Span::from_secs(1)].into_iter())
    }

    fn judged(rtt_ms: u64, mean: Span, late: Span) -> Option<Flaw> {
        bound(rtt_ms).judge(mean, late, late, Span::from_secs(10))
    }

    #[test]
    fn lateness_beyond_the_bound_invalidates_a_turn_on_every_path() {
        let more = Span::from_nanos(1);
        for rtt_ms in [0, 1, 2, 5, 20, 100, 300] {
            let (mean, late) = (bound(rtt_ms).mean(), bound(rtt_ms).late());
            assert_eq!(judged(rtt_ms, mean, late), None);
            assert!(judged(rtt_ms, mean + more, late).is_some(), "{rtt_ms} ms");
            assert!(judged(rtt_ms, mean, late + more).is_some(), "{rtt_ms} ms");
        }
        assert_eq!((bound(0).mean(), bound(0).late()), (MEAN_FLOOR, LATEST_FLOOR));
        let (mean, late) = (Span::from_micros(500), Span::from_millis(5));
        assert_eq!((bound(100).mean(), bound(100).late()), (mean, late));
        assert_eq!(bound(20).percent(Span::from_millis(1)), Some(5.0));
        assert_eq!(bound(0).percent(Span::from_millis(1)), None);
        assert_eq!(LatenessBound::of(std::iter::empty()).late(), LATEST_FLOOR);
    }

    #[test]
    fn a_lateness_flaw_states_the_percentage_of_the_round_trip() {
        let flaw = judged(20, Span::ZERO, Span::from_millis(2)).unwrap();
        assert!(
            flaw.detail.contains("at p99, which is 10.0 % of the round trip of 20ms"),
            "{flaw}"
        );
    }

    #[test]
    fn a_stall_invalidates_a_turn_by_its_share_of_the_duration() {
        let (late, worst) = (Span::from_micros(10), Span::from_millis(50));
        assert_eq!(bound(20).judge(late, late, worst, Span::from_secs(10)), None);
        let flaw = bound(20).judge(late, late, worst, Span::from_secs(3)).unwrap();
        assert!(flaw.what.contains("stalled"), "{flaw}");
    }

    #[test]
    fn every_flaw_has_advice() {
        let ms = Span::from_millis;
        let late = judged(1, ms(1), ms(1)).unwrap();
        let stalled = bound(20).judge(Span::ZERO, Span::ZERO, ms(50), ms(100)).unwrap();
        let user = CpuLimit { by: "builder".to_owned(), cpus: vec![1], percent: 97.0 };
        let others = [stolen(50.0).unwrap(), shared(&user, 50.0).unwrap(), unread("it ended")];
        for flaw in [late, stalled].into_iter().chain(others) {
            assert!(!mend(&flaw.what).is_empty(), "{flaw}");
        }
        assert!(!mend("the emulator's ports lost frames that the model did not drop").is_empty());
        assert_eq!(mend("a flaw of another program"), "");
    }

    #[test]
    fn a_turn_is_invalid_if_a_program_beside_the_lab_keeps_the_workload_waiting() {
        let user = |percent| CpuLimit { by: "builder".to_owned(), cpus: vec![0, 1], percent };
        assert_eq!(shared(&user(40.0), 50.0), None);
        assert_eq!(shared(&user(90.0), 10.0), None);
        let flaw = shared(&user(90.0), 50.0).unwrap();
        assert!(flaw.detail.starts_with("builder used 90 % of CPUs 0"), "{flaw}");
    }

    #[test]
    fn only_a_lateness_flaw_names_the_program_on_the_emulators_cpu() {
        let late = judged(20, Span::ZERO, Span::from_millis(2)).unwrap();
        let mut flaws = [late.clone(), stolen(50.0).unwrap()];
        let user = CpuLimit { by: "builder".to_owned(), cpus: vec![1], percent: 30.0 };
        blame(&mut flaws, &user);
        let words = "; meanwhile builder used 30 % of CPU 1, where the emulator runs";
        assert_eq!(flaws[0].detail, late.detail + words);
        assert_eq!(flaws[1], stolen(50.0).unwrap());
    }

    #[test]
    fn stolen_time_beyond_the_bound_invalidates_a_turn() {
        assert_eq!(stolen(MOST_STOLEN_PERCENT), None);
        assert!(stolen(MOST_STOLEN_PERCENT + 0.1).is_some());
    }
}
