use super::TestPlan;
use super::{far, refusal};
use crate::recording::Attempt;
use perf::PerfError;
use perf::event::{Audience, Ended, Event, Started, Stop};
use perf::options::{Amount, ClientOptions, Direction, TestOptions};
use units::{Bytes, Rate, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Sending,
    Receiving,
}

/// One transfer in one direction.
pub(super) struct Transfer<'a> {
    plan: &'a TestPlan,
    way: Way,
    stop: Stop,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(plan: &'a TestPlan, way: Way, stop: Stop) -> Self {
        Self { plan, way, stop }
    }

    pub(super) fn run(&self) -> Attempt {
        let options = ClientOptions {
            host: self.plan.host.clone(),
            port: self.plan.port,
            connect_timeout: self.plan.connect_within,
            receive_timeout: self.plan.connect_within + self.plan.time.as_duration(),
            interval: Span::from_millis(200),
            test: TestOptions {
                direction: match self.way {
                    Way::Sending => Direction::Forward,
                    Way::Receiving => Direction::Reverse,
                },
                amount: Amount::Time(self.plan.time),
                ..TestOptions::default()
            },
            probes: true,
            idle_probe: match self.way {
                Way::Sending => self.plan.idle,
                Way::Receiving => Span::ZERO,
            },
            ..ClientOptions::default()
        };
        let mut heard = Heard { stop: self.stop.clone(), most: self.plan.most, ..Heard::default() };
        let outcome = perf::client::run(&options, &self.stop, &mut heard);
        let mut attempt = Attempt {
            host: units::foreign(&self.plan.host).to_string(),
            port: self.plan.port,
            sends: self.way == Way::Sending,
            ..Attempt::default()
        };
        if let Some(started) = &heard.started {
            attempt.connections =
                started.streams.iter().map(|stream| (stream.local, stream.remote)).collect();
        }
        if let Some(ended) = &heard.ended {
            add_figures(ended, heard.started.as_ref(), &mut attempt);
        }
        match outcome {
            // A transfer that ended at its maximum size has results.
            Err(PerfError::Interrupted) if heard.ended.is_some() => {}
            Err(error) => {
                attempt.refusal = Some(refusal::of(&error));
                attempt.message = Some(units::foreign(error.to_string()).to_string());
            }
            Ok(_) => {}
        }
        attempt
    }
}

fn add_figures(ended: &Ended, started: Option<&Started>, attempt: &mut Attempt) {
    let counts = ended.streams.iter().map(|stream| match stream.received.is_known() {
        true => stream.received,
        false => stream.sent,
    });
    attempt.bytes = counts.fold(Bytes::ZERO, |sum, end| sum + end.bytes);
    attempt.elapsed = ended.duration;
    let seconds = ended.duration.secs_f64();
    attempt.rate = (seconds > 0.0)
        .then(|| Rate::from_bits_per_second((attempt.bytes.count() as f64 * 8.0 / seconds) as u64));
    attempt.idle_rtt = ended.idle_latency.as_ref().map(|latency| latency.p50);
    attempt.loaded_rtt = ended.loaded_latency.as_ref().map(|latency| latency.p50);
    attempt.far = Some(far::of(ended, started.is_some_and(|started| started.peer_is_weir)));
}

/// The events of a transfer. Stops the transfer at its maximum size.
#[derive(Default)]
struct Heard {
    started: Option<Started>,
    ended: Option<Ended>,
    bytes: Bytes,
    most: Bytes,
    stop: Stop,
}

impl Audience for Heard {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started(started) => self.started = Some((*started).clone()),
            Event::Interval(interval) => {
                for stream in &interval.streams {
                    self.bytes += stream.bytes;
                }
                if self.bytes >= self.most {
                    self.stop.call();
                }
            }
            Event::Ended(ended) => self.ended = Some((*ended).clone()),
            Event::Listening(_) | Event::Idle(_) | Event::Failed(_) => {}
        }
    }
}
