//! Columns that fit a given width.

use crate::cut::{cut, distinct};
use results::LONGEST_TEXT;
use units::foreign;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Dim,
    Bold,
    Bad,
}

#[derive(Debug, Clone)]
pub(super) struct Text {
    text: String,
    style: Style,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    heads: Vec<Head>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Head {
    title: String,
    right: bool,
    /// A column with 0 always stays. If the width does not suffice, the column with the highest
    /// value is dropped first.
    drop: u8,
    /// The texts may be cut if dropping columns does not suffice.
    cut: bool,
}

#[derive(Debug)]
struct Row {
    texts: Vec<Text>,
    /// The last text extends over the remaining columns.
    spanning: bool,
}

impl Text {
    pub(super) fn new(text: &str, style: Style) -> Self {
        Self { text: plain(text), style }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl Table {
    pub(super) fn left(&mut self, title: &str, drop: u8) {
        let cut = self.heads.is_empty();
        self.heads.push(Head { title: plain(title), right: false, drop, cut });
    }

    pub(super) fn right(&mut self, title: &str, drop: u8) {
        self.heads.push(Head { title: plain(title), right: true, drop, cut: false });
    }

    /// Adds a right-aligned column that always stays, and that is cut if the width does not
    /// suffice.
    pub(super) fn cuttable(&mut self, title: &str) {
        self.heads.push(Head { title: plain(title), right: true, drop: 0, cut: true });
    }

    pub(super) fn row(&mut self, texts: Vec<Text>) {
        self.rows.push(Row { texts, spanning: false });
    }

    pub(super) fn spanning_row(&mut self, texts: Vec<Text>) {
        self.rows.push(Row { texts, spanning: true });
    }

    /// Returns the width of the columns that cannot be dropped.
    pub(super) fn width(&self) -> usize {
        let widths: Vec<usize> = (0..self.heads.len()).map(|i| self.natural(i)).collect();
        let needed = |i: &usize| widths[*i] > 0 && self.heads[*i].drop == 0;
        let shown: Vec<usize> = (0..self.heads.len()).filter(needed).collect();
        total(&shown, &widths)
    }

    pub(super) fn render(&self, width: usize, colour: bool) -> String {
        let mut widths: Vec<usize> = (0..self.heads.len()).map(|i| self.natural(i)).collect();
        let mut shown: Vec<usize> = (0..self.heads.len()).filter(|i| widths[*i] > 0).collect();
        while total(&shown, &widths) > width {
            let last = shown.iter().copied().filter(|i| self.heads[*i].drop > 0);
            match last.max_by_key(|i| self.heads[*i].drop) {
                Some(index) => shown.retain(|other| *other != index),
                None => break,
            }
        }
        self.narrow(&shown, &mut widths, width);
        let mut tails = vec![0; self.heads.len()];
        for index in shown.iter().copied().filter(|index| self.heads[*index].cut) {
            let texts = self.texts_of(index);
            // A cut text must differ from other texts. If every cut makes two texts equal, the
            // table stays too wide.
            tails[index] = loop {
                match distinct(&texts, widths[index]) {
                    Some(tail) => break tail,
                    None => widths[index] += 1,
                }
            };
        }
        let heads: Vec<Text> =
            self.heads.iter().map(|head| Text::new(&head.title, Style::Dim)).collect();
        let mut out = self.line(&heads, false, &shown, (&widths, &tails), width, colour);
        for row in &self.rows {
            out += &self.line(&row.texts, row.spanning, &shown, (&widths, &tails), width, colour);
        }
        out
    }

    /// Cuts the widest columns first. The first column holds names.
    fn narrow(&self, shown: &[usize], widths: &mut [usize], width: usize) {
        let least = |index: usize| if index == 0 { LEAST_NAME } else { LEAST_VALUE };
        while total(shown, widths) > width {
            let wide = shown.iter().filter(|i| self.heads[**i].cut && widths[**i] > least(**i));
            match wide.copied().max_by_key(|i| widths[*i]) {
                Some(index) => widths[index] -= 1,
                None => break,
            }
        }
    }

    fn texts_of(&self, index: usize) -> Vec<&str> {
        let mut texts: Vec<&str> = self
            .rows
            .iter()
            .filter_map(|row| row.texts.get(index))
            .map(|text| text.text.as_str())
            .collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    fn natural(&self, index: usize) -> usize {
        let texts = self.rows.iter().filter_map(|row| {
            let spanned = row.spanning && index + 1 >= row.texts.len();
            row.texts.get(index).filter(|_| !spanned)
        });
        let widest = texts.map(Text::width).max().unwrap_or(0);
        let only_spanned = self.rows.iter().all(|row| row.spanning);
        // Hides an empty column, unless all rows are failures.
        if widest == 0 && !only_spanned {
            return 0;
        }
        widest.max(self.heads[index].title.chars().count())
    }

    fn line(
        &self,
        texts: &[Text],
        spanning: bool,
        shown: &[usize],
        (widths, tails): (&[usize], &[usize]),
        width: usize,
        colour: bool,
    ) -> String {
        let mut out = String::new();
        let mut used = 0;
        for (place, &index) in shown.iter().enumerate() {
            let Some(text) = texts.get(index) else { break };
            if place > 0 {
                out += GAP;
                used += GAP.len();
            }
            let last_of_span = spanning && index + 1 == texts.len();
            let room = if last_of_span {
                width.saturating_sub(used).max(LEAST_NAME)
            } else {
                widths[index]
            };
            let tail = if last_of_span { 0 } else { tails[index] };
            let cut = cut(&text.text, room, tail);
            let padding = " ".repeat(room - cut.chars().count());
            let painted = paint(&cut, text.style, colour);
            used += room;
            out += &match (last_of_span, self.heads[index].right) {
                (true, _) => painted,
                (false, true) => padding + &painted,
                (false, false) => painted + &padding,
            };
        }
        // A row that spans more columns than are shown must still end with its reason.
        if let (true, Some(last)) = (spanning, texts.last())
            && !shown.contains(&(texts.len() - 1))
        {
            let room = width.saturating_sub(used + GAP.len()).max(LEAST_NAME);
            out += GAP;
            out += &paint(&cut(&last.text, room, 0), last.style, colour);
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
        out
    }
}

pub(super) fn paint(text: &str, style: Style, colour: bool) -> String {
    let code = match style {
        Style::Plain => return text.to_owned(),
        _ if !colour || text.is_empty() => return text.to_owned(),
        Style::Dim => 2,
        Style::Bold => 1,
        Style::Bad => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Escapes text of a process or another machine, whose escape sequences the terminal must not
/// interpret.
pub(super) fn plain(text: &str) -> String {
    foreign(text).up_to(LONGEST_TEXT).to_string()
}

fn total(shown: &[usize], widths: &[usize]) -> usize {
    shown.iter().map(|i| widths[*i]).sum::<usize>() + GAP.len() * shown.len().saturating_sub(1)
}

const GAP: &str = "  ";
const LEAST_NAME: usize = 8;
/// Minimum number of letters of a cut value of an axis.
const LEAST_VALUE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn cut_texts_of_a_column_differ() {
        let names = [
            "Queue delay, median",
            "Queue delay, 95 %",
            "Queue delay, largest",
            "tcpa-wan-clean",
            "tcpa-wan-lossy",
            "tcpa-wan-lossy-2",
            "tcpa-wan-slow",
            "cubic",
        ];
        for width in [12, 16, 20, 30, 60] {
            let mut table = Table::default();
            table.left("system", 0);
            table.right("Goodput, Mbit/s", 0);
            for name in names {
                table.row(vec![Text::new(name, Style::Plain), Text::new("90.0", Style::Plain)]);
            }
            let shown = table.render(width, false);
            let firsts: HashSet<&str> = shown
                .lines()
                .skip(1)
                .map(|line| line.trim_end_matches("90.0").trim_end())
                .collect();
            assert_eq!(firsts.len(), names.len(), "{shown}");
            assert!(firsts.contains("cubic"), "{shown}");
        }
    }
}
