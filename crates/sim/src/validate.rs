//! Validation of the simulator: worlds whose outcome is known from elsewhere, each with the
//! expected number beside the measured one.
//!
//! ```no_run
//! for case in sim::validate::cases() {
//!     let checked = case.run(true, 1);
//!     println!("{}: {} {} for {}", case.name, checked.measured, case.unit, checked.expected);
//! }
//! ```

mod dctcp;
mod formulas;
mod kernel;
mod path;
mod queue_theory;
mod traces;

use std::fmt;

/// The source of an expected number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    QueueTheory,
    Formula,
    /// Published figures of another simulator.
    Trace,
    /// Measured with Linux over the emulated link.
    Kernel,
}

/// A world with a known outcome.
pub struct Case {
    pub name: &'static str,
    pub layer: Layer,
    pub unit: &'static str,
    /// The source of the expected number, and the differences from it.
    pub note: &'static str,
    pub(crate) tolerance: f64,
    pub(crate) measure: Box<dyn Fn(Effort) -> Option<Measured> + Send + Sync>,
}

/// A case's outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    pub expected: f64,
    /// NaN if the world could not be measured.
    pub measured: f64,
    /// Relative to the expected number.
    pub tolerance: f64,
    pub within: bool,
}

/// The duration of the measurement, and its seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) short: bool,
    pub(crate) seed: u64,
}

/// Both numbers of a case; a formula may need a measurement of the world, such as its round-trip
/// time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) expected: f64,
    pub(crate) measured: f64,
}

/// All cases, in the order of their layers.
pub fn cases() -> Vec<Case> {
    let mut cases = queue_theory::cases();
    cases.extend(formulas::cases());
    cases.extend(dctcp::cases());
    cases.extend(traces::cases());
    cases.extend(kernel::cases());
    cases
}

impl Case {
    /// `short` measures for a fraction of the time: for tests, not for conclusions.
    pub fn run(&self, short: bool, seed: u64) -> Checked {
        let numbers = (self.measure)(Effort { short, seed });
        let Measured { expected, measured } =
            numbers.unwrap_or(Measured { expected: f64::NAN, measured: f64::NAN });
        let within = (measured - expected).abs() <= self.tolerance * expected.abs();
        Checked { expected, measured, tolerance: self.tolerance, within }
    }
}

impl Effort {
    /// Seconds to measure.
    pub(crate) fn seconds(self, short: u64, full: u64) -> u64 {
        if self.short { short } else { full }
    }
}

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueTheory => "queue theory",
            Self::Formula => "formula",
            Self::Trace => "published trace",
            Self::Kernel => "kernel",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}
