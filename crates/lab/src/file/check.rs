//! What a lab file must satisfy beyond its grammar. Nothing here touches the machine.

use super::locate::{FileError, nearest};
use super::placeholders::fill;
use super::schema::{LabFile, SystemKind, SystemSpec, WorkloadKind};
use crate::plan;
use std::collections::HashSet;
use std::ops::Range;
use toml::Spanned;

/// What a command line of an external system may name.
pub(crate) const COMMAND_WORDS: [&str; 3] = ["client", "server", "port"];

impl LabFile {
    pub(super) fn check(&self) -> Result<(), FileError> {
        self.check_names()?;
        self.check_hosts()?;
        self.check_axes()?;
        self.check_workload()?;
        for system in &self.system {
            self.check_system(system.get_ref())?;
        }
        self.check_forms()?;
        self.check_mentions()?;
        // Every combination, so that a value that fails does so now and not in the tenth minute.
        for axes in plan::combinations(self) {
            self.links_at(&axes)?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), FileError> {
        let name = self.name.get_ref();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return self.refuse(
                self.name.span(),
                "a lab's name is made of letters, digits and `-`: it names the run's directory",
            );
        }
        self.unique("host", self.hosts.iter())?;
        self.unique("system", self.system.iter().map(|system| &system.get_ref().name))?;
        if self.system.is_empty() {
            return self.refuse(self.name.span(), "no `[[system]]`: there is nothing to test");
        }
        Ok(())
    }

    fn unique<'a>(
        &self,
        what: &str,
        names: impl Iterator<Item = &'a Spanned<String>>,
    ) -> Result<(), FileError> {
        let mut seen = HashSet::new();
        for name in names {
            if name.get_ref().is_empty() {
                return self.refuse(name.span(), format!("a {what} needs a name"));
            }
            if !seen.insert(name.get_ref()) {
                let message = format!("two {what}s are called `{}`: rename one", name.get_ref());
                return self.refuse(name.span(), message);
            }
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), FileError> {
        for link in &self.link {
            let [a, b] = link.get_ref().between.get_ref();
            self.known_host(a)?;
            self.known_host(b)?;
            if a.get_ref() == b.get_ref() {
                return self.refuse(b.span(), format!("a link from `{}` to itself", a.get_ref()));
            }
        }
        for host in &self.hosts {
            let linked = |end: &Spanned<String>| end.get_ref() == host.get_ref();
            if !self.link.iter().any(|link| link.get_ref().between.get_ref().iter().any(linked)) {
                let message = format!(
                    "no `[[link]]` reaches host `{}`: add one, or remove the host",
                    host.get_ref()
                );
                return self.refuse(host.span(), message);
            }
        }
        Ok(())
    }

    fn known_host(&self, name: &Spanned<String>) -> Result<(), FileError> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.get_ref().as_str()).collect();
        self.known("host", name, &hosts)
    }

    fn known(
        &self,
        what: &str,
        name: &Spanned<String>,
        candidates: &[&str],
    ) -> Result<(), FileError> {
        if candidates.contains(&name.get_ref().as_str()) {
            return Ok(());
        }
        let hint = nearest(name.get_ref(), candidates.iter().copied());
        let message = match hint.is_empty() {
            true => format!("no {what} `{}`; there are {}", name.get_ref(), candidates.join(", ")),
            false => format!("no {what} `{}`{hint}", name.get_ref()),
        };
        self.refuse(name.span(), message)
    }

    fn check_axes(&self) -> Result<(), FileError> {
        for (axis, values) in &self.axes {
            if values.get_ref().is_empty() {
                return self.refuse(values.span(), format!("axis `{axis}` has no values"));
            }
            self.unique(&format!("value of axis `{axis}`"), values.get_ref().iter())?;
        }
        Ok(())
    }

    fn check_workload(&self) -> Result<(), FileError> {
        let workload = self.workload.get_ref();
        self.known_host(&workload.from)?;
        self.known_host(&workload.to)?;
        if !(1..=128).contains(workload.streams.get_ref()) {
            return self.refuse(workload.streams.span(), "`streams` is from 1 to 128");
        }
        let (from, to) = (workload.from.get_ref(), workload.to.get_ref());
        let joined = self.link.iter().any(|link| {
            let [a, b] = link.get_ref().between.get_ref();
            (a.get_ref(), b.get_ref()) == (from, to) || (b.get_ref(), a.get_ref()) == (from, to)
        });
        if !joined {
            let message = format!("no `[[link]]` joins `{from}` and `{to}` for the workload");
            return self.refuse(workload.to.span(), message);
        }
        Ok(())
    }

    fn check_system(&self, system: &SystemSpec) -> Result<(), FileError> {
        let place = system.name.span();
        let name = system.name();
        let judged = self.workload.get_ref().kind == WorkloadKind::LinkAccuracy;
        if judged != (system.kind == SystemKind::Link) {
            return self.refuse(
                place,
                format!("system `{name}`: `kind = \"link\"` and the workload `link-accuracy` belong together"),
            );
        }
        match system.kind {
            SystemKind::Tcp if system.congestion.is_none() => self.refuse(
                place,
                format!("system `{name}` names no algorithm: add `congestion = \"cubic\"` or another"),
            ),
            SystemKind::External if system.client.is_none() || system.server.is_none() => self
                .refuse(
                    place,
                    format!("system `{name}` needs both a `client` and a `server` command line"),
                ),
            SystemKind::External => self.check_commands(system),
            SystemKind::Tcp | SystemKind::Link => self.check_no_commands(system),
        }
    }

    fn check_commands(&self, system: &SystemSpec) -> Result<(), FileError> {
        for command in [&system.client, &system.server, &system.connect].into_iter().flatten() {
            let known: Vec<&str> =
                COMMAND_WORDS.into_iter().chain(self.axes.keys().map(String::as_str)).collect();
            let value_of = |name: &str| known.contains(&name).then(String::new);
            if let Err(message) = fill(command.get_ref(), &known, value_of) {
                return self.refuse(command.span(), message);
            }
            if command.get_ref().trim().is_empty() {
                return self.refuse(command.span(), "an empty command line");
            }
        }
        Ok(())
    }

    fn check_no_commands(&self, system: &SystemSpec) -> Result<(), FileError> {
        match [&system.client, &system.server, &system.connect].into_iter().flatten().next() {
            None => Ok(()),
            Some(command) => {
                self.refuse(command.span(), "only systems of `kind = \"external\"` run commands")
            }
        }
    }

    fn check_forms(&self) -> Result<(), FileError> {
        const FORMS: [&str; 3] = ["full", "quick", "smoke"];
        for (name, form) in &self.form {
            self.known("form", name, &FORMS)?;
            if !(1..=10_000).contains(form.repeats.get_ref()) {
                return self.refuse(form.repeats.span(), "`repeats` is from 1 to 10000");
            }
            if form.duration.get_ref().nanos() < 100_000_000 {
                return self.refuse(form.duration.span(), "`duration` is at least 100ms");
            }
            for (axis, values) in form.cells.iter().flatten() {
                let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
                self.known("axis", axis, &axes)?;
                for value in values {
                    self.known_value(axis.get_ref(), value)?;
                }
            }
        }
        if !self.form.contains_key("full") {
            let message = "no `[form.full]`: it says how long and how often a cell is measured";
            return self.refuse(self.name.span(), message);
        }
        Ok(())
    }

    fn known_value(&self, axis: &str, value: &Spanned<String>) -> Result<(), FileError> {
        let values: Vec<&str> = self
            .axes
            .get(axis)
            .map(|values| values.get_ref().iter().map(|v| v.get_ref().as_str()).collect())
            .unwrap_or_default();
        self.known(&format!("value on axis `{axis}`"), value, &values)
    }

    /// Names that comparisons, the view and reference rows use must exist.
    fn check_mentions(&self) -> Result<(), FileError> {
        let systems: Vec<&str> = self.systems().map(SystemSpec::name).collect();
        let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        if let Some(compare) = &self.compare {
            self.known("system", &compare.baseline, &systems)?;
        }
        if let Some(rows) = self.view.as_ref().and_then(|view| view.rows.as_ref()) {
            self.known("axis", rows, &axes)?;
        }
        for reference in &self.reference {
            for system in &reference.beside {
                self.known("system", system, &systems)?;
            }
            for (axis, value) in &reference.axes {
                self.known("axis", axis, &axes)?;
                self.known_value(axis.get_ref(), value)?;
            }
        }
        Ok(())
    }

    fn refuse(&self, place: Range<usize>, message: impl Into<String>) -> Result<(), FileError> {
        Err(self.source.error(place, message))
    }
}
