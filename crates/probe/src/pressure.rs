//! Time lost waiting for CPU, I/O or memory: pressure stall information
//! (Documentation/accounting/psi.rst).

use units::Span;

use crate::ProbeError;

/// The pressure on one resource of the whole machine: `cpu`, `io` or `memory` of `/proc/pressure`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PressureSnapshot {
    /// Time in which at least one task waited.
    pub some: Stall,
    /// Time in which all tasks that were not idle waited. Before Linux 5.13 the kernel does not
    /// report this time for the CPU.
    pub full: Option<Stall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    /// Time lost since boot.
    pub total: Span,
}

impl PressureSnapshot {
    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let stall = |kind: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
                .map(|rest| {
                    Stall::parse(rest).ok_or_else(|| ProbeError::malformed("/proc/pressure", rest))
                })
                .transpose()
        };
        Ok(Self {
            some: stall("some")?
                .ok_or_else(|| ProbeError::malformed("/proc/pressure", "no line \"some\""))?,
            full: stall("full")?,
        })
    }
}

impl Stall {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let total = words.find_map(|word| word.strip_prefix("total="))?;
        Some(Self { total: Span::from_micros(total.parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pressure_files_of_the_kernel_are_parsed() {
        let text = "some avg10=1.65 avg60=2.22 avg300=1.27 total=19531194\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let snapshot = PressureSnapshot::parse(text).unwrap();
        assert_eq!(snapshot.some.total, Span::from_micros(19_531_194));
        assert!(snapshot.full.is_some());
        let old = PressureSnapshot::parse(text.lines().next().unwrap()).unwrap();
        assert_eq!(old.full, None);
        for text in ["", "full avg10=1", "some avg10=1 avg60=0 avg300=0 total=-1"] {
            assert!(PressureSnapshot::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_parser_of_pressure_never_panics(text in "((some|full)? ?(avg10=[0-9.]{0,9} )?(total=-?[0-9]{0,21})?.{0,20}\n){0,3}") {
            let _ = PressureSnapshot::parse(&text);
        }
    }
}
