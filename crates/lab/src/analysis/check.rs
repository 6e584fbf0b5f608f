//! Bounds on a run's figures, for use in CI.

use crate::analysis::compare::{LONGEST_NOTE, cell_name};
use crate::model::LabError;
use results::{Axes, Cell, Results};
use serde::Serialize;
use units::foreign;

/// Examples, printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab check runs/today --bound 'goodput_mbit_s[tcp-bbr, loss=1%] >= 400'
  weir lab check runs/today --bound 'rate_error_percent <= 0.5' \\
      --bound 'loss_in_interval == 1'
  weir lab check runs/today \\
      --bound 'goodput_mbit_s[tcp-bbr/tcp-cubic, loss=5%] >= 2'

A bound applies to every cell it names, and without brackets to all cells. SYSTEM/SYSTEM is the
ratio of the medians; the report's ratio is the median of the ratios of repeats. A bound does not
hold in a cell that failed or has no such figure. Cells that the machine could not run are listed
and decide nothing; if a bound names no others, it does not hold.";
const CPU_LIMITED: &str =
    "* next to no CPU was idle, so the figure may be the machine's and not the path's\n";

/// A bound on a metric, written as `METRIC[SYSTEM, AXIS=VALUE …] OP NUMBER`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    text: String,
    metric: String,
    system: Option<String>,
    /// The baseline, if the bound applies to the ratio of `system` to a baseline.
    over: Option<String>,
    axes: Vec<(String, String)>,
    operator: Operator,
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
}

/// The result of a check of a run's figures against bounds.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Reasons why the run itself is invalid, unless invalid runs were allowed.
    pub invalid: Vec<String>,
    pub bounds: Vec<CheckedBound>,
}

#[derive(Debug, Serialize)]
pub struct CheckedBound {
    pub bound: String,
    pub holds: bool,
    pub cells: Vec<CheckedCell>,
}

#[derive(Debug, Serialize)]
pub struct CheckedCell {
    pub cell: String,
    pub value: Option<f64>,
    pub holds: bool,
    /// The reason why the cell has no value of the metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the machine could not run the cell, or one of the two cells of the ratio. The bound
    /// then does not apply.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
    /// Whether the CPU may limit the figure, or one of the two figures of the ratio.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cpu_limited: bool,
}

impl Bound {
    /// Parses a bound of the command line.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        Self::read(text).map_err(|what| LabError::Usage(format!("--bound `{text}`: {what}")))
    }

    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what}; write METRIC[SYSTEM, AXIS=VALUE] >= NUMBER");
        for (swapped, right) in [("=>", ">="), ("=<", "<=")] {
            if find_outside(text, swapped).is_some() {
                return Err(wrong(&format!("`{swapped}` is written `{right}`")));
            }
        }
        // Try the longest operators first, so that `>=` is not read as `>` and `=`.
        let (at, symbol, operator) = OPERATORS
            .iter()
            .find_map(|(symbol, operator)| Some((find_outside(text, symbol)?, *symbol, *operator)))
            .ok_or_else(|| wrong("no >=, <=, >, < or == in it"))?;
        let (left, right) = (text[..at].trim(), text[at + symbol.len()..].trim());
        let limit: f64 =
            right.parse().map_err(|_| wrong(&format!("`{right}` is not a plain number")))?;
        if !limit.is_finite() {
            return Err(wrong("the limit must be finite"));
        }
        let (metric, inside) = match left.split_once('[') {
            None => (left, ""),
            Some((metric, rest)) => (
                metric.trim(),
                rest.strip_suffix(']').ok_or_else(|| wrong("`[` is never closed by `]`"))?,
            ),
        };
        if metric.is_empty() {
            return Err(wrong("no metric"));
        }
        let mut bound = Self {
            text: text.to_owned(),
            metric: metric.to_owned(),
            system: None,
            over: None,
            axes: Vec::new(),
            operator,
            limit,
        };
        for part in inside.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match (part.split_once('='), part.split_once('/')) {
                (Some((axis, value)), _) => {
                    bound.axes.push((axis.trim().to_owned(), value.trim().to_owned()));
                }
                (None, _) if bound.system.is_some() => return Err(wrong("two systems")),
                (None, Some((system, over))) => {
                    bound.system = Some(system.trim().to_owned());
                    bound.over = Some(over.trim().to_owned());
                }
                (None, None) if part != "*" => bound.system = Some(part.to_owned()),
                (None, None) => {}
            }
        }
        Ok(bound)
    }

    /// Applies the bound to the cells that the bound names. `None` if the run measured none of
    /// these cells.
    pub(crate) fn over(&self, results: &Results) -> Option<results::Bound> {
        let mut cells = self.cells(results);
        cells.retain(|cell| !cell.not_run);
        let figure = |cell: &CheckedCell| match (cell.value, &cell.reason) {
            (Some(value), _) => format!("{}: {}", cell.cell, report::number::format(value)),
            (None, reason) => format!("{}: {}", cell.cell, reason.as_deref().unwrap_or("–")),
        };
        let missed: Vec<String> = cells.iter().filter(|cell| !cell.holds).map(figure).collect();
        (!cells.is_empty()).then(|| results::Bound {
            bound: self.text.clone(),
            holds: missed.is_empty(),
            cells: cells.len() as u64,
            missed,
        })
    }

    fn check(&self, results: &Results) -> Result<CheckedBound, LabError> {
        self.check_names(results)?;
        let cells = self.cells(results);
        if cells.is_empty() {
            return Err(LabError::Usage(format!(
                "--bound `{}`: no cell matches it; `weir lab show RUN` prints the cells",
                self.text
            )));
        }
        let mut run = cells.iter().filter(|cell| !cell.not_run).peekable();
        let holds = run.peek().is_some() && run.all(|cell| cell.holds);
        Ok(CheckedBound { bound: self.text.clone(), holds, cells })
    }

    fn cells(&self, results: &Results) -> Vec<CheckedCell> {
        let named = |cell: &&Cell| {
            self.system.as_ref().is_none_or(|system| *system == cell.system)
                && self.axes.iter().all(|(axis, value)| cell.axes.get(axis) == Some(value))
        };
        results.cells.iter().filter(named).map(|cell| self.judge(results, cell)).collect()
    }

    fn judge(&self, results: &Results, cell: &Cell) -> CheckedCell {
        let under = self.over.as_ref().map(|over| {
            let mut others = results.cells.iter();
            others
                .find(|other| other.system == *over && other.axes == cell.axes)
                .ok_or_else(|| format!("{over} has no such cell"))
        });
        let both = [Some(cell), under.as_ref().and_then(|under| under.as_ref().ok().copied())];
        let not_run = both.into_iter().flatten().any(|cell| cell.not_run.is_some());
        let cpu_limited = cell.cpu_limited
            || under
                .as_ref()
                .is_some_and(|under| under.as_ref().is_ok_and(|cell| cell.cpu_limited));
        let value = figure(cell, &self.metric).and_then(|value| match under {
            None => Ok(value),
            Some(under) => Ok(value / figure(under?, &self.metric)?),
        });
        let system = match &self.over {
            None => cell.system.clone(),
            Some(over) => format!("{}/{over}", cell.system),
        };
        let cell = cell_name(&system, &cell.axes);
        match value {
            Ok(value) => {
                let holds = self.operator.holds(value, self.limit);
                CheckedCell { cell, value: Some(value), holds, reason: None, not_run, cpu_limited }
            }
            Err(reason) => {
                let reason = Some(reason);
                CheckedCell { cell, value: None, holds: false, reason, not_run, cpu_limited }
            }
        }
    }

    /// Rejects misspelt names: a bound on a misspelt name would check nothing.
    fn check_names(&self, results: &Results) -> Result<(), LabError> {
        let systems: Vec<&str> = results.cells.iter().map(|cell| cell.system.as_str()).collect();
        for system in self.system.iter().chain(&self.over) {
            self.known("system", system, systems.iter().copied())?;
        }
        let axes = |cell: &Cell| -> Axes { cell.axes.clone() };
        let all: Vec<Axes> = results.cells.iter().map(axes).collect();
        for (axis, value) in &self.axes {
            self.known("axis", axis, all.iter().flat_map(|a| a.keys()).map(String::as_str))?;
            let values = all.iter().filter_map(|axes| axes.get(axis)).map(String::as_str);
            self.known(&format!("value on axis {axis}"), value, values)?;
        }
        let measured = results.cells.iter().flat_map(|cell| cell.metrics.keys());
        let missing = results.cells.iter().flat_map(|cell| &cell.missing);
        let metrics = measured.chain(missing.flat_map(|missing| &missing.metrics));
        let metrics: Vec<&str> = metrics.map(String::as_str).collect();
        // If every cell failed, the run has no metrics, and the cells give the reason.
        if metrics.is_empty() {
            return Ok(());
        }
        self.known("metric", &self.metric, metrics.into_iter())
    }

    fn known<'a>(
        &self,
        what: &str,
        word: &str,
        candidates: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), LabError> {
        if candidates.clone().any(|candidate| candidate == word) {
            return Ok(());
        }
        let hint = units::did_you_mean(word, candidates);
        let text = format!("--bound `{}`: the run has no {what} `{word}`{hint}", self.text);
        Err(LabError::Usage(text))
    }
}

/// Checks every bound. In an invalid run no bound holds, unless invalid runs are allowed.
pub fn check(
    results: &Results,
    bounds: &[Bound],
    allow_invalid: bool,
) -> Result<Checked, LabError> {
    let invalid = match results.valid || allow_invalid {
        true => Vec::new(),
        false if results.invalid_reasons.is_empty() => vec!["the run is marked invalid".to_owned()],
        false => results.invalid_reasons.clone(),
    };
    let bounds = bounds.iter().map(|bound| bound.check(results)).collect::<Result<_, _>>()?;
    Ok(Checked { invalid, bounds })
}

impl Checked {
    pub fn holds(&self) -> bool {
        self.invalid.is_empty() && self.bounds.iter().all(|bound| bound.holds)
    }

    /// Renders the result as text for the terminal.
    pub fn render(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let (all, missed) =
            (self.bounds.len(), self.bounds.iter().filter(|one| !one.holds).count());
        match missed {
            _ if all < 2 => {}
            0 => text += &format!("{}  all {all} bounds hold\n", word(true)),
            _ => text += &format!("{}  missed {missed} of {all} bounds\n", word(false)),
        }
        for bound in &self.bounds {
            let _ = writeln!(text, "{}  {}", word(bound.holds), bound.bound);
            for cell in &bound.cells {
                let value = match (cell.value, &cell.reason) {
                    (Some(value), _) => report::number::format(value),
                    (None, Some(reason)) => {
                        let why = if cell.not_run { "not run" } else { "failed" };
                        format!("{why}: {}", foreign(reason).up_to(LONGEST_NOTE))
                    }
                    (None, None) => "–".to_owned(),
                };
                let mark = if cell.cpu_limited { " *" } else { "" };
                let word = if cell.not_run { "–   " } else { word(cell.holds) };
                let _ = writeln!(text, "   {word}  {}: {value}{mark}", cell.cell);
            }
        }
        if self.bounds.iter().flat_map(|bound| &bound.cells).any(|cell| cell.cpu_limited) {
            text.push_str(CPU_LIMITED);
        }
        for reason in &self.invalid {
            let reason = foreign(reason).up_to(LONGEST_NOTE);
            let _ = writeln!(text, "{}  the run is not valid: {reason}", word(false));
        }
        text
    }
}

impl Operator {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::Below => value < limit,
            Self::Equal => value == limit,
        }
    }
}

fn figure(cell: &Cell, metric: &str) -> Result<f64, String> {
    if let Some(reason) = cell.failed.as_ref().or(cell.not_run.as_ref()) {
        return Err(reason.clone());
    }
    let value = cell.metrics.get(metric).map(|metric| metric.median);
    value.filter(|value| value.is_finite()).ok_or_else(|| match cell.why_missing(metric) {
        Some(missing) => format!("{metric} was not measured: {}", missing.reason),
        None => format!("{} has no {metric}", cell.system),
    })
}

fn word(holds: bool) -> &'static str {
    if holds { "ok  " } else { "FAIL" }
}

/// Finds `symbol` outside brackets: `loss=1%` also contains an operator.
fn find_outside(text: &str, symbol: &str) -> Option<usize> {
    let from = text.rfind(']').map_or(0, |at| at + 1);
    text[from..].find(symbol).map(|at| from + at)
}

const OPERATORS: [(&str, Operator); 5] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("==", Operator::Equal),
    (">", Operator::Above),
    ("<", Operator::Below),
];

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Metric, Missing};

    fn results() -> Results {
        let mut results = Results::new("x", Form::Quick);
        for (system, loss, value) in
            [("tcp-cubic", "0%", 560.0), ("tcp-cubic", "1%", 50.0), ("tcp-bbr", "1%", 500.0)]
        {
            let mut cell = Cell::new(system, Axes::from([("loss".to_owned(), loss.to_owned())]));
            let metric = Metric::single(value, "Mbit/s");
            cell.metrics.insert("goodput_mbit_s".to_owned(), metric);
            results.cells.push(cell);
        }
        let mut failed = Cell::new("tcp-bbr", Axes::from([("loss".to_owned(), "0%".to_owned())]));
        failed.failed = Some("it broke".to_owned());
        results.cells.push(failed);
        results
    }

    fn holds(bound: &str) -> Result<bool, String> {
        let bound = Bound::parse(bound).map_err(|e| e.to_string())?;
        check(&results(), &[bound], false).map(|c| c.holds()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_bound_compares_the_metric_of_the_cells_that_it_names() {
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] >= 560"), Ok(true));
        assert_eq!(holds("goodput_mbit_s[tcp-cubic] > 100"), Ok(false));
        assert_eq!(holds("goodput_mbit_s[tcp-bbr/tcp-cubic, loss=1%] >= 10"), Ok(true));
        assert_eq!(holds("goodput_mbit_s[tcp-bbr/tcp-cubic,loss=1%]>10"), Ok(false));
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] < 560"), Ok(false));
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] < 561"), Ok(true));
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] <= 560"), Ok(true));
        let two = holds("goodput_mbit_s[tcp-cubic, tcp-bbr] > 1").unwrap_err();
        assert!(two.contains("two systems"), "{two}");
        assert_eq!(holds("goodput_mbit_s[*, loss=1%] <= 500"), Ok(true));
    }

    #[test]
    fn a_failed_cell_breaks_its_bound() {
        assert_eq!(holds("goodput_mbit_s[tcp-bbr, loss=0%] >= 0"), Ok(false));
        assert_eq!(holds("goodput_mbit_s[tcp-bbr, loss=0%] <= 1e9"), Ok(false));
    }

    #[test]
    fn a_bound_skips_cells_that_were_not_run_if_another_cell_was_run() {
        let mut results = results();
        let mut small = Cell::new("quic", Axes::from([("loss".to_owned(), "1%".to_owned())]));
        small.not_run = Some("needs 3 CPUs".to_owned());
        results.cells.push(small);
        let checked =
            |bound: &str| check(&results, &[Bound::parse(bound).unwrap()], false).unwrap();
        let all = checked("goodput_mbit_s[loss=1%] >= 10");
        assert!(
            all.holds() && all.render().contains("quic [loss=1%]: not run: needs 3 CPUs"),
            "{}",
            all.render()
        );
        assert!(!checked("goodput_mbit_s[quic] >= 10").holds());
        assert!(Bound::read("goodput_mbit_s[quic] >= 10").unwrap().over(&results).is_none());
    }

    #[test]
    fn a_missing_metric_breaks_its_bound_with_the_reason() {
        let mut results = results();
        results.cells[0].missing.push(Missing {
            metrics: vec!["ndr_pps".to_owned()],
            reason: "the generator ended".to_owned(),
            failed: true,
        });
        let bound = Bound::parse("ndr_pps[tcp-cubic, loss=0%] >= 0").unwrap();
        let checked = check(&results, &[bound], false).unwrap();
        assert!(!checked.holds());
        let text = checked.render();
        assert!(text.contains("ndr_pps was not measured: the generator ended"), "{text}");
    }

    #[test]
    fn an_invalid_run_fails_every_bound_unless_allowed() {
        let mut results = results();
        results.valid = false;
        let bound = || [Bound::parse("goodput_mbit_s[tcp-cubic] > 1").unwrap()];
        assert!(!check(&results, &bound(), false).unwrap().holds());
        assert!(check(&results, &bound(), true).unwrap().holds());
    }

    #[test]
    fn a_misspelt_bound_is_refused() {
        assert!(holds("goodput_mbit[tcp-cubic] > 1").unwrap_err().contains("did you mean"));
        assert!(holds("goodput_mbit_s[tcp-cubik] > 1").unwrap_err().contains("`tcp-cubic`"));
        assert!(holds("goodput_mbit_s[los=1%] > 1").unwrap_err().contains("`loss`"));
        assert!(holds("goodput_mbit_s[loss=2%] > 1").unwrap_err().contains("value on axis"));
        assert!(holds("goodput_mbit_s[tcp-cubic > 1").unwrap_err().contains("never closed"));
        assert!(holds("goodput_mbit_s").unwrap_err().contains("no >="));
        assert!(holds("goodput_mbit_s => 1").unwrap_err().contains("is written `>=`"));
        assert!(holds("goodput_mbit_s > fast").unwrap_err().contains("plain number"));
    }

    #[test]
    fn a_bounds_operator_is_read_only_outside_brackets() {
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] == 560"), Ok(true));
        assert_eq!(holds("goodput_mbit_s[tcp-cubic, loss=0%] == 561"), Ok(false));
        let bound = Bound::read("goodput_mbit_s[size=1k>] < 5").unwrap();
        assert_eq!(bound.axes, [("size".to_owned(), "1k>".to_owned())]);
        assert_eq!((bound.operator, bound.limit), (Operator::Below, 5.0));
        for limit in ["inf", "NaN"] {
            assert!(holds(&format!("goodput_mbit_s > {limit}")).unwrap_err().contains("finite"));
        }
    }

    #[test]
    fn each_cell_is_printed_with_its_verdict_and_cpu_limit() {
        let ratio = "goodput_mbit_s[tcp-bbr/tcp-cubic, loss=1%] >= 2";
        let text = |results: &Results, bound: &str| {
            let bounds = [Bound::parse(bound).unwrap()];
            check(results, &bounds, false).unwrap().render()
        };
        let idle = results();
        let line = "ok    tcp-bbr/tcp-cubic [loss=1%]: 10.0";
        assert!(text(&idle, ratio).contains(line), "{}", text(&idle, ratio));
        assert!(!text(&idle, ratio).contains(CPU_LIMITED));
        let missed = text(&idle, "goodput_mbit_s[tcp-cubic, loss=1%] >= 51");
        assert!(missed.starts_with("FAIL  goodput_mbit_s["), "{missed}");
        assert!(missed.contains("   FAIL  tcp-cubic [loss=1%]: 50.0\n"), "{missed}");
        let bounds = ["goodput_mbit_s[tcp-cubic] >= 0", "goodput_mbit_s[tcp-cubic] >= 51"];
        let bounds = bounds.map(Bound::parse);
        let bounds = bounds.map(Result::unwrap);
        let both = |bounds: &[Bound]| check(&idle, bounds, true).unwrap().render();
        assert!(both(&bounds).starts_with("FAIL  missed 1 of 2 bounds\n"), "{}", both(&bounds));
        let held = [bounds[0].clone(), bounds[0].clone()];
        assert!(both(&held).starts_with("ok    all 2 bounds hold\n"), "{}", both(&held));
        // The mark `*` appears if the CPU limits either of the two figures of the ratio.
        for busy in [1, 2] {
            let mut results = results();
            results.cells[busy].cpu_limited = true;
            let text = text(&results, ratio);
            assert!(text.contains(&format!("{line} *\n{CPU_LIMITED}")), "{busy}: {text}");
        }
    }

    #[test]
    fn the_reasons_of_an_invalid_run_are_printed() {
        let mut results = results();
        results.valid = false;
        let reasons = |results: &Results| check(results, &[], false).unwrap().invalid;
        assert_eq!(reasons(&results), ["the run is marked invalid"]);
        results.invalid_reasons = vec!["the link was late in 1 cell".to_owned()];
        assert_eq!(reasons(&results), ["the link was late in 1 cell"]);
        let text = check(&results, &[], false).unwrap().render();
        assert_eq!(text, "FAIL  the run is not valid: the link was late in 1 cell\n");
    }
}
