//! The command lines in a lab file.

use super::schema::Document;
use crate::builtin::BUILTIN;
use crate::workload::diagnose::{COMMANDS, library};
use std::fmt;

/// A program of an external system, as the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine<'a> {
    pub system: &'a str,
    /// `server`, `client`, `version`, or the key of the workload.
    pub end: &'static str,
    pub line: &'a str,
    /// Files that the lab writes for the program.
    pub files: Vec<&'a str>,
}

impl Document {
    /// The commands that a run of these systems starts. An empty list stands for all systems.
    pub fn commands(&self, systems: &[String]) -> Vec<CommandLine<'_>> {
        let chosen = |name: &str| systems.is_empty() || systems.iter().any(|wanted| wanted == name);
        let mut commands = self.commands_of_workload();
        for system in self.systems().filter(|system| chosen(system.name())) {
            let ends = [
                ("server", &system.server),
                ("client", &system.client),
                ("version", &system.version),
            ];
            for (end, line) in ends {
                let Some(line) = line else { continue };
                let files = match end {
                    "version" => Vec::new(),
                    _ => system.files.keys().map(|name| name.get_ref().as_str()).collect(),
                };
                let (system, line) = (system.name(), line.get_ref().as_str());
                commands.push(CommandLine { system, end, line, files });
            }
        }
        commands
    }

    /// Whether the program contains an identical built-in file.
    pub fn is_builtin(&self) -> bool {
        BUILTIN.iter().any(|builtin| *self.text() == *builtin.text) || library::has(&self.text())
    }

    /// The texts of `[workload]` that a shell runs.
    fn commands_of_workload(&self) -> Vec<CommandLine<'_>> {
        let table = self.workload.get_ref();
        let own = COMMANDS.iter().filter_map(|key| {
            let line = table.text(*key)?;
            Some(CommandLine { system: "workload", end: key.name, line, files: Vec::new() })
        });
        own.collect()
    }
}

/// Prints one line of printable characters, so that a file cannot hide a command from a user who
/// reads it on a terminal.
impl fmt::Display for CommandLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.system, self.end, printable(self.line))?;
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

/// Splits a command line into words. Blanks separate words, and single and double quotes keep them
/// together.
pub(crate) fn words(line: &str) -> Vec<String> {
    split(line).0
}

/// The quote that `line` opens and never closes.
pub(crate) fn open_quote(line: &str) -> Option<char> {
    split(line).1
}

fn split(line: &str) -> (Vec<String>, Option<char>) {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, begun) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (c, None) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    (words, quote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabFile;
    use crate::builtin;

    #[test]
    fn a_command_cannot_hide_characters() {
        let command = |line, files| CommandLine { system: "mine", end: "server", line, files };
        let shown = command("sh -c 'echo \"hi\"'", Vec::new()).to_string();
        assert_eq!(shown, "mine (server): sh -c 'echo \"hi\"'");
        let hiding = "rm x\r\u{1b}[2Kecho fine \u{202e}txt.\nnext";
        let shown = command(hiding, vec!["a.sh"]).to_string();
        assert_eq!(
            shown,
            r"mine (server): rm x\r\u{1b}[2Kecho fine \u{202e}txt.\nnext  [reads a.sh of the lab file]"
        );
    }

    #[test]
    fn commands_are_those_of_the_systems_that_run() {
        let lab = builtin::open("quic-tun").unwrap();
        assert!(lab.is_builtin());
        let systems = || lab.systems().filter(|system| system.server.is_some());
        let versions = systems().filter(|system| system.version.is_some()).count();
        assert_eq!(lab.commands(&[]).len(), 2 * systems().count() + versions);
        assert_eq!(lab.commands(&["tcp-bbr".to_owned()]), []);
        assert_eq!(lab.commands(&["weir-tunnel".to_owned()])[0].end, "server");
        let text = lab.text().replacen("\n", "\n# mine\n", 1);
        assert!(!LabFile::parse("copy.toml", &text).unwrap().is_builtin());
    }

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(words("a  'b c' d\"e f\" ''"), ["a", "b c", "de f", ""]);
        assert!(words("  ").is_empty());
        assert_eq!(open_quote("a 'b"), Some('\''));
    }
}
