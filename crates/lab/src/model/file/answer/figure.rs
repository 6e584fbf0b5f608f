//! A field of the answer, and its text in a run.

use super::super::axes;
use super::super::check::baselines;
use super::super::schema::Document;
use super::AnswerError;
use indexmap::IndexMap;
use report::number;
use results::{Axes, Cell, Form, Results, metrics};
use stats::Direction;

/// The median of a metric, or a figure of several medians.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) subject: Subject,
    /// The metric. By default the metric of the first `[[primary]]`, or else of the view.
    pub(super) metric: Option<String>,
    /// The cell of the first `[[primary]]` by default.
    pub(super) at: Option<Place>,
    /// Axis values of another cell of the system. The figure is the share of the other cell's
    /// median.
    against: Option<Place>,
    /// Whether the figure is the mean over all cells.
    pub(super) over_all_cells: bool,
}

type Place = IndexMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The median of a system, or the ratio to the better of the baselines.
    System { name: String, baselines: Vec<String> },
    /// The number of cells in which the system has less than `bound` thousandths of the better of
    /// the baselines.
    Below { name: String, baselines: Vec<String>, bound: u32 },
    /// The system with the best figure, without the systems of the list.
    Best { without: Vec<String> },
    /// The worst median of all cells and systems.
    Worst,
    /// The number of repeats in which a condition held.
    Count,
}

impl Figure {
    /// Parses `SUBJECT[: METRIC][ over all cells][ at CELL][ against CELL]`.
    pub(super) fn parse(field: &str) -> Result<Self, AnswerError> {
        let (before, against) = split(field, " against ");
        let (head, at) = split(before, " at ");
        let (head, over_all_cells) = match head.trim_end().strip_suffix(OVER_ALL_CELLS) {
            Some(head) => (head, true),
            None => (head, false),
        };
        let (subject, metric) = split(head, ":");
        let figure = Self {
            subject: Subject::parse(subject.trim())?,
            metric: metric.map(|metric| metric.trim().to_owned()),
            at: at.map(place_of).transpose()?,
            against: against.map(place_of).transpose()?,
            over_all_cells,
        };
        let is_ratio = match &figure.subject {
            Subject::System { baselines, .. } => !baselines.is_empty(),
            _ => true,
        };
        if figure.against.is_some() && is_ratio {
            return Err(AnswerError::Against(field.trim().to_owned()));
        }
        let has_mean = !is_ratio || matches!(figure.subject, Subject::Best { .. });
        let is_of_cell = figure.at.is_some() || figure.against.is_some();
        if over_all_cells && (!has_mean || is_of_cell) {
            return Err(AnswerError::OverAllCells(field.trim().to_owned()));
        }
        Ok(figure)
    }

    /// Returns the systems that every form of the answer must measure.
    pub(super) fn systems(&self) -> impl Iterator<Item = &str> {
        let (name, baselines): (Option<&str>, &[String]) = match &self.subject {
            Subject::System { name, baselines } | Subject::Below { name, baselines, .. } => {
                (Some(name.as_str()), baselines.as_slice())
            }
            Subject::Best { .. } | Subject::Worst | Subject::Count => (None, &[]),
        };
        name.into_iter().chain(baselines.iter().map(String::as_str))
    }

    /// Returns the systems that a `best` field leaves out.
    pub(super) fn left_out(&self) -> &[String] {
        match &self.subject {
            Subject::Best { without } => without,
            _ => &[],
        }
    }

    pub(super) fn metric<'a>(&'a self, lab: &'a Document) -> Option<&'a str> {
        let primary = lab.primary.first().map(|one| &one.get_ref().metric);
        let of_lab = primary.or(lab.view.as_ref().map(|view| &view.metric));
        self.metric.as_deref().or(of_lab.map(|metric| metric.get_ref().as_str()))
    }

    /// Returns the reason if no figure of this kind exists for the metric.
    pub(super) fn problem_of(&self, metric: &str) -> Option<String> {
        let has_no = metrics::direction(metric).is_none();
        match &self.subject {
            Subject::Best { .. } | Subject::Worst | Subject::Below { .. } if has_no => {
                Some(format!("`{metric}` has no better and no worse: name a metric that has"))
            }
            Subject::Count if !metrics::is_proportion(metric) => Some(format!(
                "the repeats of `{metric}` are not 0 or 1: `count` needs a metric such as `within`"
            )),
            _ => None,
        }
    }

    /// Returns the figure's cell among `places`. `None` if the cell, or the other cell of
    /// `against`, is missing.
    pub(super) fn place<'a>(
        &self,
        lab: &Document,
        places: impl Iterator<Item = &'a Axes> + Clone,
    ) -> Option<&'a Axes> {
        let own = match (&self.at, lab.primary.first()) {
            (None, Some(primary)) => primary.get_ref().cell(lab, places.clone()),
            (at, _) => {
                let named = at.iter().flatten();
                let named = named.map(|(axis, value)| (axis.as_str(), value.as_str()));
                axes::nearest_to_usual(lab, &named.collect::<Vec<_>>(), places.clone())
            }
        };
        let own = own?;
        match &self.against {
            Some(against) => {
                let other = other_cell(own, against);
                places.clone().any(|place| *place == other).then_some(own)
            }
            None => Some(own),
        }
    }

    /// Returns the text of the field in a run, with a word in place of a cell without a number.
    /// `None` if the run does not measure the figure. `written_for`: the cells of each form for
    /// which the answer is written.
    pub(super) fn of_run(
        &self,
        lab: &Document,
        results: &Results,
        written_for: &[Vec<Axes>],
    ) -> Option<String> {
        let metric = self.metric(lab)?;
        // The run may lack the metric: the simulator, for example, measures no CPU time.
        let is_measured = |cell: &Cell| cell.metrics.contains_key(metric);
        if !results.cells.iter().any(is_measured) {
            return None;
        }
        let is_whole = matches!(results.form, Form::Full | Form::Quick);
        match &self.subject {
            Subject::System { name, .. } if self.over_all_cells => {
                mean_of(results, name, metric).filter(|_| is_whole)
            }
            Subject::Best { without } if self.over_all_cells => {
                best_mean(results, without, metric).filter(|_| is_whole)
            }
            Subject::System { name, baselines } => {
                let axes = self.written_place(lab, results, written_for)?;
                self.of_system(results, axes, (name, baselines), metric)
            }
            Subject::Best { without } => {
                let axes = self.written_place(lab, results, written_for)?;
                Some(best_at(results, axes, without, metric))
            }
            Subject::Below { name, baselines, .. }
                if is_whole
                    && !(has(results, name) && baselines.iter().any(|one| has(results, one))) =>
            {
                Some(NOT_MEASURED.to_owned())
            }
            Subject::Below { name, baselines, bound } => {
                let bound = f64::from(*bound) / 1000.0;
                let cells = self.cells(results).filter(|cell| cell.system == *name);
                let counted = counted_below(results, cells, baselines, metric, bound, written_for);
                counted.filter(|_| is_whole)
            }
            Subject::Worst => {
                let values = self.cells(results).filter(|cell| cell.valid);
                let values = values.filter_map(|cell| Some(cell.metrics.get(metric)?.value()));
                let worst = values.reduce(if is_less(metric) { f64::max } else { f64::min });
                worst.map(shown).filter(|_| is_whole)
            }
            Subject::Count => count(self.cells(results), metric).filter(|_| is_whole),
        }
    }

    /// Returns the place if a form of the answer measures the place. The sentence may name values
    /// that its fields omit, so a cell of another form does not fit the sentence.
    fn written_place<'a>(
        &self,
        lab: &Document,
        results: &'a Results,
        written_for: &[Vec<Axes>],
    ) -> Option<&'a Axes> {
        let axes = self.place(lab, results.cells.iter().map(|cell| &cell.axes))?;
        let is_it = |places: &Vec<Axes>| self.place(lab, places.iter()) == Some(axes);
        written_for.iter().any(is_it).then_some(axes)
    }

    /// Returns the cells with the values of `at`, or all cells.
    fn cells<'a>(&self, results: &'a Results) -> impl Iterator<Item = &'a Cell> {
        results.cells.iter().filter(move |cell| {
            let mut named = self.at.iter().flatten();
            named.all(|(axis, value)| cell.axes.get(axis) == Some(value))
        })
    }

    fn of_system(
        &self,
        results: &Results,
        axes: &Axes,
        (name, baselines): (&str, &[String]),
        metric: &str,
    ) -> Option<String> {
        let (own, mut is_valid) = match Found::at(results, name, axes, metric)? {
            Found::Value(own, is_valid) => (own, is_valid),
            Found::Word(word) => return Some(word.to_owned()),
        };
        let mut value = |system: &str, axes: &Axes| {
            let found = Found::at(results, system, axes, metric)?;
            if let Found::Value(_, valid) = &found {
                is_valid &= valid;
            }
            Some(found)
        };
        let figure = if let Some(against) = &self.against {
            match value(name, &other_cell(axes, against))? {
                Found::Value(other, _) => number::format(own / other),
                Found::Word(word) => return Some(word.to_owned()),
            }
        } else if baselines.is_empty() {
            shown(own)
        } else {
            let mut others = Vec::new();
            for baseline in baselines {
                match value(baseline, axes)? {
                    Found::Value(other, _) => others.push(other),
                    // The answer uses the next baseline in place of a baseline that was left out.
                    Found::Word(NOT_MEASURED) => {}
                    Found::Word(word) => return Some(word.to_owned()),
                }
            }
            match best_of(others, metric) {
                Some(best) => number::ratio(own / best),
                None => return Some(NOT_MEASURED.to_owned()),
            }
        };
        Some(if is_valid { figure } else { format!("{figure} (not valid)") })
    }

    /// Returns the number of words of the field's text in most runs.
    pub(super) fn words(&self) -> usize {
        match &self.subject {
            // Three words, as in `2 of 40` or `tcpa (12.9 ms)`.
            Subject::Below { .. } | Subject::Count | Subject::Best { .. } => 3,
            Subject::System { .. } | Subject::Worst => 1,
        }
    }
}

impl Subject {
    fn parse(text: &str) -> Result<Self, AnswerError> {
        let names = |text: &str| baselines(text).map(str::to_owned).collect::<Vec<_>>();
        let subject = match text {
            "best" => Self::Best { without: Vec::new() },
            "worst" => Self::Worst,
            "count" => Self::Count,
            _ => match (text.strip_prefix("best without "), text.split_once(" below ")) {
                (Some(without), _) => Self::Best { without: names(without) },
                (None, Some((name, rest))) => {
                    let no_bound = || AnswerError::NoBound(text.to_owned());
                    let (bound, baselines) = rest.split_once(" of ").ok_or_else(no_bound)?;
                    let bound: f64 = bound.trim().parse().map_err(|_| no_bound())?;
                    if !(0.001..=1000.0).contains(&bound) {
                        return Err(no_bound());
                    }
                    let bound = (bound * 1000.0).round() as u32;
                    Self::Below { name: name.trim().to_owned(), baselines: names(baselines), bound }
                }
                (None, None) => match text.split_once(" / ") {
                    Some((name, baselines)) => {
                        Self::System { name: name.trim().to_owned(), baselines: names(baselines) }
                    }
                    None => Self::System { name: text.to_owned(), baselines: Vec::new() },
                },
            },
        };
        let is_empty = match &subject {
            Self::System { name, baselines } | Self::Below { name, baselines, .. } => {
                name.is_empty() || baselines.iter().any(String::is_empty)
            }
            Self::Best { without } => without.iter().any(String::is_empty),
            Self::Worst | Self::Count => false,
        };
        if is_empty { Err(AnswerError::NoSystem) } else { Ok(subject) }
    }
}

/// A system's median in a cell, or the word that takes the place of a missing median.
enum Found {
    /// The median, and whether the cell is valid.
    Value(f64, bool),
    Word(&'static str),
}

impl Found {
    /// Finds the median of `system` at `axes`. `None` if the run measured the system in other cells
    /// only.
    fn at(results: &Results, system: &str, axes: &Axes, metric: &str) -> Option<Self> {
        if !has(results, system) {
            return Some(Self::Word(NOT_MEASURED));
        }
        let is_it = |cell: &&Cell| cell.system == system && cell.axes == *axes;
        let cell = results.cells.iter().find(is_it)?;
        Some(match cell.metrics.get(metric) {
            Some(found) => Self::Value(found.value(), cell.valid),
            None if cell.not_run.is_some() => Self::Word("(not run)"),
            None => Self::Word("(failed)"),
        })
    }
}

/// Whether `text` is a word in place of a figure.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with('(')
}

fn split<'a>(text: &'a str, at: &str) -> (&'a str, Option<&'a str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn place_of(text: &str) -> Result<Place, AnswerError> {
    let pair = |pair: &str| match pair.split_once('=') {
        Some((axis, value)) => Ok((axis.trim().to_owned(), value.trim().to_owned())),
        None => Err(AnswerError::NoCell(text.to_owned())),
    };
    text.split(", ").map(pair).collect()
}

fn other_cell(axes: &Axes, against: &Place) -> Axes {
    let mut other = axes.clone();
    other.extend(against.iter().map(|(axis, value)| (axis.clone(), value.clone())));
    other
}

/// Whether the run has cells of the system.
fn has(results: &Results, system: &str) -> bool {
    results.cells.iter().any(|cell| cell.system == system)
}

fn mean_of(results: &Results, system: &str, metric: &str) -> Option<String> {
    let one = results.overall.iter().find(|one| one.metric == metric)?;
    Some(one.systems.get(system).map_or_else(|| NOT_MEASURED.to_owned(), |mean| shown(*mean)))
}

fn best_mean(results: &Results, without: &[String], metric: &str) -> Option<String> {
    let one = results.overall.iter().find(|one| one.metric == metric)?;
    let takes_part = |(name, _): &(&String, &f64)| !without.contains(name);
    let means = one.systems.iter().filter(takes_part).map(|(name, mean)| (name.as_str(), *mean));
    best(means, metric)
}

fn best_at(results: &Results, axes: &Axes, without: &[String], metric: &str) -> String {
    let here = results
        .cells
        .iter()
        .filter(|cell| cell.axes == *axes && cell.valid && !without.contains(&cell.system));
    let medians =
        here.filter_map(|cell| Some((cell.system.as_str(), cell.metrics.get(metric)?.value())));
    best(medians, metric).unwrap_or_else(|| NOT_MEASURED.to_owned())
}

/// Returns the best system with its value: `tcpa (12.9 ms)`. The first system wins a tie.
fn best<'a>(values: impl Iterator<Item = (&'a str, f64)>, metric: &str) -> Option<String> {
    let finite = values.filter(|(_, value)| value.is_finite());
    let (name, value) = finite.reduce(|best, other| {
        let is_better = if is_less(metric) { other.1 < best.1 } else { other.1 > best.1 };
        if is_better { other } else { best }
    })?;
    let unit = metrics::meaning(metric).unit;
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    Some(format!("{name} ({}{unit})", shown(value)))
}

/// Counts the cells below the bound: `2 of 40`. If a turn measured several paths, each path counts,
/// and the mean of the paths does not.
fn counted_below<'a>(
    results: &Results,
    cells: impl Iterator<Item = &'a Cell>,
    baselines: &[String],
    metric: &str,
    bound: f64,
    written_for: &[Vec<Axes>],
) -> Option<String> {
    let is_planned = |cell: &Cell| written_for.iter().flatten().any(|axes| *axes == cell.axes);
    let (planned, paths): (Vec<&Cell>, Vec<&Cell>) = cells.partition(|cell| is_planned(cell));
    let value = |system: &str, axes: &Axes| {
        let mut cells = results.cells.iter().filter(|cell| cell.valid);
        let cell = cells.find(|cell| cell.system == system && cell.axes == *axes)?;
        Some(cell.metrics.get(metric)?.value())
    };
    // A baseline that the run left out takes no part.
    let baselines: Vec<&String> = baselines.iter().filter(|system| has(results, system)).collect();
    let ratio = |cell: &Cell| {
        let against = baselines.iter().map(|system| value(system, &cell.axes));
        let best = best_of(against.collect::<Option<Vec<f64>>>()?, metric)?;
        // A failed cell of the system has the ratio 0.
        let ratio = match value(&cell.system, &cell.axes) {
            Some(own) if is_less(metric) => best / own,
            Some(own) => own / best,
            None => 0.0,
        };
        ratio.is_finite().then_some(ratio)
    };
    let cells = if paths.is_empty() { planned } else { paths };
    let ratios: Vec<f64> = cells.into_iter().filter_map(ratio).collect();
    let below = ratios.iter().filter(|ratio| **ratio < bound).count();
    (!ratios.is_empty()).then(|| format!("{below} of {}", ratios.len()))
}

/// Counts the repeats in which the condition held: `29 of 30`.
fn count<'a>(cells: impl Iterator<Item = &'a Cell>, metric: &str) -> Option<String> {
    let (mut held, mut all) = (0, 0);
    for found in cells.filter(|cell| cell.valid).filter_map(|cell| cell.metrics.get(metric)) {
        let (count, total) = match found.share {
            Some(share) => (share.count, share.total),
            None => (u64::from(found.value() >= 1.0), 1),
        };
        held += count;
        all += total;
    }
    (all > 0).then(|| format!("{held} of {all}"))
}

fn best_of(values: impl IntoIterator<Item = f64>, metric: &str) -> Option<f64> {
    values.into_iter().reduce(if is_less(metric) { f64::min } else { f64::max })
}

/// Whether a lower value of the metric is better.
fn is_less(metric: &str) -> bool {
    metrics::direction(metric) == Some(Direction::LowerIsBetter)
}

fn shown(value: f64) -> String {
    match value >= 1e6 {
        true => format!("{} million", number::format(value / 1e6)),
        false => number::format(value),
    }
}

const OVER_ALL_CELLS: &str = " over all cells";
/// The word for a system that the run left out, because its program is not installed, or because
/// `--systems` names other systems.
const NOT_MEASURED: &str = "(not measured)";
