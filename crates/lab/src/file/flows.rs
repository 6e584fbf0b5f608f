//! The flows that share a link in one cell.

use super::demand::{self, Arrivals, Cross, Demand};
use super::locate::{FileError, nearest};
use super::schema::{FormSpec, LabFile, NumberOrText, WorkloadKind};
use cc::Algorithm;
use results::Axes;
use sim::Sizes;
use std::ops::Range;
use toml::Spanned;
use units::{Rate, Span};

/// The flows on the link and their demand.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowsSettings {
    /// The number of flows of the system under test. With `arrivals` the number is random.
    pub own: u32,
    pub beside: Option<Beside>,
    /// The time between two flow starts. The competing flows start first.
    pub stagger: Span,
    /// The amount that each flow of the system under test carries. `None` for flows without end.
    pub size: Option<Sizes>,
    pub arrivals: Option<Arrivals>,
    pub demand: Demand,
    pub cross: Option<Cross>,
    /// The rate that flows of the system under test remember, as a multiple of the rate that an
    /// earlier flow found.
    pub memory: Option<f64>,
}

/// Competing flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    pub count: u32,
    /// `None` stands for the algorithm of the system under test.
    pub algorithm: Option<Algorithm>,
}

impl LabFile {
    /// The flows of the cell at `axes`. By default there is a single flow.
    pub fn flows_at(&self, axes: &Axes) -> Result<FlowsSettings, FileError> {
        let spec = self.workload.get_ref();
        let own = match spec.kind {
            WorkloadKind::Flows => self.count_at(axes, spec.flows.as_ref(), "flows", MOST_FLOWS)?,
            _ => self.count_at(axes, spec.streams.as_ref(), "streams", MOST_FLOWS)?,
        };
        let beside = self.read_at(axes, &spec.beside, beside)?.flatten();
        let span = |text: &str| text.parse::<Span>().map_err(|error| format!("{error}"));
        let stagger = self.read_at(axes, &spec.stagger, span)?.unwrap_or_default();
        if stagger > LONGEST_STAGGER {
            let place = spec.stagger.as_ref().map_or(self.workload.span(), Spanned::span);
            return Err(self.source.error(place, "`stagger` is at most 60s"));
        }
        let size = self.read_at(axes, &spec.size, demand::sizes)?.flatten();
        let arrivals = self.read_at(axes, &spec.arrivals, Arrivals::parse)?.flatten();
        let demand = self.read_at(axes, &spec.demand, Demand::parse)?.unwrap_or(Demand::Bulk);
        let cross = self.read_at(axes, &spec.cross, Cross::parse)?.flatten();
        let memory = self.read_at(axes, &spec.memory, memory)?.flatten();
        let settings =
            FlowsSettings { own, beside, stagger, size, arrivals, demand, cross, memory };
        self.check_flows(&settings)?;
        Ok(settings)
    }

    /// Refuses combinations that make no sense, whichever axes set them.
    fn check_flows(&self, flows: &FlowsSettings) -> Result<(), FileError> {
        let spec = self.workload.get_ref();
        let refuse = |written: &Option<Spanned<String>>, message: &str| {
            let place = written.as_ref().map_or(self.workload.span(), Spanned::span);
            Err(self.source.error(place, message))
        };
        if flows.arrivals.is_some() && flows.size.is_none() {
            return refuse(
                &spec.arrivals,
                "flows that arrive must also end: give them a `size`, as in `100KB` or `web-search`",
            );
        }
        if let (Some(_), Some(count)) = (flows.arrivals, &spec.flows)
            && flows.own != 1
        {
            let message = "`arrivals` says how many flows there are: leave `flows` out, or at 1";
            return Err(self.source.error(count.span(), message));
        }
        if flows.demand != Demand::Bulk && flows.size.is_some() {
            return refuse(
                &spec.demand,
                "`size` and `demand` both say what a flow has to send: keep one",
            );
        }
        Ok(())
    }

    /// Refuses more flows than the simulator can handle in the time that `form` takes.
    pub(super) fn check_arrivals(
        &self,
        form: &FormSpec,
        flows: &FlowsSettings,
        rate: Rate,
    ) -> Result<(), FileError> {
        let spec = self.workload.get_ref();
        let (Some(arrivals), Some(sizes)) = (flows.arrivals, &flows.size) else { return Ok(()) };
        let omit = form.omit.as_ref().or(spec.omit.as_ref()).map(|omit| *omit.get_ref());
        let lasts = *form.duration.get_ref() + omit.unwrap_or_default();
        let count = lasts.secs_f64() / arrivals.mean_gap(sizes, rate).secs_f64();
        if count <= MOST_ARRIVALS as f64 {
            return Ok(());
        }
        let place = spec.arrivals.as_ref().map_or(self.workload.span(), Spanned::span);
        let message = format!(
            "about {count:.0} flows would arrive, and the limit is {MOST_ARRIVALS}: use fewer or \
             larger flows, or a shorter time"
        );
        Err(self.source.error(place, message))
    }

    /// Checks keys that apply to only one kind of workload.
    pub(super) fn check_flow_keys(&self) -> Result<(), FileError> {
        let spec = self.workload.get_ref();
        let place = |count: &Option<Spanned<NumberOrText>>| count.as_ref().map(Spanned::span);
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(Spanned::span);
        let own = [
            ("flows", place(&spec.flows)),
            ("beside", text(&spec.beside)),
            ("stagger", text(&spec.stagger)),
            ("size", text(&spec.size)),
            ("arrivals", text(&spec.arrivals)),
            ("demand", text(&spec.demand)),
            ("cross", text(&spec.cross)),
            ("memory", text(&spec.memory)),
        ];
        if spec.kind == WorkloadKind::Flows {
            let Some(streams) = place(&spec.streams) else { return Ok(()) };
            let message = "a workload `flows` counts `flows`, not `streams`";
            return Err(self.source.error(streams, message));
        }
        let sized = matches!(spec.kind, WorkloadKind::Download | WorkloadKind::Messages);
        for (key, place) in own {
            if let Some(place) = place.filter(|_| !(sized && key == "size")) {
                let message = format!("`{key}` is for workloads of `kind = \"flows\"`");
                return Err(self.source.error(place, message));
            }
        }
        Ok(())
    }

    /// Keys that have no meaning for the kernel's flows, or are not implemented for them.
    pub(super) fn flows_only_in_virtual_time(&self) -> Option<(String, Range<usize>)> {
        let spec = self.workload.get_ref();
        if spec.kind != WorkloadKind::Flows {
            return None;
        }
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(Spanned::span);
        let queue = self.systems().find_map(|system| system.queue.as_ref());
        let keys = [
            ("a system's `queue`", queue.map(Spanned::span)),
            ("size", text(&spec.size)),
            ("arrivals", text(&spec.arrivals)),
            ("demand", text(&spec.demand)),
            ("cross", text(&spec.cross)),
            ("memory", text(&spec.memory)),
            ("[topology]", self.topology.as_ref().map(Spanned::span)),
            ("[tcp]", self.tcp.as_ref().map(Spanned::span)),
        ];
        keys.into_iter().find_map(|(key, place)| Some((key.to_owned(), place?)))
    }

    fn read_at<T>(
        &self,
        axes: &Axes,
        written: &Option<Spanned<String>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, FileError> {
        let Some(written) = written else { return Ok(None) };
        let text = self.filled(axes, written)?;
        read(&text).map(Some).map_err(|message| self.source.error(written.span(), message))
    }
}

/// Parses `none`, `cubic`, `own` or `4xcubic`.
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
        format!("{error}, none and own{}", nearest(name, known.chain(["none", "own"])))
    })?;
    Ok(Some(Beside { count, algorithm: Some(algorithm) }))
}

/// Parses `none`, `warm`, `wrong` or `3x` to a multiple of the rate found.
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
            nearest(text, ["none", "warm", "wrong"])
        )),
    }
}

/// The path has become ten times slower since.
const WRONG: f64 = 10.0;
const MOST_FLOWS: u32 = 10_000;
/// The limit on arriving flows in one cell.
pub(crate) const MOST_ARRIVALS: usize = 200_000;
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
