use super::Over;
use crate::rounds::LatencySummary;
use serde_json::{Value, json};
use units::{Bytes, Span};

#[derive(Debug, Clone)]
pub struct LocalLatency {
    pub over: Over,
    pub size: Bytes,
    pub elapsed: Span,
    pub summary: LatencySummary,
}

#[derive(Debug, Clone)]
pub struct Bandwidth {
    pub over: Over,
    pub size: Bytes,
    pub elapsed: Span,
    pub bytes: Bytes,
}

impl LocalLatency {
    /// Returns the mean round-trip time, which lmbench also prints.
    pub fn mean_us(&self) -> f64 {
        self.elapsed.micros_f64() / self.summary.samples.max(1) as f64
    }

    pub fn document(&self) -> Value {
        let summary = &self.summary;
        json!({
            "over": self.over.word(),
            "size": self.size.count(),
            "seconds": self.elapsed.secs_f64(),
            "round_trips": summary.samples,
            "mean_us": self.mean_us(),
            "p50_us": summary.p50.micros_f64(),
            "p90_us": summary.p90.micros_f64(),
            "p99_us": summary.p99.micros_f64(),
            "max_us": summary.max.micros_f64(),
        })
    }
}

impl Bandwidth {
    /// Returns the rate in MB/s; as in lmbench, a MB is 10^6 bytes.
    pub fn mbyte_s(&self) -> f64 {
        self.bytes.count() as f64 / 1e6 / self.elapsed.secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn document(&self) -> Value {
        json!({
            "over": self.over.word(),
            "size": self.size.count(),
            "seconds": self.elapsed.secs_f64(),
            "bytes": self.bytes.count(),
            "mbyte_s": self.mbyte_s(),
        })
    }
}
