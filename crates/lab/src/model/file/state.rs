//! `[state]`: the two states of a lab that measures before and after a change.

use super::axes;
use super::locate::FileError;
use super::placeholders::fill;
use super::schema::{Document, SystemKind, SystemSpec};
use super::words::{open_quote, words};
use indexmap::IndexMap;
use results::Axes;
use settings::table;
use toml::Spanned;

table! {
    /// Two states of one or both hosts. Each state is a system of the lab.
    #[derive(Debug, Clone)]
    pub struct StateSpec {
        /// The host that has the state: `client`, `server` or `both`, the default.
        pub end: Option<Spanned<String>>,
        /// The number of places that are measured one after another before the state changes.
        pub places: Option<Spanned<u32>>,
        pub before: SideSpec = SideSpec::default(),
        pub after: SideSpec = SideSpec::default(),
    }
}

table! {
    /// A state. A state without keys leaves the machine unchanged.
    #[derive(Debug, Clone, Default)]
    pub struct SideSpec {
        /// Kernel settings of the host in this state.
        pub sysctl: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        /// Features of the host's interfaces, with ethtool's names: `tso = "off"`.
        pub offload: IndexMap<Spanned<String>, Spanned<String>> = IndexMap::new(),
        /// Weir's algorithms to load into the kernel, where no connection uses them.
        pub load: Vec<Spanned<String>> = vec![],
        /// The congestion control of the host's connections.
        pub congestion: Option<Spanned<String>>,
        /// A command that makes the state, and the command that removes the state again.
        pub command: Option<Spanned<String>>,
        pub undo: Option<Spanned<String>>,
        /// The place where `command` and `undo` run: `machine`, the default, or `host`.
        pub run_in: Option<Spanned<String>>,
        /// A note about the state, for the report.
        pub note: String = String::new(),
    }
}

/// The hosts of a workload that have a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedEnd {
    Client,
    Server,
    Both,
}

/// The names of the two systems of a `[state]`.
pub(crate) const BEFORE: &str = "before";
pub(crate) const AFTER: &str = "after";

impl StateSpec {
    /// Returns the state of a system.
    pub(crate) fn side(&self, system: &str) -> &SideSpec {
        if system == AFTER { &self.after } else { &self.before }
    }

    pub(crate) fn sides(&self) -> [(&'static str, &SideSpec); 2] {
        [(BEFORE, &self.before), (AFTER, &self.after)]
    }

    /// Returns the number of places between two changes of the state.
    pub(crate) fn places(&self) -> usize {
        self.places.as_ref().map_or(1, |places| *places.get_ref() as usize).max(1)
    }

    fn texts(&self) -> impl Iterator<Item = &Spanned<String>> {
        let sides = [&self.before, &self.after].into_iter();
        self.end.iter().chain(sides.flat_map(|side| side.texts()))
    }

    pub(super) fn mentions(&self, text: &str) -> bool {
        self.texts().any(|one| one.get_ref().contains(text))
    }
}

impl SideSpec {
    fn texts(&self) -> impl Iterator<Item = &Spanned<String>> {
        let settings = self.sysctl.values().chain(self.offload.values());
        settings.chain([&self.congestion, &self.command, &self.undo].into_iter().flatten())
    }

    /// Returns the algorithms of Weir that the state needs in the kernel.
    pub(crate) fn algorithms(&self) -> Vec<&str> {
        let used = self.congestion.iter().filter(|name| LOADED.contains(&name.get_ref().as_str()));
        self.load.iter().chain(used).map(|name| name.get_ref().as_str()).collect()
    }

    /// Returns a line for each kernel setting of the state: `net.ipv4.tcp_sack = 0`.
    pub(crate) fn settings(&self) -> Vec<String> {
        let line = |(name, value): (&Spanned<String>, &Spanned<String>)| {
            format!("{} = {}", name.get_ref(), value.get_ref())
        };
        let algorithm = self.congestion.iter();
        let algorithm =
            algorithm.map(|name| format!("net.ipv4.tcp_congestion_control = {}", name.get_ref()));
        self.sysctl.iter().map(line).chain(algorithm).collect()
    }

    pub(crate) fn is_in_host(&self) -> bool {
        self.run_in.as_ref().is_some_and(|place| place.get_ref() == "host")
    }

    /// Describes the state in one line, for the report.
    pub(crate) fn described(&self) -> String {
        let pairs = |word: &str, pairs: &IndexMap<Spanned<String>, Spanned<String>>| {
            let one = |(name, value): (&Spanned<String>, &Spanned<String>)| {
                format!("{word}{}={}", name.get_ref(), value.get_ref())
            };
            pairs.iter().map(one).collect::<Vec<_>>()
        };
        let mut parts = pairs("", &self.sysctl);
        parts.extend(pairs("offload ", &self.offload));
        let loaded: Vec<&str> = self.load.iter().map(|name| name.get_ref().as_str()).collect();
        if !loaded.is_empty() {
            parts.push(format!("{} in the kernel, used by no connection", loaded.join(" and ")));
        }
        let named = |word: &str, text: &Option<Spanned<String>>| {
            text.as_ref().map(|text| format!("{word}{}", text.get_ref()))
        };
        parts.extend(named("congestion control ", &self.congestion));
        parts.extend(named("command: ", &self.command));
        let all =
            if parts.is_empty() { "the machine as it is".to_owned() } else { parts.join("; ") };
        if self.note.is_empty() { all } else { format!("{all} ({})", self.note) }
    }
}

impl Document {
    /// Makes the systems `before` and `after` of a `[state]`.
    pub(crate) fn add_states(&mut self) -> Result<(), FileError> {
        let Some(state) = &self.state else { return Ok(()) };
        if self.system.iter().all(|system| system.get_ref().is_state) && !self.system.is_empty() {
            return Ok(());
        }
        let place = state.span();
        if let Some(own) = self.system.first() {
            let message = "`[state]` makes the systems `before` and `after`: remove `[[system]]`";
            return Err(self.source.error(own.span(), message));
        }
        let notes = state.get_ref().sides().map(|(name, side)| (name, side.described()));
        for (name, note) in notes {
            let system = SystemSpec {
                note,
                is_state: true,
                ..SystemSpec::new(Spanned::new(place.clone(), name.to_owned()), SystemKind::Tcp)
            };
            self.system.push(Spanned::new(place.clone(), system));
        }
        Ok(())
    }

    pub(crate) fn changed_end(&self, axes: &Axes) -> Result<ChangedEnd, FileError> {
        let end = self.state.as_ref().and_then(|state| state.get_ref().end.as_ref());
        let Some(end) = end else { return Ok(ChangedEnd::Both) };
        match self.filled(axes, end)?.as_str() {
            "client" => Ok(ChangedEnd::Client),
            "server" => Ok(ChangedEnd::Server),
            "both" => Ok(ChangedEnd::Both),
            other => {
                let hint = units::did_you_mean(other, ["client", "server", "both"]);
                let message = format!("no end `{other}`{hint}: write client, server or both");
                Err(self.source.error(end.span(), message))
            }
        }
    }

    /// Returns the text of a state's command in the cell at `axes`. `word` gives the values that
    /// only a running cell knows.
    pub(crate) fn state_command(
        &self,
        axes: &Axes,
        text: &str,
        word: impl Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let known: Vec<&str> =
            STATE_WORDS.into_iter().chain(axes.keys().map(String::as_str)).collect();
        fill(text, &known, |name| word(name).or_else(|| axes.get(name).cloned()))
    }

    pub(crate) fn check_state(&self) -> Result<(), FileError> {
        let Some(state) = &self.state else { return Ok(()) };
        if let Some(places) = &state.get_ref().places
            && !(1..=MOST_PLACES).contains(places.get_ref())
        {
            let message = format!("`places` is from 1 to {MOST_PLACES}");
            self.refuse(places.span(), message)?;
        }
        for axes in axes::all_places(self) {
            self.go_on(self.changed_end(&axes).map(drop))?;
        }
        for (_, side) in state.get_ref().sides() {
            self.go_on(self.check_side(side))?;
        }
        Ok(())
    }

    fn check_side(&self, side: &SideSpec) -> Result<(), FileError> {
        for name in side.sysctl.keys() {
            self.go_on(self.check_setting_name(name))?;
        }
        for (name, value) in &side.offload {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) {
                let message =
                    "a feature's name is made of letters, digits and `-`: `ethtool -k` lists them";
                self.refuse(name.span(), message)?;
            }
            if !["on", "off"].contains(&value.get_ref().as_str()) {
                self.refuse(value.span(), "a feature is `on` or `off`")?;
            }
        }
        for name in &side.load {
            self.known("algorithm", name, &LOADED)?;
        }
        if let Some(congestion) = &side.congestion {
            self.go_on(self.check_algorithm_name(congestion))?;
        }
        let has_command = side.command.is_some();
        match (&side.command, &side.undo, &side.run_in) {
            (Some(command), None, _) => {
                let message = "`undo` is missing: the command that removes this state again";
                self.refuse(command.span(), message)?;
            }
            (None, Some(undo), _) => {
                self.refuse(undo.span(), "`undo` belongs to a `command`: add `command`")?;
            }
            (_, _, Some(place)) if !has_command => {
                self.refuse(place.span(), "`run_in` belongs to a `command`: add `command`")?;
            }
            _ => {}
        }
        if let Some(place) = &side.run_in {
            self.known("place", place, &["machine", "host"])?;
        }
        let axes: Axes = self.axes.keys().map(|axis| (axis.clone(), String::new())).collect();
        for command in [&side.command, &side.undo].into_iter().flatten() {
            let known = |name: &str| STATE_WORDS.contains(&name).then(String::new);
            if let Err(message) = self.state_command(&axes, command.get_ref(), known) {
                self.refuse(command.span(), message)?;
            } else if words(command.get_ref()).is_empty() {
                self.refuse(command.span(), "an empty command line")?;
            } else if let Some(quote) = open_quote(command.get_ref()) {
                let message = format!("the quote {quote} is opened and never closed");
                self.refuse(command.span(), message)?;
            }
        }
        Ok(())
    }
}

/// Placeholders of a state's command, in addition to the axes.
const STATE_WORDS: [&str; 3] = ["weir", "client", "server"];
/// The algorithms that Weir can load into the kernel.
const LOADED: [&str; 2] = ["tcpa", "caqm"];
/// Maximum number of places between two changes of the state. Turns that lie further apart say less
/// about the change.
const MOST_PLACES: u32 = 100;

#[cfg(test)]
mod tests {
    use crate::bench::LabFile;

    fn lab(state: &str) -> String {
        format!(
            "name = \"x\"\nhosts = [\"client\", \"server\"]\n[axes]\nrole = [\"client\", \"server\"]\n\
             [[link]]\nbetween = [\"client\", \"server\"]\ndirect = true\n[workload]\nkind = \"bulk\"\n\
             from = \"client\"\nto = \"server\"\n{state}\n[form.full]\nduration = \"1s\"\nrepeats = 6\n"
        )
    }

    #[test]
    fn a_state_makes_two_systems_and_compares_them() {
        let text = lab(
            "[state]\nend = \"{role}\"\nafter = { sysctl = { \"net.ipv4.tcp_sack\" = \"0\" } }",
        );
        let lab = LabFile::parse("x.toml", &text).unwrap();
        let names: Vec<&str> = lab.systems().map(|system| system.name()).collect();
        assert_eq!(names, ["before", "after"]);
        let notes: Vec<&str> = lab.systems().map(|system| system.note.as_str()).collect();
        assert_eq!(notes, ["the machine as it is", "net.ipv4.tcp_sack=0"]);
    }

    #[test]
    fn mistakes_in_a_state_are_reported_with_advice() {
        for (state, says) in [
            ("[state]\nend = \"clinet\"", "did you mean `client`?"),
            ("[state]\nend = \"{rol}\"", "unknown placeholder"),
            ("[state]\nplaces = 0", "`places` is from 1 to 100"),
            (
                "[state]\nend = \"{role}\"\nafter = { sysctl = { \"vm.x\" = \"1\" } }",
                "begin with `net.`",
            ),
            ("[state]\nend = \"{role}\"\nafter = { offload = { tso = \"0\" } }", "`on` or `off`"),
            ("[state]\nend = \"{role}\"\nafter = { offload = { \"t o\" = \"on\" } }", "ethtool -k"),
            ("[state]\nend = \"{role}\"\nafter = { load = [\"bbr\"] }", "no algorithm `bbr`"),
            ("[state]\nend = \"{role}\"\nafter = { command = \"x\" }", "`undo` is missing"),
            ("[state]\nend = \"{role}\"\nafter = { undo = \"x\" }", "belongs to a `command`"),
            (
                "[state]\nend = \"{role}\"\nafter = { command = \"x {y}\", undo = \"z\" }",
                "unknown placeholder",
            ),
            (
                "[state]\nend = \"{role}\"\nafter = { command = \"x 'y\", undo = \"z\" }",
                "never closed",
            ),
            (
                "[state]\nend = \"{role}\"\nafter = { command = \"x\", undo = \"z\", run_in = \"hots\" }",
                "`host`",
            ),
            ("[state]\nend = \"{role}\"\nafter = { sysctls = {} }", "did you mean `sysctl`?"),
            (
                "[state]\nend = \"{role}\"\n[[system]]\nname = \"a\"\nkind = \"tcp\"\ncongestion = \"cubic\"",
                "remove `[[system]]`",
            ),
        ] {
            let error = LabFile::parse("x.toml", &lab(state)).unwrap_err().to_string();
            assert!(error.contains(says), "{state}: {error}");
        }
    }
}
