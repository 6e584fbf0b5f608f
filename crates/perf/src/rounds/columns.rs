//! A table with aligned columns and two lines of headings.

use crate::output::TextFormat;

/// A table of columns. Numbers are aligned to the right; a remark may follow a row.
#[derive(Debug, Default)]
pub(super) struct Columns {
    heads: Vec<(&'static str, String)>,
    rows: Vec<Row>,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    Remark(String),
}

impl Columns {
    /// Adds a column. Adjacent columns of the same `group` share the group's heading.
    pub(super) fn head(&mut self, group: &'static str, title: impl Into<String>) {
        self.heads.push((group, title.into()));
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(Row::Cells(cells));
    }

    /// Adds a line outside the columns.
    pub(super) fn remark(&mut self, text: String) {
        self.rows.push(Row::Remark(text));
    }

    pub(super) fn render(&self, format: &TextFormat) -> String {
        let widths: Vec<usize> = (0..self.heads.len()).map(|index| self.width(index)).collect();
        let titles: Vec<&str> = self.heads.iter().map(|(_, title)| title.as_str()).collect();
        let mut out = String::new();
        let groups = self.groups(&widths);
        if !groups.is_empty() {
            out += &painted(&groups, DIM, format);
        }
        out += &painted(&line(&titles, &widths), DIM, format);
        for row in &self.rows {
            out += &match row {
                Row::Cells(cells) => {
                    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
                    painted(&line(&cells, &widths), "", format)
                }
                Row::Remark(text) => painted(text, LOUD, format),
            };
        }
        out
    }

    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => cells.get(index),
            Row::Remark(_) => None,
        });
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.heads[index].1.chars().count())
    }

    /// Returns the line of group headings; each starts at the title of the group's first column.
    fn groups(&self, widths: &[usize]) -> String {
        let (mut out, mut begins, mut last) = (String::new(), 0, "");
        for ((group, title), width) in self.heads.iter().zip(widths) {
            if *group != last && !group.is_empty() {
                let at = begins + width - title.chars().count();
                let used = out.chars().count();
                out += &" ".repeat(at.saturating_sub(used).max(usize::from(used > 0)));
                out += group;
            }
            last = group;
            begins += width + GAP.len();
        }
        out
    }
}

fn line(cells: &[&str], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
    padded.collect::<Vec<_>>().join(GAP)
}

fn painted(text: &str, code: &str, format: &TextFormat) -> String {
    let text = text.trim_end();
    if !format.colour || code.is_empty() {
        return format!("{text}\n");
    }
    format!("\x1b[{code}m{text}\x1b[0m\n")
}

const GAP: &str = "  ";
const DIM: &str = "2";
const LOUD: &str = "1;31";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_headings_are_above_their_columns() {
        let mut columns = Columns::default();
        columns.head("", "size");
        columns.head("latency", "p50");
        columns.head("latency", "p99");
        columns.head("CPU", "here");
        columns.row(["1", "12.5", "100", "3"].map(str::to_owned).to_vec());
        columns.remark("! 1 is loud".to_owned());
        assert_eq!(
            columns.render(&TextFormat::plain()),
            "       latency   CPU\nsize   p50  p99  here\n   1  12.5  100     3\n! 1 is loud\n"
        );
        let coloured = columns.render(&TextFormat { colour: true, ..TextFormat::plain() });
        assert!(coloured.contains("\x1b[1;31m! 1 is loud\x1b[0m\n"));
    }
}
