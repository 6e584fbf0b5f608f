//! A lab file with mistakes, mended line by line so that the mistakes behind the first one are
//! found. The mended text is never run.

use super::locate::{FileError, Source, nearest_of};
use super::schema::Document;

/// The text of the file with the mends so far.
#[derive(Debug)]
pub(crate) struct Draft {
    file: String,
    lines: Vec<Line>,
    /// The head lines of tables whose kind is a guess. A mistake within such a table may be a
    /// consequence of the guess.
    guessed: Vec<usize>,
    /// The head lines of tables from which a line was left out.
    shortened: Vec<usize>,
    found: Vec<FileError>,
}

#[derive(Debug, Clone)]
struct Line {
    text: String,
    /// The number of the line in the file, from 1 on.
    number: usize,
    is_mended: bool,
    /// Whether the draft added the line.
    is_guess: bool,
}

impl Draft {
    pub(crate) fn of(file: &str, text: &str) -> Self {
        let lines = text.split('\n').enumerate().map(|(index, text)| Line {
            text: text.to_owned(),
            number: index + 1,
            is_mended: false,
            is_guess: false,
        });
        Self {
            file: file.to_owned(),
            lines: lines.collect(),
            guessed: Vec::new(),
            shortened: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Mends the grammar. `None` if the rest of the file cannot be understood.
    pub(crate) fn document(&mut self) -> Option<Document> {
        for _ in 0..MOST_ROUNDS {
            let text = self.text();
            let error = match toml::from_str::<Document>(&text) {
                Ok(mut document) => {
                    document.source = Source::new(&self.file, &text);
                    return Some(document);
                }
                Err(error) => error,
            };
            if !self.mend(&text, &error) {
                return None;
            }
        }
        None
    }

    /// Returns the mistakes of the grammar, with their lines in the file.
    pub(crate) fn found(&mut self) -> Vec<FileError> {
        std::mem::take(&mut self.found)
    }

    /// Returns a mistake of the mended text with its line in the file. `None` for a consequence of
    /// a guess.
    pub(crate) fn translated(&self, error: FileError) -> Option<FileError> {
        let FileError::At { file, line, message } = error else { return Some(error) };
        let index = line.saturating_sub(1);
        let number = self.lines.get(index).map_or(line, |line| line.number);
        let head = self.head_number(index);
        let is_added = self.lines.get(index).is_some_and(|line| line.is_guess);
        // The error about a missing key is at the table's head, or at the name of the lab.
        let of_axes = |line: &Line| self.shortened.contains(&line.number) && line.text == "[axes]";
        let is_missing = match head {
            _ if AXES_MISSING.iter().any(|part| message.contains(part)) => {
                self.lines.iter().any(of_axes)
            }
            // If the line of `hosts` was left out, this error is only a consequence.
            _ if message.ends_with(": the file names none") => self.shortened.contains(&0),
            0 => self.shortened.contains(&0) && message.ends_with(" is missing here"),
            head => {
                let is_about_table = number == head || message.starts_with("system `");
                self.shortened.contains(&head) && is_about_table
            }
        };
        let is_guess = self.guessed.contains(&head) || is_added || is_missing;
        (!is_guess).then_some(FileError::At { file, line: number, message })
    }

    /// Gives a setting of a link a plain value, so that the link's other settings are read. Returns
    /// whether it changed a line.
    pub(crate) fn mend_setting(&mut self, number: usize) -> bool {
        let Some(index) = self.lines.iter().position(|line| line.number == number) else {
            return false;
        };
        let head = self.head(index).map(|head| self.lines[head].text.trim().to_owned());
        let of_link =
            head.is_some_and(|head| head.starts_with("[[link]]") || head.starts_with("[link."));
        let key = self.lines[index].text.split('=').next().unwrap_or_default().trim().to_owned();
        if !of_link || self.lines[index].is_mended || key == "between" || !self.is_whole(index) {
            return false;
        }
        self.replace(index, plain(&key).to_owned());
        true
    }

    /// Records the mistake, and mends its line. Returns whether to read the text again.
    fn mend(&mut self, text: &str, error: &toml::de::Error) -> bool {
        let place = error.span().unwrap_or(0..0);
        let start = place.start.min(text.len());
        let index = text[..start].matches('\n').count();
        let column = start - text[..start].rfind('\n').map_or(0, |end| end + 1);
        let Some(line) = self.lines.get(index).cloned() else { return false };
        let message = error.message();
        let source = Source::new(&self.file, text);
        let told = match source.malformed(error) {
            FileError::At { file, message, .. } => {
                FileError::At { file, line: line.number, message }
            }
            other => other,
        };
        if let Some(key) = between(message, "missing field `", "`") {
            return self.add_key(index, key, told);
        }
        // A second attempt to mend the same line could repeat for ever.
        if line.is_mended {
            return self.drop_line(index);
        }
        if let Some(word) = between(message, "unknown field `", "`") {
            self.found.push(told);
            return self.rename(index, column, word, message);
        }
        if let Some(word) = between(message, "unknown variant `", "`") {
            self.found.push(told);
            return self.choose(index, column, word, message);
        }
        let is_toml = toml::from_str::<toml::Table>(text).is_ok();
        if is_toml || !self.follows_a_mistake(index) {
            self.found.push(told);
        }
        self.shortened.push(self.head_number(index));
        self.drop_line(index)
    }

    /// Replaces a key by the nearest known key, or leaves its line out.
    fn rename(&mut self, index: usize, column: usize, word: &str, message: &str) -> bool {
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let line = &self.lines[index].text;
        let meant = nearest_of(word, known.iter().copied());
        if let Some(meant) =
            meant.filter(|_| line.get(column..).is_some_and(|rest| rest.starts_with(word)))
        {
            let mended = format!("{}{meant}{}", &line[..column], &line[column + word.len()..]);
            self.replace(index, mended);
            return true;
        }
        self.drop_line(index)
    }

    /// Replaces a word by the nearest allowed word, or else by the first allowed word.
    fn choose(&mut self, index: usize, column: usize, word: &str, message: &str) -> bool {
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let meant = nearest_of(word, known.iter().copied());
        if meant.is_none() {
            self.guessed.push(self.head_number(index));
        }
        let line = &self.lines[index].text;
        let Some(chosen) = meant.or_else(|| known.first().copied()) else { return false };
        let Some(at) = line.get(column..).and_then(|rest| rest.find(word)).map(|at| column + at)
        else {
            return false;
        };
        let mended = format!("{}{chosen}{}", &line[..at], &line[at + word.len()..]);
        self.replace(index, mended);
        true
    }

    /// Adds a missing key to the table at `index`, with a value of its type.
    fn add_key(&mut self, index: usize, key: &str, told: FileError) -> bool {
        let head = &self.lines[index];
        let (number, is_head) = (head.number, head.text.trim_start().starts_with('['));
        // The key's line may have been left out before.
        let table = if is_head { number } else { self.head_number(index) };
        if !self.shortened.contains(&table) {
            self.found.push(told);
        }
        let values: &[&str] = match key {
            "duration" => &["\"1s\""],
            "kind" if head.text.contains("system") => &["\"tcp\""],
            "kind" => &["\"bulk\""],
            "metrics" | "systems" => &["[]"],
            "at" => &["{}"],
            "name" | "metric" | "baseline" | "system" | "x" | "y" => &["\"unnamed\""],
            _ => &[],
        };
        let (true, Some(value)) = (is_head, values.first()) else { return false };
        if ["kind", "name", "system"].contains(&key) {
            self.guessed.push(number);
        }
        let text = format!("{key} = {value}");
        let line = Line { text, number, is_mended: true, is_guess: true };
        self.lines.insert(index + 1, line);
        true
    }

    /// Leaves a line out. `false` for a head of a table or an empty line.
    fn drop_line(&mut self, index: usize) -> bool {
        let is_head = self.lines[index].text.trim_start().starts_with('[');
        if is_head || self.lines[index].text.trim().is_empty() {
            return false;
        }
        let key = self.lines[index].text.split('=').next().unwrap_or_default().trim().to_owned();
        let is_first = !self.lines[index].is_mended;
        self.replace(index, if is_first { plain(&key).to_owned() } else { String::new() });
        true
    }

    fn replace(&mut self, index: usize, text: String) {
        self.lines[index].text = text;
        self.lines[index].is_mended = true;
    }

    /// Whether the line above was left out for a mistake. It may have been the first line of an
    /// open quote.
    fn follows_a_mistake(&self, index: usize) -> bool {
        let above = index.checked_sub(1).and_then(|above| self.lines.get(above));
        above.is_some_and(|line| line.is_mended && line.text.is_empty())
    }

    /// Returns the number of the head line of the table that holds this line. 0 for a line above
    /// the first table.
    fn head_number(&self, index: usize) -> usize {
        self.head(index).map_or(0, |head| self.lines[head].number)
    }

    /// Returns the index of the head line of the table that holds this line. `None` above the first
    /// table.
    fn head(&self, index: usize) -> Option<usize> {
        let last = index.min(self.lines.len().saturating_sub(1));
        (0..=last).rev().find(|place| self.lines[*place].text.starts_with('['))
    }

    /// Whether the line holds a key with its whole value.
    fn is_whole(&self, index: usize) -> bool {
        let text = &self.lines[index].text;
        text.contains('=') && toml::from_str::<toml::Table>(text).is_ok()
    }

    fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        lines.join("\n")
    }
}

/// Returns a plain line for a key of a link that its other settings need, or an empty line.
fn plain(key: &str) -> &'static str {
    match key {
        "rate" | "trace" => "rate = \"1mbit\"",
        "rtt" => "rtt = \"1ms\"",
        "delay" => "delay = \"1ms\"",
        _ => "",
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(start)?;
    rest.find(end).map(|at| &rest[..at])
}

/// Parts of messages about a name that only a line of `[axes]` could define.
const AXES_MISSING: [&str; 3] = ["unknown placeholder", "no axis", "nothing depends on axis"];
/// Maximum number of rounds of mending. A file with more mistakes gets errors about the first of
/// them.
const MOST_ROUNDS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> (bool, Vec<String>) {
        let mut draft = Draft::of("lab.toml", text);
        let is_read = draft.document().is_some();
        (is_read, draft.found().iter().map(ToString::to_string).collect())
    }

    const REST: &str = "[workload]\nkind = \"bulk\"\n[[system]]\nname = \"a\"\nkind = \"tcp\"\n";

    #[test]
    fn checking_continues_after_each_mistake() {
        let text =
            format!("name = \"x\"\nhots = []\ntitle = 5\n= 3\n{REST}congestoin = \"cubic\"\n");
        let (is_read, found) = told(&text);
        assert!(is_read, "{found:#?}");
        let starts = [
            "lab.toml:4: ",
            "lab.toml:2: unknown key `hots`",
            "lab.toml:3: found",
            "lab.toml:10: unknown key",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for start in starts {
            assert!(found.iter().any(|one| one.starts_with(start)), "{start}: {found:#?}");
        }
    }

    #[test]
    fn only_a_missing_key_is_reported_as_missing() {
        let (is_read, found) = told(&format!("name = \"x\"\n{REST}[form.full]\nrepeats = 6\n"));
        assert!(is_read);
        assert_eq!(found, ["lab.toml:7: `duration` is missing here"]);
        let (is_read, found) = told(&format!("name = \"x\"\n{REST}[form.full]\nduration = 5\n"));
        assert!(is_read);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with("lab.toml:8: "), "{found:#?}");
    }

    #[test]
    fn mending_a_hopeless_text_ends_without_a_document() {
        for text in [
            "",
            "[",
            "[[",
            "a",
            "\"\"\"",
            "name = \"\"\"\n[x]",
            "[a]\n[a]\n[a]\n",
            "é = é",
            "x = {a = 1, é",
        ] {
            let mut draft = Draft::of("lab.toml", text);
            assert!(draft.document().is_none(), "{text}");
        }
    }
}
