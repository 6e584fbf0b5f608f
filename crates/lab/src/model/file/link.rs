//! The links of a lab file, with the axis values of one cell filled in.

use super::conditions;
use super::locate::FileError;
use super::middle::Middle;
use super::part::Part;
use super::schema::{DirectionSpec, Document, LinkSpec, TwoHosts};
use link::{Capacity, LinkConfig, QueueConfig, QueueOfPath, Trace, with_size};
use results::Axes;
use sim::Policer;
use std::fmt::Display;
use std::io::Read;
use std::str::FromStr;
use std::sync::Arc;
use toml::Spanned;
use units::{Bytes, Rate, Share, Span};

/// The settings of a link in one cell.
#[derive(Debug, Clone)]
pub struct LinkSettings {
    pub ends: [String; 2],
    pub mtu: u32,
    /// The shortest time between two interrupts that deliver received packets to a host.
    pub interrupts: Span,
    pub medium: Medium,
    /// The hosts that share the link's first side, if there are several.
    pub senders: Option<Senders>,
    /// The real machine that emulates the link, if the lab runs between real machines.
    pub middle: Option<Middle>,
    /// The TPID of CAQM's tags. `None` if the tags are not counted.
    pub tpid: Option<u16>,
}

/// The hosts of an incast: the host of the file and further hosts like it, each with an access link
/// to the port in front of the link.
#[derive(Debug, Clone)]
pub struct Senders {
    pub count: u32,
    pub access: LinkConfig,
}

impl Senders {
    /// Returns the name of the sender `number`. The first sender has the name of the file's host.
    pub(crate) fn name(host: &str, number: u32) -> String {
        match number {
            0 => host.to_owned(),
            _ => format!("{host}-{}", number + 1),
        }
    }
}

/// The medium between a link's ends.
#[derive(Debug, Clone)]
pub enum Medium {
    /// A plain veth pair without an emulator.
    Cable,
    /// A link of the emulator, with the settings of both directions.
    Emulated(Box<Directions>),
}

#[derive(Debug, Clone)]
pub struct Directions {
    pub forward: DirectionSettings,
    pub backward: DirectionSettings,
}

/// A direction of a link. The runner sets the seed.
#[derive(Debug, Clone)]
pub struct DirectionSettings {
    pub config: LinkConfig,
    /// Changes of the rate: times from the start of the measurement, and the new rates.
    pub steps: Vec<(Span, Rate)>,
    pub policer: Option<Policer>,
    pub aggregate: Option<Span>,
}

impl Document {
    /// Returns the links of the cell at `axes`.
    pub fn links_at(&self, axes: &Axes) -> Result<Vec<LinkSettings>, FileError> {
        self.link.iter().map(|link| self.link_at(link.get_ref(), axes)).collect()
    }

    /// Checks each link in the cell at `axes` independently of the other links.
    pub(crate) fn check_links_at(&self, axes: &Axes) -> Result<(), FileError> {
        let each = self.link.iter();
        each.map(|link| self.link_at(link.get_ref(), axes).map(drop))
            .try_for_each(|checked| self.go_on(checked))
    }

    fn link_at(&self, spec: &LinkSpec, axes: &Axes) -> Result<LinkSettings, FileError> {
        let TwoHosts([a, b]) = spec.between.get_ref();
        let cell = Cell { lab: self, axes };
        let medium = match spec.is_direct() {
            true => Medium::Cable,
            false => {
                let round_trip = cell.round_trip(spec)?;
                let forward = cell.direction(spec, &spec.forward, round_trip)?;
                let backward = cell.direction(spec, &spec.backward, round_trip)?;
                Medium::Emulated(Box::new(Directions { forward, backward }))
            }
        };
        let mtu = match &spec.mtu {
            None => USUAL_MTU,
            Some(mtu) if (576..=9000).contains(mtu.get_ref()) => *mtu.get_ref(),
            Some(mtu) => {
                self.refuse(mtu.span(), "an MTU is from 576 to 9000 bytes")?;
                USUAL_MTU
            }
        };
        let interrupts = match &spec.interrupts {
            None => Span::ZERO,
            Some(written) => {
                let within = |span: Span| match span <= RAREST_INTERRUPTS {
                    true => Ok(span),
                    false => Err(cell.error(written, "`interrupts` are at most 1ms apart")),
                };
                cell.kept(cell.read(written).and_then(within), Span::ZERO)?
            }
        };
        let ends = [a.get_ref().clone(), b.get_ref().clone()];
        let middle = spec.middle();
        Ok(LinkSettings { ends, mtu, interrupts, medium, senders: None, middle, tpid: None })
    }

    /// Returns one warning for each queue, of a link or a system, that does not suit its path at
    /// `axes`.
    pub(crate) fn unsuited_queues(&self, axes: &Axes) -> Vec<FileError> {
        let Ok(links) = self.links_at(axes) else { return Vec::new() };
        let mut found = Vec::new();
        for (link, spec) in links.iter().zip(&self.link) {
            let Some((ways, round_trip)) = link.ways().zip(link.round_trip()) else { continue };
            let spec = spec.get_ref();
            for (way, one) in [(&ways.forward, &spec.forward), (&ways.backward, &spec.backward)] {
                let Some(place) = one.queue.as_ref().or(spec.queue.as_ref()) else { continue };
                let warning = way.config.queue.warning(round_trip);
                found.extend(warning.map(|text| self.source.error(place.span(), text)));
            }
            for system in self.systems() {
                let Some(place) = &system.queue else { continue };
                let product = link.product_from(&link.ends[0]);
                let read = self.system_at(axes, system, product).ok();
                let warning = read.and_then(|read| read.queue?.warning(round_trip));
                found.extend(warning.map(|text| self.source.error(place.span(), text)));
            }
        }
        found
    }

    /// Whether any link of the lab is emulated.
    pub(crate) fn is_emulated(&self) -> bool {
        self.link.iter().any(|link| !link.get_ref().is_direct())
    }
}

impl LinkSettings {
    pub(crate) fn joins(&self, a: &str, b: &str) -> bool {
        let [one, other] = &self.ends;
        (one == a && other == b) || (one == b && other == a)
    }

    /// Returns the link with `a` as its first end.
    pub(crate) fn seen_from(mut self, a: &str) -> Self {
        if self.ends[0] != a {
            self.ends.reverse();
            self.middle.iter_mut().for_each(|middle| middle.interfaces.reverse());
            if let Medium::Emulated(ways) = &mut self.medium {
                let ways = ways.as_mut();
                std::mem::swap(&mut ways.forward, &mut ways.backward);
            }
        }
        self
    }

    /// Replaces the queue of the emulated direction from `a`.
    pub(crate) fn set_queue(&mut self, a: &str, queue: QueueConfig) {
        let round_trip = self.round_trip().unwrap_or_default();
        let is_forward = self.ends[0] == a;
        if let Medium::Emulated(ways) = &mut self.medium {
            let way = if is_forward { &mut ways.forward } else { &mut ways.backward };
            way.config.queue = queue.on_path(way.config.rate.mean_rate(), round_trip);
        }
    }

    /// Returns both directions of an emulated link.
    pub(crate) fn ways(&self) -> Option<&Directions> {
        match &self.medium {
            Medium::Cable => None,
            Medium::Emulated(ways) => Some(ways),
        }
    }

    /// Returns the settings of the emulated direction from `a` to its neighbour.
    pub(crate) fn way_from(&self, a: &str) -> Option<&LinkConfig> {
        self.direction_from(a).map(|direction| &direction.config)
    }

    /// Returns the sum of the delays of both directions of an emulated link.
    pub(crate) fn round_trip(&self) -> Option<Span> {
        let ways = self.ways()?;
        Some(ways.forward.config.delay + ways.backward.config.delay)
    }

    /// Returns the bandwidth-delay product of the direction from `a`, if its rate is fixed.
    pub(crate) fn product_from(&self, a: &str) -> Option<Bytes> {
        let Medium::Emulated(ways) = &self.medium else { return None };
        let round_trip = ways.forward.config.delay + ways.backward.config.delay;
        match &self.way_from(a)?.rate {
            Capacity::Fixed(rate) => Some(rate.bytes_in(round_trip)),
            _ => None,
        }
    }

    /// Returns the direction from `a`, with the settings that only virtual time supports.
    pub(crate) fn direction_from(&self, a: &str) -> Option<&DirectionSettings> {
        match &self.medium {
            Medium::Cable => None,
            Medium::Emulated(ways) if self.ends[0] == a => Some(&ways.forward),
            Medium::Emulated(ways) => Some(&ways.backward),
        }
    }
}

impl Document {
    /// Returns the rate trace files of links that the cell at `axes` reads.
    pub(crate) fn trace_files_at(&self, axes: &Axes) -> Vec<String> {
        let settings = self.link.iter().flat_map(|link| link.get_ref().emulated());
        let traces = settings.filter(|(key, _)| key == "trace" || key.ends_with(".trace"));
        let paths = traces.filter_map(|(_, written)| self.filled(axes, written).ok());
        paths.filter(|path| conditions::rates(path).is_none()).collect()
    }
}

/// Returns an array of these fields, each with its name. The name of a field is its key in the lab
/// file.
macro_rules! named {
    ($spec:ident: $($field:ident),+) => {
        [$((stringify!($field), &$spec.$field)),+]
    };
}

impl LinkSpec {
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.as_ref().is_some_and(|direct| *direct.get_ref())
    }

    /// Returns every emulator setting with its key.
    pub(crate) fn emulated(&self) -> impl Iterator<Item = (String, &Spanned<String>)> {
        let own = named!(self: rate, trace, rtt, delay, jitter, loss, reorder, duplicate, corrupt,
            queue, overhead, steps, policer, aggregate, interrupts);
        let own =
            own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.as_ref()?)));
        let ways = [("forward", &self.forward), ("backward", &self.backward)];
        own.chain(ways.into_iter().flat_map(|(way, spec)| {
            spec.settings().map(move |(key, value)| (format!("{way}.{key}"), value))
        }))
    }
}

impl DirectionSpec {
    fn settings(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        let all = named!(self: rate, trace, delay, jitter, loss, reorder, duplicate, corrupt, queue,
            overhead, steps, policer, aggregate);
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }
}

struct Cell<'a> {
    lab: &'a Document,
    axes: &'a Axes,
}

impl Cell<'_> {
    fn round_trip(&self, spec: &LinkSpec) -> Result<Span, FileError> {
        if let (Some(rtt), Some(delay)) = (&spec.rtt, &spec.delay) {
            let place = rtt.span().start.max(delay.span().start)..0;
            self.lab.refuse(place, "`rtt` and `delay` say the same: keep one")?;
        }
        let read = match (&spec.rtt, &spec.delay) {
            (Some(rtt), _) => self.read(rtt),
            (_, Some(delay)) => self.read(delay).map(|delay: Span| delay * 2),
            _ => Ok(Span::ZERO),
        };
        self.kept(read, Span::from_millis(1))
    }

    fn direction(
        &self,
        both: &LinkSpec,
        one: &DirectionSpec,
        round_trip: Span,
    ) -> Result<DirectionSettings, FileError> {
        let mut config = LinkConfig::default();
        let half = round_trip / 2;
        let delay = one.delay.as_ref().map_or(Ok(half), |delay| self.read(delay));
        config.delay = self.kept(delay, half)?;
        let rate = one.rate.as_ref().or(both.rate.as_ref());
        let trace = one.trace.as_ref().or(both.trace.as_ref());
        config.rate = self.kept(self.capacity(rate, trace), Capacity::Fixed(Rate::from_mbit(1)))?;
        self.set(&mut config.jitter, &one.jitter, &both.jitter)?;
        self.set(&mut config.loss, &one.loss, &both.loss)?;
        self.set(&mut config.reorder, &one.reorder, &both.reorder)?;
        self.set::<Share>(&mut config.duplicate, &one.duplicate, &both.duplicate)?;
        self.set::<Share>(&mut config.corrupt, &one.corrupt, &both.corrupt)?;
        self.set(&mut config.overhead, &one.overhead, &both.overhead)?;
        if let Some(written) = one.queue.as_ref().or(both.queue.as_ref()) {
            let product = match &config.rate {
                Capacity::Fixed(rate) => Some(rate.bytes_in(round_trip)),
                _ => None,
            };
            let on_path = |of_path: QueueOfPath| {
                of_path.on(product).map_err(|error| self.error(written, error))
            };
            let queue = self.kept(self.read(written).and_then(on_path), config.queue)?;
            config.queue = queue.on_path(config.rate.mean_rate(), round_trip);
        }
        let place = rate.or(trace).map_or(both.between.span(), Spanned::span);
        let valid = config.validate();
        self.kept(valid.map_err(|e| self.lab.source.error(place, e.to_string())), ())?;
        let steps = match one.steps.as_ref().or(both.steps.as_ref()) {
            Some(written) => self.kept(self.steps(written, &config.rate), Vec::new())?,
            None => Vec::new(),
        };
        let policer = match one.policer.as_ref().or(both.policer.as_ref()) {
            Some(written) => self.kept(self.policer(written, &config.rate, round_trip), None)?,
            None => None,
        };
        let aggregate = match one.aggregate.as_ref().or(both.aggregate.as_ref()) {
            Some(written) => {
                let read = |text: String| {
                    conditions::aggregate(&text).map_err(|message| self.error(written, message))
                };
                self.kept(self.filled(written).and_then(read), None)?
            }
            None => None,
        };
        Ok(DirectionSettings { config, steps, policer, aggregate })
    }

    fn steps(
        &self,
        written: &Spanned<String>,
        rate: &Capacity,
    ) -> Result<Vec<(Span, Rate)>, FileError> {
        let read = conditions::steps(&self.filled(written)?);
        let read = read.map_err(|message| self.error(written, message))?;
        let rate = self.fixed(rate, written, !read.is_empty())?;
        Ok(read.into_iter().map(|(at, part)| (at, part.of(rate))).collect())
    }

    fn policer(
        &self,
        written: &Spanned<String>,
        rate: &Capacity,
        round_trip: Span,
    ) -> Result<Option<Policer>, FileError> {
        let wrong = |message: String| self.error(written, message);
        let Some(text) = conditions::policer(&self.filled(written)?).map_err(wrong)? else {
            return Ok(None);
        };
        let rate = text.part.of(match text.part {
            Part::Rate(_) => Rate::default(),
            Part::Share(_) => self.fixed(rate, written, true)?,
        });
        let burst = match text.burst {
            Some(size) => {
                let size = with_size(&size, Some(rate.bytes_in(round_trip)))
                    .map_err(|e| wrong(e.to_string()))?;
                size.parse().map_err(|error| wrong(format!("{error}")))?
            }
            None => conditions::usual_burst(rate, round_trip),
        };
        // A policer with a smaller burst would drop every full frame.
        if burst < Bytes::new(FULL_FRAME) {
            return Err(wrong(format!(
                "a policer's burst is at least a frame: {FULL_FRAME} bytes"
            )));
        }
        Ok(Some(Policer { rate, burst }))
    }

    /// Returns the fixed rate to which shares of the rate refer.
    fn fixed(
        &self,
        capacity: &Capacity,
        written: &Spanned<String>,
        needed: bool,
    ) -> Result<Rate, FileError> {
        match capacity {
            Capacity::Fixed(rate) => Ok(*rate),
            _ if !needed => Ok(Rate::default()),
            _ => Err(self.error(written, "this needs a link with a fixed `rate`")),
        }
    }

    fn capacity(
        &self,
        rate: Option<&Spanned<String>>,
        trace: Option<&Spanned<String>>,
    ) -> Result<Capacity, FileError> {
        match (rate, trace) {
            (Some(_), Some(trace)) => {
                Err(self.error(trace, "`rate` and `trace` exclude each other: keep one"))
            }
            (Some(rate), None) => {
                let value: Rate = self.read(rate)?;
                if value == Rate::default() {
                    return Err(self.error(
                        rate,
                        "a rate of 0 carries nothing: leave `rate` out for an unlimited link",
                    ));
                }
                Ok(Capacity::Fixed(value))
            }
            (None, Some(trace)) => {
                let path = self.filled(trace)?;
                if let Some(rates) = conditions::rates(&path) {
                    let parsed = Trace::of_rates(&rates).map_err(|e| self.error(trace, e))?;
                    return Ok(Capacity::Trace(Arc::new(parsed)));
                }
                let text = text_of_trace(&path)
                    .map_err(|e| self.error(trace, format!("cannot read trace {path}: {e}")))?;
                let parsed =
                    Trace::parse(&text).map_err(|e| self.error(trace, format!("{path}: {e}")))?;
                Ok(Capacity::Trace(Arc::new(parsed)))
            }
            (None, None) => Ok(Capacity::Unlimited),
        }
    }

    fn set<T>(
        &self,
        setting: &mut T,
        one: &Option<Spanned<String>>,
        both: &Option<Spanned<String>>,
    ) -> Result<(), FileError>
    where
        T: FromStr,
        T::Err: Display,
    {
        if let Some(value) = one.as_ref().or(both.as_ref()) {
            match self.read(value) {
                Ok(read) => *setting = read,
                Err(error) => self.lab.go_on(Err(error))?,
            }
        }
        Ok(())
    }

    /// Keeps the mistake in a setting while all mistakes are collected. `plain` then takes the
    /// setting's place, so that the link's other settings are read.
    fn kept<T>(&self, read: Result<T, FileError>, plain: T) -> Result<T, FileError> {
        read.or_else(|error| self.lab.go_on(Err(error)).map(|()| plain))
    }

    fn read<T>(&self, value: &Spanned<String>) -> Result<T, FileError>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.filled(value)?.parse().map_err(|e: T::Err| self.error(value, e))
    }

    fn filled(&self, value: &Spanned<String>) -> Result<String, FileError> {
        self.lab.filled(self.axes, value)
    }

    fn error(&self, value: &Spanned<String>, message: impl Display) -> FileError {
        self.lab.source.error(value.span(), message.to_string())
    }
}

/// Reads the text of a trace. The size is limited: a device or a huge file is no trace and must not
/// fill the memory.
pub(crate) fn text_of_trace(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    let length = host::open_regular_file(path.as_ref())?
        .take(LONGEST_TRACE + 1)
        .read_to_string(&mut text)?;
    if length as u64 > LONGEST_TRACE {
        let why = format!("longer than {}", Bytes::new(LONGEST_TRACE));
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

/// Maximum size of a trace. A trace of a few hours for a gigabit link is shorter.
const LONGEST_TRACE: u64 = 64 << 20;
const FULL_FRAME: u64 = 1514;
pub(super) const USUAL_MTU: u32 = 1500;
/// Maximum time between interrupts. A longer time would make the link late.
const RAREST_INTERRUPTS: Span = Span::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LabFile;

    #[test]
    fn interrupts_have_a_maximum_interval_and_need_an_emulator() {
        let lab = |link: &str| LabFile::parse("cards.toml", &LAB.replace("LINK", link));
        let interrupts = |link| {
            let links = lab(link).unwrap().links_at(&Axes::new()).unwrap();
            links.into_iter().map(|link| link.interrupts).next()
        };
        assert_eq!(interrupts("interrupts = \"100us\""), Some(Span::from_micros(100)));
        assert_eq!(interrupts(""), Some(Span::ZERO));
        let refused = |link| lab(link).unwrap_err().to_string();
        assert!(refused("interrupts = \"2ms\"").contains("at most 1ms apart"));
        assert!(refused("direct = true\ninterrupts = \"100us\"").contains("no place beside"));
    }

    const LAB: &str = r#"
name = "cards"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
LINK
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;
}
