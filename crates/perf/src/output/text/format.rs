use crate::output::RateUnit;
use std::io::IsTerminal;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFormat {
    /// Maximum width of a line in columns; longer lines are broken or cut.
    pub width: usize,
    pub colour: bool,
    /// True if the output may contain bars and arrows.
    pub unicode: bool,
    /// True if each interval has a bar, for a user at a terminal.
    pub bars: bool,
    pub unit: RateUnit,
    /// True if the text shows each stream separately, and all known results.
    pub verbose: bool,
    /// True if the text shows only the totals: sent, received, and output that the user requested
    /// in addition.
    pub quiet: bool,
}

impl TextFormat {
    /// Returns the format for a file or a message: no colour, no bars, ASCII only.
    pub fn plain() -> Self {
        Self {
            width: PLAIN_WIDTH,
            colour: false,
            unicode: false,
            bars: false,
            unit: RateUnit::default(),
            verbose: false,
            quiet: false,
        }
    }

    /// Returns the format for standard output and the environment: colour on a terminal unless
    /// NO_COLOR is set (no-color.org), bars on a terminal whose locale supports them.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let reported = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = reported("TERM").is_some_and(|term| term == "dumb");
        // The first of these variables that is set decides (POSIX, 8.2).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(reported);
        let locale = locale.map(|name| name.to_string_lossy().to_ascii_lowercase());
        let unicode = locale.is_some_and(|name| name.contains("utf-8") || name.contains("utf8"));
        let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| size.ws_col);
        Self {
            width: if columns == 0 { PLAIN_WIDTH } else { usize::from(columns).max(LEAST_WIDTH) },
            colour: terminal && !dumb && reported("NO_COLOR").is_none(),
            unicode,
            bars: terminal && !dumb && unicode,
            ..Self::plain()
        }
    }

    pub(super) fn paint(&self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Attention => "33",
            Style::Bad => "31",
            Style::Bar => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Formats a label and a text. The text is broken to fit the width; further lines are indented
    /// to the start of the text.
    pub(super) fn labelled(&self, name: &str, style: Style, text: &str) -> String {
        let indent = LABEL.min((self.width / 4).max(NARROW_LABEL));
        let room = self.width.saturating_sub(indent).max(1);
        let lines = broken(text, room);
        let mut out = String::new();
        for (place, line) in lines.iter().enumerate() {
            let name = if place == 0 { name } else { "" };
            let padding = indent.saturating_sub(name.chars().count()).max(1);
            out += &format!("{}{}", self.paint(name, style), " ".repeat(padding));
            out += line;
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Dim,
    Bold,
    Attention,
    Bad,
    Bar,
}

/// Breaks a text into lines: after the commas of a list if the parts fit, else at spaces.
fn broken(text: &str, room: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines = vec![String::new()];
    let mut put = |piece: &str| {
        let used = lines.last().map_or(0, |line| length(line));
        if used > 0 && used + 1 + length(piece) > room {
            lines.push(piece.to_owned());
        } else if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
            }
            line.push_str(piece);
        }
    };
    for part in text.split_inclusive([',', ';']) {
        let part = part.trim();
        if length(part) <= room {
            put(part);
        } else {
            part.split(' ').for_each(&mut put);
        }
    }
    lines
}

/// Width of the labels at the left, in columns.
const LABEL: usize = 12;
const NARROW_LABEL: usize = 11;
const LEAST_WIDTH: usize = 40;
const PLAIN_WIDTH: usize = 100;
