//! Measurements of tests: an attempt may be repeated only if the machine was disturbed.

use crate::busy_cpus::FreeCpus;
use crate::disturbance::{Disturbance, Watch};
use std::fmt::Display;
use std::time::Duration;

/// The result of one attempt at a measurement.
#[derive(Debug)]
pub enum Attempt<T> {
    /// The measured values are as the test demands.
    Right(T),
    /// The measured values are not as the test demands. The text shows the values.
    Wrong(String),
    /// The product itself says that the machine spoiled the attempt, for example because its
    /// emulated link was late. The text gives the product's reason.
    Invalid(String),
}

/// Measures up to three times, until an attempt gives the right values. `kind` names the kind of
/// measurement, for example `emulated link`: `scripts/test` demands at least one judged measurement
/// of each kind. After an invalid or wrong attempt, the calling thread and the programs that it
/// starts leave the CPUs that other programs keep busy.
///
/// Returns `None`, and prints the reasons, if the product counted every attempt as invalid.
///
/// # Panics
///
/// If an attempt is wrong while the machine was undisturbed, or if no attempt is right and at least
/// one is wrong.
pub fn undisturbed<T>(kind: &str, measure: impl FnMut(usize) -> Attempt<T>) -> Option<T> {
    try_undisturbed(kind, measure).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Like [`undisturbed`], but returns the failure instead of a panic, for a test that reports the
/// failures of many measurements together.
pub fn try_undisturbed<T>(
    kind: &str,
    measure: impl FnMut(usize) -> Attempt<T>,
) -> Result<Option<T>, String> {
    let start = || {
        let watch = Watch::start();
        move || watch.end()
    };
    attempts(kind, start, measure)
}

/// `start` begins to watch the machine. The function that `start` returns ends the watch.
fn attempts<T, End: FnOnce() -> Option<Disturbance>>(
    kind: &str,
    start: impl Fn() -> End,
    mut measure: impl FnMut(usize) -> Attempt<T>,
) -> Result<Option<T>, String> {
    let mut wrong = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let _pinned = if attempt > 1 { FreeCpus::keep() } else { None };
        let end = start();
        let outcome = measure(attempt);
        let disturbance = end();
        match (outcome, disturbance) {
            (Attempt::Right(figures), _) => {
                judged(kind);
                return Ok(Some(figures));
            }
            (Attempt::Wrong(figures), None) => {
                return Err(format!(
                    "{kind}: wrong on an undisturbed machine, attempt {attempt}: {figures}"
                ));
            }
            (Attempt::Wrong(figures), Some(disturbance)) => {
                eprintln!("DISTURBED {kind}, attempt {attempt}: {disturbance}: {figures}");
                wrong.push(figures);
            }
            (Attempt::Invalid(reason), _) => {
                eprintln!("DISTURBED {kind}, attempt {attempt}: {reason}");
            }
        }
    }
    if !wrong.is_empty() {
        return Err(format!("{kind}: wrong in every valid attempt: {}", wrong.join("\n")));
    }
    not_judged(kind, format_args!("all {ATTEMPTS} attempts were invalid"));
    Ok(None)
}

/// Ends the watch of an event that a test cannot repeat, and that must take less than `most`. A
/// longer time on a disturbed machine is printed with the evidence, and is not judged.
///
/// # Panics
///
/// If the event took `most` or longer while the machine was undisturbed.
#[track_caller]
pub fn within(kind: &str, most: Duration, watch: Watch) {
    let took = watch.elapsed();
    if let Err(failure) = judge_time(kind, most, took, watch.end()) {
        panic!("{failure}");
    }
}

fn judge_time(
    kind: &str,
    most: Duration,
    took: Duration,
    disturbance: Option<Disturbance>,
) -> Result<(), String> {
    match disturbance {
        _ if took < most => judged(kind),
        Some(disturbance) => {
            eprintln!("DISTURBED {kind}: {disturbance}: took {took:?} instead of {most:?} at most");
            not_judged(kind, "the machine was disturbed");
        }
        None => return Err(format!("{kind}: took {took:?} on an undisturbed machine")),
    }
    Ok(())
}

/// Reports that a measurement of this kind was valid and met its test's demands.
pub fn judged(kind: &str) {
    println!("JUDGED {kind}");
}

/// Reports that a measurement of this kind was not judged, and the product's reason.
pub fn not_judged(kind: &str, reason: impl Display) {
    println!("NOT JUDGED {kind}: {reason}");
}

const ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_attempts_are_repeated_and_never_judged() {
        let mut made = 0;
        let none: Option<()> = undisturbed(KIND, |attempt| {
            made = attempt;
            Attempt::Invalid("the link was 9 ms late".to_owned())
        });
        assert_eq!((none, made), (None, 3));
        // Without this line scripts/test would report the kind as never judged.
        judged(KIND);
    }

    #[test]
    fn an_attempt_after_an_invalid_attempt_is_judged() {
        let got = undisturbed(KIND, |attempt| match attempt {
            1 => Attempt::Invalid("late".to_owned()),
            _ => Attempt::Right(attempt),
        });
        assert_eq!(got, Some(2));
    }

    #[test]
    #[should_panic(expected = "wrong")]
    fn wrong_values_fail_the_test() {
        undisturbed::<()>(KIND, |_| Attempt::Wrong("3 instead of 4".to_owned()));
    }

    #[test]
    fn a_wrong_attempt_on_an_undisturbed_machine_is_not_repeated() {
        let mut made = 0;
        let failure = attempts::<(), _>(KIND, machine(None), |attempt| {
            made = attempt;
            Attempt::Wrong("3 instead of 4".to_owned())
        });
        let text = format!("{KIND}: wrong on an undisturbed machine, attempt 1: 3 instead of 4");
        assert_eq!((failure, made), (Err(text), 1));
    }

    #[test]
    fn wrong_attempts_on_a_disturbed_machine_are_repeated_and_fail_the_test() {
        let mut made = 0;
        let failure = attempts::<(), _>(KIND, machine(Some(stall())), |attempt| {
            made = attempt;
            Attempt::Wrong(attempt.to_string())
        });
        let text = format!("{KIND}: wrong in every valid attempt: 1\n2\n3");
        assert_eq!((failure, made), (Err(text), 3));
    }

    #[test]
    fn a_right_attempt_after_a_wrong_attempt_on_a_disturbed_machine_is_judged() {
        let got = attempts(KIND, machine(Some(stall())), |attempt| match attempt {
            1 => Attempt::Wrong("3 instead of 4".to_owned()),
            _ => Attempt::Right(attempt),
        });
        assert_eq!(got, Ok(Some(2)));
    }

    #[test]
    fn only_a_disturbed_machine_excuses_an_event_that_takes_long() {
        let [short, most, long] = [1, 2, 3].map(Duration::from_secs);
        for disturbance in [None, Some(stall())] {
            assert_eq!(judge_time(KIND, most, short, disturbance), Ok(()));
        }
        for took in [most, long] {
            assert_eq!(judge_time(KIND, most, took, Some(stall())), Ok(()));
            let failure = judge_time(KIND, most, took, None).unwrap_err();
            assert_eq!(failure, format!("{KIND}: took {took:?} on an undisturbed machine"));
        }
    }

    /// Takes the place of a watch.
    fn machine(disturbance: Option<Disturbance>) -> impl Fn() -> Watched {
        move || -> Watched { Box::new(move || disturbance) }
    }

    type Watched = Box<dyn FnOnce() -> Option<Disturbance>>;

    fn stall() -> Disturbance {
        Disturbance::of_a_second(0, 50, 50)
    }

    const KIND: &str = "a test of undisturbed itself";
}
