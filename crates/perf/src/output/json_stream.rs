use super::json;
use super::sink::Sink;
use crate::event::{Audience, Event, Latency, Started, Stop};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A line of JSON for each event, each an object with `event` and `data`, as in iperf3 since 3.17.
/// `weir` events carry the results for which iperf3 has no key.
#[derive(Debug)]
pub struct JsonStream<W> {
    sink: Sink<W>,
    started: Option<Started>,
    idle: Option<Latency>,
}

impl<W: Write> JsonStream<W> {
    pub fn new(out: W) -> Self {
        Self { sink: Sink::new(out), started: None, idle: None }
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

    fn say(&mut self, event: &str, data: Value) {
        let line = json!({ "event": event, "data": data });
        self.sink.write(&format!("{line}\n"));
    }
}

impl<W: Write> Audience for JsonStream<W> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Listening(_) => {}
            Event::Started(started) => {
                self.started = Some((*started).clone());
                self.idle = None;
                self.say("start", json::start_value(started));
            }
            Event::Idle(latency) => {
                self.idle = Some((*latency).clone());
                self.say("weir", json::idle_value(latency));
            }
            Event::Interval(interval) => {
                if let Some(started) = &self.started {
                    let data = json::interval_value(started, interval);
                    self.say("interval", data);
                }
            }
            Event::Ended(ended) => {
                let Some(started) = self.started.take() else {
                    return;
                };
                let additions = json::whole_additions(&started, ended, self.idle.as_ref());
                self.say("weir", additions);
                if let Some(output) = &ended.server_output {
                    let (key, value) = json::server_output(output);
                    self.say(key, value);
                }
                // Readers of iperf3's stream expect `end` as the last line.
                self.say("end", json::end_value(&started, ended));
            }
            Event::Failed(error) => {
                self.say("error", Value::from(error.to_string()));
                self.say("end", json!({}));
                self.started = None;
            }
        }
    }
}
