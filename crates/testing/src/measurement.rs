//! Measurements of tests: an attempt may be repeated only if the machine was disturbed.

use crate::busy_cpus::FreeCpus;
use crate::disturbance::Watch;
use std::fmt::Display;

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
pub fn undisturbed<T>(kind: &str, mut measure: impl FnMut(usize) -> Attempt<T>) -> Option<T> {
    let mut wrong = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let _pinned = if attempt > 1 { FreeCpus::keep() } else { None };
        let watch = Watch::start();
        let outcome = measure(attempt);
        let disturbance = watch.end();
        match (outcome, disturbance) {
            (Attempt::Right(figures), _) => {
                judged(kind);
                return Some(figures);
            }
            (Attempt::Wrong(figures), None) => {
                panic!("{kind}: wrong on an undisturbed machine, attempt {attempt}: {figures}")
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
    assert!(wrong.is_empty(), "{kind}: wrong in every valid attempt: {}", wrong.join("\n"));
    not_judged(kind, format_args!("all {ATTEMPTS} attempts were invalid"));
    None
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
    use std::time::Duration;

    #[test]
    fn invalid_attempts_are_repeated_and_never_judged() {
        let mut made = 0;
        let none: Option<()> = undisturbed("a test of undisturbed itself", |attempt| {
            made = attempt;
            Attempt::Invalid("the link was 9 ms late".to_owned())
        });
        assert_eq!((none, made), (None, 3));
        // Without this line scripts/test would report the kind as never judged.
        println!("JUDGED a test of undisturbed itself");
    }

    #[test]
    fn an_attempt_after_an_invalid_attempt_is_judged() {
        let got = undisturbed("a test of undisturbed itself", |attempt| match attempt {
            1 => Attempt::Invalid("late".to_owned()),
            _ => Attempt::Right(attempt),
        });
        assert_eq!(got, Some(2));
    }

    #[test]
    #[should_panic(expected = "wrong")]
    fn wrong_values_in_every_attempt_fail_the_test() {
        undisturbed::<()>("a test of undisturbed itself", |_| {
            std::thread::sleep(Duration::from_millis(1));
            Attempt::Wrong("3 instead of 4".to_owned())
        });
    }
}
