//! Checks for any frames and tags that CAQM counts each byte once and that its windows stay within
//! their bounds. Undefined behaviour in C is a crash (see crates/cc/build.rs).
#![no_main]

use cc::caqm::{CaqmReceiver, CaqmSender, CaqmSettings};
use libfuzzer_sys::fuzz_target;
use units::{Span, Time};
use wire::caqm::{Info, Meaning, TPID};

fuzz_target!(|bytes: &[u8]| {
    let mut words = Words(bytes);
    let info = Info::from_bits(words.number() as u16);
    let other = words.number() as u16;
    for tpid in [TPID, other] {
        tag(words.0, tpid, info);
        offer(words.0, tpid);
    }
    hosts(&mut words);
});

/// Checks that the code reads only a tag, and writes only the tag's 16 bits.
fn tag(frame: &[u8], tpid: u16, info: Info) {
    let had = wire::caqm::read(frame, tpid);
    assert!(had.is_none_or(Info::is_caqm));
    let mut changed = frame.to_vec();
    assert_eq!(wire::caqm::write(&mut changed, tpid, info), had.is_some());
    assert_eq!(changed.len(), frame.len());
    let differ = frame.iter().zip(&changed).filter(|(before, after)| before != after).count();
    assert!(differ <= if had.is_some() { 2 } else { 0 });
    if had.is_some() && info.is_caqm() {
        assert_eq!(wire::caqm::read(&changed, tpid), Some(info));
    }
    let _ = info.to_string();
}

/// Checks that an answer changes only the answer's bits and the checksum of an offer.
fn offer(frame: &[u8], tpid: u16) {
    let asks = wire::caqm::offer::read(frame, tpid).filter(|info| info.is_question());
    let mut changed = frame.to_vec();
    let done = wire::caqm::offer::answer(&mut changed, tpid);
    assert_eq!(done, asks.is_some_and(Info::is_caqm));
    let differ = frame.iter().zip(&changed).filter(|(before, after)| before != after).count();
    assert!(changed.len() == frame.len() && differ <= if done { 3 } else { 0 });
    assert!(!wire::caqm::offer::answer(&mut changed, tpid));
}

fn hosts(words: &mut Words<'_>) {
    let mut number = || words.number() as u32;
    let settings = CaqmSettings {
        alpha: number(),
        beta: number(),
        min_cwnd: number(),
        max_cwnd: number(),
        mtu_unit: number(),
        data_hint_unit: number(),
        ack_hint_unit: number(),
        rtt_standard_us: number(),
        alpha_root: number(),
        theta: number(),
        loss_as_reference: number(),
    };
    let mut now = words.number();
    let mut sender =
        CaqmSender::new(&settings, words.number() as u32, words.span(), Time::from_nanos(now));
    let mut receiver = CaqmReceiver::new(&settings);
    let least = settings.min_cwnd.clamp(1, 1024);
    let bounds = least..=settings.max_cwnd.clamp(least, 1 << 20);
    let ack_hint_unit = i64::from(settings.ack_hint_unit.clamp(1, 1024));
    while let Some(kind) = words.byte() {
        now = if kind & 8 == 0 { now.saturating_add(words.number()) } else { words.number() };
        let at = Time::from_nanos(now);
        match kind & 7 {
            0 => sender.on_timeout(at),
            1 => {
                let _ = sender.on_loss(at);
                sender.on_undo();
            }
            2 => sender.on_idle(words.number() as u32),
            3 => sender.measured(words.span(), at),
            4 => {
                let asked = sender.request(words.number() as u32);
                receiver.data(asked, words.number() as u32);
            }
            5 => receiver.data(Info::from_bits(words.number() as u16), words.number() as u32),
            6 => {
                let before = net(&receiver);
                let told = receiver.answer();
                let units = match told.meaning() {
                    Meaning::More(units) => i64::from(units),
                    Meaning::Fewer(units) => -i64::from(units),
                    Meaning::Nothing => 0,
                };
                assert_eq!(net(&receiver) + units * ack_hint_unit, before);
                sender.answer(told, kind & 16 != 0, at);
            }
            _ => sender.answer(Info::from_bits(words.number() as u16), kind & 16 != 0, at),
        }
        assert!(bounds.contains(&sender.window()), "{} of {bounds:?}", sender.window());
    }
}

/// Returns the bytes of increases minus the bytes of decreases that the receiver owes the sender.
fn net(receiver: &CaqmReceiver) -> i64 {
    let (more, fewer) = receiver.owed();
    assert!(more.count() == 0 || fewer.count() == 0);
    more.count() as i64 - fewer.count() as i64
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a number of any size: the first byte gives the number of bytes that follow.
    fn number(&mut self) -> u64 {
        let count = self.byte().unwrap_or(0) % 9;
        (0..count).fold(0, |number, _| number << 8 | u64::from(self.byte().unwrap_or(0)))
    }

    fn span(&mut self) -> Option<Span> {
        let nanos = self.number();
        (nanos > 0).then(|| Span::from_nanos(nanos))
    }
}
