//! Time lost waiting for CPU, I/O or memory: pressure stall information
//! (Documentation/accounting/psi.rst).

use units::{Share, Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::error::read_feature;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Cpu,
    Io,
    Memory,
}

impl Resource {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Io, Self::Memory];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::Memory => "memory",
        }
    }
}

/// The pressure on one resource of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PressureSnapshot {
    pub taken: Time,
    /// Time in which at least one task waited.
    pub some: Stall,
    /// Time in which all tasks that were not idle waited. Before Linux 5.13 the kernel does not
    /// report this time for the CPU.
    pub full: Option<Stall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    pub share_10s: Share,
    pub share_60s: Share,
    pub share_300s: Share,
    /// Time lost since boot.
    pub total: Span,
}

impl PressureSnapshot {
    pub fn read(resource: Resource) -> Result<Self, ProbeError> {
        let text = read_feature(
            format!("/proc/pressure/{}", resource.name()),
            "pressure stall information",
            "it needs CONFIG_PSI, and psi=1 on the kernel's command line",
        )?;
        Ok(Self { taken: clock::now(), ..Self::parse(&text)? })
    }

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
            taken: Time::ZERO,
            some: stall("some")?
                .ok_or_else(|| ProbeError::malformed("/proc/pressure", "no line \"some\""))?,
            full: stall("full")?,
        })
    }

    pub fn since(&self, earlier: &Self) -> PressureUse {
        PressureUse {
            elapsed: self.taken.since(earlier.taken),
            some: self.some.total - earlier.some.total,
            full: self.full.zip(earlier.full).map(|(later, earlier)| later.total - earlier.total),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureUse {
    pub elapsed: Span,
    pub some: Span,
    pub full: Option<Span>,
}

impl PressureUse {
    /// Returns the share of the elapsed time in which at least one task waited.
    pub fn some_share(&self) -> Option<Share> {
        (self.elapsed > Span::ZERO).then(|| {
            let share = self.some.secs_f64() / self.elapsed.secs_f64();
            // The kernel updates the total at times of its own, so a short interval may show more
            // stall time than its length.
            Share::new(share).unwrap_or(Share::ONE)
        })
    }
}

impl Stall {
    fn parse(text: &str) -> Option<Self> {
        let word = |name: &str| {
            text.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let percent = |name| Share::from_percent(word(name)?.parse().ok()?);
        Some(Self {
            share_10s: percent("avg10")?,
            share_60s: percent("avg60")?,
            share_300s: percent("avg300")?,
            total: Span::from_micros(word("total")?.parse().ok()?),
        })
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
        assert_eq!(snapshot.some.share_60s, Share::from_percent(2.22).unwrap());
        assert_eq!(snapshot.some.total, Span::from_micros(19_531_194));
        assert!(snapshot.full.is_some());
        let old = PressureSnapshot::parse(text.lines().next().unwrap()).unwrap();
        assert_eq!(old.full, None);
        assert_eq!(snapshot.since(&old).full, None);
        assert_eq!(snapshot.since(&old).some_share(), None);
        for text in ["", "full avg10=1", "some avg10=101 avg60=0 avg300=0 total=1"] {
            assert!(PressureSnapshot::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_pressure_of_this_machine_is_read() {
        for resource in Resource::ALL {
            match PressureSnapshot::read(resource) {
                Ok(earlier) => {
                    let later = PressureSnapshot::read(resource).unwrap();
                    assert!(later.since(&earlier).some_share().is_some());
                }
                Err(error) if error.is_not_supported() => {
                    testing::skip_because(testing::Need::Pressure, error);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    proptest! {
        #[test]
        fn the_parser_of_pressure_never_panics(text in "((some|full)? ?(avg10=[0-9.]{0,9} )?(total=-?[0-9]{0,21})?.{0,20}\n){0,3}") {
            let _ = PressureSnapshot::parse(&text);
        }
    }
}
