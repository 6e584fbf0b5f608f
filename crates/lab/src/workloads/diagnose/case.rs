//! Parses one case: from the keys of `[workload]`, or from a built-in fault that has these keys.

use super::composition::{Composition, Drawn};
use super::expected::Expected;
use super::library;
use crate::model::file::{Document, FileError, Key, LinkSettings};
use results::Axes;
use units::Share;

/// A case: a load, a fault, and the right verdicts.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(super) expected: Expected,
    pub(super) written_expectation: String,
    /// The right verdicts about a capture, if they differ from `expected`.
    captured: Option<(Expected, String)>,
    /// The right verdicts about a sender whose congestion control ignores loss, if they differ from
    /// `expected`.
    paced: Option<(Expected, String)>,
    /// Shell scripts, run in each host before the load.
    pub(super) setup: Sides<Option<String>>,
    /// Shell commands of the load, which run until the doctor has given its verdict.
    pub(super) load: Sides<Option<String>>,
    pub(super) quota: Sides<Option<Share>>,
    /// Number of processes that keep the sender's CPU busy. The sender is pinned to this CPU.
    pub(super) hogs: u32,
    /// The host in which `weir doctor` runs.
    pub(super) side: Side,
    pub(super) question: Asked,
    /// Programs of the load. If the machine lacks a program, the lab leaves the turn out and
    /// reports the missing program.
    pub(super) needs: Vec<String>,
    /// The seconds within which the load makes the file `$READY`; 0: the load makes no such file.
    pub(super) ready_within: u32,
    /// Minimum duration of the doctor's observation in seconds, in every form.
    pub(super) watch_at_least: u32,
    /// The core whose CPU time is recorded; `None`: the busiest core.
    pub(super) core: Option<u32>,
    /// The doctor's option `--cpus`; `None`: all CPUs.
    pub(super) cpus: Option<String>,
    /// The links of a built-in fault or of a composition.
    pub(super) own_links: Option<Vec<LinkSettings>>,
    /// The description and the proof of a composition.
    pub(super) drawn: Option<Drawn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// The subject that `weir doctor` diagnoses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Machine,
    /// The connections that the doctor's option `--flow` selects by this text.
    Flow(String),
    /// A test with the other host: `weir doctor HOST`.
    Test,
    /// The packets at the host's interface, captured from before the load starts.
    Capture,
}

/// A value for the sending host and a value for the receiving host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sides<T> {
    pub(super) sender: T,
    pub(super) receiver: T,
}

impl<T> Sides<T> {
    pub(super) fn of(&self, side: Side) -> &T {
        match side {
            Side::Sender => &self.sender,
            Side::Receiver => &self.receiver,
        }
    }
}

impl Case {
    pub(super) fn parse(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        let wrong = |key: Key| {
            move |message: String| {
                document.source.error(document.place_of_workload(&[key]), message)
            }
        };
        let (named, drawn) = (fault(document, axes)?, composition(document, axes)?);
        let (key, drawn, file) = match (named, drawn) {
            (None, None) => return Self::own(document, axes),
            (Some(_), Some(_)) => {
                let message = "`fault` and `composition` exclude each other: remove one of them";
                return Err(wrong(COMPOSITION)(message.to_owned()));
            }
            (Some(name), None) => (FAULT, None, library::open(&name)),
            (None, Some(drawn)) => {
                let file = drawn.open();
                (COMPOSITION, Some(drawn.drawn), file)
            }
        };
        let wrong = wrong(key);
        let fault = file.map_err(wrong)?;
        let names = |document: &Document| -> Vec<String> {
            document.hosts.iter().map(|host| host.get_ref().clone()).collect()
        };
        if names(document) != names(&fault) {
            let hosts = names(&fault).join("\", \"");
            return Err(wrong(format!("the faults have the hosts [\"{hosts}\"]: name these")));
        }
        let alone = Axes::new();
        let links = fault.links_at(&alone)?;
        let mut case = Self { own_links: Some(links), drawn, ..Self::own(&fault, &alone)? };
        if let Some(side) = document.workload_key(axes, SIDE, side)? {
            case.side = side;
        }
        if let Some(question) = document.workload_key(axes, ASK, asked)? {
            case.question = question;
        }
        Ok(case.about_a_capture())
    }

    /// Parses the case that the file's own keys describe.
    pub(super) fn own(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        // Scripts may contain braces. Axes do not replace braces in scripts.
        let script = |key: Key| document.workload.get_ref().text(key).map(str::to_owned);
        let load = |key: Key, usual: &str| match script(key) {
            Some(text) if text == NO_LOAD => None,
            text => Some(text.unwrap_or_else(|| usual.to_owned())),
        };
        let share = |key: Key| {
            document
                .workload_key(axes, key, |text| text.parse::<Share>().map_err(|e| e.to_string()))
        };
        let expected = document
            .workload_key(axes, EXPECT, |text| Ok((Expected::parse(text)?, text.to_owned())))?;
        let Some((expected, written_expectation)) = expected else {
            let place = document.workload.span();
            let message = "`expect` is missing here: which verdict is right?";
            return Err(document.source.error(place, message));
        };
        let needs = document.workload_key(axes, NEEDS, |text| {
            // `VALUE=PROGRAM` is a need of the cells with this axis value.
            let own = text.split_whitespace().filter_map(|word| match word.split_once('=') {
                Some((value, program)) => {
                    axes.values().any(|own| own == value).then(|| program.to_owned())
                }
                None => Some(word.to_owned()),
            });
            Ok(own.collect::<Vec<_>>())
        })?;
        let side = document.workload_key(axes, SIDE, side)?;
        let question = document.workload_key(axes, ASK, asked)?;
        let captured = document.workload_key(axes, EXPECT_CAPTURE, |text| {
            Ok((Expected::parse(text)?, text.to_owned()))
        })?;
        let paced = document.workload_key(axes, EXPECT_PACED, |text| {
            Ok((Expected::parse(text)?, text.to_owned()))
        })?;
        let case = Self {
            expected,
            written_expectation,
            captured,
            paced,
            setup: Sides { sender: script(SETUP_SENDER), receiver: script(SETUP_RECEIVER) },
            load: Sides {
                sender: load(SENDER, USUAL_SENDER),
                receiver: load(RECEIVER, USUAL_RECEIVER),
            },
            quota: Sides { sender: share(QUOTA_SENDER)?, receiver: share(QUOTA_RECEIVER)? },
            hogs: document.workload_count(axes, HOGS, 0..=MOST_HOGS)?.unwrap_or(0),
            side: side.unwrap_or(Side::Sender),
            needs: needs.unwrap_or_default(),
            ready_within: document
                .workload_count(axes, READY_WITHIN, 0..=MOST_SECONDS)?
                .unwrap_or(0),
            watch_at_least: document
                .workload_count(axes, WATCH_AT_LEAST, 0..=MOST_SECONDS)?
                .unwrap_or(0),
            question: question.unwrap_or(Asked::Machine),
            core: document.workload_count(axes, CORE, 0..=MOST_CORE)?,
            cpus: document.workload_key(axes, CPUS, |text| cpus(text, axes))?.flatten(),
            own_links: None,
            drawn: None,
        };
        Ok(case.about_a_capture())
    }

    /// Returns the case with the right verdicts about a sender of this congestion control.
    pub(super) fn of_sender(&self, congestion: Option<&str>) -> Self {
        let mut case = self.clone();
        let is_paced = congestion.is_some_and(|name| PACED.iter().any(|one| name.starts_with(one)));
        if let Some((expected, written)) = case.paced.take().filter(|_| is_paced) {
            (case.expected, case.written_expectation) = (expected, written);
        }
        if let Some(drawn) = case.drawn.as_mut().filter(|_| is_paced) {
            drawn.proof = drawn.paced.take().unwrap_or_else(|| drawn.proof.clone());
        }
        case
    }

    /// Replaces the expected verdicts if the doctor diagnoses a capture, which shows less than a
    /// machine.
    fn about_a_capture(mut self) -> Self {
        if self.question == Asked::Capture
            && let Some((expected, written)) = self.captured.take()
        {
            (self.expected, self.written_expectation) = (expected, written);
        }
        self
    }
}

fn side(text: &str) -> Result<Side, String> {
    match text {
        "sender" => Ok(Side::Sender),
        "receiver" => Ok(Side::Receiver),
        other => Err(format!("`{other}` is no side: write sender or receiver")),
    }
}

fn asked(text: &str) -> Result<Asked, String> {
    Ok(match text {
        "machine" => Asked::Machine,
        "test" => Asked::Test,
        "capture" => Asked::Capture,
        flow => Asked::Flow(flow.to_owned()),
    })
}

/// Returns the built-in fault that the cell at `axes` names.
pub(super) fn fault(document: &Document, axes: &Axes) -> Result<Option<String>, FileError> {
    document.workload_key(axes, FAULT, |name| Ok(name.to_owned()))
}

/// Whether the file names the value of the axis `fault` as its fault.
pub(super) fn names_each_fault(document: &Document) -> bool {
    document.workload.get_ref().text(FAULT) == Some("{fault}")
}

/// Returns the composition of the number that the cell at `axes` names.
pub(super) fn composition(
    document: &Document,
    axes: &Axes,
) -> Result<Option<Composition>, FileError> {
    document.workload_key(axes, COMPOSITION, |text| {
        let number = text.parse::<u64>();
        let number = number.map_err(|_| format!("`{text}` is no whole number, as in `12345`"))?;
        Ok(Composition::draw(number))
    })
}

/// Returns the name of the shell variable that holds the value of this axis.
pub(crate) fn variable_of(axis: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("AXIS_{}", axis.chars().map(plain).collect::<String>())
}

/// Returns the list of CPUs. The text has one list for all values of the axes, and may have other
/// lists for single values: `receive-two-cores=0-1 0`.
fn cpus(text: &str, axes: &Axes) -> Result<Option<String>, String> {
    let mut usual = None;
    let mut own = None;
    for word in text.split_whitespace() {
        let (value, list) = word.split_once('=').map_or((None, word), |(v, l)| (Some(v), l));
        units::parse_cpus(list)?;
        match value {
            None => usual = Some(list.to_owned()),
            Some(value) if axes.values().any(|own| own == value) => own = Some(list.to_owned()),
            Some(_) => {}
        }
    }
    Ok(own.or(usual))
}

/// The key with the name of a built-in fault: a file of labs/faults.
const FAULT: Key = Key::text("fault");
/// The key with the number from which a composition is drawn.
const COMPOSITION: Key = Key::text("composition");
/// The key with the right verdicts of the case.
const EXPECT: Key = Key::text("expect");
/// The key with the right verdicts about a sender whose congestion control [`PACED`] lists.
const EXPECT_PACED: Key = Key::text("expect-paced");
/// The key with the right verdicts about a capture.
const EXPECT_CAPTURE: Key = Key::text("expect-capture");
const SENDER: Key = Key::text("sender");
const RECEIVER: Key = Key::text("receiver");
const SETUP_SENDER: Key = Key::text("setup-sender");
const SETUP_RECEIVER: Key = Key::text("setup-receiver");
const QUOTA_SENDER: Key = Key::text("quota-sender");
const QUOTA_RECEIVER: Key = Key::text("quota-receiver");
const HOGS: Key = Key::count("hogs");
/// The key with the core whose CPU time is recorded.
const CORE: Key = Key::count("core");
/// The key with the doctor's option `--cpus`.
const CPUS: Key = Key::text("cpus");
/// The key with the host in which the doctor runs: the sender or the receiver.
const SIDE: Key = Key::text("side");
/// The key with the programs of the load, separated by spaces.
const NEEDS: Key = Key::text("needs");
const READY_WITHIN: Key = Key::count("ready-within");
/// The key with the minimum duration of the observation, for a fault that shows late.
const WATCH_AT_LEAST: Key = Key::count("watch-at-least");
/// `machine`, `test` (with the other host), `capture` (of packets), or a value of the doctor's
/// option `--flow`.
const ASK: Key = Key::text("ask");

pub(super) const KEYS: &[Key] = &[
    FAULT,
    COMPOSITION,
    EXPECT,
    EXPECT_CAPTURE,
    EXPECT_PACED,
    SENDER,
    RECEIVER,
    SETUP_SENDER,
    SETUP_RECEIVER,
    QUOTA_SENDER,
    QUOTA_RECEIVER,
    HOGS,
    CORE,
    CPUS,
    SIDE,
    ASK,
    NEEDS,
    READY_WITHIN,
    WATCH_AT_LEAST,
];
/// The keys whose text a shell runs.
pub(crate) const COMMANDS: [Key; 4] = [SETUP_SENDER, SETUP_RECEIVER, SENDER, RECEIVER];

/// Congestion controls that do not slow down when packets are lost. In a lab, tcpa has a temporary
/// name that begins with `weir_`.
const PACED: [&str; 3] = ["bbr", "tcpa", "weir_"];
const USUAL_SENDER: &str = "$WEIR doctor-load send $RECEIVER:$PORT";
const USUAL_RECEIVER: &str = "$WEIR doctor-load receive $RECEIVER:$PORT";
/// The value of `sender` or `receiver` for a host without load.
const NO_LOAD: &str = "none";
const MOST_HOGS: u32 = 16;
const MOST_CORE: u32 = 4095;
const MOST_SECONDS: u32 = 300;
