use super::check::CASE;
use super::locate::{FileError, Source};
use super::tcp::TcpSpec;
use super::topology::TopologySpec;
use crate::builtin::BUILTIN;
use indexmap::IndexMap;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt::Formatter;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use units::{Share, Span};

/// One experiment: hosts, the links between them, what is tested, under which conditions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabFile {
    pub name: Spanned<String>,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub question: String,
    #[serde(default)]
    pub hosts: Vec<Spanned<String>>,
    /// Swept together: every combination of values is one cell for every system.
    #[serde(default)]
    pub axes: IndexMap<String, Spanned<Vec<Spanned<String>>>>,
    /// What a value of an axis stands for where it is put in.
    #[serde(default)]
    pub words: IndexMap<Spanned<String>, Spanned<String>>,
    /// Axis to value: what holds where a choice of cells does not name the axis.
    #[serde(default)]
    pub usual: IndexMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    pub link: Vec<Spanned<LinkSpec>>,
    /// The network around the link.
    pub topology: Option<Spanned<TopologySpec>>,
    /// The hosts of virtual time.
    pub tcp: Option<Spanned<TcpSpec>>,
    pub workload: Spanned<WorkloadSpec>,
    pub system: Vec<Spanned<SystemSpec>>,
    /// Kernel settings of every host, read back after they are set.
    #[serde(default)]
    pub sysctl: IndexMap<Spanned<String>, String>,
    #[serde(default)]
    pub form: IndexMap<Spanned<String>, FormSpec>,
    /// One `[compare]`, or several `[[compare]]`.
    #[serde(default, deserialize_with = "one_or_more")]
    pub compare: Vec<CompareSpec>,
    #[serde(default)]
    pub view: Option<ViewSpec>,
    #[serde(default)]
    pub heat: Vec<HeatSpec>,
    #[serde(default)]
    pub trace: Vec<TraceSpec>,
    #[serde(default)]
    pub reference: Vec<ReferenceSpec>,
    /// For whoever reads the report.
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(default)]
    pub seed: u64,
    #[serde(skip)]
    pub(crate) source: Source,
}

/// A link between two hosts. A setting counts for both directions; `forward` (from the first to the
/// second of `between`) and `backward` override it for one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// What the workload's `via` calls it.
    pub name: Option<Spanned<String>>,
    #[serde(deserialize_with = "two_hosts")]
    pub between: Spanned<[Spanned<String>; 2]>,
    /// A plain cable, without an emulator between its ends.
    pub direct: Option<Spanned<bool>>,
    #[serde(default)]
    pub mtu: Option<Spanned<u32>>,
    #[serde(default)]
    pub forward: DirectionSpec,
    #[serde(default)]
    pub backward: DirectionSpec,
    pub rate: Option<Spanned<String>>,
    pub trace: Option<Spanned<String>>,
    /// Half of it in each direction.
    pub rtt: Option<Spanned<String>>,
    pub delay: Option<Spanned<String>>,
    pub jitter: Option<Spanned<String>>,
    pub loss: Option<Spanned<String>>,
    pub reorder: Option<Spanned<String>>,
    pub duplicate: Option<Spanned<String>>,
    pub corrupt: Option<Spanned<String>>,
    /// May use `1bdp` and `max(…)`: `droptail:max(1bdp,256KiB)`.
    pub queue: Option<Spanned<String>>,
    pub overhead: Option<Spanned<String>>,
    /// The rate later on: `50% at 10s`.
    pub steps: Option<Spanned<String>>,
    /// What drops what comes faster: `50%,burst=64KiB`.
    pub policer: Option<Spanned<String>>,
    /// What is delivered comes together, every so often: `4ms`.
    pub aggregate: Option<Spanned<String>>,
    /// How often at most the hosts' network cards interrupt them: `100us`.
    pub interrupts: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// One TCP transfer at full speed.
    Bulk,
    /// The emulated link itself, judged by a flood, paced datagrams and time-stamped probes.
    LinkAccuracy,
    /// Files over http, from a web server to clients at the ends of several links at once.
    Download,
    /// New connections, and small messages there and back over those that stand.
    Messages,
    /// Many connections: most of them idle, some at full speed.
    Crowd,
    /// Flows that share a link, in virtual time.
    Flows,
    /// The simulator's own model, held against theory and published figures.
    Validate,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    pub kind: WorkloadKind,
    pub from: Option<Spanned<String>>,
    /// The host at the other end of a link; `via` names the way instead.
    pub to: Option<Spanned<String>>,
    /// A link's name, or `loopback`; for downloads several names with commas between.
    pub via: Option<Spanned<String>>,
    pub streams: Option<Spanned<NumberOrText>>,
    /// How many messages go over one connection.
    pub messages: Option<Spanned<NumberOrText>>,
    /// How many connections stand without anything going over them.
    pub idle: Option<Spanned<NumberOrText>>,
    /// How many flows of the system under test.
    pub flows: Option<Spanned<NumberOrText>>,
    /// Who else is on the link: `none`, an algorithm, `own`, or several: `4xcubic`.
    pub beside: Option<Spanned<String>>,
    /// The time from one flow's start to the next one's.
    pub stagger: Option<Spanned<String>>,
    /// What each flow has to carry, without end if nothing is said; of downloads the file's, of messages
    /// each one's.
    pub size: Option<Spanned<String>>,
    /// How flows of the system under test come: `60%`, `20/s`, `every 50ms`.
    pub arrivals: Option<Spanned<String>>,
    /// What limits their applications: `50%`, `5mbit,on=1s,off=1s`, `64KB every 100ms`.
    pub demand: Option<Spanned<String>>,
    /// UDP on the same link: `30%`, `5mbit,poisson`.
    pub cross: Option<Spanned<String>>,
    /// What flows of the system under test remember of the path: `none`, `warm`, `wrong`, `3x`.
    pub memory: Option<Spanned<String>>,
    #[serde(default)]
    pub pin: Pinning,
    /// Left out of every figure: start-up is not what is asked.
    pub omit: Option<Spanned<Span>>,
}

/// Which CPUs the programs of the two ends get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// Both ends all of the workload's.
    #[default]
    Free,
    /// Each end one of its own.
    Apart,
}

/// Which programs make the traffic of a `bulk` workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// `weir perf`.
    #[default]
    Perf,
    /// The same without what it reads beside the streams.
    PerfBare,
    /// The stock iperf3, where it is installed.
    Iperf3,
    /// `weir perf plain-client`: a loop around a socket.
    Sockets,
}

/// A number, or a text in which an axis stands for it.
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
    /// A pair of programs that carry the workload's connection.
    External,
    /// In virtual time: a QUIC tunnel like `weir tunnel`'s that carries the workload's TCP.
    Tunnel,
    /// The emulated link, when it is the link that is judged.
    Link,
    /// The simulator, when it is the simulator that is judged.
    Model,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemSpec {
    pub name: Spanned<String>,
    pub kind: SystemKind,
    /// For `tcp` the algorithm of the measured connection; for `external` that of the workload's own; for `tunnel` the
    /// tunnel's.
    pub congestion: Option<Spanned<String>>,
    /// Who makes the traffic; `perf` if nobody is named.
    pub traffic: Option<Spanned<Traffic>>,
    /// Command lines; `{client}` and `{server}` stand for the hosts' addresses, `{port}` for the
    /// workload's port.
    pub server: Option<Spanned<String>>,
    pub client: Option<Spanned<String>>,
    /// What the commands read: file name to text, filled in as commands are; `{files}` is their folder.
    #[serde(default)]
    pub files: IndexMap<Spanned<String>, Spanned<String>>,
    /// Where the workload connects in the client's host instead of straight to the server.
    pub connect: Option<Spanned<String>>,
    /// Each path has been used just before, and what the algorithm remembers of it is used.
    pub warm: Option<Spanned<bool>>,
    /// In virtual time: its own queue at the bottleneck, in place of the link's.
    pub queue: Option<Spanned<String>>,
    /// CAQM's settings of the hosts, `rtt_standard=200us,ends=both`.
    pub caqm: Option<Spanned<String>>,
    /// Left out, and said so, where its programs are not installed.
    #[serde(default)]
    pub optional: bool,
    #[serde(default)]
    pub note: String,
}

/// How long and how often: the full form, `quick` for people in a hurry, `smoke` for tests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormSpec {
    #[serde(default = "one")]
    pub repeats: Spanned<u32>,
    pub duration: Spanned<Span>,
    pub omit: Option<Spanned<Span>>,
    /// Only the cells that agree with one of these; every cell if there are none.
    #[serde(default)]
    pub cells: Vec<CellFilter>,
}

pub type CellFilter = IndexMap<Spanned<String>, Vec<Spanned<String>>>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareSpec {
    pub baseline: Spanned<String>,
    /// What is held against it; every other system if none is named.
    #[serde(default)]
    pub systems: Vec<Spanned<String>>,
    pub metrics: Vec<Spanned<String>>,
    /// Differences smaller than this do not matter in practice.
    pub threshold: Option<Spanned<Share>>,
    /// Metrics that say what is possible: the ratios are held against what that is over the baseline.
    #[serde(default)]
    pub ideal: Vec<Spanned<String>>,
    /// So much of the first of them is wanted, where the reference numbers have no smaller ratio.
    pub of_ideal: Option<Spanned<Share>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewSpec {
    pub metric: Spanned<String>,
    pub rows: Option<Spanned<String>>,
    /// The system that the report speaks of, and those it is held against, by their means.
    pub system: Option<Spanned<String>>,
    #[serde(default)]
    pub against: Vec<Spanned<String>>,
    /// Axes that vary within each group of cells, where means are told by what else is unusual.
    #[serde(default)]
    pub over: Vec<Spanned<String>>,
    /// The metrics beside the main one on a terminal.
    #[serde(default)]
    pub beside: Vec<Spanned<String>>,
    /// The cells that a terminal shows; all if nothing is said.
    #[serde(default)]
    pub at: CellFilter,
}

/// Cells whose curves are kept: windows, rates, round trips and the queue along the time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    pub at: CellFilter,
    /// All if none is named.
    #[serde(default)]
    pub systems: Vec<Spanned<String>>,
}

/// Heat maps: a metric over two axes, one map for each system.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatSpec {
    pub metrics: Vec<Spanned<String>>,
    pub x: Spanned<String>,
    pub y: Spanned<String>,
    /// Only the cells that agree with this.
    #[serde(default)]
    pub at: CellFilter,
}

/// What somebody else measured under the same conditions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceSpec {
    pub system: String,
    /// The systems of this lab it is shown beside; that of the same name if none.
    #[serde(default)]
    pub beside: Vec<Spanned<String>>,
    #[serde(default)]
    pub axes: IndexMap<Spanned<String>, Spanned<String>>,
    pub metrics: IndexMap<Spanned<String>, f64>,
    #[serde(default)]
    pub source: String,
}

impl LabFile {
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let file = path.display().to_string();
        let unreadable = |reason| FileError::Unreadable { file: file.clone(), reason };
        let mut bytes = Vec::new();
        // A device or another's huge file is no lab, and must not fill the memory.
        let opened = std::fs::File::open(path).map_err(unreadable)?;
        opened.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let at = |line, message: &str| FileError::At {
            file: file.clone(),
            line,
            message: message.to_owned(),
        };
        if bytes.len() as u64 > LONGEST {
            return Err(at(1, "longer than 1 MiB: this is no lab file"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) => {
                let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
                Err(at(line, "not text in UTF-8: this is no lab file"))
            }
        }
    }

    /// What a command line calls it: a built-in lab by its name, any other by its file.
    pub(crate) fn asked_for(&self) -> String {
        let file = self.source.file();
        match BUILTIN.iter().find(|builtin| file == format!("labs/{}.toml", builtin.name)) {
            Some(builtin) if *self.source.text() == *builtin.text => builtin.name.to_owned(),
            _ => file.to_owned(),
        }
    }

    /// `file` is what messages call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let source = Source::new(file, text);
        let mut lab: Self = toml::from_str(text).map_err(|error| source.malformed(&error))?;
        lab.source = source;
        if lab.workload.get_ref().kind == WorkloadKind::Validate {
            lab.take_all_cases();
        }
        lab.check()?;
        Ok(lab)
    }

    /// Where a file names no cases it means all that the simulator has.
    fn take_all_cases(&mut self) {
        let place = self.workload.span();
        let all = || {
            let cases = sim::validate::cases().into_iter();
            let names = cases.map(|case| Spanned::new(place.clone(), case.name.to_owned()));
            Spanned::new(place.clone(), names.collect())
        };
        self.axes.entry(CASE.to_owned()).or_insert_with(all);
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// The file, letter by letter: it goes into the run directory.
    pub fn text(&self) -> Arc<str> {
        self.source.text()
    }

    pub fn systems(&self) -> impl Iterator<Item = &SystemSpec> {
        self.system.iter().map(Spanned::get_ref)
    }
}

impl SystemSpec {
    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub fn is_warm(&self) -> bool {
        self.warm.as_ref().is_some_and(|warm| *warm.get_ref())
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic.as_ref().map(|traffic| *traffic.get_ref()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for NumberOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrTextVisitor)
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

struct NumberOrTextVisitor;

impl Visitor<'_> for NumberOrTextVisitor {
    type Value = NumberOrText;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("u32")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<NumberOrText, E> {
        u32::try_from(number)
            .map(NumberOrText::Number)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Text(text.to_owned()))
    }
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

/// A table by itself or an array of tables, each with its own messages: an untagged enum would tell
/// only that none of its kinds fits.
fn one_or_more<'de, D>(deserializer: D) -> Result<Vec<CompareSpec>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Tables;

    impl<'de> Visitor<'de> for Tables {
        type Value = Vec<CompareSpec>;

        fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<CompareSpec>, A::Error> {
            CompareSpec::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, tables: A) -> Result<Vec<CompareSpec>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(tables))
        }
    }

    deserializer.deserialize_any(Tables)
}

/// An array type alone would take the first two of three.
fn two_hosts<'de, D>(deserializer: D) -> Result<Spanned<[Spanned<String>; 2]>, D::Error>
where
    D: Deserializer<'de>,
{
    let hosts = Spanned::<Vec<Spanned<String>>>::deserialize(deserializer)?;
    let place = hosts.span();
    match <[Spanned<String>; 2]>::try_from(hosts.into_inner()) {
        Ok(two) => Ok(Spanned::new(place, two)),
        Err(_) => Err(serde::de::Error::custom("a link is `between` two hosts")),
    }
}

const LONGEST: u64 = 1 << 20;
