//! Checks that each algorithm has a usable window and rate on any path.

use cc::{Ack, Algorithm, CongestionControl, Loss, Memory, Path, Tcpa, TcpaSettings};
use proptest::prelude::*;
use units::{Bytes, Rate, Span, Time};

const MSS: u64 = 1448;

/// An event on a connection.
#[derive(Debug, Clone)]
enum Step {
    Ack { wait_us: u64, rtt_us: u64, segments: u64, lost: u64, marked: u64, app_limited: bool },
    Timeout,
    Undo,
    Idle { us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![0_u64..10, 10_u64..2_000, 2_000_u64..20_000_000];
    let rtt = prop_oneof![Just(0_u64), 1_u64..100, 100_u64..300_000, 300_000_u64..60_000_000];
    let lost = prop_oneof![5 => Just(0_u64), 1 => 1_u64..50];
    prop_oneof![
        30 => (wait, rtt, 0_u64..100, lost, 0_u64..4, any::<bool>()).prop_map(
            |(wait_us, rtt_us, segments, lost, marked, app_limited)| Step::Ack {
                wait_us, rtt_us, segments, lost, marked, app_limited
            }
        ),
        1 => Just(Step::Timeout),
        1 => Just(Step::Undo),
        1 => (0_u64..30_000_000).prop_map(|us| Step::Idle { us }),
    ]
}

/// A simulated host that reports only possible events to the algorithm.
struct Connection {
    algorithm: Box<dyn CongestionControl>,
    now: Time,
    delivered: u64,
    inflight: u64,
    min_rtt: Option<Span>,
    recovering_until: Option<u64>,
}

impl Connection {
    fn new(algorithm: Box<dyn CongestionControl>, path: &Path) -> Self {
        Self {
            algorithm,
            now: path.now,
            delivered: 0,
            inflight: 0,
            min_rtt: path.handshake_rtt,
            recovering_until: None,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ack { wait_us, rtt_us, segments, lost, marked, app_limited } => {
                self.now += Span::from_micros(wait_us);
                self.fill();
                let lost = (lost * MSS).min(self.inflight);
                self.lose(lost);
                let acked = (segments * MSS).min(self.inflight - lost);
                self.inflight -= lost + acked;
                let prior = self.delivered.saturating_sub(self.inflight);
                self.delivered += acked;
                let rtt = (rtt_us > 0).then(|| Span::from_micros(rtt_us));
                self.min_rtt = self.min_rtt.into_iter().chain(rtt).min();
                let recovered = self.recovering_until.take_if(|end| *end <= self.delivered);
                if recovered.is_some() {
                    self.algorithm.on_recovered(self.now);
                }
                self.algorithm.on_ack(&Ack {
                    now: self.now,
                    rtt,
                    min_rtt: self.min_rtt,
                    acked: Bytes::new(acked),
                    lost: Bytes::new(lost),
                    marked: Bytes::new((marked * MSS).min(acked)),
                    inflight: Bytes::new(self.inflight),
                    delivered: Bytes::new(self.delivered),
                    prior_delivered: Bytes::new(prior),
                    sent_inflight: Bytes::new(self.inflight + acked + lost),
                    lost_since: Bytes::new(lost),
                    interval: rtt.unwrap_or(Span::ZERO),
                    app_limited,
                    window_limited: !app_limited,
                    in_recovery: self.recovering_until.is_some(),
                });
            }
            Step::Timeout => {
                let loss = self.loss(self.inflight);
                self.inflight = 0;
                self.algorithm.on_timeout(&loss);
            }
            Step::Undo => {
                self.recovering_until = None;
                self.algorithm.on_undo(self.now);
            }
            Step::Idle { us } => {
                self.now += Span::from_micros(us);
                self.inflight = 0;
                self.algorithm.on_idle(self.now, Span::from_micros(us));
            }
        }
    }

    fn fill(&mut self) {
        self.inflight = self.inflight.max(self.algorithm.cwnd().count().min(MOST));
    }

    fn lose(&mut self, lost: u64) {
        if lost > 0 && self.recovering_until.is_none() {
            self.recovering_until = Some(self.delivered + self.inflight);
            let loss = self.loss(lost);
            self.algorithm.on_loss(&loss);
        }
    }

    fn loss(&self, lost: u64) -> Loss {
        let (lost, inflight) = (Bytes::new(lost), Bytes::new(self.inflight));
        Loss { now: self.now, lost, inflight, repeated: self.recovering_until.is_some() }
    }
}

proptest! {
    #[test]
    fn every_window_and_pacing_rate_is_usable(
        steps in prop::collection::vec(step(), 1..400),
        handshake in prop::option::of(1_u64..1_000_000),
        seed in any::<u64>(),
    ) {
        for algorithm in Algorithm::ALL {
            let path = Path {
                mss: Bytes::new(MSS),
                initial_window: Bytes::new(10 * MSS),
                handshake_rtt: handshake.map(Span::from_micros),
                now: Time::from_nanos(1_000_000_000),
                seed,
                memory: None,
                caqm: None,
            };
            let mut connection = Connection::new(algorithm.start(&path), &path);
            for step in &steps {
                connection.take(step);
                let answers = &connection.algorithm;
                prop_assert!(answers.cwnd().count() >= MSS, "{algorithm}: {step:?}");
                prop_assert!(
                    answers.pacing_rate().is_none_or(|rate| rate.bits_per_second() > 0),
                    "{algorithm}: {step:?}"
                );
            }
        }
    }
}

fn memory() -> impl Strategy<Value = Memory> {
    let rate = prop_oneof![Just(0_u64), 8_u64..1_000_000, 1_000_000_u64..1_000_000_000_000];
    (rate, 1_u64..1_000_000, 0_u64..10_000_000).prop_map(|(rate, rtt_us, age)| Memory {
        rate: Rate::from_bits_per_second(rate),
        min_rtt: Span::from_micros(rtt_us),
        age: Span::from_secs(age),
    })
}

proptest! {
    /// With any settings, the first window is the configured window unless the memory replaces it.
    /// The window after a timeout is always the configured window.
    #[test]
    fn settings_and_memories_are_kept_within_bounds(
        steps in prop::collection::vec(step(), 1..200),
        handshake in 1_u64..1_000_000,
        memory in prop::option::of(memory()),
        init_cwnd in 1_u32..5_000,
        loss_init_cwnd in 1_u32..5_000,
    ) {
        let path = Path {
            mss: Bytes::new(MSS),
            initial_window: Bytes::new(10 * MSS),
            handshake_rtt: Some(Span::from_micros(handshake)),
            now: Time::from_nanos(1_000_000_000),
            seed: 1,
            memory,
            caqm: None,
        };
        let tcpa = Tcpa::with(&path, TcpaSettings { init_cwnd, loss_init_cwnd, pauses: true });
        let (first, afresh) = (tcpa.cwnd().count(), u64::from(init_cwnd) * MSS);
        match memory {
            None => prop_assert_eq!(first, afresh),
            Some(memory) => {
                let product = memory.rate.bytes_in(memory.min_rtt.min(Span::from_micros(handshake)));
                prop_assert!(first <= afresh.max(product.count() / 3 + MSS), "{first} of {memory:?}");
            }
        }
        let mut connection = Connection::new(Box::new(tcpa), &path);
        for step in &steps {
            connection.take(step);
            let answers = &connection.algorithm;
            prop_assert!(answers.cwnd().count() >= MSS, "{step:?}");
            prop_assert!(answers.pacing_rate().is_some_and(|rate| rate.bits_per_second() >= 8_000));
            prop_assert!(answers.note().is_none_or(|noted| noted.rate.bits_per_second() > 0
                && noted.min_rtt > Span::ZERO && noted.age == Span::ZERO));
            if matches!(step, Step::Timeout) {
                prop_assert_eq!(answers.cwnd().count(), u64::from(loss_init_cwnd) * MSS);
            }
        }
    }
}

/// The largest window that an algorithm may have in this test, in bytes.
const MOST: u64 = 1 << 30;
