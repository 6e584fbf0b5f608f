use super::schedule::Period;
use crate::event::{Datagrams, Interval, StreamInterval};
use crate::observe::ObservedInterval;
use crate::stream::StreamSnapshot;
use units::Bytes;

/// Computes each interval's counts from counters that only grow.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    before: Vec<PreviousCounters>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PreviousCounters {
    id: u32,
    bytes: u64,
    datagrams: Option<Datagrams>,
    /// The kernel's counter of retransmissions, which never resets.
    retransmits: u64,
}

impl Intervals {
    pub(super) fn end(
        &mut self,
        period: Period,
        snapshots: &[StreamSnapshot],
        noted: ObservedInterval,
    ) -> Interval {
        let tcp = |id| noted.tcp.iter().find(|(other, _)| *other == id).map(|(_, info)| *info);
        let mut streams = Vec::with_capacity(snapshots.len());
        let mut now = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            let id = snapshot.id;
            let before = self.before.iter().find(|before| before.id == id);
            let before = before.copied().unwrap_or_default();
            let tcp = tcp(id);
            let retransmits = tcp.and_then(|info| info.total_retrans).map(u64::from);
            let retransmits = retransmits.unwrap_or(before.retransmits);
            let sends_tcp = snapshot.sends && tcp.is_some();
            streams.push(StreamInterval {
                id,
                sends: snapshot.sends,
                bytes: Bytes::new(snapshot.bytes.count().saturating_sub(before.bytes)),
                retransmits: sends_tcp.then(|| retransmits.saturating_sub(before.retransmits)),
                datagrams: snapshot.datagrams.map(|d| since(&d, before.datagrams)),
                tcp,
            });
            now.push(PreviousCounters {
                id,
                bytes: snapshot.bytes.count(),
                datagrams: snapshot.datagrams,
                retransmits,
            });
        }
        self.before = now;
        Interval {
            start: period.start,
            end: period.end,
            omitted: period.omitted,
            streams,
            cpu: Some(noted.cpu),
            latency: noted.latency,
        }
    }

    /// Restarts the previous counters at zero, as the streams' counters do after the omitted time.
    pub(super) fn reset(&mut self) {
        for before in &mut self.before {
            before.bytes = 0;
            before.datagrams = None;
        }
    }
}

/// Returns the difference of two counts. The difference is never below zero, although a datagram
/// that counted as lost may have arrived since.
fn since(now: &Datagrams, before: Option<Datagrams>) -> Datagrams {
    let before = before.unwrap_or_default();
    Datagrams {
        count: now.count.saturating_sub(before.count),
        received: now.received.saturating_sub(before.received),
        lost: now.lost.saturating_sub(before.lost),
        reordered: now.reordered.saturating_sub(before.reordered),
        duplicates: now.duplicates.saturating_sub(before.duplicates),
        jitter: now.jitter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Omitted;
    use probe::tcp::TcpInfo;
    use std::time::Instant;
    use units::Span;

    fn snapshot(id: u32, bytes: u64, datagrams: Option<Datagrams>) -> StreamSnapshot {
        let omitted = Omitted::default();
        let bytes = Bytes::new(bytes);
        StreamSnapshot { at: Instant::now(), id, sends: true, bytes, datagrams, omitted }
    }

    fn noted(retransmits: u32) -> ObservedInterval {
        let mut info = TcpInfo::default();
        info.total_retrans = Some(retransmits);
        ObservedInterval { tcp: vec![(1, info)], ..ObservedInterval::default() }
    }

    const STRETCH: Period = Period {
        start: Span::ZERO,
        end: Span::from_secs(1),
        omitted: false,
        ends_omission: false,
        is_interval: true,
    };

    #[test]
    fn an_interval_covers_the_time_since_the_previous_interval() {
        let mut intervals = Intervals::default();
        let mut end = |bytes, retransmits| {
            let snapshots = [snapshot(1, bytes, None)];
            let interval = intervals.end(STRETCH, &snapshots, noted(retransmits));
            (interval.streams[0].bytes.count(), interval.streams[0].retransmits)
        };
        assert_eq!(end(100, 3), (100, Some(3)));
        assert_eq!(end(250, 3), (150, Some(0)));
        intervals.reset();
        let interval = intervals.end(STRETCH, &[snapshot(1, 30, None)], noted(5));
        assert_eq!(interval.streams[0].bytes.count(), 30);
        assert_eq!(interval.streams[0].retransmits, Some(2));
    }

    #[test]
    fn late_datagrams_give_no_negative_loss() {
        let mut intervals = Intervals::default();
        let reported = |lost| Some(Datagrams { count: 10, lost, ..Datagrams::default() });
        let mut end = |lost| {
            let snapshots = [snapshot(1, 0, reported(lost))];
            let interval = intervals.end(STRETCH, &snapshots, ObservedInterval::default());
            interval.streams[0].datagrams.unwrap().lost
        };
        assert_eq!((end(4), end(1), end(3)), (4, 0, 2));
    }
}
