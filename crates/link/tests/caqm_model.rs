//! Compares the port's decisions with the public ns-3 model of CAQM (ns3-ub), whose formulas this
//! test computes independently. docs/internals/caqm.md has the table that `--nocapture` prints.
//!
//! Both ports serve the same senders, which follow the formulas: windows in bytes, a round trip
//! without other queues, requests of `alpha` MTU in a round trip, refusals of `beta` MTU.
#![allow(clippy::unwrap_used)]

use link::{Link, LinkConfig, Packet, Stream};
use std::collections::VecDeque;
use units::{Bytes, Time};
use wire::caqm::{Info, Meaning};

/// The model's parameters: 400 Gbit/s, frames of 4 KiB, a period of 500 ns, a target of 10 frames.
const MTU: f64 = 4096.0;
const RATE: f64 = 50.0; // bytes a nanosecond
const PERIOD: u64 = 500;
const TARGET: f64 = 10.0 * MTU;
const LAMBDA: f64 = 0.5;
const ALPHA: f64 = 0.5;
const BETA: f64 = 0.5 * MTU;
const CHANCE: f64 = 0.1;
const THETA: u64 = 10;
/// Bytes of a hint's unit: a hint of 255 holds two frames.
const UNIT: f64 = 32.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Passed,
    Cleared,
    Refused,
    Trimmed(f64),
}

#[derive(Debug, Clone, Copy)]
struct Asks {
    sender: usize,
    bytes: f64,
    answer: Answer,
}

impl Packet for Asks {
    fn size(&self) -> Bytes {
        Bytes::new(MTU as u64)
    }

    fn flow(&self) -> u64 {
        self.sender as u64
    }

    fn ecn_capable(&self) -> bool {
        false
    }

    fn mark_congestion(&mut self) {}

    fn corrupt(&mut self, _random: u64) {}

    fn caqm(&self, _tpid: u16) -> Option<Info> {
        Some(Info::request((self.bytes / UNIT) as u8))
    }

    fn set_caqm(&mut self, _tpid: u16, info: Info) {
        self.answer = match info.meaning() {
            Meaning::More(units) => Answer::Trimmed(f64::from(units) * UNIT),
            Meaning::Fewer(_) => Answer::Refused,
            Meaning::Nothing => Answer::Cleared,
        };
    }
}

/// The type in which the model stores a negative credit: signed, as the formula says, or unsigned,
/// on a machine whose conversion gives zero.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Credit {
    Signed,
    NegativeIsZero,
}

/// A port that applies the model's formulas to each frame, in the order of the model's cases.
#[derive(Debug)]
struct Formulas {
    kind: Credit,
    /// The frames in the queue, with their times of arrival.
    queue: VecDeque<(u64, Asks)>,
    free_at: f64,
    period_ends: u64,
    credit: f64,
    sent: f64,
    granted: f64,
    dealt: f64,
    random: Stream,
}

impl Formulas {
    fn new(kind: Credit) -> Self {
        Self {
            kind,
            queue: VecDeque::new(),
            free_at: 0.0,
            period_ends: 0,
            credit: 0.0,
            sent: 0.0,
            granted: 0.0,
            dealt: 0.0,
            random: Stream::new(7, "model"),
        }
    }

    fn advance(&mut self, now: u64) {
        if now < self.period_ends {
            return;
        }
        self.period_ends = now + PERIOD;
        let queued = self.queue.len() as f64 * MTU;
        let room = PERIOD as f64 * RATE - self.sent + TARGET - queued - self.granted;
        self.credit = LAMBDA * room;
        if self.kind == Credit::NegativeIsZero {
            self.credit = self.credit.max(0.0);
        }
        (self.sent, self.granted, self.dealt) = (0.0, 0.0, 0.0);
    }

    fn judge(&mut self, asks: f64) -> Answer {
        if self.credit >= asks {
            self.credit -= asks;
            self.granted += asks;
            return Answer::Passed;
        }
        if self.credit < 0.0 {
            self.credit += BETA;
            return Answer::Refused;
        }
        if self.random.unit() < CHANCE {
            self.dealt += BETA;
            return Answer::Refused;
        }
        if self.dealt >= asks {
            self.dealt -= asks;
            return Answer::Passed;
        }
        Answer::Cleared
    }
}

trait Port {
    fn arrive(&mut self, now: u64, asks: Asks);
    fn leave(&mut self, now: u64) -> Option<Asks>;
    fn queued(&self) -> f64;
}

impl Port for Formulas {
    fn arrive(&mut self, now: u64, asks: Asks) {
        self.advance(now);
        self.queue.push_back((now, asks));
    }

    fn leave(&mut self, now: u64) -> Option<Asks> {
        self.advance(now);
        let (arrived, mut asks) = *self.queue.front()?;
        let begins = self.free_at.max(arrived as f64);
        if begins > now as f64 {
            return None;
        }
        self.queue.pop_front();
        self.free_at = begins + MTU / RATE;
        self.sent += MTU;
        asks.answer = self.judge(asks.bytes);
        Some(asks)
    }

    fn queued(&self) -> f64 {
        self.queue.len() as f64 * MTU
    }
}

struct Ours(Link<Asks>);

impl Ours {
    fn new(queue: &str) -> Self {
        let config = LinkConfig {
            rate: "400gbit".parse().unwrap(),
            queue: format!("caqm:target=40960B,limit=1000000p,period=500ns,lambda=50%,beta=2048B,unit=32B,{queue}")
                .parse()
                .unwrap(),
            ..LinkConfig::default()
        };
        Self(Link::new(&config, Time::ZERO).unwrap())
    }
}

impl Port for Ours {
    fn arrive(&mut self, now: u64, asks: Asks) {
        self.0.arrive(Time::from_nanos(now), asks);
    }

    fn leave(&mut self, now: u64) -> Option<Asks> {
        self.0.deliver(Time::from_nanos(now)).map(|delivery| delivery.packet)
    }

    fn queued(&self) -> f64 {
        self.0.queued().1.count() as f64
    }
}

#[derive(Debug, Clone)]
struct Sender {
    window: f64,
    in_flight: f64,
    start: bool,
    start_again_at: u64,
    /// Bytes that the sender has not requested yet, because they are less than a unit.
    rest: f64,
}

impl Sender {
    fn asks(&mut self) -> f64 {
        if self.start {
            return MTU;
        }
        self.rest += ALPHA * MTU * MTU / self.window;
        let units = (self.rest / UNIT).floor().min(255.0);
        self.rest = (self.rest - units * UNIT).min(UNIT);
        units * UNIT
    }

    fn hear(&mut self, now: u64, asks: Asks, rtt: u64) {
        self.in_flight -= MTU;
        match asks.answer {
            Answer::Passed => self.window += asks.bytes,
            Answer::Trimmed(bytes) => self.window += bytes,
            Answer::Cleared => {}
            Answer::Refused => self.window = (self.window - BETA).max(MTU),
        }
        if matches!(asks.answer, Answer::Cleared | Answer::Refused) {
            self.start = false;
            self.start_again_at = now + THETA * rtt;
        }
        self.start |= now >= self.start_again_at;
    }
}

#[derive(Debug)]
struct Found {
    usage: f64,
    mean_queue: f64,
    most_queue: f64,
    jain: f64,
}

/// Runs for `rtts` round trips, and measures the second half of them.
fn run(port: &mut dyn Port, count: usize, rtt: u64, rtts: u64) -> Found {
    let fresh =
        Sender { window: 10.0 * MTU, in_flight: 0.0, start: true, start_again_at: 0, rest: 0.0 };
    let mut senders = vec![fresh; count];
    let mut on_way: VecDeque<(u64, Asks)> = VecDeque::new();
    let mut carried = vec![0.0; count];
    let (mut sum, mut most, mut steps) = (0.0, 0.0_f64, 0.0);
    let step = (MTU / RATE) as u64 / 4;
    let end = rtt * rtts / step * step;
    for now in (0..end).step_by(step as usize) {
        while on_way.front().is_some_and(|(at, _)| *at <= now) {
            let (_, asks) = on_way.pop_front().unwrap();
            senders[asks.sender].hear(now, asks, rtt);
        }
        for (number, sender) in senders.iter_mut().enumerate() {
            while sender.window - sender.in_flight >= MTU {
                sender.in_flight += MTU;
                let bytes = sender.asks();
                port.arrive(now, Asks { sender: number, bytes, answer: Answer::Passed });
            }
        }
        let measured = now > end / 2;
        while let Some(asks) = port.leave(now) {
            if measured {
                carried[asks.sender] += MTU;
            }
            on_way.push_back((now + rtt, asks));
        }
        if measured {
            sum += port.queued();
            most = most.max(port.queued());
            steps += 1.0;
        }
    }
    let all: f64 = carried.iter().sum();
    Found {
        usage: all / (steps * step as f64 * RATE),
        mean_queue: sum / steps,
        most_queue: most,
        jain: all * all / (count as f64 * carried.iter().map(|one| one * one).sum::<f64>()),
    }
}

#[test]
fn a_port_that_serves_requests_in_order_follows_the_formulas_of_the_model() {
    println!("| RTT | senders | port | use | mean queue, MTU | largest queue, MTU | Jain |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (rtt, count) in [(1000, 2), (2000, 8), (2000, 32), (5000, 8), (5000, 32)] {
        let show = |name: &str, port: &mut dyn Port| {
            let found = run(port, count, rtt, 4_000_000 / rtt);
            let Found { usage, mean_queue, most_queue, jain } = found;
            println!(
                "| {} µs | {count} | {name} | {:.1} % | {:.1} | {:.0} | {jain:.3} |",
                rtt / 1000,
                usage * 100.0,
                mean_queue / MTU,
                most_queue / MTU
            );
            found
        };
        let model = show("formulas", &mut Formulas::new(Credit::Signed));
        let same = show("Weir, in order", &mut Ours::new("spread=off,p=10%"));
        show("Weir, by default", &mut Ours::new("spread=on"));
        let unsigned = show("formulas, no debt", &mut Formulas::new(Credit::NegativeIsZero));
        assert!((model.usage - same.usage).abs() < 0.01, "{model:?} {same:?}");
        assert!((model.mean_queue - same.mean_queue).abs() < MTU / 2.0, "{model:?} {same:?}");
        // A port that stores no negative credit shrinks no window before the next period.
        assert!(unsigned.mean_queue > model.mean_queue, "{model:?} {unsigned:?}");
    }
}
