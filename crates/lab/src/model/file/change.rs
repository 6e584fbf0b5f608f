//! Changes of a system to its hosts: a command, and the command that undoes the first command.

use super::locate::FileError;
use super::schema::{Document, SystemSpec};
use super::{command_line, command_words};
use results::Axes;
use settings::table;
use toml::Spanned;

table! {
    #[derive(Debug, Clone)]
    pub struct ChangeSpec {
        /// The host to change. Every host if the file omits `on`.
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
            let text = "a command line has no line breaks and no other control characters: write the command in one \
                        line, or put the command into a script";
            return Err(text.to_owned());
        }
        if let Some(quote) = super::open_quote(line) {
            return Err(format!("the quote {quote} is opened and never closed"));
        }
        if let Some(word) = super::words::word_for_a_shell(line) {
            return Err(format!(
                "no shell runs a command, and `{word}` is for a shell: write sh -c '…' around the command, or quotes \
                 around the word if the program itself reads the word"
            ));
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

#[cfg(test)]
mod tests {
    use crate::bench::LabFile;

    /// Returns the mistakes of a lab file whose client is this TOML value.
    fn mistakes(client: &str) -> Vec<String> {
        let text = format!(
            "name = \"x\"\nhosts = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
             [workload]\nkind = \"command\"\nfrom = \"a\"\nto = \"b\"\nclient = {client}\n\
             [[system]]\nname = \"only\"\nkind = \"tcp\"\n[form.full]\nduration = \"1s\"\n"
        );
        let parsed = LabFile::parse("x.toml", &text);
        parsed
            .err()
            .map_or(Vec::new(), |error| error.each().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_command_for_a_shell_is_refused_with_the_remedy() {
        for (client, reason) in [
            ("'curl {server} | wc -c'", "`|` is for a shell: write sh -c"),
            ("'LANG=C curl {server}'", "`LANG=C` is for a shell"),
            ("'''curl\n{server}'''", "put the command into a script"),
            ("'awk {print}'", "write `{{` and `}}` for braces"),
        ] {
            let found = mistakes(client);
            assert!(found.iter().any(|one| one.contains(reason)), "{client}: {found:?}");
        }
        assert_eq!(mistakes(r#"'sh -c "curl {server} | wc -c"'"#), [""; 0]);
    }
}
