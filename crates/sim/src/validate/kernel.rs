use super::path::{PathConfig, Window, droptail};
use super::references::{self, Reference};
use super::{Case, Effort, Layer, Measured};
use units::{Bytes, Rate, Span};

/// Returns the cases measured with Linux over the emulated link, by the lab `kernel-cells`: the
/// goodput in Mbit/s of all flows together.
pub(super) fn cases() -> Vec<Case> {
    references::ALL.iter().map(Reference::case).collect()
}

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
        // Fewer repeats give no interval.
        let expected_ends = self.interval.filter(|_| self.repeats >= FEWEST_REPEATS);
        let expected = self.goodput;
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
const FEWEST_REPEATS: u32 = 6;
/// The sum of the runs' goodput in Mbit/s: slow flows vary most from run to run, and get more runs.
const ENOUGH_MBIT_S: u64 = 1200;
const MOST_RUNS: u64 = 16;
