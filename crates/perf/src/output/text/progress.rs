//! The lines that are printed during a test, after each interval.

use super::columns::{Column, Columns, Line};
use super::format::{Style, TextFormat};
use crate::event::{Interval, Latency, Role, Started, StreamInterval};
use crate::options::{Direction, Protocol, TestOptions};
use crate::output::figures::{self, RateUnit, millis, rate_of, share_percent};
use crate::output::outcome::{DirectionStreams, Progress, directions};
use units::Span;

#[derive(Debug)]
pub(super) struct Table {
    columns: Columns,
    /// Upper end of the bars in bits a second; `None` before the first interval.
    scale: Option<f64>,
    idle_p99: Option<Span>,
}

impl Table {
    pub(super) fn new(started: &Started, format: &TextFormat) -> Self {
        let columns = Columns::fitting(&wanted(started, format), format.width);
        Self { columns, scale: None, idle_p99: None }
    }

    pub(super) fn idle(&mut self, latency: &Latency) {
        self.idle_p99 = Some(latency.p99);
    }

    pub(super) fn lines(
        &mut self,
        started: &Started,
        interval: &Interval,
        format: &TextFormat,
    ) -> String {
        let directions = directions(started.role, &interval.streams);
        let mut out = self.heading(&started.options, interval, &directions, format);
        let mut first = true;
        for direction in &directions {
            if direction.streams.len() > 1 && shows_each(&started.options, format) {
                for stream in &direction.streams {
                    let who = stream.id.to_string();
                    let line = self.line(started, interval, direction, (&who, &[*stream]), format);
                    out += &self.columns.line(&line, format);
                }
            }
            let who = match direction.streams.as_slice() {
                [one] => one.id.to_string(),
                _ => "SUM".to_owned(),
            };
            let mut line =
                self.line(started, interval, direction, (&who, &direction.streams), format);
            // Latency and CPU belong to the path and to this machine, not to a direction: show
            // them once.
            if std::mem::take(&mut first) {
                self.beside(interval, &mut line);
            }
            out += &self.columns.line(&line, format);
        }
        out
    }

    /// Prints the heading before the first line, and again when the bars' scale has grown.
    fn heading(
        &mut self,
        options: &TestOptions,
        interval: &Interval,
        directions: &[DirectionStreams<'_, StreamInterval>],
        format: &TextFormat,
    ) -> String {
        let elapsed = interval.end - interval.start;
        let fastest = directions
            .iter()
            .map(|direction| rate_of(Progress::of(&direction.streams).bytes, elapsed))
            .fold(asked(options).unwrap_or(0.0), f64::max);
        let scale = figures::round_above(fastest);
        if self.scale.is_some_and(|known| known >= scale || self.columns.bar().is_none()) {
            return String::new();
        }
        self.scale = Some(scale);
        let room = self.columns.bar().unwrap_or(0);
        let end = format.unit.show(scale);
        let short = RateUnit::Fitting.show(scale).replace("bit/s", "").replace(' ', "");
        let titles = [format!("0-{end}"), format!("0-{short}")];
        let title = titles.into_iter().find(|title| title.chars().count() <= room);
        self.columns.heading(&title.unwrap_or_default(), format)
    }

    fn line(
        &self,
        started: &Started,
        interval: &Interval,
        direction: &DirectionStreams<'_, StreamInterval>,
        (who, streams): (&str, &[&StreamInterval]),
        format: &TextFormat,
    ) -> Line {
        let progress = Progress::of(streams);
        let rate = rate_of(progress.bytes, interval.end - interval.start);
        let is_sum = streams.len() == direction.streams.len();
        let (main, other) = match (interval.omitted, is_sum) {
            (true, _) => (Style::Dim, Style::Dim),
            (false, true) => (Style::Bold, Style::Plain),
            (false, false) => (Style::Plain, Style::Plain),
        };
        let attention = |is: bool| if is && !interval.omitted { Style::Attention } else { other };

        let mut line = Line::default();
        line.put(Column::Who, labelled(who, started, direction.sends, format), other);
        line.put(Column::Time, period(interval, &self.columns), other);
        line.put(Column::Transfer, progress.bytes.shown(), other);
        line.put(Column::Rate, format.unit.show(rate), main);
        if let (Some(room), Some(scale)) = (self.columns.bar(), self.scale) {
            let style = if interval.omitted { Style::Dim } else { Style::Bar };
            line.put(Column::Bar, bar(rate / scale, room), style);
        }
        if let Some(count) = progress.retransmits {
            line.put(Column::Retransmits, count.to_string(), attention(count > 0));
        }
        if let Some(cwnd) = progress.cwnd.filter(|_| direction.sends) {
            line.put(Column::Window, cwnd.shown(), other);
        }
        if let Some(rtt) = progress.rtt.filter(|_| direction.sends) {
            line.put(Column::RoundTrip, millis(rtt), other);
        }
        match progress.datagrams {
            Some(datagrams) if direction.sends => {
                line.put(Column::Datagrams, datagrams.count.to_string(), other);
            }
            Some(datagrams) => {
                let share = share_percent(datagrams.lost, datagrams.count);
                let lost =
                    format!("{}/{} ({})", datagrams.lost, datagrams.count, figures::percent(share));
                line.put(Column::Jitter, millis(datagrams.jitter), other);
                line.put(Column::Lost, lost, attention(datagrams.lost > 0));
                let reordered = datagrams.reordered;
                line.put(Column::Reordered, reordered.to_string(), attention(reordered > 0));
                let duplicates = datagrams.duplicates;
                line.put(Column::Duplicates, duplicates.to_string(), attention(duplicates > 0));
            }
            None => {}
        }
        if interval.omitted {
            line.put(Column::Remark, "(omitted)", Style::Dim);
        }
        line
    }

    fn beside(&self, interval: &Interval, line: &mut Line) {
        if let Some(latency) = &interval.latency {
            let swollen = self.idle_p99.is_some_and(|idle| {
                latency.p99 > idle * MUCH_LONGER && latency.p99 > idle + NOTICED
            });
            let style = if swollen { Style::Attention } else { Style::Plain };
            line.put(Column::Ping, millis(latency.p99), style);
        }
        if let Some(cpu) = &interval.cpu {
            line.put(Column::Cpu, format!("{:.0} %", cpu.user + cpu.system), Style::Plain);
        }
    }
}

pub(super) fn shows_each(options: &TestOptions, format: &TextFormat) -> bool {
    format.verbose || options.streams <= FEW_STREAMS
}

/// Returns `who` (such as "SUM"), with the direction in a bidirectional test.
pub(super) fn labelled(who: &str, started: &Started, sends: bool, format: &TextFormat) -> String {
    if started.options.direction != Direction::Both {
        return who.to_owned();
    }
    let arrow = match (sends, format.unicode) {
        (true, true) => "↑",
        (false, true) => "↓",
        (true, false) => ">",
        (false, false) => "<",
    };
    format!("{who:<3} {arrow}")
}

fn wanted(started: &Started, format: &TextFormat) -> Vec<Column> {
    let options = &started.options;
    let both = options.direction == Direction::Both;
    let sends = both || (options.direction == Direction::Forward) == (started.role == Role::Client);
    let receives = both || !sends;
    let tcp = options.protocol == Protocol::Tcp;
    let columns = [
        (both || options.streams > 1, Column::Who),
        (true, Column::Time),
        (true, Column::Transfer),
        (true, Column::Rate),
        (format.bars, Column::Bar),
        (tcp && sends, Column::Retransmits),
        (tcp && sends, Column::Window),
        (tcp && sends, Column::RoundTrip),
        (!tcp && sends, Column::Datagrams),
        (!tcp && receives, Column::Jitter),
        (!tcp && receives, Column::Lost),
        (!tcp && receives, Column::Reordered),
        (!tcp && receives, Column::Duplicates),
        (started.role == Role::Client, Column::Ping),
        (true, Column::Cpu),
        (options.omit > Span::ZERO, Column::Remark),
    ];
    columns.into_iter().filter(|(is, _)| *is).map(|(_, column)| column).collect()
}

/// Formats an interval's times, "0.0-1.0". A star marks an omitted interval if there is no room for
/// a remark.
fn period(interval: &Interval, columns: &Columns) -> String {
    let (start, end) = (interval.start.secs_f64(), interval.end.secs_f64());
    let decimals = match end - start {
        length if length < 0.095 => 2,
        length if length > 0.95 && end >= 99.95 => 0,
        _ => 1,
    };
    let star = if interval.omitted && !columns.shows(Column::Remark) { "*" } else { "" };
    format!("{start:.decimals$}-{end:.decimals$}{star}")
}

/// Returns the target rate of all streams of a direction together.
fn asked(options: &TestOptions) -> Option<f64> {
    let rate = options.rate?.bits_per_second() as f64;
    Some(rate * f64::from(options.streams))
}

fn bar(share: f64, room: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(PARTS.get(eighths % 8).filter(|part| **part != ' '));
    bar
}

const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const FEW_STREAMS: u32 = 4;
/// A latency under load is coloured if it is at least this multiple of the idle latency.
const MUCH_LONGER: u64 = 5;
const NOTICED: Span = Span::from_millis(5);
