use super::change::ChangeSpec;
use super::disturbance::DisturbanceSpec;
use super::draw::{DrawSpec, Worlds};
use super::host_table::HostSpec;
use super::locate::{FileError, Source};
use super::population::{Generated, PopulationSpec};
use super::primary::PrimarySpec;
use super::state::StateSpec;
use super::tcp::TcpSpec;
use super::topology::TopologySpec;
use super::workload_table::WorkloadTable;
use crate::model::builtin::BUILTIN;
use indexmap::IndexMap;
use serde::Deserialize;
use settings::{LOST, Mistakes, Node, OneOrMore, Setting, What, leaves, table};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;
use units::{Share, Span};

table! {
    /// A lab file as written: hosts, the links between them, the systems under test, the workload
    /// and the conditions. [`LabFile`](crate::bench::LabFile) is the file after all checks.
    #[derive(Debug, Clone)]
    pub struct Document {
        pub name: Spanned<String>,
        pub title: String = String::new(),
        pub question: String = String::new(),
        /// The sentence that answers the question, with figures of named cells.
        pub answer: Option<Spanned<String>>,
        pub hosts: Vec<Spanned<String>> = vec![],
        /// The hosts that are real machines.
        pub host: IndexMap<Spanned<String>, Spanned<HostSpec>> = IndexMap::new(),
        /// The axes. Every combination of axis values is one cell for every system.
        pub axes: IndexMap<String, Spanned<Vec<Spanned<String>>>> = IndexMap::new(),
        /// The texts that stand for axis values. A placeholder for an axis becomes the text of the
        /// axis value.
        pub words: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        /// Usual value of each axis. Cells whose choice does not name the axis have this value.
        pub usual: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        pub link: Vec<Spanned<LinkSpec>> = vec![],
        /// Populations of paths, from which a generator makes links.
        pub population: Vec<Spanned<PopulationSpec>> = vec![],
        /// An axis of worlds that the seed draws.
        pub draw: Option<Spanned<DrawSpec>>,
        /// The network around the lab's link, for flows.
        pub topology: Option<Spanned<TopologySpec>>,
        /// TCP settings of the hosts in virtual time.
        pub tcp: Option<Spanned<TcpSpec>>,
        /// Lateness and stolen CPU time that the lab causes on purpose.
        pub disturbance: Option<Spanned<DisturbanceSpec>>,
        pub workload: Spanned<WorkloadTable>,
        /// Two states of one or both hosts. The states take the place of systems.
        pub state: Option<Spanned<StateSpec>>,
        pub system: Vec<Spanned<SystemSpec>> = vec![],
        /// Kernel settings of every host, read back after they are set.
        pub sysctl: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        pub form: IndexMap<Spanned<String>, FormSpec> = IndexMap::new(),
        /// Comparisons between systems: a single `[compare]`, or several `[[compare]]`.
        pub compare: OneOrMore<CompareSpec> = OneOrMore(vec![]),
        /// Summaries of one ratio over many paths.
        pub spread: Vec<Spanned<SpreadSpec>> = vec![],
        /// The comparisons that answer the lab's question, named before the run.
        pub primary: Vec<Spanned<PrimarySpec>> = vec![],
        /// Bounds that decide the exit status: `rate_error_percent <= 0.5`.
        pub bounds: Vec<Spanned<String>> = vec![],
        pub view: Option<ViewSpec>,
        pub heat: Vec<HeatSpec> = vec![],
        pub trace: Vec<TraceSpec> = vec![],
        pub reference: Vec<ReferenceSpec> = vec![],
        /// Notes for the reader of the report.
        pub notes: Vec<String> = vec![],
        pub seed: u64 = 0,
    }
    beside {
        /// Whether the workload's steps of a cell follow one another. The binding to the workload
        /// sets this field.
        pub(crate) keeps_cells: bool,
        pub(crate) source: Source,
        pub(crate) generated: Generated,
        pub(crate) worlds: Worlds,
    }
}

table! {
    /// A link between two hosts. A setting applies to both directions. `forward` (from the first to
    /// the second host of `between`) and `backward` override the setting for one direction.
    #[derive(Debug, Clone)]
    pub struct LinkSpec {
        /// The name of the link, to which the workload's `via` refers.
        pub name: Option<Spanned<String>>,
        pub between: Spanned<TwoHosts>,
        /// Whether the link is a plain cable without an emulator.
        pub direct: Option<Spanned<bool>>,
        /// The real machine between the ends that emulates the link.
        pub on: Option<Spanned<String>>,
        /// The interfaces of the machine `on` that lead to the first and to the second host of
        /// `between`.
        pub interfaces: Vec<Spanned<String>> = vec![],
        pub mtu: Option<Spanned<u32>>,
        pub forward: DirectionSpec = DirectionSpec::default(),
        pub backward: DirectionSpec = DirectionSpec::default(),
        pub rate: Option<Spanned<String>>,
        pub trace: Option<Spanned<String>>,
        /// The round-trip time, of which each direction has half.
        pub rtt: Option<Spanned<String>>,
        pub delay: Option<Spanned<String>>,
        pub jitter: Option<Spanned<String>>,
        pub loss: Option<Spanned<String>>,
        pub reorder: Option<Spanned<String>>,
        pub duplicate: Option<Spanned<String>>,
        pub corrupt: Option<Spanned<String>>,
        /// The queue's kind and size. The size may contain `1bdp` and `max(…)`:
        /// `droptail:max(1bdp,256KiB)`.
        pub queue: Option<Spanned<String>>,
        pub overhead: Option<Spanned<String>>,
        /// Rates that the link changes to later: `50% at 10s`.
        pub steps: Option<Spanned<String>>,
        /// Rate and burst of a policer, which drops faster traffic: `50%,burst=64KiB`.
        pub policer: Option<Spanned<String>>,
        /// Interval between batched deliveries: `4ms`.
        pub aggregate: Option<Spanned<String>>,
        /// Shortest time between two interrupts of the hosts' network cards: `100us`.
        pub interrupts: Option<Spanned<String>>,
    }
}

table! {
    #[derive(Debug, Clone, Default)]
    pub struct DirectionSpec {
        pub rate: Option<Spanned<String>>,
        pub trace: Option<Spanned<String>>,
        pub delay: Option<Spanned<String>>,
        pub jitter: Option<Spanned<String>>,
        pub loss: Option<Spanned<String>>,
        pub reorder: Option<Spanned<String>>,
        pub duplicate: Option<Spanned<String>>,
        pub corrupt: Option<Spanned<String>>,
        pub queue: Option<Spanned<String>>,
        pub overhead: Option<Spanned<String>>,
        pub steps: Option<Spanned<String>>,
        pub policer: Option<Spanned<String>>,
        pub aggregate: Option<Spanned<String>>,
    }
}

/// The hosts at the two ends of a link.
#[derive(Debug, Clone)]
pub struct TwoHosts(pub [Spanned<String>; 2]);

leaves!(Pinning, SystemKind, Traffic);

/// The CPUs that the programs of the two hosts run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// The programs of both hosts may use all CPUs of the workload.
    #[default]
    Free,
    /// Each host has a CPU of its own.
    Apart,
    /// Each host has half of the workload's CPUs.
    Halves,
}

/// The programs that generate the traffic of a `bulk` workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// `weir perf`.
    #[default]
    Perf,
    /// The program `weir perf --no-probes`.
    PerfBare,
    /// The program `weir perf` with writes of one block, like iperf3.
    PerfBlocks,
    /// The installed iperf3, usually the distribution's version.
    Iperf3,
    /// A newer iperf3 beside the stock iperf3, installed as `iperf3-latest`.
    Iperf3Latest,
    /// `weir perf plain-client`: a loop around a socket.
    Sockets,
}

impl Traffic {
    /// Returns the program of another project that this generator needs.
    pub(crate) const fn peer(self) -> Option<&'static str> {
        match self {
            Self::Iperf3 => Some("iperf3"),
            Self::Iperf3Latest => Some("iperf3-latest"),
            Self::Perf | Self::PerfBare | Self::PerfBlocks | Self::Sockets => None,
        }
    }
}

/// A number, or a text in which an axis replaces the number.
#[derive(Debug, Clone)]
pub enum NumberOrText {
    Number(u32),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemKind {
    /// The kernel's TCP with the algorithm named by `congestion`.
    Tcp,
    /// Two external programs that carry the workload's connection between the hosts.
    External,
    /// In virtual time: a QUIC tunnel like `weir tunnel`'s that carries the workload's TCP.
    Tunnel,
    /// The emulated link, in a lab that judges the link.
    Link,
    /// The simulator, in a lab that judges the simulator.
    Model,
    /// `weir doctor`, in a lab that judges its verdicts.
    Doctor,
    /// The packet switch, or the kernel's connection tracker. The system's name says which.
    Switch,
}

table! {
    #[derive(Debug, Clone)]
    pub struct SystemSpec {
        pub name: Spanned<String>,
        pub kind: SystemKind,
        /// The congestion control: of the measured connection for `tcp`, of the workload's own
        /// connection for `external`, of the tunnel for `tunnel`.
        pub congestion: Option<Spanned<String>>,
        /// The generator of the traffic. The default is `perf`.
        pub traffic: Option<Spanned<Traffic>>,
        /// Command lines of the system's programs. `{client}` and `{server}` stand for the hosts'
        /// addresses, `{port}` for the workload's port.
        pub server: Option<Spanned<String>>,
        pub client: Option<Spanned<String>>,
        /// A command that prints the version of the system's programs. The command runs once,
        /// before the first step.
        pub version: Option<Spanned<String>>,
        /// Programs that the commands start, beside the first words of the commands.
        pub needs: Vec<String> = vec![],
        /// Advice on installing the programs, for the note about a system that is left out.
        pub install: String = String::new(),
        /// Files that the commands read, as file name to text. Placeholders are filled in as in
        /// commands. `{files}` is the folder of these files.
        pub files: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        /// The address in the client's host to which the workload connects instead of the server's
        /// address.
        pub connect: Option<Spanned<String>>,
        /// Whether earlier connections use each path just before the measurement, so that the
        /// algorithm remembers the path.
        pub warm: Option<Spanned<bool>>,
        /// The path's rate during the earlier use by a `warm` system, as a multiple of the measured
        /// rate: `4x`.
        pub warmed_at: Option<Spanned<String>>,
        /// The sender's first window, in segments, instead of the kernel's ten.
        pub first_window: Option<Spanned<u32>>,
        /// In virtual time: the system's own queue at the bottleneck, which replaces the queue of
        /// the link.
        pub queue: Option<Spanned<String>>,
        /// CAQM's settings of the hosts, for example `rtt_standard=200us,ends=both`.
        pub caqm: Option<Spanned<String>>,
        /// Kernel settings of every host while this system is measured, before the kernel settings
        /// of the file.
        pub sysctl: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        /// Commands that change the hosts before this system is measured, and commands that undo
        /// the changes.
        pub changes: Vec<ChangeSpec> = vec![],
        /// Whether a run leaves the system out, and reports the omission, if the programs of the
        /// system are not installed.
        pub optional: bool = false,
        pub note: String = String::new(),
    }
    beside {
        /// Whether the system is a state of `[state]`, whose connections use the host's default
        /// algorithm.
        pub(crate) is_state: bool,
    }
}

table! {
    /// Duration and number of repeats: the full form, `quick` for people in a hurry, `smoke` for
    /// tests.
    #[derive(Debug, Clone)]
    pub struct FormSpec {
        pub repeats: Spanned<u32> = one(),
        pub duration: Spanned<Span>,
        pub omit: Option<Spanned<Span>>,
        /// Filters of the cells that the form measures. Every cell if the list is empty.
        pub cells: Vec<CellFilter> = vec![],
        /// The systems to measure. Every system if the list is empty.
        pub systems: Vec<Spanned<String>> = vec![],
        /// The number of drawn worlds that the form measures, from the first on.
        pub draws: Option<Spanned<u32>>,
    }
}

pub type CellFilter = IndexMap<Spanned<String>, Vec<Spanned<String>>>;

table! {
    #[derive(Debug, Clone)]
    pub struct CompareSpec {
        pub baseline: Spanned<String>,
        /// The systems to compare with the baseline. All other systems by default.
        pub systems: Vec<Spanned<String>> = vec![],
        pub metrics: Vec<Spanned<String>>,
        /// The smallest difference that matters in practice, as a share of the baseline.
        pub threshold: Option<Spanned<Share>>,
        /// Metrics that state the ideal. The ratios are compared with the ideal's ratio to the
        /// baseline.
        pub ideal: Vec<Spanned<String>> = vec![],
        /// The required share of the first ideal. If the reference numbers have a smaller ratio,
        /// the smaller ratio is enough.
        pub of_ideal: Option<Spanned<Share>>,
    }
}

table! {
    /// A ratio's median, worst decile and worst value over all paths: over the places that a cell
    /// measures at once, or over the cells that differ in `over`.
    #[derive(Debug, Clone)]
    pub struct SpreadSpec {
        pub metric: Spanned<String>,
        pub baseline: Spanned<String>,
        pub systems: Vec<Spanned<String>>,
        pub over: Vec<Spanned<String>> = vec![],
    }
}

table! {
    #[derive(Debug, Clone)]
    pub struct ViewSpec {
        pub metric: Spanned<String>,
        pub rows: Option<Spanned<String>>,
        /// The system that the report describes. The means of this system are compared with the
        /// means of `against`.
        pub system: Option<Spanned<String>>,
        pub against: Vec<Spanned<String>> = vec![],
        /// Axes that vary within each group of cells. The other axes on which a cell has an unusual
        /// value determine its group.
        pub over: Vec<Spanned<String>> = vec![],
        /// The metrics that a terminal shows next to the main metric.
        pub also: Vec<Spanned<String>> = vec![],
        /// The columns of the report that the lab repeats, in the order of that report.
        pub columns: Vec<Spanned<String>> = vec![],
        /// The family of metrics whose parts are drawn as stacked bars.
        pub parts: Option<Spanned<String>>,
        /// The number of repeats that are shown individually, with their mean, as in the repeated
        /// report.
        pub rounds: u32 = 0,
        /// The cells that a terminal shows. All cells by default.
        pub at: CellFilter = CellFilter::new(),
    }
}

table! {
    /// Cells whose curves are kept: windows, rates, round trips and the queue over time.
    #[derive(Debug, Clone)]
    pub struct TraceSpec {
        pub at: CellFilter,
        /// The systems whose curves are kept. All systems if the list is empty.
        pub systems: Vec<Spanned<String>> = vec![],
    }
}

table! {
    /// Heat maps: a metric over two axes, with one map for each system.
    #[derive(Debug, Clone)]
    pub struct HeatSpec {
        pub metrics: Vec<Spanned<String>>,
        pub x: Spanned<String>,
        pub y: Spanned<String>,
        /// The filter of the cells that the map shows.
        pub at: CellFilter = CellFilter::new(),
    }
}

table! {
    /// Results that other people measured under the same conditions.
    #[derive(Debug, Clone)]
    pub struct ReferenceSpec {
        pub system: String,
        /// The systems of this lab beside which the report shows the reference results. By default
        /// the system of the same name.
        pub systems: Vec<Spanned<String>> = vec![],
        pub axes: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        pub metrics: IndexMap<Spanned<String>, f64>,
        pub source: String = String::new(),
    }
}

impl Document {
    /// Reads the TOML, with stand-ins for values that cannot be read. Messages use `file` as the
    /// name of the file.
    pub(crate) fn parse(file: &str, text: &str) -> Result<(Self, Mistakes), FileError> {
        let mut source = Source::new(file, text);
        let (document, mut mistakes) = settings::read::<Self>(text);
        let Some(mut document) = document else {
            source.collect(mistakes);
            source.finish(Ok(()))?;
            return Err(source.error(0..0, "this is no lab file"));
        };
        document.doubt_mentions_of_lost_values(text, &mut mistakes);
        document.source = source;
        Ok((document, mistakes))
    }

    /// Marks the lines that mention an axis whose values are not all known.
    fn doubt_mentions_of_lost_values(&self, text: &str, mistakes: &mut Mistakes) {
        let is_lost = |value: &Spanned<String>| {
            let text = value.get_ref().as_str();
            text == LOST || self.words.get(text).is_some_and(|word| word.get_ref() == LOST)
        };
        let lost = self.axes.iter().filter(|(_, values)| values.get_ref().iter().any(is_lost));
        let lost: Vec<&String> = lost.map(|(axis, _)| axis).collect();
        // Each search reads the whole text, so many axes are searched as one.
        let is_any = lost.len() > MOST_SEARCHES || lost.iter().any(|axis| *axis == LOST);
        let mentions: Vec<String> = match is_any {
            true => vec!["{".to_owned()],
            false => lost.iter().map(|axis| format!("{{{axis}}}")).collect(),
        };
        for mention in mentions {
            for (place, _) in text.match_indices(&mention) {
                mistakes.doubt(&(place..place + 1));
            }
        }
    }

    /// Adds the forms that a file leaves out, made from the full form, if the forms fit the
    /// workload.
    pub(crate) fn add_short_forms(&mut self, fits: impl Fn(&Self, &FormSpec) -> bool) {
        let full = self.form.iter().find(|(name, _)| name.get_ref() == "full");
        let Some((place, full)) = full.map(|(name, form)| (name.span(), form.clone())) else {
            return;
        };
        let usual = |axis: &str| {
            let usual = self.usual.iter().find(|(named, _)| named.get_ref() == axis);
            usual.map(|(_, value)| value.get_ref().clone())
        };
        let first = self.axes.iter().filter_map(|(axis, values)| {
            let value =
                usual(axis).or_else(|| Some(values.get_ref().first()?.get_ref().clone()))?;
            let spanned = |text: &str| Spanned::new(place.clone(), text.to_owned());
            Some((spanned(axis), vec![spanned(&value)]))
        });
        let one_cell: CellFilter = first.collect();
        for (name, longest, cells) in
            [("quick", SHORT_QUICK, full.cells.clone()), ("smoke", SHORT_SMOKE, vec![one_cell])]
        {
            let named = |known: &Spanned<String>| known.get_ref() == name;
            if self.form.keys().any(named) {
                continue;
            }
            let short = |span: &Spanned<Span>, most: Span| {
                Spanned::new(span.span(), (*span.get_ref()).min(most))
            };
            let form = FormSpec {
                repeats: Spanned::new(full.repeats.span(), 1),
                duration: short(&full.duration, longest),
                omit: full.omit.as_ref().map(|omit| short(omit, SHORT_OMISSION)),
                cells,
                systems: full.systems.clone(),
                draws: self.draw.as_ref().map(|_| Spanned::new(place.clone(), SHORT_DRAWS)),
            };
            if fits(self, &form) {
                self.form.insert(Spanned::new(place.clone(), name.to_owned()), form);
            }
        }
    }

    /// Reads the text of the file at `path`, which must be UTF-8 of at most 1 MiB.
    pub(crate) fn text_of(path: &Path) -> Result<String, FileError> {
        let file = path.display().to_string();
        let unreadable = |reason| FileError::Unreadable { file: file.clone(), reason };
        let mut bytes = Vec::new();
        // Limit the size: a device or a huge file is no lab and must not fill the memory.
        let opened = host::open_regular_file(path).map_err(unreadable)?;
        opened.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let at = |line, message: &str| FileError::At {
            file: file.clone(),
            line,
            message: message.to_owned(),
        };
        if bytes.len() as u64 > LONGEST {
            return Err(at(1, "longer than 1 MiB: this is no lab file"));
        }
        String::from_utf8(bytes).map_err(|error| {
            let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
            at(line, "not text in UTF-8: this is no lab file")
        })
    }

    /// Returns the name for a command line: a built-in lab's name, or any other lab's file.
    pub(crate) fn asked_for(&self) -> String {
        let file = self.source.file();
        match BUILTIN.iter().find(|builtin| file == format!("labs/{}.toml", builtin.name)) {
            Some(builtin) if *self.source.text() == *builtin.text => builtin.name.to_owned(),
            _ => file.to_owned(),
        }
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// Returns the file's exact text, which is copied to the run directory.
    pub fn text(&self) -> Arc<str> {
        self.source.text()
    }

    pub fn systems(&self) -> impl Iterator<Item = &SystemSpec> {
        self.system.iter().map(Spanned::get_ref)
    }
}

impl FormSpec {
    /// Whether the form measures this system.
    pub(crate) fn measures(&self, system: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|named| named.get_ref() == system)
    }
}

impl SystemSpec {
    /// Builds a system with a name and a kind, without any other setting.
    pub(crate) fn new(name: Spanned<String>, kind: SystemKind) -> Self {
        Self {
            name,
            kind,
            congestion: None,
            traffic: None,
            server: None,
            client: None,
            version: None,
            needs: Vec::new(),
            install: String::new(),
            files: IndexMap::new(),
            connect: None,
            warm: None,
            warmed_at: None,
            first_window: None,
            queue: None,
            caqm: None,
            sysctl: IndexMap::new(),
            optional: false,
            note: String::new(),
            is_state: false,
            changes: Vec::new(),
        }
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub fn is_warm(&self) -> bool {
        self.warm.as_ref().is_some_and(|warm| *warm.get_ref())
    }

    /// Returns the rate of the path at the time of its earlier use, as a multiple of the measured
    /// rate.
    pub(crate) fn warmed_at(&self) -> Result<f64, String> {
        let Some(written) = &self.warmed_at else { return Ok(1.0) };
        let text = written.get_ref();
        let factor = text.strip_suffix('x').and_then(|number| number.parse::<f64>().ok());
        factor.filter(|factor| (0.01..=100.0).contains(factor)).ok_or_else(|| {
            format!("`{text}` is no multiple of the rate: write it as in `4x`, from 0.01x to 100x")
        })
    }

    /// Returns the initial window in segments, if the file sets it.
    pub(crate) fn first_window(&self) -> Option<u32> {
        self.first_window.as_ref().map(|segments| *segments.get_ref())
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic.as_ref().map(|traffic| *traffic.get_ref()).unwrap_or_default()
    }
}

impl Setting for TwoHosts {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let hosts: Vec<Spanned<String>> = Setting::read(node, mistakes)?;
        hosts.try_into().map(Self).ok().or_else(|| {
            let reason = "a link is `between` two hosts".to_owned();
            mistakes.add(node.span(), What::Refused(reason));
            Self::stand_in(&node.span(), mistakes)
        })
    }

    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        let host = Spanned::<String>::stand_in(place, mistakes)?;
        Some(Self([host.clone(), host]))
    }
}

impl Setting for NumberOrText {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        match node.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.clone().into_owned())),
            _ => u32::read(node, mistakes).map(Self::Number),
        }
    }

    fn stand_in(place: &Range<usize>, mistakes: &mut Mistakes) -> Option<Self> {
        String::stand_in(place, mistakes).map(Self::Text)
    }
}

impl NumberOrText {
    pub(super) fn contains(&self, part: &str) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Text(text) => text.contains(part),
        }
    }
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

const LONGEST: u64 = 1 << 20;
/// Maximum number of axes for which the text is searched one by one.
const MOST_SEARCHES: usize = 100;
/// Number of worlds that a generated short form of a lab with `[draw]` measures.
const SHORT_DRAWS: u32 = 24;
const SHORT_QUICK: Span = Span::from_millis(3000);
const SHORT_SMOKE: Span = Span::from_millis(1000);
const SHORT_OMISSION: Span = Span::from_millis(1000);
