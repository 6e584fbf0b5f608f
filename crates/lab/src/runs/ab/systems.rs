//! Two systems of a lab, alternated over one network that stays up throughout.

use crate::bench::LabFile;
use crate::bench::machine::{CpuPlan, Emulation, Kept, Loaded, MachineStep, Stream, Testbed};
use crate::model::file::{Ends, SystemKind, SystemSpec};
use crate::model::{Cancel, Failure, Flaw, LabError};
use crate::workloads::measure_bulk;
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
    /// Name of the compared metric.
    pub metric: String,
    /// Path of `weir` itself, which generates the traffic.
    pub weir: PathBuf,
}

/// Whether more or less of a metric is better.
pub fn direction_of(metric: &str) -> Result<Direction, LabError> {
    let known = metrics::names();
    if !known.iter().any(|name| name == metric) {
        let hint = units::did_you_mean(metric, known.iter().map(String::as_str));
        return Err(LabError::Usage(format!("--metric: no lab measures `{metric}`{hint}")));
    }
    metrics::direction(metric).ok_or_else(|| {
        let text = format!("--metric: neither more nor less of `{metric}` is better: name another");
        LabError::Usage(text)
    })
}

/// The network on which the turns of both systems run.
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
        if lab.state.is_some() {
            let text =
                "this lab switches a `[state]`, which weir lab ab does not: use weir lab run";
            return Err(LabError::Usage(text.to_owned()));
        }
        check_lab(lab)?;
        let (base, change) = (tcp_system(lab, &contest.base)?, tcp_system(lab, &contest.change)?);
        if !(SHORTEST_SLICE..=LONGEST_SLICE).contains(&contest.slice) {
            let text = format!("--slice is from {SHORTEST_SLICE} to {LONGEST_SLICE}");
            return Err(LabError::Usage(text));
        }
        let whole = contest.slice.nanos().is_multiple_of(1_000_000_000);
        if !whole && [base, change].iter().any(|system| system.traffic().peer().is_some()) {
            let text = "iperf3 counts in whole seconds: add --slice 1s".to_owned();
            return Err(LabError::Usage(text));
        }
        let axes = place(lab, &contest.at)?;
        let cpus = CpuPlan::for_lab(lab);
        let ends = lab.kind().ends(lab, &axes)?;
        let (links, disturbance) = (lab.links_at(&axes)?, lab.disturbance_at(&axes)?);
        [base, change].into_iter().try_for_each(check_system)?;
        let settings = lab.settings_at(&axes, None)?;
        let testbed = Testbed::build(lab, &ends, links, &settings, disturbance, lab.seed, &cpus)
            .map_err(LabError::not_measured)?;
        Ok(Self { contest, base, change, axes, ends, cpus, testbed })
    }

    /// Measures one turn. Adds the number of times that the turn was measured again to `repeats`.
    pub(super) fn measure(
        &mut self,
        state: State,
        repeats: &mut usize,
        cancel: &Cancel,
    ) -> Result<f64, Failure> {
        let system = if state == State::Base { self.base } else { self.change };
        let alike = self.base.traffic() == self.change.traffic();
        match &system.congestion {
            // This process sends by itself: the start of a program may take longer than a transfer.
            Some(congestion) if alike && self.contest.metric == GOODPUT => {
                self.stream(congestion.get_ref(), cancel)
            }
            _ => self.by_programs_with_patience(system, repeats, cancel),
        }
    }

    /// Measures a turn. If the lab read the transfer too late, measures the turn again and counts
    /// the repetition. On a busy machine a few of hundreds of turns are read too late. No figure
    /// and no other failure causes a repetition.
    fn by_programs_with_patience(
        &self,
        system: &SystemSpec,
        repeats: &mut usize,
        cancel: &Cancel,
    ) -> Result<f64, Failure> {
        with_patience(repeats, || match cancel.is_cancelled() {
            true => Err(Failure::Interrupted),
            false => self.by_programs(system, cancel),
        })
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
            loaded: &Loaded::default(),
            cancel,
        };
        let measured = measure_bulk(&step, &self.testbed)?.result;
        let metric = &self.contest.metric;
        measured.metrics.get(metric).map(|value| value.value).ok_or_else(|| {
            Failure::Workload(format!("a transfer of {} has no {metric}", system.name()))
        })
    }

    /// Takes the network down. Returns the reason if the measurements over the network are invalid.
    pub(super) fn finish(self) -> Result<Option<Flaw>, LabError> {
        let bound = self.testbed.lateness_bound();
        let seen = self.testbed.finish().map_err(LabError::not_measured)?;
        Ok(seen.as_ref().and_then(|seen| bound.exceeded(&Emulation::of(seen))))
    }
}

fn with_patience(
    repeats: &mut usize,
    mut measure: impl FnMut() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    for _ in 0..RETRIES {
        match measure() {
            Err(Failure::ReadTooLate { .. }) => *repeats += 1,
            measured => return measured,
        }
    }
    measure()
}

/// Refuses a lab whose measurements are not transfers between namespaces.
fn check_lab(lab: &LabFile) -> Result<(), LabError> {
    if lab.has_real_hosts() {
        let text = "the hosts of this lab are real machines, and weir lab ab alternates in namespaces of this machine: \
                    use weir lab run";
        return Err(LabError::Usage(text.to_owned()));
    }
    match lab.kind().kind() {
        "bulk" => Ok(()),
        kind => Err(LabError::Usage(format!(
            "weir lab ab alternates transfers (`bulk`), and the workload of this lab is `{kind}`: use weir lab run"
        ))),
    }
}

/// Refuses a system with settings of its own: both systems share the hosts and the links.
fn check_system(system: &SystemSpec) -> Result<(), LabError> {
    let own = [
        ("sysctl", !system.sysctl.is_empty()),
        ("changes", !system.changes.is_empty()),
        ("queue", system.queue.is_some()),
    ];
    match own.into_iter().find(|(_, has)| *has) {
        None => Ok(()),
        Some((key, _)) => Err(LabError::Usage(format!(
            "both systems share the hosts and the links, and `{}` has a `{key}` of its own: compare the systems with \
             weir lab run",
            system.name()
        ))),
    }
}

/// Finds a system that uses the kernel's TCP.
fn tcp_system<'a>(lab: &'a LabFile, name: &str) -> Result<&'a SystemSpec, LabError> {
    let known: Vec<&str> = lab.systems().map(SystemSpec::name).collect();
    let Some(system) = lab.systems().find(|system| system.name() == name) else {
        let hint = units::did_you_mean(name, known.iter().copied());
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

/// Returns the lab's first combination of axis values that agrees with `wanted`.
fn place(lab: &LabFile, wanted: &Axes) -> Result<Axes, LabError> {
    for (axis, value) in wanted {
        let Some(values) = lab.axes.get(axis) else {
            let hint = units::did_you_mean(axis, lab.axes.keys().map(String::as_str));
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

/// Name of the metric that is compared by default.
pub const GOODPUT: &str = "goodput_mbit_s";
const RETRIES: usize = 2;
/// Minimum of `slice`. A shorter transfer shows only the opening of a connection.
const SHORTEST_SLICE: Span = Span::from_millis(10);
const LONGEST_SLICE: Span = Span::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_transfer_that_the_lab_read_too_late_is_measured_again() {
        let late = || Err(Failure::ReadTooLate { program: "weir perf".to_owned() });
        let broken = || Err(Failure::Workload("connection reset".to_owned()));
        let measured = |mut turns: Vec<Result<f64, Failure>>| {
            turns.reverse();
            let mut repeats = 0;
            let value = with_patience(&mut repeats, || turns.pop().unwrap());
            (value.map_err(|failure| failure.to_string()), repeats, turns.len())
        };
        assert_eq!(measured(vec![Ok(5.0), Ok(6.0)]), (Ok(5.0), 0, 1));
        assert_eq!(measured(vec![late(), late(), Ok(6.0)]), (Ok(6.0), 2, 0));
        let failed = measured(vec![broken(), Ok(6.0)]);
        assert_eq!(failed, (Err("connection reset".to_owned()), 0, 1));
        assert!(measured(vec![late(), late(), late(), Ok(1.0)]).0.is_err());
    }

    #[test]
    fn ab_accepts_only_known_metrics_with_a_direction() {
        assert_eq!(direction_of(GOODPUT).unwrap(), Direction::HigherIsBetter);
        assert_eq!(direction_of("fct_ms.p50").unwrap(), Direction::LowerIsBetter);
        let told = |metric| direction_of(metric).unwrap_err().to_string();
        assert!(told("goodput_mbit").contains("did you mean `goodput_mbit_s`"));
        assert!(told("downloads").contains("neither more nor less of `downloads` is better"));
    }

    #[test]
    fn ab_uses_the_named_axis_values_and_otherwise_the_first_values() {
        let lab = crate::builtin::open("quic-tun").unwrap();
        let first: Axes = lab
            .axes
            .iter()
            .map(|(axis, values)| (axis.clone(), values.get_ref()[0].get_ref().clone()))
            .collect();
        assert_eq!(place(&lab, &Axes::new()).unwrap(), first);
        let wanted = |axis: &str, value: &str| Axes::from([(axis.to_owned(), value.to_owned())]);
        let at = place(&lab, &wanted("loss", "1%")).unwrap();
        assert_eq!(at["loss"], "1%");
        assert_ne!(at, first, "1 % is not the first value of the axis");
        assert_eq!(at["rtt"], first["rtt"]);
        let told = |axis, value| place(&lab, &wanted(axis, value)).unwrap_err().to_string();
        assert!(told("los", "1%").contains("did you mean `loss`"));
        assert!(told("loss", "77%").contains("axis `loss` has no value `77%`"));
    }

    #[test]
    fn ab_refuses_a_lab_that_it_would_measure_in_another_way() {
        let text = |workload: &str, more: &str| {
            format!(
                "name = \"x\"\nhosts = [\"a\", \"b\"]\n{more}[[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
                 [workload]\n{workload}\nfrom = \"a\"\nto = \"b\"\n[[system]]\nname = \"plain\"\nkind = \"tcp\"\n\
                 congestion = \"cubic\"\nsysctl = {{ \"net.ipv4.tcp_sack\" = \"0\" }}\n\
                 [form.full]\nduration = \"1s\"\n"
            )
        };
        let lab = |text: String| LabFile::parse("x.toml", &text).unwrap();
        let refused = |text: String| check_lab(&lab(text)).unwrap_err().to_string();
        let bulk = "kind = \"bulk\"";
        assert!(check_lab(&lab(text(bulk, ""))).is_ok());
        let hosts = "[host.a]\nssh = \"a\"\n[host.b]\nssh = \"b\"\n";
        assert!(refused(text(bulk, hosts)).contains("are real machines"));
        let command = refused(text("kind = \"command\"\nclient = \"true\"", ""));
        assert!(command.contains("is `command`: use weir lab run"), "{command}");
        let lab = lab(text(bulk, ""));
        let own = check_system(tcp_system(&lab, "plain").unwrap()).unwrap_err().to_string();
        assert!(own.contains("`plain` has a `sysctl` of its own"), "{own}");
    }

    #[test]
    fn ab_compares_only_systems_of_the_kernels_tcp() {
        let lab = crate::builtin::open("quic-tun").unwrap();
        for name in ["tcp-cubic", "tcp-bbr"] {
            assert_eq!(tcp_system(&lab, name).unwrap().name(), name);
        }
        let told = |name| tcp_system(&lab, name).unwrap_err().to_string();
        assert!(told("tcp-cubik").contains("did you mean `tcp-cubic`"));
        let other = lab.systems().find(|system| system.kind != SystemKind::Tcp).unwrap();
        assert!(told(other.name()).contains("is not the kernel's TCP"));
    }
}
