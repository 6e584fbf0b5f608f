//! The command lines that a run of a lab file starts.

use crate::bench::LabFile;
use crate::model::builtin::BUILTIN;
use crate::model::file::{Document, SystemKind, axes, fill};
use crate::model::plan;
use crate::workloads::command::{LINES, READY_KEY};
use crate::workloads::diagnose::{COMMANDS, library, variable_of};
use crate::workloads::robustness::PROGRAM;
use results::{Axes, Form};
use std::fmt;

/// A command that a run starts, or a text that such a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The name of the system that needs the command, or `workload`.
    pub system: String,
    /// The command's purpose: `server`, `client`, `version`, the key of the workload, a file or a
    /// variable.
    pub end: String,
    /// The command with the values of the axes. Words that only a running cell knows, such as its
    /// addresses, keep their braces.
    pub line: String,
    /// Files that the lab writes for the program.
    pub files: Vec<String>,
}

impl LabFile {
    /// Returns the commands that this form starts for these systems, in every cell, each once. An
    /// empty list of systems stands for all systems. Also lists the files that the lab writes for a
    /// program, because the program may run them, and the variables that a shell gets.
    pub fn commands(&self, form: Form, systems: &[String]) -> Vec<CommandLine> {
        let spec = plan::form_of(self, form);
        let chosen = |name: &str| match systems {
            [] => spec.measures(name),
            _ => systems.iter().any(|wanted| wanted == name),
        };
        let places = axes::places(self, spec);
        let mut commands = self.hosts_and_settings();
        commands.extend(self.commands_of_workload(&places));
        commands.extend(self.commands_of_states(&places));
        for system in self.systems().filter(|system| chosen(system.name())) {
            let files: Vec<String> =
                system.files.keys().map(|name| name.get_ref().clone()).collect();
            let mut add = |end: String, lines: Vec<String>, files: &[String]| {
                let system = system.name().to_owned();
                let each = lines.into_iter().map(|line| CommandLine {
                    system: system.clone(),
                    end: end.clone(),
                    line,
                    files: files.to_vec(),
                });
                commands.extend(each);
            };
            let by_command = system.kind != SystemKind::External;
            for (end, line) in [("server", &system.server), ("client", &system.client)] {
                let Some(line) = line else { continue };
                let lines = match by_command {
                    true => words_in_cells(line.get_ref(), &places),
                    false => in_cells(line.get_ref(), &places),
                };
                add(end.to_owned(), lines, &files);
            }
            for change in &system.changes {
                let on = change.on.as_ref().map_or("every host", |on| on.get_ref());
                let [apply, undo] = change.lines();
                add(format!("do on {on}"), words_in_cells(apply.get_ref(), &places), &[]);
                add(format!("undo on {on}"), words_in_cells(undo.get_ref(), &places), &[]);
            }
            if self.has_real_hosts() {
                for (name, value) in &system.sysctl {
                    add(
                        "setting of every host".to_owned(),
                        vec![format!("{} = {}", name.get_ref(), value.get_ref())],
                        &[],
                    );
                }
            }
            for (name, text) in &system.files {
                add(format!("file {}", name.get_ref()), in_cells(text.get_ref(), &places), &[]);
            }
            if let Some(line) = &system.version {
                add("version".to_owned(), vec![line.get_ref().clone()], &[]);
            }
        }
        commands
    }
}

impl Document {
    /// Lists the machines to which a lab logs in, and the settings that the lab changes on these
    /// machines for all systems.
    fn hosts_and_settings(&self) -> Vec<CommandLine> {
        let places = self.places_of_hosts();
        let line = |system: &str, end: &str, line: String| CommandLine {
            system: system.to_owned(),
            end: end.to_owned(),
            line,
            files: Vec::new(),
        };
        let settings = self.sysctl.iter().filter(|_| !places.is_empty());
        let settings = settings.map(|(name, value)| {
            let text = format!("{} = {}", name.get_ref(), value.get_ref());
            line("every system", "setting of every host", text)
        });
        let hosts = places.iter().map(|(name, place)| {
            line(
                "host",
                name,
                format!("{place}: weir agent --stdio, and the commands of this host"),
            )
        });
        hosts.chain(settings).collect()
    }

    /// Whether the program contains an identical built-in file.
    pub fn is_builtin(&self) -> bool {
        BUILTIN.iter().any(|builtin| *self.text() == *builtin.text) || library::has(&self.text())
    }

    /// Lists the commands that make and remove the states, and the settings of states that change
    /// real machines.
    fn commands_of_states(&self, places: &[Axes]) -> Vec<CommandLine> {
        let Some(state) = &self.state else { return Vec::new() };
        let is_real = self.has_real_hosts();
        let of_side = state.get_ref().sides().into_iter().flat_map(|(name, side)| {
            let own = [("command", &side.command), ("undo", &side.undo)];
            let commands = own.into_iter().flat_map(move |(end, line)| {
                let lines = line.as_ref().map(|line| in_cells(line.get_ref(), places));
                lines.unwrap_or_default().into_iter().map(move |line| (end, line))
            });
            let settings = match is_real {
                true => side.settings(),
                false => Vec::new(),
            };
            let settings = settings.into_iter().map(|line| ("setting", line));
            settings.chain(commands).map(move |(end, line)| CommandLine {
                system: name.to_owned(),
                end: end.to_owned(),
                line,
                files: Vec::new(),
            })
        });
        of_side.collect()
    }

    /// Lists the texts of `[workload]` that a shell runs, and the variables that the shell gets.
    fn commands_of_workload(&self, places: &[Axes]) -> Vec<CommandLine> {
        let table = self.workload.get_ref();
        let own = |end: String, line: &str| CommandLine {
            system: "workload".to_owned(),
            end,
            line: line.to_owned(),
            files: Vec::new(),
        };
        if table.kind.get_ref() == "command" {
            let keys = LINES.iter().chain(&READY_KEY);
            let lines = keys.filter_map(|key| Some((key.name, table.text(*key)?)));
            return lines
                .flat_map(|(name, text)| {
                    let each = words_in_cells(text, places).into_iter();
                    each.map(|line| own(name.to_owned(), &line)).collect::<Vec<_>>()
                })
                .collect();
        }
        let lines =
            COMMANDS.iter().filter_map(|key| Some(own(key.name.to_owned(), table.text(*key)?)));
        let mut commands: Vec<CommandLine> = lines.collect();
        if let Some(line) = table.text(PROGRAM) {
            let each = in_cells(line, places).into_iter();
            return each.map(|line| own(PROGRAM.name.to_owned(), &line)).collect();
        }
        if commands.is_empty() {
            return commands;
        }
        for (axis, value) in places.iter().flatten() {
            let variable = own(format!("variable {}", variable_of(axis)), value);
            if !commands.contains(&variable) {
                commands.push(variable);
            }
        }
        commands
    }
}

/// Fills in the text for the cells at `places`, and returns each different result once.
fn in_cells(text: &str, places: &[Axes]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for axes in places {
        // A placeholder that names no axis does not change.
        let value =
            |name: &str| Some(axes.get(name).cloned().unwrap_or_else(|| format!("{{{name}}}")));
        let line = fill(text, &[], value).unwrap_or_else(|_| text.to_owned());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the different lines of all cells, for a line whose placeholders are single words.
fn words_in_cells(text: &str, places: &[Axes]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for axes in places {
        let line = Document::shown_command(text, axes);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Prints one line of printable characters, so that a file cannot hide a command from a user who
/// reads it on a terminal.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (system, end) = (printable(&self.system), printable(&self.end));
        write!(f, "{system} ({end}): {}", printable(&self.line))?;
        if self.files.is_empty() {
            return Ok(());
        }
        write!(f, "  [reads {} of the lab file]", printable(&self.files.join(", ")))
    }
}

fn printable(text: &str) -> String {
    let plain = |c: char| matches!(c, '"' | '\'' | '\\');
    text.chars().fold(String::new(), |mut shown, c| {
        if plain(c) {
            shown.push(c)
        } else {
            shown.extend(c.escape_debug())
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;

    #[test]
    fn a_command_cannot_hide_characters() {
        let command = |line: &str, files: &[&str]| CommandLine {
            system: "mine".to_owned(),
            end: "server".to_owned(),
            line: line.to_owned(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let shown = command("sh -c 'echo \"hi\"'", &[]).to_string();
        assert_eq!(shown, "mine (server): sh -c 'echo \"hi\"'");
        let hiding = "rm x\r\u{1b}[2Kecho fine \u{202e}txt.\nnext";
        let shown = command(hiding, &["a.sh"]).to_string();
        assert_eq!(
            shown,
            r"mine (server): rm x\r\u{1b}[2Kecho fine \u{202e}txt.\nnext  [reads a.sh of the lab file]"
        );
    }

    #[test]
    fn only_commands_of_the_chosen_systems_are_shown() {
        let lab = builtin::open("quic-tun").unwrap();
        assert!(lab.is_builtin());
        let of = |systems: &[&str]| {
            let systems: Vec<String> = systems.iter().map(|name| (*name).to_owned()).collect();
            lab.commands(Form::Full, &systems)
        };
        for system in lab.systems().filter(|system| system.server.is_some()) {
            let all = of(&[]);
            let has =
                |end: &str| all.iter().any(|one| one.system == system.name() && one.end == end);
            assert!(has("server") && has("client"), "{}", system.name());
            assert_eq!(has("version"), system.version.is_some(), "{}", system.name());
        }
        assert_eq!(of(&["tcp-bbr"]), []);
        assert_eq!(of(&["weir-tunnel"])[0].end, "server");
        let text = lab.text().replacen("\n", "\n# mine\n", 1);
        assert!(!LabFile::parse("copy.toml", &text).unwrap().is_builtin());
    }

    #[test]
    fn every_value_of_an_axis_is_shown_in_the_commands_that_get_it() {
        let lab = |workload: &str, system: &str| {
            let text = format!(
                "name = \"mine\"\nhosts = [\"near\", \"far\"]\n[axes]\n\
                 mode = [\"safe\", \"safe; touch /tmp/x\", \"unused\"]\n\
                 [[link]]\nbetween = [\"near\", \"far\"]\n[workload]\nfrom = \"near\"\nto = \"far\"\n\
                 {workload}\n[[system]]\nname = \"mine\"\n{system}\n[form.full]\nduration = \"1s\"\n\
                 [form.quick]\nduration = \"1s\"\ncells = [{{ mode = [\"safe\"] }}]\n"
            );
            LabFile::parse("mine.toml", &text).unwrap_or_else(|error| panic!("{error}"))
        };
        let shown = |lab: &LabFile, form| -> Vec<String> {
            lab.commands(form, &[]).iter().map(ToString::to_string).collect()
        };
        let external = lab(
            "kind = \"bulk\"",
            "kind = \"external\"\nserver = \"sh -c 'echo {mode} {port}'\"\nclient = \"sh {files}/a\"\n\
             files = { \"a\" = \"run {mode}\" }",
        );
        assert_eq!(
            shown(&external, Form::Full),
            [
                "mine (server): sh -c 'echo safe {port}'  [reads a of the lab file]",
                "mine (server): sh -c 'echo safe; touch /tmp/x {port}'  [reads a of the lab file]",
                "mine (server): sh -c 'echo unused {port}'  [reads a of the lab file]",
                "mine (client): sh {files}/a  [reads a of the lab file]",
                "mine (file a): run safe",
                "mine (file a): run safe; touch /tmp/x",
                "mine (file a): run unused",
            ]
        );
        assert!(!shown(&external, Form::Quick).concat().contains("touch"));
        let script = lab(
            "kind = \"diagnose\"\nexpect = \"nothing\"\nask = \"{mode}\"\nsender = \"eval $AXIS_MODE\"",
            "kind = \"doctor\"",
        );
        let shown = shown(&script, Form::Full);
        assert_eq!(shown[0], "workload (sender): eval $AXIS_MODE");
        let value = "workload (variable AXIS_MODE): safe; touch /tmp/x".to_owned();
        assert!(shown.contains(&value), "{shown:?}");
    }
}
