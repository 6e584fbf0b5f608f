//! tcpa's estimate of each connection's path, read from the socket storage (bpf/look.bpf.c).

use crate::AccelError;
use crate::iterator::read_iterator;
use crate::namespaces::run_in_each;
use crate::object::{Spec, with_libbpf_log};
use crate::pins::{self, Pins};
use crate::work::{WORK_BYTES, Work};
use std::collections::{HashMap, HashSet};
use units::{Bytes, Rate, Share, Span};

#[derive(Debug, Clone, PartialEq)]
pub struct CoreView {
    pub mode: Mode,
    /// The best rate that the path delivers.
    pub rate: Option<Rate>,
    pub min_rtt: Option<Span>,
    /// tcpa's target for the data in flight, once known.
    pub window: Option<Bytes>,
    /// The share of packets that the path loses even at a low rate.
    pub floor: Share,
    /// Whether the flow competes with flows of other algorithms, and fills the queue as the other
    /// flows do.
    pub contending: bool,
    /// The algorithm that the rule replaced; `None` if the socket chose tcpa itself.
    pub before: Option<String>,
    /// The counts of tcpa's work since the connection got tcpa.
    pub work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The window grows as fast as possible, to find the path's rate.
    StartUp,
    /// The flow begins with the remembered rate, and checks whether the path still has this rate.
    Resuming,
    /// The flow drains the queue that start-up left.
    Drain,
    Steady,
    /// All flows send less for a round trip, to measure the path without a queue.
    Pause,
    /// A mode that this version of Weir lacks.
    Unknown,
}

/// Connections of this installation, by socket cookie.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// tcpa's state of each connection that runs with tcpa, by socket cookie.
    pub(crate) cores: HashMap<u64, CoreView>,
    /// Connections to which a rule gave an algorithm of the kernel.
    pub(crate) others: HashSet<u64>,
}

/// Reads the connections of this installation in every network namespace. Connections that kept the
/// algorithm of an earlier installation, or from before an update, are not included.
pub(crate) fn read(pins: &Pins) -> Result<Views, AccelError> {
    let elf = include_bytes!(concat!(env!("OUT_DIR"), "/look.bpf.o"));
    let mut spec = Spec::open(WHAT, elf)?;
    spec.reuse(pins::FLOWS, &pins.pinned(pins::FLOWS)?)?;
    let loaded = spec.load()?;
    let bytes = run_in_each(|_| {
        let program = loaded.program("look")?;
        let link = with_libbpf_log(WHAT, || program.attach())?;
        read_iterator(WHAT, &link)
    })?
    .concat();
    let (views, _) = bytes.as_chunks::<VIEW_BYTES>();
    let (with_tcpa, others): (Vec<_>, Vec<_>) = views
        .iter()
        .map(|view| (view[RUNNING] != 0, CoreView::from_bytes(view)))
        .partition(|v| v.0);
    Ok(Views {
        cores: with_tcpa.into_iter().map(|(_, view)| view).collect(),
        others: others.into_iter().map(|(_, (cookie, _))| cookie).collect(),
    })
}

impl CoreView {
    /// Parses `struct view` of bpf/view.h.
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
            work: Work::from_bytes(&bytes[WORK_AT..]),
        };
        (wide(0), view)
    }
}

impl Mode {
    /// Converts the number of `enum tcpa_mode` of `core/tcpa_state.h`.
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

const WHAT: &str = "the program that reads the core's state";
const WORK_AT: usize = 56;
const VIEW_BYTES: usize = WORK_AT + WORK_BYTES;
const RUNNING: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_tcpa_from_the_kernel_is_parsed() {
        let mut bytes = [0; VIEW_BYTES];
        bytes[..8].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&1_250_000_u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&20_000_u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&512_u32.to_ne_bytes());
        (bytes[32], bytes[33], bytes[RUNNING]) = (2, 1, 1);
        bytes[40..44].copy_from_slice(b"reno");
        bytes[WORK_AT + 8..WORK_AT + 16].copy_from_slice(&9_u64.to_ne_bytes());
        let (cookie, view) = CoreView::from_bytes(&bytes);
        assert_eq!(cookie, 77);
        assert_eq!((view.mode, view.contending), (Mode::Steady, true));
        assert_eq!((view.rate, view.window), (Some(Rate::from_mbit(10)), None));
        assert_eq!(view.min_rtt, Some(Span::from_millis(20)));
        assert_eq!(view.floor.percent(), 50.0);
        assert_eq!(view.work, Work { segments: 9, ..Work::default() });
        assert_eq!(view.before.as_deref(), Some("reno"));
    }
}
