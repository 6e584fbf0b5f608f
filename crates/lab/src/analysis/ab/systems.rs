//! Two systems of a lab, alternated over one network that stays up throughout.

use super::not_measured;
use crate::executor::machine::{CpuPlan, Kept, MachineStep, Stream, Testbed};
use crate::file::{Ends, SystemKind, SystemSpec, Traffic};
use crate::run::Flaw;
use crate::workload::measure_bulk;
use crate::{Cancel, Failure, LabError, LabFile, nearest};
use results::{Axes, Form, metrics};
use stats::Direction;
use stats::ab::State;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::Spanned;
use units::Span;

/// Two systems of a lab at one place of its axes.
#[derive(Debug)]
pub struct Systems {
    pub lab: LabFile,
    pub base: String,
    pub change: String,
    pub at: Axes,
    /// Duration of each transfer's measurement.
    pub slice: Span,
    /// The compared metric.
    pub metric: String,
    /// Path of `weir` itself, which generates the traffic.
    pub weir: PathBuf,
}

/// Whether more or less of a metric is better.
pub fn direction_of(metric: &str) -> Result<Direction, LabError> {
    let known = metrics::names();
    if !known.iter().any(|name| name == metric) {
        let hint = nearest(metric, known.iter().map(String::as_str));
        return Err(LabError::Usage(format!("--metric: no lab measures `{metric}`{hint}")));
    }
    metrics::direction(metric).ok_or_else(|| {
        let text = format!("--metric: neither more nor less of `{metric}` is better: name another");
        LabError::Usage(text)
    })
}

/// The network the steps run over.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    contest: &'a Systems,
    base: &'a SystemSpec,
    change: &'a SystemSpec,
    axes: Axes,
    ends: Ends,
    cpus: CpuPlan,
    testbed: Testbed,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(contest: &'a Systems) -> Result<Self, LabError> {
        let lab = &contest.lab;
        let (base, change) = (tcp_system(lab, &contest.base)?, tcp_system(lab, &contest.change)?);
        if !(SHORTEST_SLICE..=LONGEST_SLICE).contains(&contest.slice) {
            let text = format!("--slice is from {SHORTEST_SLICE} to {LONGEST_SLICE}");
            return Err(LabError::Usage(text));
        }
        let whole = contest.slice.nanos().is_multiple_of(1_000_000_000);
        if !whole && [base, change].iter().any(|system| system.traffic() == Traffic::Iperf3) {
            let text = "iperf3 counts in whole seconds: add --slice 1s".to_owned();
            return Err(LabError::Usage(text));
        }
        let axes = place(lab, &contest.at)?;
        let cpus = CpuPlan::for_lab(lab);
        let ends = lab.kind().ends(lab, &axes)?;
        let (links, disturbance) = (lab.links_at(&axes)?, lab.disturbance_at(&axes)?);
        if [base, change].iter().any(|system| !system.sysctl.is_empty()) {
            let text = "both systems share the hosts, so neither may have a `sysctl` of its own: \
                        compare them with `weir lab run`";
            return Err(LabError::Usage(text.to_owned()));
        }
        let settings = lab.settings_at(&axes, None)?;
        let testbed = Testbed::build(lab, &ends, links, &settings, disturbance, lab.seed, &cpus)
            .map_err(|failure| not_measured(&failure))?;
        Ok(Self { contest, base, change, axes, ends, cpus, testbed })
    }

    pub(super) fn measure(&mut self, state: State, cancel: &Cancel) -> Result<f64, Failure> {
        let system = if state == State::Base { self.base } else { self.change };
        let alike = self.base.traffic() == self.change.traffic();
        match &system.congestion {
            // Starting a program would take longer than such a transfer.
            Some(congestion) if alike && self.contest.metric == GOODPUT => {
                self.stream(congestion.get_ref(), cancel)
            }
            _ => self.by_programs_with_patience(system, cancel),
        }
    }

    /// On a busy machine a few of hundreds of short transfers may end before they are sampled
    /// twice. Only that failure causes a repeat, never a figure.
    fn by_programs_with_patience(
        &self,
        system: &SystemSpec,
        cancel: &Cancel,
    ) -> Result<f64, Failure> {
        let mut tries = 0;
        loop {
            match self.by_programs(system, cancel) {
                Err(Failure::Workload(why)) if tries < RETRIES && !cancel.is_cancelled() => {
                    tracing::debug!("{} is measured again: {why}", system.name());
                    tries += 1;
                }
                measured => return measured,
            }
        }
    }

    fn stream(&self, congestion: &str, cancel: &Cancel) -> Result<f64, Failure> {
        let Ends { from, to, .. } = &self.ends;
        let server = SocketAddr::new(self.testbed.address(to, from)?, 0);
        let (from, to) = (self.testbed.namespace(from)?, self.testbed.namespace(to)?);
        let cpus = &self.cpus.workload;
        let stream = Stream { from: &from, to: &to, server, congestion, cpus };
        stream.goodput(self.contest.slice, cancel)
    }

    fn by_programs(&self, system: &SystemSpec, cancel: &Cancel) -> Result<f64, Failure> {
        let step = MachineStep {
            lab: &self.contest.lab,
            system,
            axes: &self.axes,
            ends: &self.ends,
            form: Form::Full,
            duration: self.contest.slice,
            omit: Span::ZERO,
            seed: self.contest.lab.seed,
            cpus: &self.cpus,
            weir: &self.contest.weir,
            programs: &std::env::temp_dir(),
            kept: &Kept::default(),
            cancel,
        };
        let measured = measure_bulk(&step, &self.testbed)?.result;
        let metric = &self.contest.metric;
        measured.metrics.get(metric).map(|value| value.value).ok_or_else(|| {
            Failure::Workload(format!("a transfer of {} has no {metric}", system.name()))
        })
    }

    /// Takes the network down. Returns the reason if the measurements over it are invalid.
    pub(super) fn finish(self) -> Result<Option<Flaw>, LabError> {
        let bound = self.testbed.lateness_bound();
        let seen = self.testbed.finish().map_err(|failure| not_measured(&failure))?;
        Ok(seen.as_ref().and_then(|seen| bound.exceeded(seen)))
    }
}

/// Finds a system that uses the kernel's TCP.
fn tcp_system<'a>(lab: &'a LabFile, name: &str) -> Result<&'a SystemSpec, LabError> {
    let known: Vec<&str> = lab.systems().map(SystemSpec::name).collect();
    let Some(system) = lab.systems().find(|system| system.name() == name) else {
        let hint = nearest(name, known.iter().copied());
        let text = format!("no system `{name}`{hint}; the lab has {}", known.join(", "));
        return Err(LabError::Usage(text));
    };
    match system.kind {
        SystemKind::Tcp => Ok(system),
        _ => Err(LabError::Usage(format!(
            "`{name}` is not the kernel's TCP: short transfers compare only `kind = \"tcp\"`; \
             use --base-command and --change-command for others"
        ))),
    }
}

/// The lab's first combination of axis values that agrees with `wanted`.
fn place(lab: &LabFile, wanted: &Axes) -> Result<Axes, LabError> {
    for (axis, value) in wanted {
        let Some(values) = lab.axes.get(axis) else {
            let hint = nearest(axis, lab.axes.keys().map(String::as_str));
            return Err(LabError::Usage(format!("--at: the lab has no axis `{axis}`{hint}")));
        };
        let values: Vec<&str> = values.get_ref().iter().map(|v| v.get_ref().as_str()).collect();
        if !values.contains(&value.as_str()) {
            let text =
                format!("--at: axis `{axis}` has no value `{value}`, only {}", values.join(", "));
            return Err(LabError::Usage(text));
        }
    }
    let value = |(axis, values): (&String, &Spanned<Vec<Spanned<String>>>)| {
        let first = || values.get_ref().first().map(|value| value.get_ref().clone());
        Some((axis.clone(), wanted.get(axis).cloned().or_else(first)?))
    };
    lab.axes
        .iter()
        .map(value)
        .collect::<Option<Axes>>()
        .ok_or_else(|| LabError::Usage("the lab has no cell".to_owned()))
}

/// The metric that is compared by default.
pub const GOODPUT: &str = "goodput_mbit_s";
const RETRIES: usize = 2;
/// A shorter slice shows only the opening of a connection.
const SHORTEST_SLICE: Span = Span::from_millis(10);
const LONGEST_SLICE: Span = Span::from_secs(3600);
