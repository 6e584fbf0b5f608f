//! What the core believes of each connection's path, read from where it keeps it (bpf/look.bpf.c).

use crate::AccelError;
use crate::iterator::go_through;
use crate::object::{Spec, told};
use crate::pins::{self, Pins};
use std::collections::HashMap;
use std::os::fd::AsFd as _;
use units::{Bytes, Rate, Share, Span};

/// The core's own account of one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreView {
    pub mode: Mode,
    /// What the path delivers at its best.
    pub rate: Option<Rate>,
    pub min_rtt: Option<Span>,
    /// To be held in the network, once that is known.
    pub window: Option<Bytes>,
    /// What the path loses by itself, however little is sent.
    pub floor: Share,
    /// It shares the path with others than its own kind, and fills the queue as they do.
    pub contending: bool,
    /// The algorithm that a rule's took the place of; none: the socket chose it itself.
    pub before: Option<String>,
}

/// What it is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As fast as may be, to find the rate.
    StartUp,
    /// It begins with what is remembered of the path, and finds out whether that still holds.
    Resuming,
    /// What start-up left in the queue leaves.
    Drain,
    Steady,
    /// All send less for a round trip, to see the path without a queue.
    Pause,
    /// One that this version does not know.
    Unknown,
}

/// By socket cookie, of the connections of this installation in whatever network namespace. Those that kept
/// the algorithm of an earlier one, or of before an update, are not among them.
pub(crate) fn read(pins: &Pins) -> Result<HashMap<u64, CoreView>, AccelError> {
    let elf = include_bytes!(concat!(env!("OUT_DIR"), "/look.bpf.o"));
    let mut spec = Spec::open(WHAT, elf)?;
    spec.reuse(pins::FLOWS, &pins.pinned(pins::FLOWS)?)?;
    let loaded = spec.load()?;
    let (flows, program) = (loaded.map(pins::FLOWS)?, loaded.program("look")?);
    let link = told(WHAT, || program.attach_iter(flows.as_fd()))?;
    let bytes = go_through(WHAT, &link)?;
    let (views, _) = bytes.as_chunks::<VIEW_BYTES>();
    Ok(views.iter().filter(|view| view[RUNNING] != 0).map(CoreView::from_bytes).collect())
}

impl CoreView {
    /// `struct view` of bpf/view.h.
    fn from_bytes(bytes: &[u8; VIEW_BYTES]) -> (u64, Self) {
        let wide = |at: usize| {
            let word = bytes[at..at + 8].first_chunk().copied().unwrap_or_default();
            u64::from_ne_bytes(word)
        };
        let narrow = |at: usize| {
            let word = bytes[at..at + 4].first_chunk().copied().unwrap_or_default();
            u32::from_ne_bytes(word)
        };
        let name: Vec<u8> = bytes[40..56].iter().copied().take_while(|byte| *byte != 0).collect();
        let view = Self {
            mode: Mode::numbered(bytes[32], bytes[35] != 0),
            rate: known(wide(8)).map(|rate| Rate::from_bits_per_second(rate.saturating_mul(8))),
            min_rtt: known(narrow(16).into()).map(Span::from_micros),
            window: known(narrow(20).into()).map(Bytes::new),
            floor: Share::new(f64::from(narrow(24).min(1024)) / 1024.0).unwrap_or(Share::ZERO),
            contending: bytes[33] != 0,
            before: Some(String::from_utf8_lossy(&name).into_owned())
                .filter(|name| !name.is_empty()),
        };
        (wide(0), view)
    }
}

impl Mode {
    /// `enum tcpa_mode` of the core.
    fn numbered(number: u8, resuming: bool) -> Self {
        match number {
            0 if resuming => Self::Resuming,
            0 => Self::StartUp,
            1 => Self::Drain,
            2 => Self::Steady,
            3 => Self::Pause,
            _ => Self::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::StartUp => "start-up",
            Self::Resuming => "resuming",
            Self::Drain => "drain",
            Self::Steady => "steady",
            Self::Pause => "pause",
            Self::Unknown => "unknown",
        }
    }
}

fn known(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

const WHAT: &str = "the program that reads what the core believes";
const VIEW_BYTES: usize = 56;
const RUNNING: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_wrote_reads() {
        let mut bytes = [0; VIEW_BYTES];
        bytes[..8].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&1_250_000_u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&20_000_u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&512_u32.to_ne_bytes());
        (bytes[32], bytes[33], bytes[RUNNING]) = (2, 1, 1);
        bytes[40..44].copy_from_slice(b"reno");
        let (cookie, view) = CoreView::from_bytes(&bytes);
        assert_eq!(cookie, 77);
        assert_eq!((view.mode, view.contending), (Mode::Steady, true));
        assert_eq!((view.rate, view.window), (Some(Rate::from_mbit(10)), None));
        assert_eq!(view.min_rtt, Some(Span::from_millis(20)));
        assert_eq!(view.floor.percent(), 50.0);
        assert_eq!(view.before.as_deref(), Some("reno"));
    }
}
