//! Validation of the simulator: worlds with a known outcome from theory, another simulator or
//! Linux. Each case has the expected and the measured number.
//!
//! ```no_run
//! for case in sim::validate::cases() {
//!     if let Some(figures) = case.run(1) {
//!         println!("{}: {} {} for {}", case.name, figures.measured, case.unit, figures.expected);
//!     }
//! }
//! ```
//!
//! A run has a seed. Several runs give a confidence interval, and [`Case::judge`] compares the
//! interval with the tolerance.

mod dctcp;
mod formulas;
mod judge;
mod kernel;
mod path;
mod queue_theory;
mod references;
mod traces;

pub use judge::{Judgement, Middle, Verdict};

use crate::Flaw;
use cc::Algorithm;
use std::fmt;

/// The source of an expected number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Exact results of queueing theory.
    QueueTheory,
    /// Published formulas, for example for TCP's throughput.
    Formula,
    /// Published results of another simulator.
    Trace,
    /// Measurements with Linux over the emulated link.
    Kernel,
}

/// A world with a known outcome.
pub struct Case {
    /// The case's name, unique among all cases.
    pub name: &'static str,
    /// The source of the expected number.
    pub layer: Layer,
    /// The unit of both numbers.
    pub unit: &'static str,
    /// The source of the expected number, and how the world differs from the source.
    pub note: &'static str,
    /// The settings in which this world differs from the simulator's defaults and from the
    /// algorithms of cc-grid, because the expected number assumes them.
    pub variant: Option<&'static str>,
    /// The tolerance, relative to the expected number.
    pub(crate) tolerance: f64,
    pub(crate) measure: Box<dyn Fn(Effort) -> Option<Measured> + Send + Sync>,
}

/// The numbers of one run of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// The number that the source gives, in the case's unit.
    pub expected: f64,
    /// The interval of the expected number, if it was measured.
    pub expected_ends: Option<(f64, f64)>,
    /// The number that the world gives, in the case's unit.
    pub measured: f64,
    /// The number with the simulator's defaults and the algorithm of cc-grid, if the case is a
    /// variant.
    pub own: Option<f64>,
}

/// The settings of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) seed: u64,
    /// Whether to run the simulator's defaults and the algorithm of cc-grid instead of the variant.
    pub(crate) own: bool,
    pub(crate) flaw: Option<Flaw>,
}

/// The expected and the measured number of a case. A formula may need a measurement of the world,
/// such as its round-trip time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) expected: f64,
    pub(crate) expected_ends: Option<(f64, f64)>,
    pub(crate) measured: f64,
}

/// Returns all cases, in the order of their layers.
pub fn cases() -> Vec<Case> {
    let mut cases = queue_theory::cases();
    cases.extend(formulas::cases());
    cases.extend(dctcp::cases());
    cases.extend(traces::cases());
    cases.extend(kernel::cases());
    cases
}

impl Case {
    /// Runs the world once. `None` for a run that could not be measured.
    pub fn run(&self, seed: u64) -> Option<Figures> {
        let figures = self.run_with(None, seed)?;
        let own = match self.variant {
            Some(_) => Some((self.measure)(Effort { seed, own: true, flaw: None })?.measured),
            None => None,
        };
        Some(Figures { own, ..figures })
    }

    /// Runs the case like [`Self::run`], with a mistake in the model and without [`Figures::own`].
    #[doc(hidden)]
    pub fn run_with(&self, flaw: Option<Flaw>, seed: u64) -> Option<Figures> {
        let Measured { expected, expected_ends, measured } =
            (self.measure)(Effort { seed, own: false, flaw })?;
        let known = measured.is_finite() && expected.is_finite();
        known.then_some(Figures { expected, expected_ends, measured, own: None })
    }

    /// Returns the maximum accepted difference, relative to the expected number: 0.05 is 5 %.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Compares the median of several runs with the expected number. With a measured reference that
    /// has no interval, the judgement is undecided.
    pub fn judge(&self, expected: Middle, measured: Middle) -> Judgement {
        let judged = judge::judge(expected, measured, self.tolerance);
        match (self.layer, expected.ends) {
            (Layer::Kernel, None) => {
                Judgement { verdict: Verdict::Undecided, half_width: None, ..judged }
            }
            _ => judged,
        }
    }
}

impl Effort {
    pub(crate) fn or_own(self, variant: Algorithm, own: Algorithm) -> Algorithm {
        if self.own { own } else { variant }
    }
}

impl Measured {
    /// Compares with a number that theory or a publication states exactly.
    pub(crate) fn of(expected: f64, measured: f64) -> Self {
        Self { expected, expected_ends: None, measured }
    }
}

impl Layer {
    /// Returns the source's name in reports.
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
