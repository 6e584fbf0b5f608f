use super::path::{PathConfig, Window, droptail};
use super::{Case, Effort, Layer, Measured, references};
use cc::Algorithm;
use units::{Bytes, Rate, Span};

/// Returns the cases measured with Linux over the emulated link, by the lab `kernel-cells`: the
/// goodput in Mbit/s of all flows together.
pub(super) fn cases() -> Vec<Case> {
    references::ALL.iter().map(Reference::case).collect()
}

/// A cell of the lab `kernel-cells`, with its measured goodput.
pub(super) struct Reference {
    pub(super) name: &'static str,
    pub(super) algorithm: Algorithm,
    pub(super) rate_mbit: u64,
    pub(super) rtt_ms: u64,
    /// The random loss of the forward and of the return path, in per cent.
    pub(super) loss: [f64; 2],
    pub(super) queue: &'static str,
    pub(super) flows: usize,
    /// The median, in Mbit/s, and its interval.
    pub(super) goodput: f64,
    pub(super) interval: (f64, f64),
}

/// Makes the list of references. The cells of a path stand together, behind its rate, round trip,
/// loss, queue, number of flows, and the words that end the names of its cells. A cell has its
/// system, the algorithm, the median, and the interval.
macro_rules! cells {
    ($($rate:literal, $rtt:literal, $loss:expr, $queue:literal, $flows:literal, $words:literal {
        $($system:literal $algorithm:ident $goodput:literal in $low:literal, $high:literal;)*
    })*) => {
        &[$($(Reference {
            name: concat!($system, ", ", $rate, " Mbit/s, ", $rtt, " ms, ", $words),
            algorithm: Algorithm::$algorithm,
            rate_mbit: $rate,
            rtt_ms: $rtt,
            loss: $loss,
            queue: $queue,
            flows: $flows,
            goodput: $goodput,
            interval: ($low, $high),
        },)*)*]
    };
}
pub(super) use cells;

impl Reference {
    fn case(&'static self) -> Case {
        Case {
            name: self.name,
            layer: Layer::Kernel,
            unit: "Mbit/s",
            note: references::SOURCE,
            variant: None,
            tolerance: TOLERANCE,
            measure: Box::new(|effort| self.measure(effort)),
        }
    }

    /// Measures the mean of enough runs for a reliable mean.
    fn measure(&self, effort: Effort) -> Option<Measured> {
        let path = self.path()?;
        let runs = (ENOUGH_MBIT_S / self.goodput as u64).clamp(1, MOST_RUNS);
        let window = Window {
            from: Span::from_millis(references::OMIT_MS),
            until: Span::from_millis(references::OMIT_MS + references::DURATION_MS),
        };
        let mut sum = 0.0;
        for run in 0..runs {
            let effort = Effort { seed: effort.seed.wrapping_add(run), ..effort };
            sum += path.run_from_first_data(self.algorithm, window, effort)?.goodput();
        }
        let (expected, expected_ends) = (self.goodput, Some(self.interval));
        Some(Measured { expected, expected_ends, measured: sum / runs as f64 })
    }

    /// Returns the path of the cell, with the simulator's default hosts.
    fn path(&self) -> Option<PathConfig> {
        let rtt = Span::from_millis(self.rtt_ms);
        let mut path = PathConfig::new(Rate::from_mbit(self.rate_mbit), rtt);
        path.queue = droptail(match self.queue {
            "max(1bdp,256KiB)" => path.bdp().max(Bytes::kib(256)),
            "0.2bdp" => Bytes::new(path.bdp().count() / 5),
            _ => return None,
        });
        path.symmetric = true;
        path.loss = self.loss.map(|percent| percent / 100.0);
        path.flows = self.flows;
        Some(path)
    }
}

const TOLERANCE: f64 = 0.10;
/// The sum of the runs' goodput in Mbit/s: slow flows vary most from run to run, and get more runs.
const ENOUGH_MBIT_S: u64 = 1200;
const MOST_RUNS: u64 = 16;
