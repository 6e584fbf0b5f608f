//! `answer`: the sentence that answers the lab's question. The sentence contains figures of named
//! cells.

mod figure;

use super::axes;
use super::disturbance::Disturbance;
use super::locate::FileError;
use super::schema::{Document, FormSpec, SystemSpec};
use figure::{Figure, Subject};
use results::{Axes, Form, Results};
use std::borrow::Cow;

/// A text whose fields stand in braces: `BBR carries {tcp-bbr} of 600 Mbit/s`. A field names a
/// system, and may name a metric and a cell: `{tcpa: goodput_mbit_s at loss=5%, rtt=20ms}`.
/// docs/reference/lab-file.md lists the kinds of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Figure(Box<Figure>),
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
    #[error("`{{{0}}}` compares no two cells of one system: write `{{SYSTEM against AXIS=VALUE}}`")]
    Against(String),
    #[error("`{{{0}}}` has no mean over all cells: write `{{SYSTEM: METRIC over all cells}}`")]
    OverAllCells(String),
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
            parts.push(Part::Figure(Box::new(Figure::parse(field)?)));
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        let answer = Self { parts };
        match answer.figures().count() {
            0 => return Err(AnswerError::NoFigure),
            1..=MOST_FIGURES => {}
            count => return Err(AnswerError::TooManyFigures(count)),
        }
        let in_words = |figure: &Figure| vec!["0"; figure.words()].join(" ");
        match answer.with(in_words).split_whitespace().count() {
            0..=MOST_WORDS => Ok(answer),
            count => Err(AnswerError::TooManyWords(count)),
        }
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Figure(figure) => Some(&**figure),
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

impl Document {
    /// Returns the answer of a run. `None` if the lab has no answer, if the form does not measure
    /// its cells, or if the run has none of its figures.
    pub(crate) fn answer_of(&self, results: &Results) -> Option<String> {
        let answer = Answer::parse(self.answer.as_ref()?.get_ref()).ok()?;
        let results = &*self.without_own_disturbance(results);
        let forms = WRITTEN_FOR.into_iter().filter_map(|form| self.form_of(form));
        let written_for: Vec<Vec<Axes>> = forms.map(|form| axes::places(self, form)).collect();
        let of_run = |figure: &Figure| figure.of_run(self, results, &written_for);
        let figures: Option<Vec<String>> = answer.figures().map(of_run).collect();
        let figures = figures?;
        if figures.iter().all(|text| figure::is_word(text)) {
            return None;
        }
        let mut figures = figures.into_iter();
        Some(answer.with(|_| figures.next().unwrap_or_default()))
    }

    /// Marks cells as valid if the lab disturbs these cells on purpose.
    fn without_own_disturbance<'a>(&self, results: &'a Results) -> Cow<'a, Results> {
        let mut results = Cow::Borrowed(results);
        if self.disturbance.is_some() {
            for cell in &mut results.to_mut().cells {
                let disturbance = self.disturbance_at(&cell.axes);
                cell.valid |= disturbance.is_ok_and(|found| found != Disturbance::default());
            }
        }
        results
    }

    /// Checks the answer. `has_means`: the results of the lab have means over all cells.
    pub(crate) fn check_answer(&self, has_means: bool) -> Result<(), FileError> {
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
            for system in figure.systems().chain(figure.left_out().iter().map(String::as_str)) {
                self.known_at("system", system, text.span(), &systems)?;
            }
            match figure.metric(self) {
                Some(metric) => {
                    self.known_at("metric", metric, text.span(), &known)?;
                    if let Some(problem) = figure.problem_of(metric) {
                        self.refuse(text.span(), problem)?;
                    }
                }
                None => {
                    let message = "a field of the answer names no metric, and the lab has neither \
                                   `[[primary]]` nor `[view]`: write `{SYSTEM: METRIC}`";
                    self.refuse(text.span(), message)?;
                }
            }
            if figure.over_all_cells {
                if !has_means || systems.len() < 2 {
                    let message = "the results of this lab have no means over all cells: only a lab \
                                   of `flows` with several systems has them";
                    self.refuse(text.span(), message)?;
                }
                continue;
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
            let subject = match &figure.subject {
                Subject::System { name, .. } | Subject::Below { name, .. } => name.as_str(),
                Subject::Best { .. } => "best",
                Subject::Worst => "worst",
                Subject::Count => "count",
            };
            let message = format!(
                "the {form} form measures no cell of the answer's `{{{subject}}}`: name values that \
                 the form measures"
            );
            return self.refuse(span, message);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Document {
    /// Returns the metrics of the answer's fields, except fields that are means over all cells.
    pub(crate) fn metrics_of_answer(&self) -> Vec<String> {
        let Some(text) = &self.answer else { return Vec::new() };
        let answer = Answer::parse(text.get_ref()).unwrap();
        let of_cells = answer.figures().filter(|figure| !figure.over_all_cells);
        of_cells.filter_map(|figure| figure.metric(self).map(str::to_owned)).collect()
    }
}

const WRITTEN_FOR: [Form; 2] = [Form::Full, Form::Quick];
const MOST_FIGURES: usize = 3;
const MOST_WORDS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LabFile;
    use results::{Cell, Metric, Overall, Proportion};

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
        assert_eq!(Figure::parse(" tcpa ").unwrap().systems().collect::<Vec<_>>(), ["tcpa"]);
        let error = Figure::parse("tcpa at loss").unwrap_err();
        assert_eq!(error, AnswerError::NoCell("loss".to_owned()));
    }

    fn lab(answer: &str) -> LabFile {
        LabFile::parse("lab.toml", &with(answer)).unwrap()
    }

    /// Builds a run with the goodput of each system and loss.
    fn run(figures: &[(&str, &str, f64)]) -> Results {
        let mut results = Results::new("lab", Form::Full);
        for (system, loss, goodput) in figures {
            let axes = [("loss".to_owned(), (*loss).to_owned())].into_iter().collect();
            let mut cell = Cell::new(*system, axes);
            cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(*goodput, "Mbit/s"));
            results.cells.push(cell);
        }
        results
    }

    #[test]
    fn the_answer_has_the_figures_of_the_cells_that_its_fields_name() {
        let answer = lab("A {reno} B {reno / cubic} C {cubic: goodput_mbit_s at loss=0%}");
        let mut results = run(&[("cubic", "1%", 2.0), ("reno", "1%", 5.0), ("cubic", "0%", 90.0)]);
        assert_eq!(answer.answer_of(&results).unwrap(), "A 5.00 B 2.50× C 90.0");
        let best = lab("D {cubic / cubic|reno}");
        assert_eq!(best.answer_of(&results).unwrap(), "D 0.400×", "reno is better than cubic");
        results.cells[0].valid = false;
        let marked = "A 5.00 B 2.50× (not valid) C 90.0";
        assert_eq!(answer.answer_of(&results).unwrap(), marked);
        results.cells[1].metrics.clear();
        results.cells[1].failed = Some("the connection was reset".to_owned());
        assert_eq!(answer.answer_of(&results).unwrap(), "A (failed) B (failed) C 90.0");
        results.cells.truncate(1);
        assert_eq!(answer.answer_of(&results), None);
    }

    #[test]
    fn figures_of_cells_that_the_lab_disturbs_are_not_marked() {
        let disturbed = "[disturbance]\nstalls = \"1ms every 20ms\"\n[workload]";
        let text = with("{reno} and {reno at loss=0%}").replace("[workload]", disturbed);
        let lab = LabFile::parse("lab.toml", &text).unwrap();
        let mut results = run(&[("reno", "1%", 5.0), ("reno", "0%", 9.0)]);
        results.cells.iter_mut().for_each(|cell| cell.valid = false);
        assert_eq!(lab.answer_of(&results).unwrap(), "5.00 and 9.00");
    }

    #[test]
    fn a_system_that_the_run_left_out_does_not_take_the_answer_away() {
        let answer = lab("A {reno} B {cubic / reno|cubic} C {cubic / reno}");
        assert!(answer.answer_of(&run(&[])).is_none());
        let results = run(&[("cubic", "1%", 2.0), ("cubic", "0%", 90.0)]);
        let told = "A (not measured) B 1.00× C (not measured)";
        assert_eq!(answer.answer_of(&results).unwrap(), told);
        assert_eq!(lab("{reno}").answer_of(&results), None, "no figure is left");
        let below = lab("A {cubic below 0.9 of reno|cubic} B {reno below 0.9 of cubic}");
        assert_eq!(below.answer_of(&results).unwrap(), "A 0 of 2 B (not measured)");
        // A run may lack the metric: virtual time has no CPU time.
        assert_eq!(lab("{cubic: cpu_percent.client}").answer_of(&results), None);
    }

    #[test]
    fn an_against_field_is_the_share_of_the_systems_figure_in_another_cell() {
        let answer = lab("{cubic at loss=1% against loss=0%} and {reno against loss=0%}");
        let mut results = run(&[
            ("cubic", "0%", 8.0),
            ("reno", "0%", 4.0),
            ("cubic", "1%", 2.0),
            ("reno", "1%", 3.0),
        ]);
        assert_eq!(answer.answer_of(&results).unwrap(), "0.250 and 0.750");
        results.cells[1].valid = false;
        assert_eq!(answer.answer_of(&results).unwrap(), "0.250 and 0.750 (not valid)");
        results.cells.remove(0);
        assert_eq!(answer.answer_of(&results), None);
        let error = LabFile::parse("lab.toml", &with("{cubic against loss=3%}")).unwrap_err();
        assert!(error.to_string().contains("measures no cell"), "{error}");
        let error = Figure::parse("cubic / reno against loss=0%").unwrap_err();
        assert_eq!(error, AnswerError::Against("cubic / reno against loss=0%".to_owned()));
    }

    #[test]
    fn best_and_worst_fields_name_the_best_system_and_the_worst_value() {
        let results = run(&[("cubic", "1%", 2.0), ("reno", "1%", 5.0), ("reno", "0%", 9.0)]);
        let answer = lab("{best} {best without reno at loss=1%} {worst}");
        let told = "reno (5.00 Mbit/s) cubic (2.00 Mbit/s) 2.00";
        assert_eq!(answer.answer_of(&results).unwrap(), told);
        assert_eq!(lab("{worst at loss=0%}").answer_of(&results).unwrap(), "9.00");
        for (field, told) in [
            ("{best without ren}", "system `ren`"),
            ("{worst: rate_mbit_s}", "`rate_mbit_s` has no better and no worse"),
            ("{count: goodput_mbit_s}", "`goodput_mbit_s` are not 0 or 1"),
            ("{best: jain over all cells}", "no means over all cells"),
        ] {
            let error = LabFile::parse("lab.toml", &with(field)).unwrap_err().to_string();
            assert!(error.contains(told), "{field}: {error}");
        }
    }

    #[test]
    fn a_count_field_adds_up_the_repeats_of_all_cells() {
        let mut results = run(&[("cubic", "0%", 1.0), ("reno", "0%", 1.0), ("reno", "1%", 1.0)]);
        let share = Proportion { count: 5, total: 6, ci95: [0.3, 1.0] };
        let six = Metric { share: Some(share), ..Metric::single(1.0, "") };
        results.cells[0].metrics.insert("within".to_owned(), six);
        results.cells[1].metrics.insert("within".to_owned(), Metric::single(1.0, ""));
        results.cells[2].metrics.insert("within".to_owned(), Metric::single(0.5, ""));
        assert_eq!(lab("{count: within}").answer_of(&results).unwrap(), "6 of 8");
        assert_eq!(lab("{count: within at loss=1%}").answer_of(&results).unwrap(), "0 of 1");
        // A smoke form measures a single cell, which gives no answer.
        results.form = Form::Smoke;
        assert_eq!(lab("{count: within}").answer_of(&results), None);
    }

    #[test]
    fn an_over_all_cells_field_is_the_mean_of_the_results() {
        let text = with("{best: jain over all cells}, {reno: jain over all cells}")
            .replace("kind = \"bulk\"", "kind = \"flows\"");
        let lab = LabFile::parse("lab.toml", &text).unwrap();
        let mut results = run(&[("cubic", "0%", 1.0)]);
        results.cells[0].metrics.insert("jain".to_owned(), Metric::single(0.5, ""));
        assert_eq!(lab.answer_of(&results), None);
        results.overall.push(Overall {
            metric: "jain".to_owned(),
            systems: [("cubic".to_owned(), 0.5), ("reno".to_owned(), 0.75)].into_iter().collect(),
            ..Overall::default()
        });
        assert_eq!(lab.answer_of(&results).unwrap(), "reno (0.750), 0.750");
        let error = Figure::parse("worst over all cells").unwrap_err();
        assert_eq!(error, AnswerError::OverAllCells("worst over all cells".to_owned()));
    }

    #[test]
    fn a_below_field_counts_the_cells_below_the_better_system() {
        let figure = Figure::parse("tcpa below 0.9 of cubic|bbr at loss=1%").unwrap();
        assert_eq!(figure.systems().collect::<Vec<_>>(), ["tcpa", "cubic", "bbr"]);
        assert!(matches!(Figure::parse("tcpa below x of bbr"), Err(AnswerError::NoBound(_))));
        assert!(matches!(Figure::parse("tcpa below 0.9"), Err(AnswerError::NoBound(_))));
        let lab = lab("Below: {reno below 0.9 of cubic}.");
        let mut results = run(&[
            ("reno", "0%", 8.0),
            ("cubic", "0%", 10.0),
            ("reno", "1%", 10.0),
            ("cubic", "1%", 10.0),
        ]);
        assert_eq!(lab.answer_of(&results).unwrap(), "Below: 1 of 2.");
        results.cells[0].metrics.clear();
        assert_eq!(lab.answer_of(&results).unwrap(), "Below: 1 of 2.");
        // Paths that a turn measured at once replace the mean of these paths.
        for (loss, reno) in [("path1", 1.0), ("path2", 2.0), ("path3", 10.0)] {
            results.cells.extend(run(&[("reno", loss, reno), ("cubic", loss, 10.0)]).cells);
        }
        assert_eq!(lab.answer_of(&results).unwrap(), "Below: 2 of 3.");
    }

    #[test]
    fn a_form_without_the_answers_cell_has_no_answer() {
        let omits = with("A {reno}").replace("at = { loss = \"1%\" }", "");
        let lab = LabFile::parse("lab.toml", &omits).unwrap();
        let mut results = Results::new("lab", Form::Smoke);
        let mut cell =
            Cell::new("reno", [("loss".to_owned(), "1%".to_owned())].into_iter().collect());
        cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(5.0, "Mbit/s"));
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
        // The name and the value of the best system are three words.
        let best = long.replace("{a:", "{best:");
        assert_eq!(Answer::parse(&best), Err(AnswerError::TooManyWords(32)));
        assert_eq!(Answer::parse(&(long + "more")), Err(AnswerError::TooManyWords(31)));
    }
}
