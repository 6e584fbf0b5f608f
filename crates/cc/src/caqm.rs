//! CAQM on hosts: the sender and the receiver of `core/caqm.h`, as the kernel runs them.
#![allow(unsafe_code)]

mod control;
mod settings;

pub use control::Caqm;
pub use settings::{CaqmParameter, CaqmSettings, OutOfBounds};

use units::{Bytes, Span, Time};
use wire::caqm::{Info, Meaning};

/// The sender, which requests every increase of its window.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct CaqmSender {
    settings: CaqmSettings,
    round_began_us: u64,
    refused_us: u64,
    share: u64,
    cwnd: u32,
    rtt_us: u32,
    gained: u32,
    taken: u32,
    asked: u32,
    asked_before: u32,
    start: u32,
    heard: u32,
    before: u32,
    begun: u32,
}

/// The receiver, which sums up the requests that the ports left in the tags, and returns the sum
/// in acknowledgements.
#[derive(Debug, Clone)]
pub struct CaqmReceiver {
    settings: CaqmSettings,
    owed: Owed,
}

/// The bytes that the receiver has to report, as `struct caqm_receiver`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Owed {
    more: u32,
    fewer: u32,
}

impl CaqmSender {
    /// Creates a sender whose first window is `window` segments.
    pub fn new(settings: &CaqmSettings, window: u32, rtt: Option<Span>, now: Time) -> Self {
        let mut sender = Self {
            settings: *settings,
            round_began_us: 0,
            refused_us: 0,
            share: 0,
            cwnd: 0,
            rtt_us: 0,
            gained: 0,
            taken: 0,
            asked: 0,
            asked_before: 0,
            start: 0,
            heard: 0,
            before: 0,
            begun: 0,
        };
        let rtt = rtt.map_or(0, micros);
        // SAFETY: the function takes no argument and reads no memory.
        let sizes = unsafe { weir_caqm_sizes() };
        let here = size_of::<Self>() << 16 | size_of::<Owed>();
        assert_eq!(sizes, here as u64, "struct caqm_sender is not laid out as here");
        // SAFETY: both pointers are to live values with C's layout (checked above), and C keeps no
        // pointer.
        unsafe { weir_caqm_init(&mut sender, settings, window, rtt, stamp(now)) };
        sender
    }

    /// Takes the time of an ACK and its RTT sample.
    pub fn measured(&mut self, rtt: Option<Span>, now: Time) {
        // SAFETY: `self` was initialised by `new`; C keeps no pointer.
        unsafe { weir_caqm_measured(self, rtt.map_or(0, micros), stamp(now)) };
    }

    /// Returns the tag for each of `segments` segments that are sent together.
    pub fn request(&mut self, segments: u32) -> Info {
        // SAFETY: as in `measured`.
        let hint = unsafe { weir_caqm_request(self, segments) };
        Info::request(u8::try_from(hint).unwrap_or(u8::MAX))
    }

    /// Takes the tag of an ACK. `limited` tells whether the window limits the bytes in flight.
    pub fn answer(&mut self, told: Info, limited: bool, now: Time) {
        let (more, fewer) = match told.meaning() {
            Meaning::More(units) => (units, 0),
            Meaning::Fewer(units) => (0, units),
            Meaning::Nothing => (0, 0),
        };
        // SAFETY: as in `measured`.
        unsafe { weir_caqm_answer(self, more.into(), fewer.into(), limited.into(), stamp(now)) };
    }

    /// Halves the window after a timeout at `now`.
    pub fn on_timeout(&mut self, now: Time) {
        // SAFETY: as in `measured`.
        unsafe { weir_caqm_on_timeout(self, stamp(now)) };
    }

    /// Begins a loss event. Returns true if no port on the path has ever refused a request: then no
    /// port runs CAQM, and the caller should continue as Reno.
    pub fn on_loss(&mut self, now: Time) -> bool {
        // SAFETY: as in `measured`.
        unsafe { weir_caqm_on_loss(self, stamp(now)) != 0 }
    }

    /// Takes back the reduction for a loss that was spurious.
    pub fn on_undo(&mut self) {
        // SAFETY: as in `measured`.
        unsafe { weir_caqm_on_undo(self) };
    }

    /// Starts again after an idle period, with at most `window` segments.
    pub fn on_idle(&mut self, window: u32) {
        // SAFETY: as in `measured`.
        unsafe { weir_caqm_on_idle(self, window) };
    }

    /// Returns the window in segments.
    pub fn window(&self) -> u32 {
        self.cwnd
    }

    /// Whether the sender is in start, where the window doubles each round trip if the ports
    /// approve every request.
    pub fn in_start(&self) -> bool {
        self.start != 0
    }
}

impl CaqmReceiver {
    /// Creates a receiver without requests to acknowledge.
    pub fn new(settings: &CaqmSettings) -> Self {
        Self { settings: *settings, owed: Owed::default() }
    }

    /// Takes `segments` segments of data, each with the tag `asked`.
    pub fn data(&mut self, asked: Info, segments: u32) {
        let (more, refused) = match asked.meaning() {
            Meaning::More(units) => (units, false),
            Meaning::Fewer(_) => (0, true),
            Meaning::Nothing => return,
        };
        // SAFETY: all pointers are to live values with C's layout, and C keeps no pointer.
        unsafe {
            weir_caqm_owe(&mut self.owed, &self.settings, more.into(), refused.into(), segments);
        }
    }

    /// Returns the tag of the ACK that leaves now.
    pub fn answer(&mut self) -> Info {
        let mut fewer = 0;
        // SAFETY: as in `data`.
        let units = unsafe { weir_caqm_tell(&mut self.owed, &self.settings, &mut fewer) };
        let units = i16::try_from(units).unwrap_or(255);
        Info::answer(if fewer != 0 { -units } else { units })
    }

    /// Returns the bytes that the receiver has not reported to the sender yet: (increases,
    /// decreases).
    pub fn owed(&self) -> (Bytes, Bytes) {
        (Bytes::new(self.owed.more.into()), Bytes::new(self.owed.fewer.into()))
    }
}

fn stamp(now: Time) -> u64 {
    now.nanos() / 1000
}

/// Converts an RTT sample to microseconds, at least 1, because zero means no sample.
fn micros(span: Span) -> u32 {
    u32::try_from(span.nanos() / 1000).unwrap_or(u32::MAX).max(1)
}

unsafe extern "C" {
    fn weir_caqm_sizes() -> u64;
    fn weir_caqm_init(
        sender: *mut CaqmSender,
        settings: *const CaqmSettings,
        window: u32,
        rtt_us: u32,
        now_us: u64,
    );
    fn weir_caqm_measured(sender: *mut CaqmSender, rtt_us: u32, now_us: u64);
    fn weir_caqm_request(sender: *mut CaqmSender, segments: u32) -> u32;
    fn weir_caqm_answer(sender: *mut CaqmSender, more: u32, fewer: u32, limited: u32, now_us: u64);
    fn weir_caqm_on_timeout(sender: *mut CaqmSender, now_us: u64);
    fn weir_caqm_on_loss(sender: *mut CaqmSender, now_us: u64) -> u32;
    fn weir_caqm_on_undo(sender: *mut CaqmSender);
    fn weir_caqm_on_idle(sender: *mut CaqmSender, window: u32);
    fn weir_caqm_owe(
        receiver: *mut Owed,
        settings: *const CaqmSettings,
        more: u32,
        refused: u32,
        segments: u32,
    );
    fn weir_caqm_tell(receiver: *mut Owed, settings: *const CaqmSettings, fewer: *mut u32) -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's programs include the same `core/caqm.h`, and so have the same bounds.
    #[test]
    fn the_core_moves_each_parameter_to_the_bounds_of_the_settings() {
        let usual = CaqmSettings::default();
        for parameter in usual.parameters() {
            let (least, most) = (*parameter.bounds.start(), *parameter.bounds.end());
            for given in [least.saturating_sub(1), least, most, most + 1] {
                let mut settings = usual;
                *settings.parameter_mut(parameter.name).unwrap() = given;
                let mut kept = CaqmSender::new(&settings, 10, None, Time::ZERO).settings;
                let kept = *kept.parameter_mut(parameter.name).unwrap();
                assert_eq!(kept, given.clamp(least, most), "{} = {given}", parameter.name);
            }
        }
    }

    #[test]
    fn the_words_of_the_settings_match_struct_caqm_params() {
        let settings = CaqmSettings::from_words(std::array::from_fn(|index| index as u32));
        // SAFETY: the struct is `repr(C)` and holds eleven `u32`, as the array does.
        let words = unsafe { std::mem::transmute::<CaqmSettings, [u32; 11]>(settings) };
        assert_eq!(words, settings.to_words());
    }
}
