//! A minimal simulated host, which runs one flow of an algorithm, segment by segment, over one
//! bottleneck with an unbounded queue.

use cc::{Ack, Algorithm, CongestionControl, Loss, Path};
use std::collections::VecDeque;
use units::{Bytes, Rate, Span, Time};

pub(crate) const MSS: u64 = 1500;

pub(crate) struct Pipe {
    pub(crate) algorithm: Box<dyn CongestionControl>,
    pub(crate) now: Time,
    rate: Rate,
    rtt: Span,
    flying: VecDeque<Segment>,
    free: Time,
    next: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    lost: u64,
    sent: u64,
    /// The number of segments of which the path loses one; `None` for a path without loss.
    pub(crate) lose_every: Option<u64>,
    recovering_until: Option<u64>,
    /// The count of delivered segments at which the retransmission of a lost segment arrives, a
    /// round trip later.
    repaired_at: u64,
    min_rtt: Span,
}

struct Segment {
    sent_at: Time,
    arrives: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    lost_before: u64,
    inflight: u64,
    lost: bool,
}

impl Pipe {
    pub(crate) fn new(algorithm: Algorithm, rate: Rate, rtt: Span) -> Self {
        let now = Time::from_nanos(1_000_000_000);
        let path = Path {
            mss: Bytes::new(MSS),
            initial_window: Bytes::new(10 * MSS),
            handshake_rtt: Some(rtt),
            now,
            seed: 7,
            memory: None,
            caqm: None,
        };
        Self {
            algorithm: algorithm.start(&path),
            now,
            rate,
            rtt,
            flying: VecDeque::new(),
            free: now,
            next: now,
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            lost: 0,
            sent: 0,
            lose_every: None,
            recovering_until: None,
            repaired_at: 0,
            min_rtt: Span::MAX,
        }
    }

    pub(crate) fn inflight(&self) -> u64 {
        self.flying.len() as u64 * MSS
    }

    pub(crate) fn pacing(&self) -> f64 {
        self.algorithm.pacing_rate().map_or(0.0, Rate::mbit_per_second)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Runs for `span`; `look` inspects the pipe after each ACK.
    pub(crate) fn run(&mut self, span: Span, mut look: impl FnMut(&Self)) {
        let end = self.now + span;
        while self.now < end {
            let acked = self.flying.front().map(|segment| segment.arrives);
            let room = self.algorithm.cwnd().count() >= self.inflight() + MSS;
            let sends = if room { Some(self.next.max(self.now)) } else { None };
            match (acked, sends) {
                (Some(at), send) if send.is_none_or(|send| at <= send) => {
                    self.now = at;
                    self.acknowledge();
                    look(self);
                }
                (_, Some(at)) => {
                    self.now = at;
                    self.send();
                }
                _ => return,
            }
        }
    }

    fn send(&mut self) {
        if self.flying.is_empty() {
            (self.first_sent, self.delivered_at) = (self.now, self.now);
        }
        self.sent += 1;
        let lost = self.lose_every.is_some_and(|every| self.sent.is_multiple_of(every));
        let service = self.rate.time_for(Bytes::new(MSS));
        if !lost {
            self.free = self.free.max(self.now) + service;
        }
        self.flying.push_back(Segment {
            sent_at: self.now,
            arrives: self.free.max(self.now) + self.rtt,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            lost_before: self.lost,
            inflight: self.inflight() + MSS,
            lost,
        });
        if let Some(rate) = self.algorithm.pacing_rate() {
            self.next = self.next.max(self.now) + rate.time_for(Bytes::new(MSS));
        }
    }

    fn acknowledge(&mut self) {
        let mut lost = 0;
        let before = self.inflight();
        while self.flying.front().is_some_and(|segment| segment.lost) {
            self.flying.pop_front();
            lost += MSS;
        }
        self.lost += lost;
        let Some(segment) = self.flying.pop_front() else { return };
        self.now = self.now.max(segment.arrives);
        if lost > 0 {
            self.repaired_at = self.delivered + before;
        }
        if self.recovering_until.is_some_and(|until| self.delivered >= until) {
            self.recovering_until = None;
            self.algorithm.on_recovered(self.now);
        }
        // While a retransmission is in flight, begin the next loss event at once, as Linux does.
        if self.delivered < self.repaired_at && self.recovering_until.is_none() {
            self.recovering_until = Some(self.delivered + before);
            let (lost, inflight) = (Bytes::new(lost), Bytes::new(before));
            self.algorithm.on_loss(&Loss { now: self.now, lost, inflight, repeated: false });
        }
        self.delivered += MSS;
        let rtt = self.now.since(segment.sent_at);
        self.min_rtt = self.min_rtt.min(rtt);
        let sending = segment.sent_at.since(segment.first_sent);
        let interval = sending.max(self.now.since(segment.delivered_at));
        (self.delivered_at, self.first_sent) = (self.now, segment.sent_at);
        self.algorithm.on_ack(&Ack {
            now: self.now,
            rtt: Some(rtt),
            min_rtt: Some(self.min_rtt),
            acked: Bytes::new(MSS),
            lost: Bytes::new(lost),
            marked: Bytes::new(0),
            inflight: Bytes::new(self.inflight()),
            delivered: Bytes::new(self.delivered),
            prior_delivered: Bytes::new(segment.delivered),
            sent_inflight: Bytes::new(segment.inflight),
            lost_since: Bytes::new(self.lost - segment.lost_before),
            interval,
            app_limited: false,
            window_limited: true,
            in_recovery: self.recovering_until.is_some(),
        });
    }
}
