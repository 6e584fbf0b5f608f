use crate::event::{Event, EventKind};
use crate::outcome::{FlowOutcome, FlowPoint, LinkOutcome, QueuePoint};
use crate::source::Source;
use crate::tcp::{Counts, Receiver, Sender};
use crate::trace::Trace;
use crate::wheel::Wheel;
use crate::{FlowSpec, LinkId};
use link::LinkStats;
use units::{Bytes, Rate, Span, Time};

/// Both ends of an active TCP flow.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) source: Source,
    /// The times of the timer events in the wheel: of the sender, of the pacer, of the receiver.
    pub(crate) armed: [Time; 3],
    /// The tunnel that this connection within a host belongs to, if any.
    pub(crate) leg: Option<TunnelLeg>,
}

/// A connection between an application and the tunnel on its host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunnelLeg {
    pub(crate) tunnel: u32,
    /// The index of the flow among the tunnel's flows.
    pub(crate) place: u32,
    /// Whether this is the connection from the server to the receiving application.
    pub(crate) is_far: bool,
}

/// The counters of a flow, which the world keeps after the flow's end.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) received: u64,
    measured_from: u64,
    pub(crate) completed: Option<Time>,
    pub(crate) connected: Option<Time>,
    pub(crate) counts: Counts,
    min_rtt: Option<Span>,
    smoothed_rtt: Option<Span>,
    noted: Option<cc::Memory>,
    pub(crate) datagrams: Option<Box<Source>>,
    trace: Option<Box<Trace<FlowPoint>>>,
}

impl Connection {
    pub(crate) fn new(sender: Sender, receiver: Receiver, source: Source) -> Self {
        Self { sender, receiver, source, armed: [Time::NEVER; 3], leg: None }
    }

    /// Moves each timer event to an earlier time if its timer should fire earlier.
    #[inline]
    pub(crate) fn arm(&mut self, now: Time, number: usize, wheel: &mut Wheel<Event>) {
        for (which, at) in self.wanted(now).into_iter().enumerate() {
            if at < self.armed[which] {
                self.armed[which] = at;
                wheel.push(at, Event::new(TIMERS[which], number));
            }
        }
    }

    /// Returns the time at which each timer should fire.
    #[inline]
    pub(crate) fn wanted(&self, now: Time) -> [Time; 3] {
        [self.sender.timer(), self.sender.pace_timer(now), self.receiver.timer()]
    }
}

impl Record {
    pub(crate) fn new(traced: bool, limit: usize) -> Self {
        Self { trace: traced.then(|| Box::new(Trace::new(limit))), ..Self::default() }
    }

    pub(crate) fn take(&mut self, connection: &Connection) {
        self.received = connection.receiver.received();
        self.counts = connection.sender.counts();
        self.min_rtt = connection.sender.min_rtt();
        self.smoothed_rtt = connection.sender.smoothed_rtt();
        self.noted = connection.sender.note();
    }

    /// Begins the measured time. `arriving`: the connection that ends at the receiving application.
    pub(crate) fn measure_from(&mut self, arriving: Option<&Connection>) {
        self.measured_from = arriving.map_or(self.received, |c| c.receiver.received());
    }

    /// Records a trace point of a flow in a tunnel, from these counters of the tunnel.
    pub(crate) fn sample_tunnelled(
        &mut self,
        now: Time,
        arriving: Option<&Connection>,
        reading: &quic::Reading,
    ) {
        let Some(trace) = &mut self.trace else { return };
        trace.offer(|| FlowPoint {
            at: now,
            window: reading.cwnd,
            inflight: reading.inflight,
            rate: reading.pacing_rate,
            rtt: Some(reading.rtt).filter(|rtt| *rtt > Span::ZERO),
            received: Bytes::new(arriving.map_or(self.received, |c| c.receiver.received())),
        });
    }

    /// Copies the results of a flow in a tunnel: the results of the connection to the receiving
    /// application, and the tunnel's results.
    pub(crate) fn take_tunnelled(
        &mut self,
        arriving: Option<&Connection>,
        tunnel: &crate::tunnel::Measured,
    ) {
        self.received = arriving.map_or(self.received, |c| c.receiver.received());
        self.min_rtt = Some(tunnel.reading.min_rtt).filter(|rtt| *rtt > Span::ZERO);
        self.smoothed_rtt = tunnel.rtt;
    }

    pub(crate) fn sample(&mut self, now: Time, connection: Option<&Connection>) {
        let (Some(trace), Some(Connection { sender, receiver, .. })) =
            (&mut self.trace, connection)
        else {
            return;
        };
        trace.offer(|| FlowPoint {
            at: now,
            window: Bytes::new(sender.window()),
            inflight: Bytes::new(sender.inflight()),
            rate: sender.rate(),
            rtt: sender.latest_rtt(),
            received: Bytes::new(receiver.received()),
        });
    }

    pub(crate) fn outcome(self, spec: &FlowSpec, measured_from: Time, end: Time) -> FlowOutcome {
        let from = measured_from.max(spec.start);
        let until = self.completed.unwrap_or(end);
        let counts = self.counts;
        let completed = self.completed.filter(|_| spec.finishes());
        FlowOutcome {
            from: spec.from,
            to: spec.to,
            goodput: rate_of(self.received - self.measured_from, until.since(from)),
            received: Bytes::new(self.received),
            completion: completed.map(|at| at.since(spec.start)),
            connected: self.connected.map(|at| at.since(spec.start)),
            packets_sent: counts.sent,
            sent: Bytes::new(counts.sent_bytes),
            retransmitted: Bytes::new(counts.repeated_bytes),
            timeouts: counts.timeouts,
            recoveries: counts.recoveries,
            undone: counts.undone,
            probes: counts.probes,
            tagged: counts.tagged,
            min_rtt: self.min_rtt,
            smoothed_rtt: self.smoothed_rtt,
            noted: self.noted,
            trace: self.trace.map(|trace| *trace),
        }
    }
}

pub(crate) fn link_outcome(
    id: LinkId,
    name: &str,
    (stats, before): (&LinkStats, Option<&LinkStats>),
    measured: Span,
    trace: Option<Trace<QueuePoint>>,
) -> LinkOutcome {
    let delivered_before = before.map_or(0, |before| before.delivered.bytes.count());
    let dropped_before = before.map_or(0, |before| before.dropped.total().packets);
    LinkOutcome {
        id,
        name: name.to_owned(),
        delivered: stats.delivered,
        dropped: stats.dropped,
        marked: stats.marked,
        throughput: rate_of(stats.delivered.bytes.count() - delivered_before, measured),
        occupancy: before.map_or_else(
            || stats.occupancy.clone(),
            |before| stats.occupancy.since(&before.occupancy),
        ),
        sojourns: before.map_or_else(
            || stats.sojourns.clone(),
            |before| stats.sojourns.since(&before.sojourns),
        ),
        dropped_measured: stats.dropped.total().packets - dropped_before,
        trace,
    }
}

fn rate_of(bytes: u64, time: Span) -> Rate {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let per_second = bits.checked_div(u128::from(time.nanos())).unwrap_or(0);
    Rate::from_bits_per_second(per_second.min(u128::from(u64::MAX)) as u64)
}

const TIMERS: [EventKind; 3] = [EventKind::Sender, EventKind::Pace, EventKind::Receiver];

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle flow without its algorithm's state must fit into 2 KB.
    #[test]
    fn an_idle_flow_fits_into_1700_bytes() {
        let bytes = size_of::<Connection>() + size_of::<Record>() + size_of::<FlowSpec>();
        println!(
            "{} + {} + {}",
            size_of::<Connection>(),
            size_of::<Record>(),
            size_of::<FlowSpec>()
        );
        println!("sender {} receiver {}", size_of::<Sender>(), size_of::<Receiver>());
        assert!(bytes < 1700, "{bytes}");
    }
}
