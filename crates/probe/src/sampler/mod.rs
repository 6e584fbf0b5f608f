//! Probes read at an interval, in the background.

mod probes;
mod recording;
mod running;

pub use probes::{
    CpuProbe, InterfaceProbe, KsoftirqdProbe, ProcessProbe, QdiscProbe, SnmpProbe, SoftnetProbe,
    TcpProbe,
};
pub use recording::{Failure, Point, Recording, Series};
pub use running::{RunningSampler, Sampler, SamplerError};

use units::Time;

use crate::ProbeError;
use recording::Store;

/// A source that the sampler's thread reads repeatedly.
pub trait Probe: Send {
    /// Returns the probe's name for reports of its failures.
    fn name(&self) -> &str;

    /// Adds the probe's readings to `sample`. The first call often has no earlier reading to
    /// compare with.
    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError>;
}

/// The values of all probes at one moment.
#[derive(Debug)]
pub struct Sample<'a> {
    at: Time,
    number: u64,
    store: &'a mut Store,
}

impl Sample<'_> {
    /// Returns the time (`CLOCK_MONOTONIC`) when this moment's first probe was read.
    pub fn at(&self) -> Time {
        self.at
    }

    /// Adds a value. `metric` has its unit in its name (`queue_kbyte`); `subject` names the
    /// measured object.
    pub fn put(&mut self, metric: &str, subject: &str, value: f64) {
        self.store.put(metric, subject, Point { sample: self.number, at: self.at, value });
    }

    pub fn put_known(&mut self, metric: &str, subject: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.put(metric, subject, value);
        }
    }
}
