use crate::{DirectionStatistics, EmulatorStatistics, Lateness};
use link::LinkConfig;
use serde::{Deserialize, Serialize};
use units::Span;

/// One running or ended link, as `--json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkReport {
    pub name: String,
    pub pid: u32,
    pub a: String,
    pub b: String,
    pub running: Span,
    /// False if the emulation itself spoiled the measurement; `problems` explains how.
    pub valid: bool,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
    /// Settings that do not suit the path.
    #[serde(default)]
    pub warnings: Vec<String>,
    pub real_time: bool,
    /// Share of a core spent on frames, in percent.
    pub busy_percent: f64,
    /// CPU time of the emulation, including spinning before deadlines.
    #[serde(default)]
    pub cpu_seconds: f64,
    pub lateness: LatenessSummary,
    pub ab: DirectionReport,
    pub ba: DirectionReport,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectionReport {
    pub config: LinkConfig,
    pub statistics: DirectionStatistics,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatenessSummary {
    pub frames: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// The part of a link's report that does not come from its emulator.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) ends: [String; 2],
    pub(crate) notes: Vec<String>,
}

impl LinkReport {
    pub(crate) fn new(
        identity: &Identity,
        configs: [LinkConfig; 2],
        warnings: Vec<String>,
        mut seen: EmulatorStatistics,
    ) -> Option<Self> {
        let cable = (!seen.cables.is_empty()).then(|| seen.cables.swap_remove(0))?;
        let lateness = LatenessSummary::of(&seen.lateness);
        let [a, b] = identity.ends.clone();
        let [ab, ba] = configs;
        let problems = problems(&lateness, &cable.forward, &cable.backward);
        Some(Self {
            name: identity.name.clone(),
            pid: std::process::id(),
            a,
            b,
            running: seen.running,
            valid: problems.is_empty(),
            problems,
            notes: identity.notes.clone(),
            warnings,
            real_time: seen.real_time,
            busy_percent: seen.worked.secs_f64() / seen.running.secs_f64().max(1e-9) * 100.0,
            cpu_seconds: seen.cpu.secs_f64(),
            lateness,
            ab: DirectionReport { config: ab, statistics: cable.forward },
            ba: DirectionReport { config: ba, statistics: cable.backward },
        })
    }

    pub fn cpu_percent(&self) -> f64 {
        self.cpu_seconds / self.running.secs_f64().max(1e-9) * 100.0
    }
}

impl LatenessSummary {
    pub(crate) fn of(lateness: &Lateness) -> Self {
        Self {
            frames: lateness.frames(),
            p50_us: lateness.quantile(0.5).micros_f64(),
            p99_us: lateness.quantile(0.99).micros_f64(),
            max_us: lateness.max().micros_f64(),
        }
    }
}

fn problems(
    lateness: &LatenessSummary,
    ab: &DirectionStatistics,
    ba: &DirectionStatistics,
) -> Vec<String> {
    let lost = [("a to b", ab), ("b to a", ba)].into_iter().filter_map(|(way, statistics)| {
        let lost = statistics.lost_outside_model;
        (lost > 0).then(|| {
            format!(
                "{lost} frames from {way} were lost at the ports, but the model did not drop them"
            )
        })
    });
    let late = (lateness.p99_us > LATENESS_BOUND.micros_f64()).then(|| {
        format!(
            "frames left {:.0} µs late at p99, more than {LATENESS_BOUND}: end other programs, or leave the link a CPU of its own",
            lateness.p99_us
        )
    });
    lost.chain(late).collect()
}

/// Maximum lateness of a valid run. A sender notices more on a path of some milliseconds.
pub(crate) const LATENESS_BOUND: Span = Span::from_millis(1);
