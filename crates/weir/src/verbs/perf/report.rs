//! `--report DIR` and `--profile DIR`: records a test's events and writes a page from them.

use super::profiling::Profiling;
use crate::output;
use perf::event::{Audience, Ended, Event, Started};
use perf::options::{Direction, Protocol};
use report::measurement::Recorder;
use report::profile::Profile;
use std::ops::Range;
use std::path::{Path, PathBuf};
use units::Time;

/// Receives a test's events beside another audience, and writes the report when the test has ended,
/// successfully or not:
///
/// ```text
/// let mut report = report_audience(directory);
/// let outcome = run_for(&options, &stop, &mut report.beside(&mut text));
/// report.write(None)?;
/// ```
pub(crate) fn report_audience(directory: &Path) -> ReportAudience {
    ReportAudience {
        directory: directory.to_owned(),
        recorder: Recorder::default(),
        started: None,
        began: None,
        measured: None,
        ended: None,
    }
}

#[derive(Debug)]
pub(crate) struct ReportAudience {
    directory: PathBuf,
    recorder: Recorder,
    started: Option<Started>,
    /// The start of the traffic.
    began: Option<Time>,
    /// The time that the results cover.
    measured: Option<Range<Time>>,
    /// The figures, kept until the test is over, because the reason for a failure arrives after the
    /// figures.
    ended: Option<Ended>,
}

/// An audience that passes the events of one test to two audiences.
pub(crate) struct Both<'a> {
    shown: &'a mut dyn Audience,
    kept: &'a mut ReportAudience,
}

impl ReportAudience {
    pub(crate) fn beside<'a>(&'a mut self, shown: &'a mut dyn Audience) -> Both<'a> {
        Both { shown, kept: self }
    }

    /// Writes the files and prints their paths; writes none for a test that never began.
    pub(super) fn write(mut self, profiling: Option<Profiling>) -> anyhow::Result<()> {
        self.hear_end(None);
        let profile = profiling.zip(self.measured.take());
        let profile = profile.map(|(profiling, measured)| profiling.stop(measured));
        let text = profile.as_ref().map(Profile::text);
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("weir {}", words.join(" "));
        if let Some(files) = self.recorder.write(&self.directory, command, profile)? {
            text.iter().for_each(|text| output::note(text.trim_end()));
            output::note(format!("report: {}", files.html.display()));
        }
        Ok(())
    }

    fn hear_end(&mut self, broken_off: Option<String>) {
        let Some(mut ended) = self.ended.take() else { return };
        let unseen = self.started.as_ref().and_then(|started| unseen_sender(started, &ended));
        ended.warnings.extend(unseen);
        ended.warnings.splice(0..0, broken_off);
        self.recorder.event(&Event::Ended(&ended));
    }
}

impl Audience for ReportAudience {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Ended(ended) => {
                let omit = self.started.as_ref().map(|started| started.options.omit);
                let start = self.began.zip(omit).map(|(began, omit)| began + omit);
                self.measured = start.map(|start| start..start + ended.duration);
                self.ended = Some((*ended).clone());
                return;
            }
            Event::Started(started) => {
                self.started = Some((*started).clone());
                self.began = Some(probe::clock::now());
            }
            Event::Failed(error) => {
                let reason =
                    format!("the test broke off, and the figures cover the time before: {error}");
                self.hear_end(Some(reason));
            }
            Event::Listening(_) | Event::Idle(_) | Event::Interval(_) => {}
        }
        self.recorder.event(event);
    }
}

impl Audience for Both<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.shown.event(event);
        self.kept.event(event);
    }
}

/// Explains why the charts lack the data that only the sender's kernel has; `None` if the charts
/// have this data.
fn unseen_sender(started: &Started, ended: &Ended) -> Option<String> {
    let options = &started.options;
    let receives = options.protocol == Protocol::Tcp && options.direction != Direction::Forward;
    let series = ended.observed.as_ref().map_or(&[][..], |observed| &observed.series);
    let is_far = |id: u32| ended.streams.iter().any(|stream| stream.id == id && !stream.sends);
    let is_seen = series.iter().any(|one| one.stream.is_some_and(is_far));
    // Without samples there are no charts, so no data of the sender is missing in a chart.
    if !receives || is_seen || series.is_empty() {
        return None;
    }
    let why = if !started.peer_is_weir {
        "a stock iperf3 does not report it; run `weir perf server` there"
    } else {
        "it did not report it: it runs with --no-probes, is older, or the test broke off"
    };
    Some(format!(
        "round-trip time, windows and what limited the far sender are not drawn over time: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf::event::{CpuUse, End, Role, StreamTotal};
    use perf::observe::cpu::CpuOf;
    use perf::observe::{Observed, Series};
    use perf::options::TestOptions;
    use std::time::SystemTime;
    use units::Span;

    fn started(direction: Direction, peer_is_weir: bool) -> Started {
        let address = "192.0.2.1:5201".parse().unwrap();
        Started {
            role: Role::Client,
            at: SystemTime::UNIX_EPOCH,
            cookie: String::new(),
            peer: String::new(),
            local: address,
            remote: address,
            mss: None,
            peer_version: None,
            peer_is_weir,
            options: TestOptions { direction, ..TestOptions::default() },
            streams: Vec::new(),
        }
    }

    fn ended(sends: bool, series: &[(&'static str, Option<u32>)]) -> Ended {
        let series = series.iter().map(|(name, stream)| Series {
            name,
            stream: *stream,
            stacked: stream.is_some(),
            time_s: Vec::new(),
            lines: Vec::new(),
        });
        let stream = StreamTotal {
            id: 1,
            sends,
            sent: End::default(),
            received: End::default(),
            retransmits: None,
            datagrams_sent: None,
            datagrams: None,
            path: None,
        };
        Ended {
            duration: Span::ZERO,
            streams: vec![stream],
            local_cpu: CpuUse::default(),
            remote_cpu: None,
            local_congestion: None,
            remote_congestion: None,
            idle_latency: None,
            loaded_latency: None,
            server_output: None,
            peer_extras: None,
            observed: Some(Observed {
                cpu: CpuUse::default(),
                cpu_of: CpuOf::Process,
                paths: Vec::new(),
                idle: None,
                loaded: None,
                series: series.collect(),
                limiting_core: None,
                warnings: Vec::new(),
                cost: Span::ZERO,
                probe_cost: None,
            }),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn missing_curves_of_a_far_sender_are_explained() {
        let why = |direction, weir, sends, series: &[_]| {
            unseen_sender(&started(direction, weir), &ended(sends, series))
        };
        let throughput = ("throughput", None);
        let stock = why(Direction::Reverse, false, false, &[throughput]).unwrap();
        assert!(stock.contains("a stock iperf3 does not report it"), "{stock}");
        let silent = why(Direction::Reverse, true, false, &[throughput]).unwrap();
        assert!(silent.contains("--no-probes"), "{silent}");
        let limits = [throughput, ("limited_by", Some(1))];
        assert_eq!(why(Direction::Reverse, true, false, &limits), None);
        assert_eq!(why(Direction::Forward, false, true, &[throughput]), None);
        assert_eq!(why(Direction::Reverse, false, false, &[]), None);
    }
}
