//! Primary comparisons, which a lab file names before the run. A run tests all its comparisons at a
//! common significance level. The primary comparisons share most of this level, so a few repeats
//! decide them.

use super::axes;
use super::locate::FileError;
use super::schema::{Document, FormSpec, SystemSpec};
use indexmap::IndexMap;
use results::{Axes, Form, metrics};
use settings::table;
use toml::Spanned;

table! {
    /// `[[primary]]`: one metric of two systems in one cell.
    #[derive(Debug, Clone)]
    pub struct PrimarySpec {
        pub metric: Spanned<String>,
        pub system: Spanned<String>,
        pub baseline: Spanned<String>,
        /// The cell of the comparison. An axis without a value here has its usual value, or else
        /// its first value.
        pub at: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
    }
}

impl PrimarySpec {
    /// Returns the comparison's cell among the cells that a form measures. If `usual` and `at`
    /// leave a choice, the first of these cells.
    pub(crate) fn cell<'a>(
        &self,
        lab: &Document,
        places: impl Iterator<Item = &'a Axes>,
    ) -> Option<&'a Axes> {
        let named =
            self.at.iter().map(|(axis, value)| (axis.as_ref().as_str(), value.as_ref().as_str()));
        axes::nearest_to_usual(lab, &named.collect::<Vec<_>>(), places)
    }

    fn is_same(&self, other: &Self) -> bool {
        let names = |one: &Self| {
            [&one.metric, &one.system, &one.baseline].map(|name| name.get_ref().clone())
        };
        let at = |one: &Self| -> Axes {
            let text = |(axis, value): (&Spanned<String>, &Spanned<String>)| {
                (axis.get_ref().clone(), value.get_ref().clone())
            };
            one.at.iter().map(text).collect()
        };
        names(self) == names(other) && at(self) == at(other)
    }

    /// Returns the cell as text: `loss=1%, rtt=1ms`.
    fn place(&self) -> String {
        let text = |(axis, value): (&Spanned<String>, &Spanned<String>)| {
            format!("{}={}", axis.get_ref(), value.get_ref())
        };
        self.at.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

impl Document {
    /// Returns the primary comparisons of a form. A short form has at most one primary comparison,
    /// because the form measures few cells.
    pub(crate) fn primaries(&self, form: Form) -> impl Iterator<Item = &PrimarySpec> {
        let most = if form == Form::Full { MOST } else { 1 };
        self.primary.iter().map(Spanned::get_ref).take(most)
    }

    pub(crate) fn check_primary(&self) -> Result<(), FileError> {
        if let Some(beyond) = self.primary.get(MOST) {
            let message = format!(
                "a lab has at most {MOST} `[[primary]]`: the answer begins with all of them, so name \
                 those that answer the question"
            );
            return self.refuse(beyond.span(), message);
        }
        let places_of = |form: &str| {
            let named = self.form.iter().find(|(name, _)| name.get_ref() == form);
            named.map(|(_, spec)| (spec, axes::places(self, spec)))
        };
        let is_named = !self.primary.is_empty();
        let full = is_named.then(|| places_of("full")).flatten();
        let quick = is_named.then(|| places_of("quick")).flatten();
        for (number, one) in self.primary.iter().enumerate() {
            self.check_one(one.get_ref())?;
            let before = &self.primary[..number];
            if before.iter().any(|other| other.get_ref().is_same(one.get_ref())) {
                let message = "the same `[[primary]]` twice: remove one";
                return self.refuse(one.span(), message);
            }
            self.check_measured(one, "full", full.as_ref())?;
            if number == 0 {
                self.check_measured(one, "quick", quick.as_ref())?;
            }
        }
        Ok(())
    }

    fn check_one(&self, one: &PrimarySpec) -> Result<(), FileError> {
        let metrics = self.metric_names();
        let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
        self.known("metric", &one.metric, &metrics)?;
        if metrics::direction(one.metric.get_ref()).is_none() {
            let message = format!(
                "neither more nor less of `{}` is better: name another metric",
                one.metric.get_ref()
            );
            return self.refuse(one.metric.span(), message);
        }
        let systems: Vec<&str> = self.systems().map(SystemSpec::name).collect();
        self.known("system", &one.system, &systems)?;
        self.known("system", &one.baseline, &systems)?;
        if one.system.get_ref() == one.baseline.get_ref() {
            let message = format!("`{}` compared with itself", one.system.get_ref());
            return self.refuse(one.system.span(), message);
        }
        let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        for (axis, value) in &one.at {
            self.known("axis", axis, &axes)?;
            self.known_value(axis.get_ref(), value)?;
        }
        Ok(())
    }

    fn check_measured(
        &self,
        one: &Spanned<PrimarySpec>,
        form: &str,
        found: Option<&(&FormSpec, Vec<Axes>)>,
    ) -> Result<(), FileError> {
        let Some((spec, places)) = found else { return Ok(()) };
        let pair = [&one.get_ref().system, &one.get_ref().baseline];
        if let Some(missing) = pair.into_iter().find(|system| !spec.measures(system.get_ref())) {
            let message = format!("the {form} form does not measure `{}`", missing.get_ref());
            return self.refuse(missing.span(), message);
        }
        if one.get_ref().cell(self, places.iter()).is_some() {
            return Ok(());
        }
        let message = format!(
            "the {form} form measures no cell at {}: name the values of a cell that it measures",
            one.get_ref().place()
        );
        self.refuse(one.span(), message)
    }
}

/// Maximum number of primary comparisons. More comparisons would not give a short answer.
const MOST: usize = 3;
