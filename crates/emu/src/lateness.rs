use hdrhistogram::Histogram;
use serde::Serialize;
use units::Span;

/// The delay between the model's departure times and the actual departure times. Lateness is a
/// property of the machine, not of the link: a run whose lateness exceeds the bound is invalid.
#[derive(Debug, Clone)]
pub struct Lateness(Histogram<u64>);

impl Lateness {
    pub(crate) fn new() -> Self {
        // The histogram holds up to a second, with two significant digits. Larger values saturate.
        let histogram = Histogram::new_with_bounds(1, 1_000_000_000, 2);
        Self(histogram.unwrap_or_else(|_| unreachable!("1 ns to 1 s at 2 digits is a valid range")))
    }

    pub(crate) fn record(&mut self, late: Span) {
        self.0.saturating_record(late.nanos());
    }

    pub fn frames(&self) -> u64 {
        self.0.len()
    }

    pub fn quantile(&self, quantile: f64) -> Span {
        Span::from_nanos(self.0.value_at_quantile(quantile))
    }

    /// Returns the mean lateness, by which the emulator lengthens the path on average.
    pub fn mean(&self) -> Span {
        Span::from_secs_f64(self.0.mean() / 1e9)
    }

    pub fn max(&self) -> Span {
        Span::from_nanos(if self.0.is_empty() { 0 } else { self.0.max() })
    }
}

impl Serialize for Lateness {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("Lateness", 4)?;
        object.serialize_field("frames", &self.frames())?;
        object.serialize_field("p50_us", &self.quantile(0.5).micros_f64())?;
        object.serialize_field("p99_us", &self.quantile(0.99).micros_f64())?;
        object.serialize_field("max_us", &self.max().micros_f64())?;
        object.end()
    }
}
