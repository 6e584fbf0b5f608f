use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use flow::request::{Band, BandKind, MeterEntry};
use flow::step::MeterId;
use units::Time;

/// The meters of bridges, which all datapaths share.
///
/// The pipeline has its own list of meters. A caller that changes a meter in the pipeline must also
/// change the meter here.
#[derive(Debug, Default)]
pub struct Meters {
    by_id: Mutex<HashMap<MeterId, Meter>>,
}

/// A meter's counts of packets and bytes: in total, and for each band.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeterCounts {
    pub packets: u64,
    pub bytes: u64,
    pub bands: Vec<(u64, u64)>,
}

/// The result of metering a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passes,
    Dropped,
    /// The packet passes, and the drop precedence of its DSCP rises by this value.
    Remarked(u8),
}

#[derive(Debug)]
struct Meter {
    is_in_packets: bool,
    bands: Vec<Bucket>,
    counts: MeterCounts,
    filled: Time,
}

/// A token bucket. Tokens are thousandths of a packet, or bits.
#[derive(Debug)]
struct Bucket {
    band: Band,
    capacity: u64,
    tokens: u64,
    /// The part of a token that has accumulated, in millionths of a token.
    rest: u64,
}

impl Meters {
    /// Adds a meter of the first bridge, or replaces the meter with its number. The new meter's
    /// buckets are full.
    pub fn configure(&self, entry: &MeterEntry, now: Time) {
        self.configure_at(entry.meter.into(), entry, now);
    }

    /// Like [`Meters::configure`], for a meter of any bridge.
    pub fn configure_at(&self, id: MeterId, entry: &MeterEntry, now: Time) {
        let bands = entry.bands.iter().map(|band| Bucket::new(*band, entry.has_burst));
        let meter = Meter {
            is_in_packets: entry.is_in_packets,
            counts: MeterCounts { bands: vec![(0, 0); entry.bands.len()], ..Default::default() },
            bands: bands.collect(),
            filled: now,
        };
        self.lock().insert(id, meter);
    }

    pub fn remove(&self, id: impl Into<MeterId>) {
        self.lock().remove(&id.into());
    }

    /// Returns the meters of a bridge.
    #[must_use]
    pub fn of_bridge(&self, bridge: u16) -> Vec<MeterId> {
        self.lock().keys().copied().filter(|id| id.bridge == bridge).collect()
    }

    #[must_use]
    pub fn counts(&self, id: impl Into<MeterId>) -> Option<MeterCounts> {
        self.lock().get(&id.into()).map(|meter| meter.counts.clone())
    }

    /// Meters a packet of `length` bytes. If the meter no longer exists, the packet passes.
    pub fn measure(&self, id: impl Into<MeterId>, length: usize, now: Time) -> Verdict {
        let mut meters = self.lock();
        match meters.get_mut(&id.into()) {
            Some(meter) => meter.measure(length as u64, now),
            None => Verdict::Passes,
        }
    }

    /// Meters `frames` frames of `bytes` bytes in total, if the meter lets all of them pass.
    /// Otherwise returns false and takes no tokens.
    pub fn measure_all(&self, id: impl Into<MeterId>, frames: u64, bytes: u64, now: Time) -> bool {
        let mut meters = self.lock();
        meters.get_mut(&id.into()).is_none_or(|meter| meter.measure_all(frames, bytes, now))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<MeterId, Meter>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    fn measure(&mut self, length: u64, now: Time) -> Verdict {
        let passed = now.since(self.filled).nanos();
        self.filled = self.filled.max(now);
        self.counts.packets += 1;
        self.counts.bytes += length;
        let cost = if self.is_in_packets { 1000 } else { length * 8 };
        // Among the exceeded bands, the band with the highest rate applies.
        let mut exceeded: Option<(u32, usize)> = None;
        for (index, bucket) in self.bands.iter_mut().enumerate() {
            bucket.fill(passed);
            if bucket.tokens >= cost {
                bucket.tokens -= cost;
            } else if exceeded.is_none_or(|(rate, _)| rate < bucket.band.rate) {
                exceeded = Some((bucket.band.rate, index));
            }
        }
        let Some((_, index)) = exceeded else { return Verdict::Passes };
        let (packets, bytes) = &mut self.counts.bands[index];
        *packets += 1;
        *bytes += length;
        match self.bands[index].band.kind {
            BandKind::Drop => Verdict::Dropped,
            BandKind::DscpRemark { precedence } => Verdict::Remarked(precedence),
        }
    }
}

impl Meter {
    fn measure_all(&mut self, frames: u64, bytes: u64, now: Time) -> bool {
        let passed = now.since(self.filled).nanos();
        self.filled = self.filled.max(now);
        let cost = if self.is_in_packets { 1000 * frames } else { bytes * 8 };
        self.bands.iter_mut().for_each(|bucket| bucket.fill(passed));
        let pass = self.bands.iter().all(|bucket| bucket.tokens >= cost);
        if pass {
            self.bands.iter_mut().for_each(|bucket| bucket.tokens -= cost);
            self.counts.packets += frames;
            self.counts.bytes += bytes;
        }
        pass
    }
}

impl Bucket {
    fn new(band: Band, has_burst: bool) -> Self {
        // Without a burst size, the bucket holds the tokens of one second.
        let burst = if has_burst && band.burst > 0 { band.burst } else { band.rate };
        let capacity = u64::from(burst) * 1000;
        Self { band, capacity, tokens: capacity, rest: 0 }
    }

    /// A rate of one kilobit or one packet per second adds 1000 tokens a second, or a millionth of
    /// a token per nanosecond.
    fn fill(&mut self, nanos: u64) {
        let millionths = u128::from(self.band.rate) * u128::from(nanos) + u128::from(self.rest);
        self.rest = (millionths % 1_000_000) as u64;
        let tokens = u128::from(self.tokens) + millionths / 1_000_000;
        self.tokens = tokens.min(self.capacity.into()) as u64;
    }
}
