//! Changes of a system to its hosts: a command, and the command that takes its effect back.

use super::locate::FileError;
use super::schema::{Document, SystemSpec};
use super::{command_line, command_words};
use results::Axes;
use settings::table;
use toml::Spanned;

table! {
    #[derive(Debug, Clone)]
    pub struct ChangeSpec {
        /// The host to change; every host if `on` is missing.
        pub on: Option<Spanned<String>>,
        pub apply: Spanned<String> as "do",
        pub undo: Spanned<String>,
    }
}

impl ChangeSpec {
    pub(crate) fn is_of(&self, host: &str) -> bool {
        self.on.as_ref().is_none_or(|on| on.get_ref() == host)
    }

    pub(crate) fn lines(&self) -> [&Spanned<String>; 2] {
        [&self.apply, &self.undo]
    }
}

impl Document {
    pub(crate) fn check_changes(&self, system: &SystemSpec) -> Result<(), FileError> {
        for change in &system.changes {
            if let Some(on) = &change.on {
                self.known_host(on.get_ref(), on.span())?;
            }
            for line in change.lines() {
                self.check_command(line)?;
            }
        }
        Ok(())
    }

    /// Checks a command in which each placeholder is a single word.
    pub(crate) fn check_command(&self, line: &Spanned<String>) -> Result<(), FileError> {
        self.go_on(
            self.check_command_text(line.get_ref())
                .map_err(|message| self.source.error(line.span(), message)),
        )
    }

    pub(crate) fn check_command_text(&self, line: &str) -> Result<(), String> {
        if line.chars().any(char::is_control) {
            return Err("a command line has no control characters".to_owned());
        }
        if let Some(quote) = super::open_quote(line) {
            return Err(format!("the quote {quote} is opened and never closed"));
        }
        let axes = self.axes.keys().map(String::as_str);
        let known: Vec<&str> = command_line::WORDS.into_iter().chain(axes).collect();
        let value_of = |name: &str| known.contains(&name).then(|| "x".to_owned());
        match command_words(line, &known, value_of)?.is_empty() {
            true => Err("an empty command line".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns the command of the cell at `axes`, for people. Words with blanks are quoted, and
    /// placeholders that only a running cell can fill keep their braces.
    pub(crate) fn shown_command(line: &str, axes: &Axes) -> String {
        let value =
            |name: &str| Some(axes.get(name).cloned().unwrap_or_else(|| format!("{{{name}}}")));
        match command_words(line, &[], value) {
            Ok(words) => {
                words.iter().map(|word| command_line::quoted(word)).collect::<Vec<_>>().join(" ")
            }
            Err(_) => line.to_owned(),
        }
    }
}
