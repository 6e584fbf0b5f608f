//! JSON as iperf3's `-J` writes it: the same keys, types and order, and weir's additions under
//! `weir`.
//!
//! Programs that read iperf3 3.12's JSON can read this document. The few differences are listed in
//! `tests/output/iperf3_json.rs`.

mod additions;
mod end;
mod interval;
mod layout;
mod start;

use super::sink::Sink;
use crate::event::{Audience, Event, Latency, ServerOutput, Started, Stop};
use serde_json::{Map, Value};
use std::io::{self, Write};

/// The JSON document of a test. The document can be written during the test and after the test.
#[derive(Debug, Default)]
pub struct Document {
    started: Option<Started>,
    idle: Option<Latency>,
    start: Option<Value>,
    intervals: Vec<Value>,
    /// Number of stream entries in the kept intervals.
    entries: usize,
    left_out: usize,
    /// All keys that follow `intervals`.
    rest: Map<String, Value>,
}

/// Writes each test's document once no more events of the test can follow: when it failed, when
/// another test begins, or at the end.
#[derive(Debug)]
pub struct Json<W: Write> {
    /// `None` once [`Self::finish`] returned the sink.
    sink: Option<Sink<W>>,
    document: Document,
    /// True if the test has ended, and its document is not yet written.
    has_ended: bool,
}

impl Document {
    pub fn value(&self) -> Value {
        let mut document = Map::new();
        let start = self.start.clone().unwrap_or_else(start::without_peer);
        document.insert("start".to_owned(), start);
        document.insert("intervals".to_owned(), Value::Array(self.intervals.clone()));
        document.insert("end".to_owned(), Value::Object(Map::new()));
        document.extend(self.rest.clone());
        Value::Object(document)
    }

    pub fn to_text(&self) -> String {
        layout::lines(&self.value())
    }

    fn ended(&mut self, ended: &crate::event::Ended) {
        let Some(started) = &self.started else {
            return;
        };
        self.rest.insert("end".to_owned(), end::value(started, ended));
        let options = &started.options;
        for (key, text) in [("title", &options.title), ("extra_data", &options.extra_data)] {
            if let Some(text) = text {
                self.rest.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        if let Some(output) = &ended.server_output {
            let (key, value) = server_output(output);
            self.rest.insert(key.to_owned(), value);
        }
        let mut additions = additions::of_test(started, ended, self.idle.as_ref());
        if self.left_out > 0 {
            additions.insert("intervals_left_out".to_owned(), Value::from(self.left_out));
        }
        self.rest.insert("weir".to_owned(), Value::Object(additions));
    }

    fn keep(&mut self, interval: Value, streams: usize) {
        // The intervals of 128 streams over a day must not fill the memory.
        if self.entries + streams > MOST_ENTRIES {
            self.left_out += 1;
            return;
        }
        self.entries += streams;
        self.intervals.push(interval);
    }
}

impl Audience for Document {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Listening(_) => {}
            Event::Started(started) => {
                *self = Self {
                    start: Some(start::value(started)),
                    started: Some((*started).clone()),
                    ..Self::default()
                };
            }
            Event::Idle(latency) => self.idle = Some((*latency).clone()),
            Event::Interval(interval) => {
                if let Some(started) = &self.started {
                    let value = interval::value(started, interval);
                    self.keep(value, interval.streams.len());
                }
            }
            Event::Ended(ended) => self.ended(ended),
            Event::Failed(error) => {
                self.rest.insert("error".to_owned(), Value::from(error.to_string()));
            }
        }
    }
}

impl<W: Write> Json<W> {
    pub fn new(out: W) -> Self {
        Self { sink: Some(Sink::new(out)), document: Document::default(), has_ended: false }
    }

    /// Calls `stop` when the reader has gone.
    pub fn stopping(mut self, stop: Stop) -> Self {
        if let Some(sink) = &mut self.sink {
            sink.stops(stop);
        }
        self
    }

    /// True if the reader has gone: a test stopped for that reason did not fail.
    pub fn is_abandoned(&self) -> bool {
        self.sink.as_ref().is_some_and(Sink::is_abandoned)
    }

    /// Writes the last document and returns the writer. A reader that has gone is no error.
    pub fn finish(mut self) -> io::Result<W> {
        self.write();
        match self.sink.take() {
            Some(sink) => sink.finish(),
            // Unreachable: only this method takes the sink, and this method consumes `self`.
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn write(&mut self) {
        if let Some(sink) = &mut self.sink
            && std::mem::take(&mut self.has_ended)
        {
            sink.write(&std::mem::take(&mut self.document).to_text());
        }
    }
}

impl<W: Write> Audience for Json<W> {
    fn event(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Started(_)) {
            self.write();
        }
        self.document.event(event);
        match event {
            // A failure that follows belongs to the same document.
            Event::Ended(_) => self.has_ended = true,
            Event::Failed(_) => {
                self.has_ended = true;
                self.write();
            }
            _ => {}
        }
    }
}

impl<W: Write> Drop for Json<W> {
    fn drop(&mut self) {
        self.write();
    }
}

pub(super) use additions::idle_value;
pub(super) use end::value as end_value;
pub(super) use interval::value as interval_value;
pub(super) use start::value as start_value;

pub(super) fn whole_additions(
    started: &Started,
    ended: &crate::event::Ended,
    idle: Option<&Latency>,
) -> Value {
    Value::Object(additions::of_test(started, ended, idle))
}

/// Returns iperf3's key for the server's output, and the output.
pub(super) fn server_output(output: &ServerOutput) -> (&'static str, Value) {
    match output {
        ServerOutput::Text(text) => ("server_output_text", Value::from(text.as_str())),
        ServerOutput::Json(value) => ("server_output_json", value.clone()),
    }
}

/// Encodes a number. As in iperf3, whole numbers have no fraction, and NaN and infinity become 0.
fn number(value: f64) -> Value {
    const EXACT: f64 = (1_u64 << 53) as f64;
    if value.fract() == 0.0 && value.abs() < EXACT {
        return Value::from(value as i64);
    }
    serde_json::Number::from_f64(value).map_or(Value::from(0), Value::Number)
}

fn entry<V: Into<Value>>(map: &mut Map<String, Value>, key: &str, value: V) {
    map.insert(key.to_owned(), value.into());
}

const MOST_ENTRIES: usize = 200_000;
