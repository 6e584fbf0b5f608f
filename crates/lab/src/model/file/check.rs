//! Checks a lab file beyond its grammar, without touching the machine.

use super::axes;
use super::ends::{FROM, LOOPBACK, VIA};
use super::locate::FileError;
use super::placeholders::fill;
use super::schema::{CellFilter, Document, LinkSpec, SystemKind, SystemSpec, TwoHosts};
use results::metrics;
use settings::LOST;
use std::collections::HashSet;
use std::ops::Range;
use toml::Spanned;
use units::Span;

/// Placeholders that the command line of an external system may use.
pub(crate) const COMMAND_WORDS: [&str; 8] =
    ["client", "server", "port", "weir", "keys", "files", "server-pin", "client-pin"];

impl Document {
    pub(crate) fn check_names(&self) -> Result<(), FileError> {
        let name = self.name.get_ref();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return self.refuse(
                self.name.span(),
                "a lab's name is made of letters, digits and `-`: it names the run's directory",
            );
        }
        let systems = self.system.iter().map(|system| &system.get_ref().name);
        let links = self.link.iter().filter_map(|link| link.get_ref().name.as_ref());
        for name in self.hosts.iter().chain(systems).chain(links) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            if !name.get_ref().chars().all(plain) {
                let message = "a name is made of letters, digits and `-`, `_`, `.`, `+`";
                self.refuse(name.span(), message)?;
            }
        }
        let links = || self.link.iter().filter_map(|link| link.get_ref().name.as_ref());
        if let Some(taken) = links().find(|name| name.get_ref() == LOOPBACK) {
            let message = format!("every host already has a `{LOOPBACK}`: rename this link");
            return self.refuse(taken.span(), message);
        }
        self.unique("link", links())?;
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

    pub(crate) fn check_hosts(&self) -> Result<(), FileError> {
        let before = self.source.count();
        let mut joined = HashSet::new();
        for link in &self.link {
            let TwoHosts([a, b]) = link.get_ref().between.get_ref();
            self.known_host(a.get_ref(), a.span())?;
            self.known_host(b.get_ref(), b.span())?;
            if a.get_ref() == b.get_ref() {
                return self.refuse(b.span(), format!("a link from `{}` to itself", a.get_ref()));
            }
            let mut pair = [a.get_ref(), b.get_ref()];
            pair.sort();
            if !joined.insert(pair) {
                let [a, b] = pair;
                let message = format!("a second link between `{a}` and `{b}`: remove one");
                return self.refuse(link.get_ref().between.span(), message);
            }
            self.check_direct(link.get_ref())?;
        }
        // Stop here: the next check would report a misspelt host of a link a second time.
        if self.source.count() > before {
            return Ok(());
        }
        let table = self.workload.get_ref();
        for host in &self.hosts {
            let linked = |end: &Spanned<String>| end.get_ref() == host.get_ref();
            let reached =
                self.link.iter().any(|l| l.get_ref().between.get_ref().0.iter().any(linked));
            // A workload over a host's loopback needs no link.
            let alone =
                table.place(VIA).is_some() && table.text(FROM) == Some(host.get_ref().as_str());
            if !reached && !alone {
                let message = format!(
                    "no `[[link]]` reaches host `{}`: add one, or remove the host",
                    host.get_ref()
                );
                return self.refuse(host.span(), message);
            }
        }
        Ok(())
    }

    /// Refuses emulator settings on a cable, because a cable does nothing to packets.
    fn check_direct(&self, link: &LinkSpec) -> Result<(), FileError> {
        let Some((key, value)) = link.emulated().next().filter(|_| link.is_direct()) else {
            return Ok(());
        };
        let message = format!(
            "`{key}` has no place beside `direct = true`, which is a plain cable without an \
             emulator: remove one of them"
        );
        self.refuse(value.span(), message)
    }

    /// Returns the metrics that the file may name: the registry's, and the figures of its own
    /// workload.
    pub(crate) fn metric_names(&self) -> Vec<String> {
        let own = self.workload.get_ref().metrics.iter();
        let own = own.map(|(name, figure)| figure.get_ref().metric(name.get_ref()));
        own.chain(metrics::names()).collect()
    }

    pub(crate) fn known_host(&self, name: &str, place: Range<usize>) -> Result<(), FileError> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.get_ref().as_str()).collect();
        self.known_at("host", name, place, &hosts)
    }

    pub(crate) fn known(
        &self,
        what: &str,
        name: &Spanned<String>,
        candidates: &[&str],
    ) -> Result<(), FileError> {
        self.known_at(what, name.get_ref(), name.span(), candidates)
    }

    pub(super) fn known_at(
        &self,
        what: &str,
        name: &str,
        place: Range<usize>,
        candidates: &[&str],
    ) -> Result<(), FileError> {
        if candidates.contains(&name) || candidates.contains(&LOST) {
            return Ok(());
        }
        let hint = units::did_you_mean(name, candidates.iter().copied());
        let message = match (candidates, hint.is_empty()) {
            ([], _) => format!("no {what} `{name}`: the file names none"),
            (_, true) => format!("no {what} `{name}`; there are {}", candidates.join(", ")),
            (_, false) => format!("no {what} `{name}`{hint}"),
        };
        self.refuse(place, message)
    }

    pub(crate) fn check_axes(&self) -> Result<(), FileError> {
        for (axis, values) in &self.axes {
            if values.get_ref().is_empty() {
                self.refuse(values.span(), format!("axis `{axis}` has no values"))?;
            }
            let mut seen = HashSet::new();
            if let Some(twice) = values.get_ref().iter().find(|value| !seen.insert(value.get_ref()))
            {
                let message = format!("axis `{axis}` has the value `{}` twice", twice.get_ref());
                self.refuse(twice.span(), message)?;
            }
        }
        Ok(())
    }

    /// Refuses a file with more than [`MOST_PLACES`] places, because the run would take too long.
    pub(crate) fn check_count(&self) -> Result<(), FileError> {
        if self.form.values().any(|form| form.cells.is_empty()) {
            let mut cells = 1_usize;
            for (axis, values) in &self.axes {
                cells = cells.saturating_mul(values.get_ref().len());
                if cells > MOST_PLACES {
                    let message = format!(
                        "with axis `{axis}` there are {cells} combinations of values; the limit is {MOST_PLACES}"
                    );
                    return self.refuse(values.span(), message);
                }
            }
        }
        for (name, form) in &self.form {
            let cells = form.cells.iter().map(|filter| axes::count(self, filter));
            let cells = cells.fold(0, usize::saturating_add);
            if cells > MOST_PLACES {
                let message = format!(
                    "the form `{}` chooses {cells} combinations of values; the limit is {MOST_PLACES}",
                    name.get_ref()
                );
                return self.refuse(name.span(), message);
            }
        }
        Ok(())
    }

    /// Checks that `words` and `usual` refer to values and axes that exist.
    pub(crate) fn check_words(&self) -> Result<(), FileError> {
        let values =
            || self.axes.values().flat_map(|values| values.get_ref()).chain(self.drawn_texts());
        for word in self.words.keys() {
            let is_value = |value: &Spanned<String>| {
                value.get_ref() == word.get_ref() || value.get_ref() == LOST
            };
            if !values().any(is_value) {
                let known = values().map(|value| value.get_ref().as_str());
                let hint = units::did_you_mean(word.get_ref(), known);
                let message = format!("no axis has the value `{}`{hint}", word.get_ref());
                self.refuse(word.span(), message)?;
            }
        }
        let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        for (axis, value) in &self.usual {
            self.known("axis", axis, &axes)?;
            self.known_value(axis.get_ref(), value)?;
        }
        Ok(())
    }

    /// Refuses an axis that changes nothing: the table of the axis would repeat the same figures.
    /// `own` is an axis that the workload itself reads.
    pub(crate) fn check_use_of_axes(&self, own: Option<&str>) -> Result<(), FileError> {
        let worlds = self.draw.as_ref().map(|draw| draw.get_ref().axis.get_ref());
        for name in self.drawn_names() {
            if !self.mentions(&format!("{{{}}}", name.get_ref())) {
                let message = format!(
                    "nothing depends on `{0}` of `[draw]`: write `{{{0}}}` where its value belongs, or remove it",
                    name.get_ref()
                );
                return self.refuse(name.span(), message);
            }
        }
        for (axis, values) in self.axes.iter().filter(|(axis, _)| Some(*axis) != worlds) {
            if !self.mentions(&format!("{{{axis}}}")) && own != Some(axis.as_str()) {
                let message = format!(
                    "nothing depends on axis `{axis}`: write `{{{axis}}}` where its value belongs, or remove it"
                );
                return self.refuse(values.span(), message);
            }
        }
        Ok(())
    }

    /// Checks the settings of a system that do not depend on the workload.
    pub(crate) fn check_congestion(&self, system: &SystemSpec) -> Result<(), FileError> {
        system.congestion.as_ref().map_or(Ok(()), |name| self.check_algorithm_name(name))
    }

    pub(super) fn check_algorithm_name(
        &self,
        congestion: &Spanned<String>,
    ) -> Result<(), FileError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name = congestion.get_ref();
        // Names have fewer than the 16 bytes of TCP_CA_NAME_MAX (include/net/tcp.h), which include
        // the terminating zero.
        if !(1..16).contains(&name.len()) || !name.chars().all(plain) {
            let message = "an algorithm's name is from 1 to 15 letters, digits, `-` and `_`";
            return self.refuse(congestion.span(), message);
        }
        Ok(())
    }

    /// Checks that a system has the keys that its kind needs, and no key of another kind.
    ///
    /// `by_command`: the workload runs a command, and a system may have its own.
    pub(crate) fn check_kind(
        &self,
        system: &SystemSpec,
        by_command: bool,
    ) -> Result<(), FileError> {
        let (name, place) = (system.name(), system.name.span());
        match system.kind {
            SystemKind::Tcp if system.is_state => self.check_no_commands(system),
            SystemKind::Tcp if by_command => self.check_own_commands(system),
            SystemKind::Tcp if system.congestion.is_none() => self.refuse(
                place,
                format!(
                    "system `{name}` names no algorithm: add `congestion = \"cubic\"` or another"
                ),
            ),
            SystemKind::External if system.client.is_none() || system.server.is_none() => self
                .refuse(
                    place,
                    format!("system `{name}` needs both a `client` and a `server` command line"),
                ),
            SystemKind::External => self.check_commands(system),
            SystemKind::Tcp
            | SystemKind::Tunnel
            | SystemKind::Link
            | SystemKind::Model
            | SystemKind::Doctor
            | SystemKind::Switch => self.check_no_commands(system),
        }
    }

    fn check_commands(&self, system: &SystemSpec) -> Result<(), FileError> {
        let known: Vec<&str> =
            COMMAND_WORDS.into_iter().chain(self.axes.keys().map(String::as_str)).collect();
        let check_filling = |written: &Spanned<String>| {
            let value_of = |name: &str| known.contains(&name).then(String::new);
            match fill(written.get_ref(), &known, value_of) {
                Ok(_) => Ok(()),
                Err(message) => self.refuse(written.span(), message),
            }
        };
        for (name, text) in &system.files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let own = name.get_ref().trim_start_matches('.');
            if own.is_empty() || !name.get_ref().chars().all(plain) {
                let message = "a file's name is made of letters, digits and `-`, `_`, `.`";
                return self.refuse(name.span(), message);
            }
            check_filling(text)?;
        }
        let commands = [&system.client, &system.server, &system.connect, &system.version];
        for command in commands.into_iter().flatten() {
            check_filling(command)?;
            if super::words::words(command.get_ref()).is_empty() {
                return self.refuse(command.span(), "an empty command line");
            }
            if let Some(quote) = super::words::open_quote(command.get_ref()) {
                return self.refuse(
                    command.span(),
                    format!("the quote {quote} is opened and never closed"),
                );
            }
        }
        if let Some(version) = &system.version
            && version.get_ref().contains('{')
        {
            let message = "`version` runs once and before any host exists: write it without `{…}`";
            return self.refuse(version.span(), message);
        }
        // An axis may replace any part of the address: the check of each cell covers an address
        // with an axis.
        if let Some(connect) = &system.connect
            && !self.axes.keys().any(|axis| connect.get_ref().contains(&format!("{{{axis}}}")))
        {
            let sample =
                |name: &str| Some(if name == "port" { "1" } else { "127.0.0.1" }.to_owned());
            let place = fill(connect.get_ref(), &COMMAND_WORDS, sample).unwrap_or_default();
            if place.parse::<std::net::SocketAddr>().is_err() {
                let message = format!(
                    "`{}` is not an address and port: write it like 127.0.0.1:6500",
                    connect.get_ref()
                );
                return self.refuse(connect.span(), message);
            }
        }
        Ok(())
    }

    fn check_own_commands(&self, system: &SystemSpec) -> Result<(), FileError> {
        for command in [&system.client, &system.server].into_iter().flatten() {
            self.check_command(command)?;
        }
        let others = [&system.connect, &system.version].into_iter().flatten();
        match others.chain(system.files.keys()).next() {
            None => Ok(()),
            Some(other) => self.refuse(
                other.span(),
                "with a workload `command` a system has `client`, `server` and `changes` of its own",
            ),
        }
    }

    fn check_no_commands(&self, system: &SystemSpec) -> Result<(), FileError> {
        if let Some(file) = system.files.keys().next() {
            let message = "only systems of `kind = \"external\"` have `files`";
            return self.refuse(file.span(), message);
        }
        let commands = [&system.client, &system.server, &system.connect, &system.version];
        match commands.into_iter().flatten().next() {
            None if !system.needs.is_empty() => {
                let message = "only systems of `kind = \"external\"` have `needs`";
                self.refuse(system.name.span(), message)
            }
            None => Ok(()),
            Some(command) => {
                self.refuse(command.span(), "only systems of `kind = \"external\"` run commands")
            }
        }
    }

    pub(crate) fn check_forms(&self) -> Result<(), FileError> {
        const FORMS: [&str; 3] = ["full", "quick", "smoke"];
        for (name, form) in &self.form {
            self.known("form", name, &FORMS)?;
            if !(1..=10_000).contains(form.repeats.get_ref()) {
                self.refuse(form.repeats.span(), "`repeats` is from 1 to 10000")?;
            }
            if form.duration.get_ref().nanos() < 100_000_000 {
                self.refuse(form.duration.span(), "`duration` is at least 100ms")?;
            }
            if *form.duration.get_ref() > LONGEST_TURN {
                self.refuse(form.duration.span(), "`duration` is at most a day: 86400s")?;
            }
            if let Some(draws) = form.draws.as_ref().filter(|draws| *draws.get_ref() == 0) {
                self.refuse(draws.span(), "`draws` is at least 1")?;
            }
            if let Some(draws) = form.draws.as_ref().filter(|_| self.draw.is_none()) {
                self.refuse(
                    draws.span(),
                    "`draws` counts the worlds of `[draw]`, and there is none",
                )?;
            }
            self.check_omit(form.omit.as_ref())?;
            form.cells.iter().try_for_each(|filter| self.check_filter(filter))?;
            let systems: Vec<&str> = self.systems().map(SystemSpec::name).collect();
            form.systems.iter().try_for_each(|name| self.known("system", name, &systems))?;
        }
        let is_misspelt = self.form.keys().any(|name| !FORMS.contains(&name.get_ref().as_str()));
        if !self.form.contains_key("full") && !is_misspelt {
            let message = "no `[form.full]`: it says how long and how often a cell is measured";
            return self.refuse(self.name.span(), message);
        }
        Ok(())
    }

    fn check_filter(&self, filter: &CellFilter) -> Result<(), FileError> {
        let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        for (axis, values) in filter {
            self.known("axis", axis, &axes)?;
            if values.is_empty() {
                let message = format!("no value of `{}`: no cell is left", axis.get_ref());
                return self.refuse(axis.span(), message);
            }
            values.iter().try_for_each(|value| self.known_value(axis.get_ref(), value))?;
        }
        Ok(())
    }

    pub(super) fn known_value(&self, axis: &str, value: &Spanned<String>) -> Result<(), FileError> {
        // Skip an unknown axis, which an earlier check has reported.
        if !self.axes.contains_key(axis) {
            return Ok(());
        }
        let values: Vec<&str> = self
            .axes
            .get(axis)
            .map(|values| values.get_ref().iter().map(|v| v.get_ref().as_str()).collect())
            .unwrap_or_default();
        if values.contains(&value.get_ref().as_str()) || values.contains(&LOST) {
            return Ok(());
        }
        let (value, place) = (value.get_ref(), value.span());
        let message = format!("axis `{axis}` has no value `{value}`; it has {}", values.join(", "));
        self.refuse(place, message)
    }

    /// Checks that the names in comparisons, the view and reference rows exist.
    pub(crate) fn check_mentions(&self) -> Result<(), FileError> {
        let systems: Vec<&str> = self.systems().map(SystemSpec::name).collect();
        let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        let metrics = self.metric_names();
        let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
        for compare in self.compare.iter() {
            self.known("system", &compare.baseline, &systems)?;
            for system in &compare.systems {
                self.known("system", system, &systems)?;
                if system.get_ref() == compare.baseline.get_ref() {
                    let message = format!("`{}` compared with itself", system.get_ref());
                    return self.refuse(system.span(), message);
                }
            }
            let named = compare.metrics.iter().chain(&compare.ideal);
            named.into_iter().try_for_each(|metric| self.known("metric", metric, &metrics))?;
            if let Some(share) = compare.of_ideal.as_ref().filter(|_| compare.ideal.is_empty()) {
                let message = "`of_ideal` is a share of an `ideal`: name a metric there";
                return self.refuse(share.span(), message);
            }
        }
        for spread in self.spread.iter().map(Spanned::get_ref) {
            self.known("metric", &spread.metric, &metrics)?;
            let mut named = spread.systems.iter();
            named.try_for_each(|system| self.known("system", system, &systems))?;
            let mut against = baselines(spread.baseline.get_ref());
            against.try_for_each(|name| {
                self.known_at("system", name, spread.baseline.span(), &systems)
            })?;
            spread.over.iter().try_for_each(|axis| self.known("axis", axis, &axes))?;
            if metrics::direction(spread.metric.get_ref()).is_none() {
                let message = format!(
                    "`{}` has no better and no worse: a spread needs a metric that has",
                    spread.metric.get_ref()
                );
                return self.refuse(spread.metric.span(), message);
            }
        }
        if let Some(view) = &self.view {
            self.known("metric", &view.metric, &metrics)?;
            let named = view.system.iter().chain(&view.against);
            named.into_iter().try_for_each(|system| self.known("system", system, &systems))?;
            view.over.iter().try_for_each(|axis| self.known("axis", axis, &axes))?;
            view.also.iter().try_for_each(|metric| self.known("metric", metric, &metrics))?;
            view.parts.iter().try_for_each(|metric| self.known("metric", metric, &metrics))?;
            view.columns.iter().try_for_each(|metric| self.known("metric", metric, &metrics))?;
            self.check_filter(&view.at)?;
            if let (None, Some(against)) = (&view.system, view.against.first()) {
                let message = "`against` needs `system`: add the system to compare with these";
                return self.refuse(against.span(), message);
            }
        }
        if let Some(rows) = self.view.as_ref().and_then(|view| view.rows.as_ref()) {
            self.known("axis", rows, &axes)?;
        }
        for heat in &self.heat {
            heat.metrics.iter().try_for_each(|metric| self.known("metric", metric, &metrics))?;
            self.known("axis", &heat.x, &axes)?;
            self.known("axis", &heat.y, &axes)?;
            if heat.x.get_ref() == heat.y.get_ref() {
                return self.refuse(heat.y.span(), "`x` and `y` are the same axis");
            }
            self.check_filter(&heat.at)?;
        }
        for trace in &self.trace {
            self.check_filter(&trace.at)?;
            trace.systems.iter().try_for_each(|system| self.known("system", system, &systems))?;
        }
        for reference in &self.reference {
            for system in &reference.systems {
                self.known("system", system, &systems)?;
            }
            for (axis, value) in &reference.axes {
                self.known("axis", axis, &axes)?;
                self.known_value(axis.get_ref(), value)?;
            }
            for (metric, value) in &reference.metrics {
                self.known("metric", metric, &metrics)?;
                if !value.is_finite() {
                    let message = format!("`{}` = {value}: not a number", metric.get_ref());
                    return self.refuse(metric.span(), message);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_omit(&self, omit: Option<&Spanned<Span>>) -> Result<(), FileError> {
        match omit {
            Some(omit) if *omit.get_ref() > LONGEST_OMISSION => {
                self.refuse(omit.span(), "`omit` is at most 60s")
            }
            _ => Ok(()),
        }
    }

    /// Whether a setting of a link, the workload or a command contains `text`.
    fn mentions(&self, text: &str) -> bool {
        let in_links = self.link.iter().any(|link| {
            link.get_ref().emulated().any(|(_, setting)| setting.get_ref().contains(text))
        });
        let in_words = self.words.values().any(|word| word.get_ref().contains(text));
        let in_topology = self.topology.as_ref().is_some_and(|topology| {
            let topology = topology.get_ref();
            let counts = [&topology.hops, &topology.ports].into_iter().flatten();
            let texts = [&topology.shape, &topology.rtts, &topology.access].into_iter().flatten();
            counts.into_iter().any(|count| count.get_ref().contains(text))
                || texts.into_iter().any(|setting| setting.get_ref().contains(text))
        });
        in_links
            || self.workload.get_ref().mentions(text)
            || in_words
            || in_topology
            || self.settings_mention(text)
            || self.state.as_ref().is_some_and(|state| state.get_ref().mentions(text))
            || self.disturbance.as_ref().is_some_and(|one| one.get_ref().mentions(text))
            || self.tcp.as_ref().is_some_and(|tcp| tcp.get_ref().mentions(text))
            || self.systems().any(|system| {
                let changes = system.changes.iter().flat_map(|change| change.lines());
                [&system.client, &system.server, &system.connect]
                    .into_iter()
                    .flatten()
                    .chain(changes)
                    .chain(system.files.values())
                    .chain(system.texts_of_virtual_time())
                    .any(|command| command.get_ref().contains(text))
            })
    }

    /// Returns the first system that exists only in virtual time.
    pub(crate) fn first_tunnel(&self) -> Option<&Spanned<String>> {
        self.systems().find(|system| system.kind == SystemKind::Tunnel).map(|system| &system.name)
    }

    /// Returns the first key of a link that has a meaning only in virtual time.
    pub(crate) fn link_only_in_virtual_time(&self) -> Option<(String, Range<usize>)> {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let of_links = self.link.iter().flat_map(|link| link.get_ref().emulated());
        let of_links = of_links.map(|(key, setting)| (key, setting.span()));
        of_links.into_iter().find(|(key, _)| VIRTUAL_KEYS.contains(&last(key).as_str()))
    }

    /// Returns the mistake at this position as an error. While all mistakes are collected, keeps
    /// the mistake instead and returns `Ok`, so that the check goes on.
    pub(crate) fn refuse(
        &self,
        place: Range<usize>,
        message: impl Into<String>,
    ) -> Result<(), FileError> {
        self.go_on(Err(self.source.error(place, message)))
    }

    /// Keeps the mistake of a check while all mistakes are collected.
    pub(crate) fn go_on(&self, checked: Result<(), FileError>) -> Result<(), FileError> {
        self.source.take(checked)
    }
}

/// Returns the systems of `cubic|bbr`: the baseline is the better of these systems.
pub(crate) fn baselines(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split('|').map(str::trim)
}

/// Keys of a link that only virtual time supports.
const VIRTUAL_KEYS: [&str; 3] = ["steps", "policer", "aggregate"];
/// Maximum number of places. A larger number may be a mistake, because each place takes seconds for
/// every system.
const MOST_PLACES: usize = 10_000;
/// Maximum duration of a turn. iperf3 refuses longer times, and perf has the same limits (MAX_TIME
/// and MAX_OMIT_TIME in iperf3's iperf.h).
const LONGEST_TURN: Span = Span::from_secs(86_400);
const LONGEST_OMISSION: Span = Span::from_secs(60);
