//! The bridge to the C cores: the structs of `core/contract.h`, and their functions.
#![allow(unsafe_code)]

use crate::{Ack, Memory, Path};
use units::{Bytes, Rate, Share, Span};

/// An acknowledgement, as `struct cc_ack`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CoreAck {
    pub(crate) now_us: u64,
    pub(crate) delivered: u64,
    pub(crate) prior_delivered: u64,
    pub(crate) rtt_us: u32,
    pub(crate) interval_us: u32,
    pub(crate) acked: u32,
    pub(crate) lost: u32,
    pub(crate) inflight: u32,
    pub(crate) app_limited: u8,
    pub(crate) in_recovery: u8,
    pub(crate) unused: [u8; 2],
}

/// A path before the first packet, as `struct cc_path`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CorePath {
    pub(crate) now_us: u64,
    pub(crate) mss: u32,
    pub(crate) handshake_rtt_us: u32,
    pub(crate) seed: u32,
    pub(crate) unused: u32,
    pub(crate) memory: CoreMemory,
}

/// An earlier connection's estimate of the path, as `struct cc_memory`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CoreMemory {
    /// Bytes a second.
    pub(crate) rate: u64,
    pub(crate) min_rtt_us: u32,
    pub(crate) age_s: u32,
}

/// The decision of a core, as `struct cc_out`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CoreOut {
    /// Bytes a second.
    pub(crate) pacing_rate: u64,
    pub(crate) cwnd: u32,
    pub(crate) unused: u32,
}

/// The tunables of tcpa, as `struct tcpa_params`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpaParams {
    pub(crate) init_cwnd: u32,
    pub(crate) loss_init_cwnd: u32,
    pub(crate) no_pauses: u32,
    pub(crate) unused: u32,
}

/// The state of tcpa, as `struct tcpa`. Only the C code reads the fields.
#[derive(Clone)]
#[repr(C, align(8))]
pub(crate) struct TcpaCore([u8; TCPA_BYTES]);

impl TcpaCore {
    pub(crate) fn start(params: &TcpaParams, path: &CorePath) -> (Self, CoreOut) {
        // SAFETY: the function takes no argument and reads no memory.
        let needed = unsafe { weir_tcpa_size() };
        assert!(needed <= TCPA_BYTES as u64, "struct tcpa has outgrown TCPA_BYTES: {needed}");
        let mut core = Self([0; TCPA_BYTES]);
        let mut out = CoreOut::default();
        // SAFETY: the state is zeroed, aligned and at least as large as the struct (checked above);
        // the other pointers are to live values of the same layout as in C. The core keeps no
        // pointer.
        unsafe {
            weir_tcpa_init(&mut core, params, path);
            weir_tcpa_decide(&core, &mut out);
        }
        (core, out)
    }

    pub(crate) fn on_ack(&mut self, ack: &CoreAck) -> CoreOut {
        let mut out = CoreOut::default();
        // SAFETY: `start` initialised `self`; the comment in `start` has the other conditions.
        unsafe { weir_tcpa_on_ack(self, ack, &mut out) };
        out
    }

    pub(crate) fn on_timeout(&mut self) -> CoreOut {
        let mut out = CoreOut::default();
        // SAFETY: as in `on_ack`.
        unsafe { weir_tcpa_on_timeout(self, &mut out) };
        out
    }

    pub(crate) fn on_idle(&mut self, now_us: u64) -> CoreOut {
        let mut out = CoreOut::default();
        // SAFETY: as in `on_ack`.
        unsafe { weir_tcpa_on_idle(self, now_us, &mut out) };
        out
    }
}

impl TcpaCore {
    /// Returns the present estimate of the path, for a later connection.
    pub(crate) fn note(&self) -> Option<CoreMemory> {
        let mut memory = CoreMemory::default();
        // SAFETY: as in `on_ack`; the core only reads the state.
        let noted = unsafe { weir_tcpa_note(self, &mut memory) };
        (noted != 0).then_some(memory)
    }

    /// Returns the share of segments that the path loses without congestion.
    pub(crate) fn floor(&self) -> Share {
        // SAFETY: as in `on_ack`; the core only reads the state.
        let of_1024 = unsafe { weir_tcpa_floor(self) };
        Share::new(f64::from(of_1024) / 1024.0).unwrap_or(Share::ONE)
    }
}

impl std::fmt::Debug for TcpaCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpaCore").finish_non_exhaustive()
    }
}

impl From<&Ack> for CoreAck {
    fn from(ack: &Ack) -> Self {
        Self {
            now_us: ack.now.nanos() / 1000,
            delivered: ack.delivered.count(),
            prior_delivered: ack.prior_delivered.count(),
            rtt_us: ack.rtt.map_or(0, micros),
            interval_us: micros(ack.interval),
            acked: narrow(ack.acked),
            lost: narrow(ack.lost),
            inflight: narrow(ack.inflight),
            app_limited: ack.app_limited.into(),
            in_recovery: ack.in_recovery.into(),
            unused: [0; 2],
        }
    }
}

impl From<&Path> for CorePath {
    fn from(path: &Path) -> Self {
        Self {
            now_us: path.now.nanos() / 1000,
            mss: narrow(path.mss),
            handshake_rtt_us: path.handshake_rtt.map_or(0, micros),
            seed: path.seed as u32,
            unused: 0,
            memory: path.memory.as_ref().map(CoreMemory::from).unwrap_or_default(),
        }
    }
}

impl From<&Memory> for CoreMemory {
    fn from(memory: &Memory) -> Self {
        let seconds = memory.age.nanos() / 1_000_000_000;
        Self {
            rate: memory.rate.bits_per_second() / 8,
            min_rtt_us: micros(memory.min_rtt),
            age_s: u32::try_from(seconds).unwrap_or(u32::MAX),
        }
    }
}

impl From<CoreMemory> for Memory {
    fn from(memory: CoreMemory) -> Self {
        Self {
            rate: Rate::from_bits_per_second(memory.rate.saturating_mul(8)),
            min_rtt: Span::from_micros(memory.min_rtt_us.into()),
            age: Span::from_secs(memory.age_s.into()),
        }
    }
}

impl CoreOut {
    pub(crate) fn cwnd(&self) -> Bytes {
        Bytes::new(self.cwnd.into())
    }

    pub(crate) fn pacing_rate(&self) -> Rate {
        Rate::from_bits_per_second(self.pacing_rate.saturating_mul(8))
    }
}

/// Converts a time to microseconds. A sample becomes at least 1, because zero means no sample.
fn micros(span: Span) -> u32 {
    match span.nanos() {
        0 => 0,
        nanos => u32::try_from(nanos / 1000).unwrap_or(u32::MAX).max(1),
    }
}

fn narrow(bytes: Bytes) -> u32 {
    u32::try_from(bytes.count()).unwrap_or(u32::MAX)
}

unsafe extern "C" {
    fn weir_tcpa_size() -> u64;
    fn weir_tcpa_init(core: *mut TcpaCore, params: *const TcpaParams, path: *const CorePath);
    fn weir_tcpa_on_ack(core: *mut TcpaCore, ack: *const CoreAck, out: *mut CoreOut);
    fn weir_tcpa_on_timeout(core: *mut TcpaCore, out: *mut CoreOut);
    fn weir_tcpa_on_idle(core: *mut TcpaCore, now_us: u64, out: *mut CoreOut);
    fn weir_tcpa_note(core: *const TcpaCore, memory: *mut CoreMemory) -> u32;
    fn weir_tcpa_floor(core: *const TcpaCore) -> u32;
    fn weir_tcpa_decide(core: *const TcpaCore, out: *mut CoreOut);
}

/// Bytes reserved for `struct tcpa`.
const TCPA_BYTES: usize = 448;
