//! `answer`: the sentence that answers the lab's question. The sentence contains figures of named
//! cells.

use super::axes;
use super::check::baselines;
use super::locate::FileError;
use super::schema::{Document, FormSpec, SystemSpec};
use indexmap::IndexMap;
use results::{Axes, Cell, Form, Results, metrics};

/// A text whose fields stand in braces: `BBR carries {tcp-bbr} of 600 Mbit/s`. A field names a
/// system or two, a metric and a cell: `{tcpa / tcp-bbr: goodput_mbit_s at loss=5%, rtt=20ms}`.
/// `{tcpa / cubic|bbr}` is the ratio to the better of the two.
/// `{tcpa below 0.9 of cubic|bbr at loss=5%}` names the cells in which tcpa has less than 0.9 of
/// the better of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Figure(Figure),
}

/// The median of a metric, or the ratio of two systems' medians.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Figure {
    system: String,
    baseline: Option<String>,
    /// The metric. By default the metric of the first `[[primary]]`, or else of the view.
    metric: Option<String>,
    /// The bound in thousandths. The field names the cells in which the ratio is below this bound.
    below: Option<u32>,
    /// The cell of the first `[[primary]]` by default.
    at: Option<IndexMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("a `{{` of the answer is not closed: write `{{SYSTEM}}`")]
    Open,
    #[error("a field of the answer names no system: write `{{SYSTEM}}` or `{{SYSTEM: METRIC}}`")]
    NoSystem,
    #[error("`{0}` is no cell: write `at AXIS=VALUE, AXIS=VALUE`")]
    NoCell(String),
    #[error("`{0}` is no bound: write `{{SYSTEM below 0.9 of SYSTEM|SYSTEM}}`")]
    NoBound(String),
    #[error(
        "the answer has {0} figures: a reader keeps three, so name the three that answer the question"
    )]
    TooManyFigures(usize),
    #[error("the answer has no figure: name a cell, as in `BBR carries {{bbr}} Mbit/s`")]
    NoFigure,
    #[error("the answer has {0} words and may have 30: shorten it")]
    TooManyWords(usize),
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Result<Self, AnswerError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (field, behind) = after.split_once('}').ok_or(AnswerError::Open)?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Figure(Figure::parse(field)?));
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        let answer = Self { parts };
        match answer.figures().count() {
            0 => return Err(AnswerError::NoFigure),
            1..=MOST_FIGURES => {}
            count => return Err(AnswerError::TooManyFigures(count)),
        }
        match answer.with(|_| "0".to_owned()).split_whitespace().count() {
            0..=MOST_WORDS => Ok(answer),
            count => Err(AnswerError::TooManyWords(count)),
        }
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Figure(figure) => Some(figure),
        })
    }

    fn with(&self, mut figure: impl FnMut(&Figure) -> String) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Figure(one) => figure(one),
        };
        self.parts.iter().map(text).collect()
    }
}

impl Figure {
    fn parse(field: &str) -> Result<Self, AnswerError> {
        let (head, at) = match field.split_once(" at ") {
            Some((head, at)) => (head, Some(at)),
            None => (field, None),
        };
        let (systems, metric) = match head.split_once(':') {
            Some((systems, metric)) => (systems, Some(metric.trim().to_owned())),
            None => (head, None),
        };
        let (systems, below) = match systems.split_once(" below ") {
            Some((system, rest)) => {
                let no_bound = || AnswerError::NoBound(systems.trim().to_owned());
                let (bound, baseline) = rest.split_once(" of ").ok_or_else(no_bound)?;
                let bound: f64 = bound.trim().parse().map_err(|_| no_bound())?;
                if !(0.001..=1000.0).contains(&bound) {
                    return Err(no_bound());
                }
                (format!("{system} / {baseline}"), Some((bound * 1000.0).round() as u32))
            }
            None => (systems.to_owned(), None),
        };
        let (system, baseline) = match systems.split_once(" / ") {
            Some((system, baseline)) => (system, Some(baseline.trim().to_owned())),
            None => (systems.as_str(), None),
        };
        let system = system.trim().to_owned();
        if system.is_empty() || baseline.as_ref().is_some_and(String::is_empty) {
            return Err(AnswerError::NoSystem);
        }
        let at = at.map(|at| {
            let pair = |text: &str| match text.split_once('=') {
                Some((axis, value)) => Ok((axis.trim().to_owned(), value.trim().to_owned())),
                None => Err(AnswerError::NoCell(at.to_owned())),
            };
            at.split(", ").map(pair).collect()
        });
        Ok(Self { system, baseline, metric, below, at: at.transpose()? })
    }

    fn systems(&self) -> impl Iterator<Item = &str> {
        let baselines = self.baseline.as_deref().into_iter().flat_map(baselines);
        std::iter::once(self.system.as_str()).chain(baselines)
    }

    /// Returns the number of cells below the bound, and the lowest cells with their ratios.
    fn cells_below(&self, lab: &Document, results: &Results, bound: f64) -> Option<String> {
        let metric = self.metric(lab)?;
        let agrees = |cell: &&Cell| {
            let mut named = self.at.iter().flatten();
            named.all(|(axis, value)| cell.axes.get(axis) == Some(value))
        };
        let value = |system: &str, axes: &Axes| {
            let mut cells = results.cells.iter().filter(|cell| cell.valid);
            let cell = cells.find(|cell| cell.system == system && cell.axes == *axes)?;
            Some(cell.metrics.get(metric)?.value())
        };
        let mut ratios: Vec<(f64, &Axes)> = Vec::new();
        for cell in results.cells.iter().filter(|cell| cell.system == self.system).filter(agrees) {
            let against = self.systems().skip(1).map(|system| value(system, &cell.axes));
            let Some(against) = against.collect::<Option<Vec<f64>>>() else { continue };
            let best = best_of(against, metric)?;
            // A failed cell of the system has the ratio 0.
            let own = value(&self.system, &cell.axes);
            let ratio = match own {
                Some(own) if is_less(metric) => best / own,
                Some(own) => own / best,
                None => 0.0,
            };
            if ratio.is_finite() {
                ratios.push((ratio, &cell.axes));
            }
        }
        let all = ratios.len();
        if all == 0 {
            return None;
        }
        ratios.retain(|(ratio, _)| *ratio < bound);
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = format!("{} of {all}", ratios.len());
        let named: Vec<String> = ratios
            .iter()
            .take(MOST_NAMED)
            .map(|(ratio, axes)| {
                let unusual = axes.iter().filter(|(axis, value)| {
                    axes::usual(lab, axis) != Some(value.as_str())
                        && self.at.as_ref().is_none_or(|at| !at.contains_key(*axis))
                });
                let values: Vec<&str> = unusual.map(|(_, value)| value.as_str()).collect();
                format!("{ratio:.2} at {}", values.join(", "))
            })
            .collect();
        Some(match (ratios.len(), ratios.len() - named.len()) {
            (0, _) => count,
            (_, 0) => format!("{count} ({})", named.join("; ")),
            (_, more) => format!("{count} ({}; and {more} more)", named.join("; ")),
        })
    }

    fn metric<'a>(&'a self, lab: &'a Document) -> Option<&'a str> {
        let primary = lab.primary.first().map(|one| &one.get_ref().metric);
        let of_lab = primary.or(lab.view.as_ref().map(|view| &view.metric));
        self.metric.as_deref().or(of_lab.map(|metric| metric.get_ref().as_str()))
    }

    fn place<'a>(
        &self,
        lab: &Document,
        places: impl Iterator<Item = &'a Axes>,
    ) -> Option<&'a Axes> {
        match (&self.at, lab.primary.first()) {
            (None, Some(primary)) => primary.get_ref().cell(lab, places),
            (at, _) => {
                let named =
                    at.iter().flatten().map(|(axis, value)| (axis.as_str(), value.as_str()));
                axes::nearest_to_usual(lab, &named.collect::<Vec<_>>(), places)
            }
        }
    }

    /// Returns the figure of a run, or the word for a cell without a number.
    /// `written_for`: the cells of each form for which the answer is written.
    fn of_run(
        &self,
        lab: &Document,
        results: &Results,
        written_for: &[Vec<Axes>],
    ) -> Option<String> {
        if let Some(bound) = self.below {
            return self.cells_below(lab, results, f64::from(bound) / 1000.0);
        }
        let metric = self.metric(lab)?;
        // The sentence may name values that its fields omit, so a cell of another form does not fit
        // the sentence.
        let is_written_for = |axes: &&Axes| {
            written_for.iter().any(|places| self.place(lab, places.iter()) == Some(*axes))
        };
        let measured = results.cells.iter().map(|cell| &cell.axes);
        let axes = self.place(lab, measured).filter(is_written_for)?;
        let (mut medians, mut is_valid) = (Vec::new(), true);
        for system in self.systems() {
            let is_here = |cell: &&Cell| cell.system == system && cell.axes == *axes;
            let cell = results.cells.iter().find(is_here)?;
            is_valid &= cell.valid;
            match cell.metrics.get(metric) {
                Some(found) => medians.push(found.value()),
                None if cell.not_run.is_some() => return Some("(not run)".to_owned()),
                None => return Some("(failed)".to_owned()),
            }
        }
        let (own, others) = medians.split_first()?;
        let figure = match best_of(others.iter().copied(), metric) {
            Some(best) => format!("{}×", units::shown::significant(own / best)),
            None if *own >= 1e6 => format!("{} million", units::shown::significant(own / 1e6)),
            None => units::shown::significant(*own),
        };
        Some(if is_valid { figure } else { format!("{figure} (not valid)") })
    }
}

impl Document {
    /// Returns the answer of a run. `None` if the lab has no answer or the form does not measure
    /// its cells.
    pub(crate) fn answer_of(&self, results: &Results) -> Option<String> {
        let answer = Answer::parse(self.answer.as_ref()?.get_ref()).ok()?;
        let forms = WRITTEN_FOR.into_iter().filter_map(|form| self.form_of(form));
        let written_for: Vec<Vec<Axes>> = forms.map(|form| axes::places(self, form)).collect();
        let of_run = |figure: &Figure| figure.of_run(self, results, &written_for);
        let figures: Option<Vec<String>> = answer.figures().map(of_run).collect();
        let mut figures = figures?.into_iter();
        Some(answer.with(|_| figures.next().unwrap_or_default()))
    }

    pub(crate) fn check_answer(&self) -> Result<(), FileError> {
        let Some(text) = &self.answer else { return Ok(()) };
        let answer = match Answer::parse(text.get_ref()) {
            Ok(answer) => answer,
            Err(error) => return self.refuse(text.span(), error.to_string()),
        };
        let systems: Vec<&str> = self.systems().map(SystemSpec::name).collect();
        let known = self.metric_names();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let spec_of = |form: Form| {
            let spec = self.form_of(form)?;
            Some((form, spec, axes::places(self, spec)))
        };
        let forms: Vec<_> = WRITTEN_FOR.into_iter().filter_map(spec_of).collect();
        for figure in answer.figures() {
            for system in figure.systems() {
                self.known_at("system", system, text.span(), &systems)?;
            }
            match figure.metric(self) {
                Some(metric) => self.known_at("metric", metric, text.span(), &known)?,
                None => {
                    let message = format!(
                        "`{{{}}}` names no metric, and the lab has neither `[[primary]]` nor \
                         `[view]`: write `{{{0}: METRIC}}`",
                        figure.system
                    );
                    self.refuse(text.span(), message)?;
                }
            }
            for (form, spec, places) in &forms {
                self.check_figure(text.span(), figure, *form, (spec, places))?;
            }
        }
        Ok(())
    }

    fn form_of(&self, form: Form) -> Option<&FormSpec> {
        let named = self.form.iter().find(|(name, _)| name.get_ref() == form.word());
        named.map(|(_, spec)| spec)
    }

    fn check_figure(
        &self,
        span: std::ops::Range<usize>,
        figure: &Figure,
        form: Form,
        (spec, places): (&FormSpec, &[Axes]),
    ) -> Result<(), FileError> {
        let form = form.word();
        if let Some(missing) = figure.systems().find(|system| !spec.measures(system)) {
            let message = format!("the {form} form does not measure `{missing}` of the answer");
            return self.refuse(span, message);
        }
        if figure.place(self, places.iter()).is_none() {
            let message = format!(
                "the {form} form measures no cell of the answer's `{{{}}}`: name values that the \
                 form measures",
                figure.system
            );
            return self.refuse(span, message);
        }
        Ok(())
    }
}

/// Returns the best value of a metric.
fn best_of(values: impl IntoIterator<Item = f64>, metric: &str) -> Option<f64> {
    values.into_iter().reduce(if is_less(metric) { f64::min } else { f64::max })
}

/// Whether a lower value of the metric is better.
fn is_less(metric: &str) -> bool {
    metrics::direction(metric) == Some(stats::Direction::LowerIsBetter)
}

const WRITTEN_FOR: [Form; 2] = [Form::Full, Form::Quick];
/// Maximum number of cells that a sentence names. The tables of the report name all cells.
const MOST_NAMED: usize = 6;
const MOST_FIGURES: usize = 3;
const MOST_WORDS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LabFile;

    fn with(answer: &str) -> String {
        format!(
            r#"name = "lab"
answer = "{answer}"
hosts = ["client", "server"]
axes = {{ loss = ["0%", "1%"] }}
[[link]]
between = ["client", "server"]
rate = "10mbit"
loss = "{{loss}}"
rtt = "20ms"
[workload]
kind = "bulk"
from = "client"
to = "server"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "reno"
kind = "tcp"
congestion = "reno"
[form.full]
duration = "10s"
repeats = 6
[[primary]]
metric = "goodput_mbit_s"
system = "reno"
baseline = "cubic"
at = {{ loss = "1%" }}
"#
        )
    }

    #[test]
    fn a_field_names_systems_a_metric_and_a_cell() {
        let field = "tcpa / tcp-bbr: queue_ms.p95 at loss=5%, rtt=20ms";
        let figure = Figure::parse(field).unwrap();
        assert_eq!(figure.systems().collect::<Vec<_>>(), ["tcpa", "tcp-bbr"]);
        assert_eq!(figure.metric.as_deref(), Some("queue_ms.p95"));
        assert_eq!(figure.at.unwrap()["rtt"], "20ms");
        assert_eq!(Figure::parse(" tcpa ").unwrap().system, "tcpa");
        let error = Figure::parse("tcpa at loss").unwrap_err();
        assert_eq!(error, AnswerError::NoCell("loss".to_owned()));
    }

    #[test]
    fn the_answer_has_the_figures_of_the_cells_that_its_fields_name() {
        let lab = LabFile::parse(
            "lab.toml",
            &with("A {reno} B {reno / cubic} C {cubic: goodput_mbit_s at loss=0%}"),
        )
        .unwrap();
        let mut results = Results::new("lab", Form::Full);
        for (system, loss, goodput) in
            [("cubic", "1%", 2.0), ("reno", "1%", 5.0), ("cubic", "0%", 90.0)]
        {
            let mut cell =
                Cell::new(system, [("loss".to_owned(), loss.to_owned())].into_iter().collect());
            cell.metrics
                .insert("goodput_mbit_s".to_owned(), results::Metric::single(goodput, "Mbit/s"));
            results.cells.push(cell);
        }
        assert_eq!(lab.answer_of(&results).unwrap(), "A 5.00 B 2.50× C 90.0");
        let best = LabFile::parse("lab.toml", &with("D {cubic / cubic|reno}")).unwrap();
        assert_eq!(best.answer_of(&results).unwrap(), "D 0.400×", "reno is better than cubic");
        results.cells[0].valid = false;
        let marked = "A 5.00 B 2.50× (not valid) C 90.0";
        assert_eq!(lab.answer_of(&results).unwrap(), marked);
        results.cells[1].metrics.clear();
        results.cells[1].failed = Some("the connection was reset".to_owned());
        assert_eq!(lab.answer_of(&results).unwrap(), "A (failed) B (failed) C 90.0");
        results.cells.truncate(1);
        assert_eq!(lab.answer_of(&results), None);
    }

    #[test]
    fn a_below_field_names_the_cells_below_the_better_system() {
        let figure = Figure::parse("tcpa below 0.9 of cubic|bbr at loss=1%").unwrap();
        assert_eq!(figure.systems().collect::<Vec<_>>(), ["tcpa", "cubic", "bbr"]);
        assert!(matches!(Figure::parse("tcpa below x of bbr"), Err(AnswerError::NoBound(_))));
        assert!(matches!(Figure::parse("tcpa below 0.9"), Err(AnswerError::NoBound(_))));
        let text = with("Below: {reno below 0.9 of cubic}.");
        let lab = LabFile::parse("lab.toml", &text).unwrap();
        let mut results = Results::new("lab", Form::Full);
        let figures = [("0%", 8.0, 10.0), ("1%", 10.0, 10.0)];
        for (loss, reno, cubic) in figures {
            for (system, goodput) in [("reno", reno), ("cubic", cubic)] {
                let axes = [("loss".to_owned(), loss.to_owned())].into_iter().collect();
                let mut cell = Cell::new(system, axes);
                let metric = results::Metric::single(goodput, "Mbit/s");
                cell.metrics.insert("goodput_mbit_s".to_owned(), metric);
                results.cells.push(cell);
            }
        }
        assert_eq!(lab.answer_of(&results).unwrap(), "Below: 1 of 2 (0.80 at 0%).");
        results.cells[0].metrics.clear();
        assert_eq!(lab.answer_of(&results).unwrap(), "Below: 1 of 2 (0.00 at 0%).");
    }

    #[test]
    fn a_form_without_the_answers_cell_has_no_answer() {
        let omits = with("A {reno}").replace("at = { loss = \"1%\" }", "");
        let lab = LabFile::parse("lab.toml", &omits).unwrap();
        let mut results = Results::new("lab", Form::Smoke);
        let mut cell =
            Cell::new("reno", [("loss".to_owned(), "1%".to_owned())].into_iter().collect());
        cell.metrics.insert("goodput_mbit_s".to_owned(), results::Metric::single(5.0, "Mbit/s"));
        results.cells.push(cell);
        assert_eq!(lab.answer_of(&results), None);
        results.cells[0].axes.insert("loss".to_owned(), "0%".to_owned());
        assert_eq!(lab.answer_of(&results).unwrap(), "A 5.00");
    }

    #[test]
    fn an_answer_field_that_no_form_measures_is_refused() {
        for (field, told) in [
            ("{ren}", "system `ren`"),
            ("{reno: goodput}", "metric `goodput`"),
            ("{reno at loss=3%}", "measures no cell of the answer's `{reno}`"),
            ("{reno at los=1%}", "measures no cell of the answer's `{reno}`"),
        ] {
            let error = LabFile::parse("lab.toml", &with(field)).unwrap_err().to_string();
            assert!(error.contains(told), "{field}: {error}");
        }
    }

    #[test]
    fn an_answer_has_one_to_three_fields_and_at_most_thirty_words() {
        assert_eq!(Answer::parse("It is fast."), Err(AnswerError::NoFigure));
        assert_eq!(Answer::parse("It carries {tcpa."), Err(AnswerError::Open));
        assert_eq!(Answer::parse("{}"), Err(AnswerError::NoSystem));
        assert_eq!(Answer::parse("{a} {b} {c} {d}"), Err(AnswerError::TooManyFigures(4)));
        let long = format!("{{a: goodput_mbit_s at loss=5%, rtt=20ms}} {}", "word ".repeat(29));
        assert!(Answer::parse(&long).is_ok());
        assert_eq!(Answer::parse(&(long + "more")), Err(AnswerError::TooManyWords(31)));
    }
}
