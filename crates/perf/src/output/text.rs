//! Text for people: the test's options, a line for each interval, and the totals.

mod answer;
mod columns;
mod format;
mod opening;
mod progress;
mod summary;

pub use format::TextFormat;

use super::sink::Sink;
use crate::event::{Audience, Event, Started, Stop};
use format::Style;
use progress::Table;
use std::io::{self, Write};
use units::foreign;

#[derive(Debug)]
pub struct Text<W> {
    sink: Sink<W>,
    format: TextFormat,
    test: Option<Test>,
}

#[derive(Debug)]
struct Test {
    started: Started,
    table: Table,
}

impl<W: Write> Text<W> {
    pub fn new(out: W, format: TextFormat) -> Self {
        Self { sink: Sink::new(out), format, test: None }
    }

    /// Calls `stop` when the reader has gone.
    pub fn stopping(mut self, stop: Stop) -> Self {
        self.sink.stops(stop);
        self
    }

    /// True if the reader has gone: a test stopped for that reason did not fail.
    pub fn is_abandoned(&self) -> bool {
        self.sink.is_abandoned()
    }

    /// Returns the writer. A reader that has gone is no error.
    pub fn finish(self) -> io::Result<W> {
        self.sink.finish()
    }

    fn reported(&mut self, event: &Event<'_>) -> String {
        let format = &self.format;
        match event {
            Event::Listening(listening) if !format.quiet => {
                format.labelled("listening", Style::Dim, &format!("on {}", listening.address))
            }
            Event::Started(started) => {
                let table = Table::new(started, format);
                self.test = Some(Test { started: (*started).clone(), table });
                if format.quiet { String::new() } else { opening::lines(started, format) }
            }
            Event::Idle(latency) if !format.quiet => {
                if let Some(test) = &mut self.test {
                    test.table.idle(latency);
                }
                format.labelled("idle", Style::Dim, &opening::latency(latency))
            }
            Event::Interval(interval) => match &mut self.test {
                Some(test) if !format.quiet => test.table.lines(&test.started, interval, format),
                _ => String::new(),
            },
            Event::Ended(ended) => {
                let test = self.test.take();
                test.map_or_else(String::new, |test| summary::lines(&test.started, ended, format))
            }
            Event::Failed(error) => {
                self.test = None;
                format.labelled("failed", Style::Bad, &foreign(error).up_to(LONGEST).to_string())
            }
            Event::Listening(_) | Event::Idle(_) => String::new(),
        }
    }
}

impl<W: Write> Audience for Text<W> {
    fn event(&mut self, event: &Event<'_>) {
        let reported = self.reported(event);
        if !reported.is_empty() {
            self.sink.write(&reported);
        }
    }
}

/// Maximum length of an error text that is shown, in bytes. All error texts of this program are
/// shorter.
const LONGEST: usize = 1024;
