use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

use units::{Span, Time};

use super::recording::{Failure, Recording, Store};
use super::{Probe, Sample};
use crate::clock;

pub struct Sampler {
    interval: Span,
    points_max: usize,
    probes: Vec<Box<dyn Probe>>,
    at_start: Option<AtStart>,
}

type AtStart = Box<dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

impl Sampler {
    pub fn every(interval: Span) -> Self {
        Self {
            interval: interval.max(INTERVAL_MIN),
            points_max: POINTS_MAX,
            probes: Vec::new(),
            at_start: None,
        }
    }

    pub fn probe(mut self, probe: impl Probe + 'static) -> Self {
        self.probes.push(Box::new(probe));
        self
    }

    /// Sets a function that the sampler's thread calls first, to enter a namespace, a control group
    /// or a core.
    pub fn at_start(
        mut self,
        prepare: impl FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Self {
        self.at_start = Some(Box::new(prepare));
        self
    }

    /// Bounds the memory: the sampler keeps at most `points` values, 24 bytes each.
    pub fn keep_at_most(mut self, points: usize) -> Self {
        self.points_max = points;
        self
    }

    /// Starts the thread. Returns once the thread is prepared and has taken its first sample.
    pub fn start(self) -> Result<RunningSampler, SamplerError> {
        let (stop, stopped) = mpsc::channel();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("weir-sampler".to_owned())
            .spawn(move || self.run(&stopped, &sender))
            .map_err(SamplerError::Thread)?;
        match receiver.recv() {
            Ok(Ok(())) => Ok(RunningSampler { stop: Some(stop), thread: Some(thread) }),
            Ok(Err(source)) => Err(SamplerError::Prepare(source)),
            Err(mpsc::RecvError) => Err(SamplerError::Died),
        }
    }

    fn run(
        mut self,
        stopped: &Receiver<()>,
        sender: &Sender<Result<(), Box<dyn Error + Send + Sync>>>,
    ) -> Recording {
        if let Some(prepare) = self.at_start.take()
            && let Err(error) = prepare()
        {
            // The receiver is gone only if start() panicked.
            let _ = sender.send(Err(error));
            return Recording::default();
        }
        let mut store = Store::new(self.points_max);
        let mut recording = Recording { started: clock::now(), ..Recording::default() };
        let mut failures = BTreeMap::new();
        let mut number = 0u64;
        let mut last = recording.started;
        self.sample(&mut store, number, recording.started, &mut failures);
        let _ = sender.send(Ok(()));
        recording.samples = 1;
        loop {
            let stride = store.stride();
            let now = clock::now();
            // Deadlines are multiples of the interval from the start, so lateness never
            // accumulates.
            let passed = now.since(recording.started).nanos() / self.interval.nanos();
            let due = (number / stride + 1) * stride;
            let next = if passed < due { due } else { (passed / stride + 1) * stride };
            recording.missed += (next - due) / stride;
            number = next;
            let deadline = recording.started + self.interval * number;
            let wait = deadline.since(now).as_duration();
            let ended = !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            let at = clock::now();
            if ended && at.since(last) < self.interval * stride / 2 {
                break;
            }
            last = at;
            self.sample(&mut store, number, at, &mut failures);
            recording.samples += 1;
            if ended {
                break;
            }
        }
        recording.stopped = clock::now();
        recording.interval = self.interval * store.stride();
        recording.series = store.into_series();
        recording.failures = failures.into_values().collect();
        recording.cpu_time = clock::own_thread_cpu_time();
        recording
    }

    fn sample(
        &mut self,
        store: &mut Store,
        number: u64,
        at: Time,
        failures: &mut BTreeMap<usize, Failure>,
    ) {
        for (index, probe) in self.probes.iter_mut().enumerate() {
            let mut sample = Sample { at, number, store };
            if let Err(error) = probe.read(&mut sample) {
                let failure = failures.entry(index).or_insert_with(|| {
                    tracing::warn!(probe = probe.name(), %error, "a probe cannot be read");
                    Failure { probe: probe.name().to_owned(), times: 0, message: String::new() }
                });
                failure.times += 1;
                failure.message = error.to_string();
            }
        }
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let probes: Vec<_> = self.probes.iter().map(|probe| probe.name()).collect();
        f.debug_struct("Sampler")
            .field("interval", &self.interval)
            .field("points_max", &self.points_max)
            .field("probes", &probes)
            .finish_non_exhaustive()
    }
}

/// A running sampler, which stops when dropped.
#[derive(Debug)]
pub struct RunningSampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Recording>>,
}

impl RunningSampler {
    /// Stops and returns the recording. Takes a last sample unless the previous sample is younger
    /// than half an interval, because rates over very short times mean nothing.
    pub fn stop(mut self) -> Result<Recording, SamplerError> {
        self.join().unwrap_or(Err(SamplerError::Died))
    }

    fn join(&mut self) -> Option<Result<Recording, SamplerError>> {
        // Closing the channel stops the thread.
        self.stop = None;
        let ended = self.thread.take()?.join();
        Some(ended.map_err(|_| SamplerError::Died))
    }
}

impl Drop for RunningSampler {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    #[error("no thread for the sampler: {0}")]
    Thread(#[source] std::io::Error),
    #[error("the sampler's thread could not be prepared: {0}")]
    Prepare(#[source] Box<dyn Error + Send + Sync>),
    #[error("the sampler's thread panicked; please report what it printed")]
    Died,
}

/// Minimum interval. At a shorter interval, the sampler would measure its own load.
const INTERVAL_MIN: Span = Span::from_millis(1);
/// Default maximum number of values: 24 MB.
const POINTS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProbeError;

    /// A probe that reports the number of its readings to the test; every third reading fails.
    struct Counting(u64, Sender<u64>);

    impl Probe for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
            self.0 += 1;
            let _ = self.1.send(self.0);
            if self.0.is_multiple_of(3) {
                return Err(ProbeError::Ended { pid: 7 });
            }
            sample.put("count", "x", self.0 as f64);
            Ok(())
        }
    }

    #[test]
    fn samples_are_recorded_with_failures_and_cost() {
        let (sender, receiver) = mpsc::channel();
        let running =
            Sampler::every(Span::from_millis(1)).probe(Counting(0, sender)).start().unwrap();
        while receiver.recv().unwrap() < 10 {}
        let recording = running.stop().unwrap();
        let points = &recording.find("count", "x").unwrap().points;
        assert!(recording.samples >= 10);
        assert!(points.is_sorted_by(|a, b| a.at <= b.at && a.sample < b.sample));
        assert_eq!(recording.failures[0].times, recording.samples / 3);
        assert!(recording.failures[0].message.contains("process 7"));
        assert!(recording.cpu_time > Span::ZERO && recording.cost().is_some());
        assert!(recording.stopped > recording.started);
    }

    #[test]
    fn a_sampler_with_a_long_interval_stops_at_once() {
        let (sender, _receiver) = mpsc::channel();
        let running =
            Sampler::every(Span::from_secs(100_000)).probe(Counting(0, sender)).start().unwrap();
        assert_eq!(running.stop().unwrap().samples, 1);
    }

    #[test]
    fn a_failure_to_prepare_the_thread_is_reported() {
        let failed =
            Sampler::every(Span::from_secs(1)).at_start(|| Err("no such namespace".into())).start();
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("no such namespace"), "{message}");
    }

    #[test]
    fn a_long_recording_keeps_at_most_the_requested_number_of_values() {
        let (sender, receiver) = mpsc::channel();
        let running = Sampler::every(Span::from_millis(1))
            .keep_at_most(4)
            .probe(Counting(0, sender))
            .start()
            .unwrap();
        while receiver.recv().unwrap() < 8 {}
        let recording = running.stop().unwrap();
        assert!(recording.find("count", "x").unwrap().points.len() <= 4);
        assert!(recording.interval >= Span::from_millis(2));
    }
}
