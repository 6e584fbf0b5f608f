//! Populations of paths that a lab file names instead of writing them out.
//!
//! A population is deterministic: the paths follow from the population's kind, the number of paths
//! and a seed.

mod access;
mod drawn;

use serde::Deserialize;
use std::fmt::Write as _;

/// The source of a population's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PopulationKind {
    /// Paths drawn at random, anew with each seed.
    Drawn,
    /// Paths by published figures of access networks, equal for all seeds.
    Access,
}

/// A bottleneck towards a client. The opposite direction loses nothing and has no rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PathDraw {
    /// The rate, in tenths of a Mbit/s.
    rate: u32,
    /// The round-trip time, in milliseconds.
    round_trip: u32,
    /// Mean loss, in thousandths of a per cent.
    loss: u32,
    /// Whether losses come in bursts of three on average.
    bursts: bool,
    /// The length of the queue, in packets of 1514 bytes.
    queue: u32,
}

impl PopulationKind {
    pub(crate) fn paths(self, count: u32, seed: u64) -> Vec<PathDraw> {
        match self {
            Self::Drawn => drawn::paths(count, seed),
            Self::Access => access::paths(count),
        }
    }

    /// Whether another seed gives other paths.
    pub(crate) fn is_random(self) -> bool {
        self == Self::Drawn
    }
}

impl PathDraw {
    fn new(rate_mbit: f64, round_trip_ms: f64, loss: f64, bursts: bool, bdps: f64) -> Self {
        let bdp = rate_mbit * 1e6 / 8.0 * round_trip_ms / 1e3;
        let queue = (bdps * bdp / FRAME).round() as u32;
        Self {
            rate: (rate_mbit * 10.0).round().max(1.0) as u32,
            round_trip: round_trip_ms.round().max(1.0) as u32,
            loss: (loss * 1e5).round() as u32,
            bursts,
            queue: queue.max(SHORTEST_QUEUE),
        }
    }

    fn rate_text(&self) -> String {
        format!("{}.{}mbit", self.rate / 10, self.rate % 10)
    }

    fn loss_text(&self) -> Option<String> {
        // A burst begins with the probability `begins` and ends with 1/3: the mean loss is begins /
        // (begins + 1/3).
        let percent = f64::from(self.loss) / 1000.0;
        match (self.loss, self.bursts) {
            (0, _) => None,
            (_, false) => Some(format!("{percent}%")),
            (_, true) => {
                let p = percent / 100.0;
                let begins = p / (1.0 - p) / 3.0 * 100.0;
                Some(format!("gilbert:p={begins:.4}%,r=33.3333%"))
            }
        }
    }

    /// Describes the path: `12.5mbit 35ms 0.1% droptail:18p`.
    pub(crate) fn describe(&self) -> String {
        let loss = self.loss_text().unwrap_or_else(|| "0%".to_owned());
        format!("{} {}ms {loss} droptail:{}p", self.rate_text(), self.round_trip, self.queue)
    }

    /// Writes the path as a table `[[link]]` of a lab file.
    pub(crate) fn as_link(&self, name: &str, server: &str) -> String {
        let mut text = format!(
            "[[link]]\nname = \"{name}\"\nbetween = [\"{server}\", \"{name}\"]\nrtt = \"{}ms\"\n\
             [link.forward]\nrate = \"{}\"\nqueue = \"droptail:{}p\"\n",
            self.round_trip,
            self.rate_text(),
            self.queue
        );
        if let Some(loss) = self.loss_text() {
            let _ = writeln!(text, "loss = \"{loss}\"");
        }
        text
    }
}

const FRAME: f64 = 1514.0;
/// Minimum queue length. A shorter queue drops most of an initial window.
const SHORTEST_QUEUE: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_population_path_is_written_as_a_link_table() {
        let path = PathDraw::new(12.5, 35.2, 0.001, false, 0.5);
        assert_eq!(path.describe(), "12.5mbit 35ms 0.1% droptail:18p");
        let text = path.as_link("drawn1", "server");
        assert!(text.contains("between = [\"server\", \"drawn1\"]"), "{text}");
        assert!(text.contains("loss = \"0.1%\""), "{text}");
        let lossless = PathDraw::new(1.0, 10.0, 0.0, true, 0.1);
        assert_eq!(lossless.describe(), "1.0mbit 10ms 0% droptail:10p");
        let bursts = PathDraw::new(1.0, 10.0, 0.01, true, 1.0);
        assert_eq!(bursts.loss_text().unwrap(), "gilbert:p=0.3367%,r=33.3333%");
    }
}
