//! Checks that the decisions of tcpa's core are usable for any input of a host. Undefined behaviour
//! in C is a crash (see crates/cc/build.rs).
#![no_main]

use cc::{Ack, CongestionControl, Loss, Memory, Path, Tcpa, TcpaSettings};
use libfuzzer_sys::fuzz_target;
use units::{Bytes, Rate, Span, Time};

fuzz_target!(|bytes: &[u8]| {
    let mut words = Words(bytes);
    let mss = words.number().clamp(1, 65_535);
    let mut now = words.number();
    let memory = words.span().map(|min_rtt| Memory {
        rate: Rate::from_bits_per_second(words.number()),
        min_rtt,
        age: Span::from_nanos(words.number()),
    });
    let settings = TcpaSettings {
        init_cwnd: words.number() as u32,
        loss_init_cwnd: words.number() as u32,
        pauses: words.number() & 1 == 1,
    };
    let path = Path {
        mss: Bytes::new(mss),
        initial_window: Bytes::new(10 * mss),
        handshake_rtt: words.span(),
        now: Time::from_nanos(now),
        seed: words.number(),
        memory,
        caqm: None,
    };
    let mut tcpa = Tcpa::with(&path, settings);
    let mut delivered = 0_u64;
    while let Some(kind) = words.byte() {
        // Time advances, or jumps to any value.
        now = if kind & 8 == 0 { now.saturating_add(words.number()) } else { words.number() };
        let at = Time::from_nanos(now);
        match kind & 7 {
            0 => tcpa.on_timeout(&loss(at, &mut words)),
            1 => tcpa.on_idle(at, Span::from_nanos(now)),
            2 => {
                tcpa.on_loss(&loss(at, &mut words));
                tcpa.on_recovered(at);
            }
            3 => {
                tcpa.on_undo(at);
                let noted = tcpa.note();
                assert!(noted.is_none_or(|noted| noted.rate.bits_per_second() > 0));
            }
            _ => {
                let acked = words.number();
                delivered = match kind & 16 {
                    0 => delivered.saturating_add(acked),
                    _ => words.number(),
                };
                let rtt = words.span();
                tcpa.on_ack(&Ack {
                    now: at,
                    rtt,
                    min_rtt: rtt,
                    acked: Bytes::new(acked),
                    lost: Bytes::new(words.number()),
                    marked: Bytes::new(0),
                    inflight: Bytes::new(words.number()),
                    delivered: Bytes::new(delivered),
                    prior_delivered: Bytes::new(delivered.saturating_sub(words.number())),
                    sent_inflight: Bytes::new(acked),
                    lost_since: Bytes::new(0),
                    interval: words.span().unwrap_or(Span::ZERO),
                    app_limited: kind & 32 != 0,
                    window_limited: kind & 64 != 0,
                    in_recovery: kind & 128 != 0,
                });
            }
        }
        assert!(tcpa.cwnd().count() >= mss, "{:?} below a segment of {mss}", tcpa.cwnd());
        assert!(tcpa.pacing_rate().is_some_and(|rate| rate.bits_per_second() >= 8_000));
    }
});

fn loss(now: Time, words: &mut Words<'_>) -> Loss {
    let lost = Bytes::new(words.number());
    Loss { now, lost, inflight: lost, repeated: false }
}

/// The input as numbers of any size: a byte gives the number of bytes that follow.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> u64 {
        let length = usize::from(self.byte().unwrap_or(0) % 9).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn span(&mut self) -> Option<Span> {
        match self.number() {
            0 => None,
            nanos => Some(Span::from_nanos(nanos)),
        }
    }
}
