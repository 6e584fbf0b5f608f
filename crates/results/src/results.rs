//! The results of a lab: the content of `results.json`. Scripts read the file, so its keys never
//! change their meaning. A reader accepts unknown keys, and every optional key may be absent.

mod read;

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use stats::Verdict;
use units::{foreign, foreign_json};

use crate::ResultsError;
use read::{
    infinite_interval, interval, is_false, is_zero, null_is_infinite, null_is_nan,
    without_failures_of_cells_not_run, yes,
};

/// Axis name to value, both as written in the lab file, in the file's order.
pub type Axes = IndexMap<String, String>;

/// A run of a lab.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// Name of the lab, from its file.
    pub lab: String,
    /// Title from the lab file; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The question that the lab answers, from the lab file; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// The form of the run. Files of older writers read as the full form.
    #[serde(default)]
    pub form: Form,
    /// Whether this was the quick form. Scripts use `quick`, so it stays beside `form`.
    #[serde(default)]
    pub quick: bool,
    /// Whether the run as a whole is valid.
    pub valid: bool,
    /// A sentence for each kind of flaw, with its number of invalid cells and an example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_reasons: Vec<String>,
    /// The lab's question answered in one line, if the lab file has an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// The answer in one or two sentences. If empty, the report derives the answer from the
    /// comparisons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer: Vec<String>,
    /// Start of the run (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Wall-clock seconds of all parts of the run. Absent if the time of an earlier part is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// The exact command that repeats this run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The method of the lab, by topic: "repeats", "order", "interval", "discarded", …
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub method: IndexMap<String, String>,
    /// The metric and axis that the main table shows; `None`: the report chooses metric and axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// The environment (kernel, CPU, sysctls, versions, …): name to text, number or a nested map.
    #[serde(default)]
    pub environment: IndexMap<String, serde_json::Value>,
    /// Published numbers of the lab file.
    #[serde(default)]
    pub reference: Vec<Reference>,
    /// Every cell of the plan, in order, then the members of steps that measure several cells.
    pub cells: Vec<Cell>,
    /// All comparisons that the lab makes, judged together.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// The two states, if the lab switches between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<States>,
    /// Ratios over many paths, if the lab asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spreads: Vec<Spread>,
    /// The bounds of the lab file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bound>,
    /// Verdicts by case, if the lab judges verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
    /// Means over all cells, if the lab compares many cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Overall>,
    /// The same means, grouped by the axes on which the cells have unusual values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The correlation of successive repeats, for each metric that has an interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlations: Vec<Correlation>,
    /// Facts about this run for its reader: the lab file's notes, turns measured again and similar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Doubts about the run as a whole; doubts about a cell are in [`Cell::warnings`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The two states of a lab, whose systems are `before` and `after`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct States {
    /// The state's description.
    pub before: String,
    /// Description of the state with the change.
    pub after: String,
    /// The axis that names the host that has the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The mean of all comparisons. The mean of a block is the geometric mean of the ratios, each
    /// inverted if less is better. This value is the median of the blocks' means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Ratio>,
    /// The number of comparisons in the mean.
    #[serde(default)]
    pub rows: u64,
}

/// The correlation of a metric's repeat with the previous repeat. Intervals hold only for
/// independent repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Correlation {
    /// Name of the metric, as in [`Cell::metrics`].
    pub metric: String,
    /// The correlation is of the metric's ratios in the comparisons, not of its values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ratios: bool,
    /// The number of cells or comparisons behind the estimate.
    pub series: u64,
    /// The correlation, from -1 to 1.
    #[serde(deserialize_with = "null_is_nan")]
    pub estimate: f64,
    /// The p-value of the test that the repeats are independent.
    #[serde(deserialize_with = "null_is_nan")]
    pub p: f64,
    /// Whether the run warns about the correlation.
    #[serde(default)]
    pub shown: bool,
}

/// A bound of the lab file, checked in the cells that it names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Bound {
    /// The bound as written in the lab file.
    pub bound: String,
    /// True if every named cell meets the bound; cells that were not run do not count.
    pub holds: bool,
    /// The number of cells that the bound names.
    pub cells: u64,
    /// The cells in which the bound does not hold, with their figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
}

/// The form in which the lab was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The whole lab, with at least six repeats if it compares systems.
    #[default]
    Full,
    /// Shorter or fewer repeats; unless the lab file says otherwise, every cell once.
    Quick,
    /// The shortest form, which shows only that the lab works; unless the lab file says otherwise,
    /// one cell of each system.
    Smoke,
    /// A form of a newer writer.
    #[serde(other)]
    Other,
}

/// The content of the main table and chart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct View {
    /// The metric of the main table, `goodput_mbit_s` for example.
    pub metric: String,
    /// The axis in the table's rows and along the chart, `loss` for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// The system whose means the report describes in a sentence. `against` lists the systems that
    /// it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The systems that the report compares `system` with, in the lab file's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<String>,
    /// Heat maps of the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heat: Vec<Heat>,
    /// The metrics shown beside the main metric if space is short; if empty, the report chooses the
    /// most important metrics.
    #[serde(default, alias = "beside", skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The columns of the reference report, in its order. Empty if the lab repeats no report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The family of metrics whose parts are drawn as stacked bars, `cycles` for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<String>,
    /// The cells that a terminal shows: only these values of these axes. All cells if empty.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub at: IndexMap<String, Vec<String>>,
}

/// The means over one group of cells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Group {
    /// The axes with an unusual value, such as `flows, beside`. Empty without such an axis.
    #[serde(default)]
    pub name: String,
    /// The means of every metric in the group's cells.
    pub means: Vec<Overall>,
}

/// A metric over two axes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heat {
    /// The metric that decides the colour, as in [`Cell::metrics`].
    pub metric: String,
    /// The axis along the width.
    pub x: String,
    /// The axis along the height.
    pub y: String,
    /// The values of axes to which the map is limited.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub at: IndexMap<String, Vec<String>>,
    /// The values of all other axes: the lab's usual values.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub usual: Axes,
}

/// A metric's mean for each system, over the cells in which every system has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overall {
    /// Name of the metric, as in [`Cell::metrics`].
    pub metric: String,
    /// Unit of the means; empty for a metric without a unit.
    #[serde(default)]
    pub unit: String,
    /// The kind of mean that `systems` holds.
    #[serde(default)]
    pub mean: Mean,
    /// Number of places (points of the axes) at which every system has the metric.
    pub cells: u64,
    /// Mean of each system, in `unit`.
    pub systems: IndexMap<String, f64>,
    /// The system with the best mean. Absent for a metric where neither direction is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// The number of cells in which a system is the best or within a hundredth of the best.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ahead: IndexMap<String, u64>,
}

/// The kind of mean of an [`Overall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mean {
    /// The mean of values that are always above zero.
    Geometric,
    /// The mean of shares of a whole, and of values that can be zero. Unknown names also read as
    /// this kind.
    #[default]
    #[serde(other)]
    Arithmetic,
}

/// A system at a point of the axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the system, as in the lab file.
    pub system: String,
    /// The point of the axes; empty if the lab has no axis.
    #[serde(default)]
    pub axes: Axes,
    /// The reason why there is no number. Always written; `null` if the cell did not fail.
    #[serde(default)]
    pub failed: Option<String>,
    /// The reason why this machine cannot measure the cell: too few CPUs, or a limit that the lab
    /// does not change. The cell has no number, but did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// False if no measured repeat was valid. Invalid repeats are left out if other repeats are
    /// valid.
    #[serde(default = "yes")]
    pub valid: bool,
    /// The reasons why the cell is not valid. Older writers stated no reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_reasons: Vec<Reason>,
    /// The machine had almost no idle time left. The number then says more about the machine than
    /// about the system.
    #[serde(default)]
    pub cpu_limited: bool,
    /// The largest user of the CPUs that the cell was short of. Older writers stated no user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// The number of repeats, including failed repeats, which have no figures. Older writers stated
    /// no number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// Repeats without figures, a part of `repeats`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_repeats: u64,
    /// The program beside the lab that used the workload's CPUs most in a repeat. Older writers
    /// stated no program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<CpuLimit>,
    /// The maximum payload rate of the emulated link in Mbit/s. Present if the goodput exceeds this
    /// rate, because data sent before the measured window arrived within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_link_mbit_s: Option<f64>,
    /// Metric name to value. Nested names are flattened with dots (`cpu_percent.ksoftirqd`).
    #[serde(default)]
    pub metrics: IndexMap<String, Metric>,
    /// Metrics that the lab measures in this cell, and that have no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// The figures of the first repeats, for a lab that repeats the rounds of a report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<IndexMap<String, f64>>,
    /// Doubts about this cell: failed or left-out repeats, outliers, remarks of the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A reason why a cell is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reason {
    /// The kind of flaw, always with the same text.
    pub what: String,
    /// The extent of the flaw in a repeat.
    #[serde(default)]
    pub detail: String,
    /// Advice. Empty for a flaw without advice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mend: String,
}

/// Metrics without a figure in a cell that has other figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Missing {
    /// Names of the metrics, as in [`Cell::metrics`].
    pub metrics: Vec<String>,
    /// The reason, for a reader.
    pub reason: String,
    /// Whether the measurement failed. If not, the measurement ended without a figure, or this
    /// machine is too small.
    #[serde(default)]
    pub failed: bool,
}

/// The largest user of CPUs that had no idle time left.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuLimit {
    /// The user's name: a process with its side, as in `weir (client)`, or all processes of one
    /// name outside the sides. Or `softirqs`, `weir's emulator`, `weir's lab` or `other programs`.
    pub by: String,
    /// The CPUs that the user may run on.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// The user's share of these CPUs, in percent of one CPU: 180 fills almost two CPUs.
    #[serde(deserialize_with = "null_is_nan")]
    pub percent: f64,
}

/// A median over repeats. A value that could not be computed is `NaN` here and `null` in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The median of the repeats; `NaN` for a median that could not be computed.
    #[serde(deserialize_with = "null_is_nan")]
    pub median: f64,
    /// The interval that covers the median in at least 95 % of cases. `null` for fewer than six
    /// repeats.
    #[serde(default, deserialize_with = "interval")]
    pub ci95: Option<[f64; 2]>,
    /// The exact coverage of `ci95` as a share. Older writers stated no coverage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// The smallest and the largest repeat, if there is no interval. Absent for a single repeat.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "interval")]
    pub range: Option<[f64; 2]>,
    /// The number of repeats.
    #[serde(default)]
    pub n: u64,
    /// Unit of all values of the metric; empty for a ratio, a count or an unknown unit.
    #[serde(default)]
    pub unit: String,
    /// The repeats are successive windows of one start of the system. Such repeats have a range,
    /// and no interval.
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_start: bool,
    /// The share of repeats in which the condition held, for a metric whose repeats are 0 or 1.
    /// A metric with a share has no `ci95` of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Proportion>,
}

/// A counted share of repeats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Proportion {
    /// Repeats in which the condition held.
    pub count: u64,
    /// All repeats with a figure, at least 2.
    pub total: u64,
    /// The interval of Clopper and Pearson, which covers the share in at least 95 % of cases.
    pub ci95: [f64; 2],
}

/// Counts of verdicts (columns) by case (rows).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Confusion {
    /// The axis whose values are the cases.
    pub axis: String,
    /// The verdicts that the system gave, in the order of the columns.
    pub verdicts: Vec<String>,
    /// A row for each case, sorted by name.
    pub rows: Vec<ConfusionRow>,
}

/// The verdicts on one case of a [`Confusion`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConfusionRow {
    /// The case.
    pub name: String,
    /// The right verdicts, as the lab writes them.
    pub expected: String,
    /// Turns with a verdict.
    pub turns: u64,
    /// Turns whose first verdict was right.
    pub right: u64,
    /// The number of turns for each first verdict.
    pub counts: IndexMap<String, u64>,
}

/// A published number, shown beside the measured number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reference {
    /// Name of the published system. The report shows this name where `systems` is empty.
    pub system: String,
    /// The measured systems that this row is shown with. If empty, the system of the same name.
    #[serde(default, alias = "beside", skip_serializing_if = "Vec::is_empty")]
    pub systems: Vec<String>,
    /// The values of axes for which the number was published. The report shows the number beside
    /// every cell with all of these values.
    #[serde(default)]
    pub axes: Axes,
    /// Metric name to published number, in the unit of the metric.
    #[serde(default)]
    pub metrics: IndexMap<String, f64>,
    /// The source of the numbers, "quic-tun reference report" for example.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// System `a` against system `b` at one point of the axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the metric, as in [`Cell::metrics`].
    pub metric: String,
    /// The point of the axes at which both systems were measured.
    #[serde(default)]
    pub axes: Axes,
    /// The system that the verdict is about.
    pub a: String,
    /// The baseline.
    pub b: String,
    /// The paired ratio a/b of the metric.
    pub ratio: Ratio,
    /// The verdict on `a`. Undecided if the comparison can have no verdict.
    pub verdict: Verdict,
    /// The smallest difference that would matter in practice, as a share (0.05 is 5 %).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The lab file names this comparison.
    #[serde(default, skip_serializing_if = "is_false")]
    pub primary: bool,
    /// For an undecided comparison: the number of further blocks that would decide the comparison,
    /// if these blocks were like the blocks so far. Absent if no reasonable number of blocks would
    /// decide the comparison. A block measures every cell once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_blocks: Option<u64>,
    /// The goal of the ratio, if the lab sets a goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// The ratio a/b of a metric over many paths. A path's ratio is the median of its repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Name of the metric, as in [`Cell::metrics`].
    pub metric: String,
    /// The system that the ratio is about.
    pub a: String,
    /// The baseline: of several systems, the best system on each path and repeat.
    pub b: String,
    /// The axes that all the paths share.
    #[serde(default)]
    pub axes: Axes,
    /// The number of paths.
    pub places: u64,
    /// The median of the paths' ratios.
    #[serde(deserialize_with = "null_is_infinite")]
    pub median: f64,
    /// A tenth of the paths have a worse ratio than this.
    #[serde(deserialize_with = "null_is_infinite")]
    pub worst_decile: f64,
    /// The ratio of the path on which `a` does worst against `b`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub worst: f64,
    /// The axis values that distinguish the worst path from the other paths.
    #[serde(default)]
    pub worst_at: Axes,
    /// The ratio of the path on which `a` does best against `b`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub best: f64,
}

/// The goal of a ratio of two systems.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Goal {
    /// The ratio of the two systems' reference numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    /// The ideal ratio over the measured `b`, for each metric that states an ideal.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ideals: IndexMap<String, f64>,
    /// The minimum ratio that the first ideal requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Whether the worse limit of the ratio's interval reaches `least`. Absent without an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// The required ratio for each ideal.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub asks: IndexMap<String, f64>,
}

/// The paired ratio a/b. The ratio is infinite here and `null` in the file if `b` is 0 or failed
/// where more is better, or if `a` failed where less is better.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the pairs' ratios.
    #[serde(deserialize_with = "null_is_infinite")]
    pub median: f64,
    /// The interval of the ratio, which decides the verdict. The intervals of all comparisons of a
    /// run are simultaneous: in at least 95 % of runs, all of them contain their ratios. `null` for
    /// fewer than six pairs, and for a comparison that can have no verdict.
    #[serde(default, deserialize_with = "infinite_interval")]
    pub ci95: Option<[f64; 2]>,
    /// The probability that `ci95` covers the ratio, as a share. Absent without an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "infinite_interval"
    )]
    /// The smallest and the largest ratio of a pair, if there is no interval.
    pub range: Option<[f64; 2]>,
    /// The number of pairs. Older writers stated no number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n: u64,
    /// Whether the pairs are windows of one start, as in [`Metric`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_start: bool,
}

/// The number of further blocks that would decide comparisons of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoreBlocks {
    /// Number of blocks to add to the run.
    pub blocks: u64,
    /// The number of `undecided` comparisons that the further blocks would decide.
    pub decides: usize,
    /// Number of comparisons of the run without a verdict.
    pub undecided: usize,
}

impl Results {
    /// Builds the results of a valid run without cells yet.
    pub fn new(lab: impl Into<String>, form: Form) -> Self {
        Self { lab: lab.into(), form, quick: form == Form::Quick, valid: true, ..Self::default() }
    }

    /// Reads a `results.json`. `file` is used only in the error.
    pub fn from_json(text: &str, file: &Path) -> Result<Self, ResultsError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let results = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| malformed(file, error.path().to_string(), error.inner()))?;
        json.end().map_err(|error| malformed(file, ".".to_owned(), &error))?;
        Ok(without_failures_of_cells_not_run(results))
    }

    /// Escapes all texts for a terminal and a page, because a run may come from another machine.
    pub fn shown(self) -> Self {
        let Ok(mut value) = serde_json::to_value(&self) else { return self };
        foreign_json(&mut value, LONGEST_TEXT);
        serde_json::from_value(value).unwrap_or(self)
    }

    /// Writes the content of `results.json`, with a newline at its end.
    pub fn to_json(&self) -> Result<String, ResultsError> {
        let mut text = serde_json::to_string_pretty(self).map_err(ResultsError::Encode)?;
        text.push('\n');
        Ok(text)
    }

    /// Returns the number of blocks that would decide all undecided primary comparisons, or half of
    /// the other comparisons if all primary comparisons are decided. `None` if no comparison has a
    /// number of blocks.
    pub fn more_blocks(&self) -> Option<MoreBlocks> {
        let open: Vec<&Comparison> =
            self.comparisons.iter().filter(|one| one.verdict == Verdict::Undecided).collect();
        let primary: Vec<&Comparison> =
            open.iter().copied().filter(|one| one.primary && one.more_blocks.is_some()).collect();
        let asked = if primary.is_empty() { &open } else { &primary };
        let mut needs: Vec<u64> = asked.iter().filter_map(|one| one.more_blocks).collect();
        needs.sort_unstable();
        let place =
            if primary.is_empty() { needs.len() / 2 } else { needs.len().checked_sub(1)? };
        let blocks = *needs.get(place)?;
        let decides = |one: &&&Comparison| one.more_blocks.is_some_and(|more| more <= blocks);
        let decides = open.iter().filter(decides).count();
        Some(MoreBlocks { blocks, decides, undecided: open.len() })
    }
}

impl Metric {
    /// Builds a figure without an interval.
    pub fn single(median: f64, unit: impl Into<String>) -> Self {
        Self {
            median,
            ci95: None,
            coverage: None,
            range: None,
            n: 1,
            unit: unit.into(),
            one_start: false,
            share: None,
        }
    }

    /// Returns the figure that a table shows: the share of repeats, or the median.
    pub fn value(&self) -> f64 {
        self.share.map_or(self.median, |share| share.value())
    }

    /// Returns the interval of the figure that a table shows.
    pub fn interval(&self) -> Option<[f64; 2]> {
        self.share.map(|share| share.ci95).or(self.ci95)
    }
}

impl Proportion {
    /// Returns the share as a number from 0 to 1.
    pub fn value(&self) -> f64 {
        self.count as f64 / self.total as f64
    }
}

impl Ratio {
    /// Builds a ratio without an interval.
    pub fn single(median: f64) -> Self {
        Self { median, ci95: None, coverage: None, range: None, n: 1, one_start: false }
    }
}

/// The start of the reason why this machine cannot measure a cell.
pub const NOT_RUN: &str = "not run: ";

impl Cell {
    /// Builds a valid cell without repeats or figures yet.
    pub fn new(system: impl Into<String>, axes: Axes) -> Self {
        Self {
            system: system.into(),
            axes,
            failed: None,
            not_run: None,
            valid: true,
            invalid_reasons: Vec::new(),
            cpu_limited: false,
            cpu_limit: None,
            repeats: 0,
            failed_repeats: 0,
            beside: None,
            above_link_mbit_s: None,
            metrics: IndexMap::new(),
            missing: Vec::new(),
            rounds: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns the reason why a metric has no figure; `None` for a metric that needs no figure.
    pub fn why_missing(&self, metric: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| missing.metrics.iter().any(|name| name == metric))
    }

    /// Whether the cell failed, or the measurement of a part of its metrics.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some() || self.missing.iter().any(|missing| missing.failed)
    }

    /// Whether the cell was measured. If not, the cell failed or was not run.
    pub const fn is_measured(&self) -> bool {
        self.failed.is_none() && self.not_run.is_none()
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.detail.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.what, self.detail),
        }
    }
}

impl CpuLimit {
    /// Whether the user is another program: neither the lab nor the kernel's work for the lab.
    pub fn is_of_others(&self) -> bool {
        let by = self.by.as_str();
        let of_side = [" (client)", " (server)"].iter().any(|side| by.ends_with(side));
        !of_side && by != "softirqs" && !by.starts_with("weir's ")
    }

    /// Returns `CPU 0`, or `CPUs 0 and 1`.
    pub fn place(&self) -> String {
        let numbers: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
        match numbers.as_slice() {
            [] => "a CPU".to_owned(),
            [one] => format!("CPU {one}"),
            [all @ .., last] => format!("CPUs {} and {last}", all.join(", ")),
        }
    }
}

impl std::fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} used {:.0} % of {}", self.by, self.percent, self.place())
    }
}

impl Reference {
    /// Whether the report shows this row beside `cell`: the system and all of the row's axes agree.
    pub fn belongs_to(&self, cell: &Cell) -> bool {
        let system = if self.systems.is_empty() {
            self.system == cell.system
        } else {
            self.systems.contains(&cell.system)
        };
        system && self.axes.iter().all(|(name, value)| cell.axes.get(name) == Some(value))
    }
}

impl Mean {
    /// Returns the word in files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Geometric => "geometric",
            Self::Arithmetic => "arithmetic",
        }
    }
}

impl Form {
    /// Returns the word in files; `other` for a form of a newer writer.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Smoke => "smoke",
            Self::Other => "other",
        }
    }
}

fn malformed(file: &Path, at: String, error: &serde_json::Error) -> ResultsError {
    let (at, reason) = (foreign(at).to_string(), foreign(error).to_string());
    ResultsError::Malformed { file: file.to_owned(), at, reason }
}

/// Maximum length of a text from outside. The longest paragraph or reason of a real run is far
/// shorter.
pub const LONGEST_TEXT: usize = 4096;

#[cfg(test)]
mod tests;
