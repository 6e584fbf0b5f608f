//! Columns of a table whose lines are printed during the test: the widths are fixed before the
//! first line.

use super::format::{Style, TextFormat};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Who,
    Time,
    Transfer,
    Rate,
    Bar,
    Retransmits,
    Window,
    RoundTrip,
    Jitter,
    Lost,
    Reordered,
    Duplicates,
    Datagrams,
    Ping,
    Cpu,
    Remark,
}

#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// The columns that fit, with their widths.
    shown: Vec<(Column, usize)>,
}

/// The texts of a line; a column without a text stays empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    cells: Vec<(Column, String, Style)>,
}

impl Columns {
    /// Keeps the columns of `wanted` that fit, drops the least needed columns first, and gives a
    /// bar the remaining width.
    pub(super) fn fitting(wanted: &[Column], width: usize) -> Self {
        let mut shown: Vec<(Column, usize)> = wanted.iter().map(|c| (*c, c.width())).collect();
        let total = |shown: &[(Column, usize)]| {
            shown.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        for gone in LEAST_NEEDED {
            if total(&shown) <= width {
                break;
            }
            shown.retain(|(column, _)| column != gone);
        }
        let left = width.saturating_sub(total(&shown));
        if let Some((_, bar)) = shown.iter_mut().find(|(column, _)| *column == Column::Bar) {
            *bar = (*bar + left).min(LONGEST_BAR);
        }
        Self { shown }
    }

    pub(super) fn bar(&self) -> Option<usize> {
        self.shown.iter().find(|(column, _)| *column == Column::Bar).map(|(_, width)| *width)
    }

    pub(super) fn shows(&self, column: Column) -> bool {
        self.shown.iter().any(|(shown, _)| *shown == column)
    }

    pub(super) fn heading(&self, bar_title: &str, format: &TextFormat) -> String {
        let mut line = Line::default();
        for (column, _) in &self.shown {
            let title = if *column == Column::Bar { bar_title } else { column.title() };
            line.put(*column, title, Style::Dim);
        }
        self.line(&line, format)
    }

    pub(super) fn line(&self, line: &Line, format: &TextFormat) -> String {
        let mut out = String::new();
        // Writes spaces only before a further text, so that no line ends in spaces.
        let mut blanks = 0;
        for (column, width) in &self.shown {
            let cell = line.cells.iter().find(|(known, ..)| known == column);
            let (text, style) = cell.map_or(("", Style::Plain), |(_, text, style)| (text, *style));
            let padding = width.saturating_sub(text.chars().count());
            let (before, after) = if column.is_left() { (0, padding) } else { (padding, 0) };
            if text.is_empty() {
                blanks += width + GAP;
                continue;
            }
            out += &" ".repeat(blanks + before);
            out += &format.paint(text, style);
            blanks = after + GAP;
        }
        out.push('\n');
        out
    }
}

impl Line {
    pub(super) fn put(&mut self, column: Column, text: impl Into<String>, style: Style) {
        self.cells.push((column, text.into(), style));
    }
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Who | Self::Bar | Self::Remark => "",
            Self::Time => "seconds",
            Self::Transfer => "transfer",
            Self::Rate => "bitrate",
            Self::Retransmits => "retr",
            Self::Window => "cwnd",
            Self::RoundTrip => "rtt",
            Self::Jitter => "jitter",
            Self::Lost => "lost/total",
            Self::Reordered => "reord",
            Self::Duplicates => "dup",
            Self::Datagrams => "datagrams",
            Self::Ping => "ping p99",
            Self::Cpu => "CPU",
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Who => 5,
            Self::Time | Self::Datagrams => 9,
            Self::Transfer | Self::Window | Self::RoundTrip | Self::Jitter | Self::Ping => 8,
            Self::Rate => 11,
            Self::Bar => LEAST_BAR,
            Self::Retransmits | Self::Reordered | Self::Cpu => 5,
            Self::Lost => 16,
            Self::Duplicates => 4,
            Self::Remark => 9,
        }
    }

    fn is_left(self) -> bool {
        matches!(self, Self::Bar | Self::Remark | Self::Who)
    }
}

const LEAST_NEEDED: &[Column] = &[
    Column::Transfer,
    Column::Bar,
    Column::Remark,
    Column::Cpu,
    Column::Duplicates,
    Column::Window,
    Column::Ping,
    Column::Reordered,
    Column::Datagrams,
    Column::RoundTrip,
    Column::Jitter,
];
const GAP: usize = 2;
const LEAST_BAR: usize = 5;
const LONGEST_BAR: usize = 24;
