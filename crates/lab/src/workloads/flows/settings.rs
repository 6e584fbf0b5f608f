//! Parses the flows of one cell and their demand.

use super::demand::{self, Arrivals, Cross, Demand};
use super::{ARRIVALS, BESIDE, CROSS, DEMAND, FIRST, FLOWS, MEMORY, RPS, SIZE, STAGGER};
use crate::bench::machine::Receiving;
use crate::model::file::{Document, FileError, FormSpec, bounded};
use cc::Algorithm;
use results::Axes;
use sim::Sizes;
use units::{Rate, Span};

/// The flows on the link and their demand.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FlowsSettings {
    /// The number of flows of the system under test. With `arrivals` the number is random.
    pub(super) own: u32,
    pub(super) beside: Option<Beside>,
    /// Whether the flows of the system under test start before the competing flows.
    pub(super) own_first: bool,
    /// The time between two flow starts. By default the competing flows start first.
    pub(super) stagger: Span,
    /// The amount that each flow of the system under test carries. `None` for flows without end.
    pub(super) size: Option<Sizes>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) demand: Demand,
    pub(super) cross: Option<Cross>,
    /// The rate that flows of the system under test remember, as a multiple of the rate that an
    /// earlier flow found.
    pub(super) memory: Option<f64>,
    /// Whether all flows begin together, once all are connected, as in a transfer of `kind =
    /// "bulk"` on a machine. The omitted time then counts from the first data of all flows.
    pub(super) together: bool,
    /// Packet processing on the receiving host of a machine.
    pub(super) receiving: Receiving,
}

/// The competing flows of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) count: u32,
    /// The competing flows' algorithm. `None` stands for the algorithm of the system under test.
    pub(super) algorithm: Option<Algorithm>,
}

impl FlowsSettings {
    /// Returns settings for this many flows without end, all at once.
    pub(super) fn endless(own: u32) -> Self {
        Self {
            own,
            beside: None,
            own_first: false,
            stagger: Span::ZERO,
            size: None,
            arrivals: None,
            demand: Demand::Bulk,
            cross: None,
            memory: None,
            together: true,
            receiving: Receiving::default(),
        }
    }

    /// Parses the flows of the cell at `axes`. By default there is a single flow.
    pub(super) fn parse(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        let own = document.workload_count(axes, FLOWS, 1..=MOST_FLOWS)?.unwrap_or(1);
        let beside = document.workload_key(axes, BESIDE, beside)?.flatten();
        let own_first = document.workload_key(axes, FIRST, own_first)?.unwrap_or(false);
        let stagger = |text: &str| {
            bounded(text, Span::ZERO..=LONGEST_STAGGER, || "`stagger` is at most 60s".to_owned())
        };
        let stagger = document.workload_key(axes, STAGGER, stagger)?.unwrap_or_default();
        let size = document.workload_key(axes, SIZE, demand::sizes)?.flatten();
        let arrivals = document.workload_key(axes, ARRIVALS, Arrivals::parse)?.flatten();
        let demand = document.workload_key(axes, DEMAND, Demand::parse)?.unwrap_or(Demand::Bulk);
        let cross = document.workload_key(axes, CROSS, Cross::parse)?.flatten();
        let memory = document.workload_key(axes, MEMORY, memory)?.flatten();
        let receiving = Receiving { rps: document.workload_key(axes, RPS, switch)? };
        let settings = Self {
            own,
            beside,
            own_first,
            stagger,
            size,
            arrivals,
            demand,
            cross,
            memory,
            together: false,
            receiving,
        };
        settings.check(document)?;
        Ok(settings)
    }

    /// Refuses combinations of settings that make no sense, whichever axes set them.
    fn check(&self, document: &Document) -> Result<(), FileError> {
        if self.arrivals.is_some() && self.size.is_none() {
            let message = "flows that arrive must also end: give them a `size`, as in `100KB` or \
                           `web-search`";
            return document.refuse(document.place_of_workload(&[ARRIVALS]), message);
        }
        let counted = document.workload.get_ref().place(FLOWS).filter(|_| self.own != 1);
        if let (Some(_), Some(place)) = (self.arrivals, counted) {
            let message = "`arrivals` says how many flows there are: leave `flows` out, or at 1";
            return document.refuse(place, message);
        }
        if self.demand != Demand::Bulk && self.size.is_some() {
            let message = "`size` and `demand` both say what a flow has to send: keep one";
            return document.refuse(document.place_of_workload(&[DEMAND]), message);
        }
        Ok(())
    }

    /// Refuses more flows than the simulator can handle in the time that `form` takes.
    pub(super) fn check_arrivals(
        &self,
        document: &Document,
        form: &FormSpec,
        rate: Rate,
    ) -> Result<(), FileError> {
        let (Some(arrivals), Some(sizes)) = (self.arrivals, &self.size) else { return Ok(()) };
        let omit = form.omit.as_ref().or(document.workload.get_ref().omit.as_ref());
        let omit = omit.map(|omit| *omit.get_ref()).unwrap_or_default();
        let lasts = *form.duration.get_ref() + omit;
        let count = lasts.secs_f64() / arrivals.mean_gap(sizes, rate).secs_f64();
        if count <= MOST_ARRIVALS as f64 {
            return Ok(());
        }
        let message = format!(
            "about {count:.0} flows would arrive, and the limit is {MOST_ARRIVALS}: use fewer or \
             larger flows, or a shorter time"
        );
        document.refuse(document.place_of_workload(&[ARRIVALS]), message)
    }
}

/// Parses competing flows: `none`, `cubic`, `own` or `4xcubic`.
fn beside(text: &str) -> Result<Option<Beside>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (count, name) = match text.split_once('x') {
        Some((count, name)) if count.chars().all(|c| c.is_ascii_digit()) && !count.is_empty() => {
            (count.parse().unwrap_or(u32::MAX), name)
        }
        _ => (1, text),
    };
    if !(1..=MOST_FLOWS).contains(&count) {
        return Err(format!("`{text}`: give from 1 to {MOST_FLOWS} competing flows"));
    }
    if name == "own" {
        return Ok(Some(Beside { count, algorithm: None }));
    }
    let algorithm = name.parse::<Algorithm>().map_err(|error| {
        let known = Algorithm::ALL.iter().map(|algorithm| algorithm.name());
        format!("{error}, none and own{}", units::did_you_mean(name, known.chain(["none", "own"])))
    })?;
    Ok(Some(Beside { count, algorithm: Some(algorithm) }))
}

/// Parses a switch: `on` or `off`.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}`: write `on` or `off`")),
    }
}

/// Parses the flows that start first: `beside` or `own`. Returns `true` for `own`.
fn own_first(text: &str) -> Result<bool, String> {
    match text {
        "own" => Ok(true),
        "beside" => Ok(false),
        _ => Err(format!(
            "`{text}` does not name the flows that start first: write `own` or `beside`{}",
            units::did_you_mean(text, ["own", "beside"])
        )),
    }
}

/// Parses `none`, `warm`, `wrong` or `3x` to a multiple of the rate that an earlier flow found.
fn memory(text: &str) -> Result<Option<f64>, String> {
    match text {
        "none" => return Ok(None),
        "warm" => return Ok(Some(1.0)),
        "wrong" => return Ok(Some(WRONG)),
        _ => {}
    }
    let factor = text.strip_suffix('x').and_then(|number| number.parse::<f64>().ok());
    match factor.filter(|factor| (0.01..=1000.0).contains(factor)) {
        Some(factor) => Ok(Some(factor)),
        None => Err(format!(
            "`{text}` is not a memory: write `none`, `warm`, `wrong`, or a multiple of the rate, as in `3x` (from \
             0.01 to 1000){}",
            units::did_you_mean(text, ["none", "warm", "wrong"])
        )),
    }
}

/// The factor by which the path has become slower since the earlier flow.
const WRONG: f64 = 10.0;
const MOST_FLOWS: u32 = 10_000;
/// Maximum number of arriving flows in one cell.
pub(super) const MOST_ARRIVALS: usize = 200_000;
const LONGEST_STAGGER: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn competing_flows_are_parsed() {
        assert_eq!(beside("none"), Ok(None));
        let cubic = |count| Some(Beside { count, algorithm: Some(Algorithm::Cubic) });
        assert_eq!(beside("cubic"), Ok(cubic(1)));
        assert_eq!(beside("4xcubic"), Ok(cubic(4)));
        assert_eq!(beside("2xown"), Ok(Some(Beside { count: 2, algorithm: None })));
        assert!(beside("cubik").unwrap_err().contains("did you mean `cubic`?"));
        assert!(beside("0xcubic").unwrap_err().contains("from 1"));
    }

    #[test]
    fn path_memories_are_parsed() {
        assert_eq!(memory("none"), Ok(None));
        assert_eq!(memory("warm"), Ok(Some(1.0)));
        assert_eq!(memory("wrong"), Ok(Some(10.0)));
        assert_eq!(memory("0.5x"), Ok(Some(0.5)));
        assert!(memory("wram").unwrap_err().contains("did you mean `warm`?"));
        assert!(memory("0x").unwrap_err().contains("from 0.01"));
    }
}
