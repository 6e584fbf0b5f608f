//! The state of each negotiated connection, read from the programs' records (bpf/caqm_look.bpf.c).

use crate::AccelError;
use crate::iterator::read_iterator;
use crate::namespaces::run_in_each;
use crate::object::{Spec, with_libbpf_log};
use crate::pins::{self, Pins};
use std::collections::HashMap;
use units::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Bytes requested with this end's data.
    pub asked: Bytes,
    /// Increases in the answers to the requests.
    pub granted: Bytes,
    /// Decreases in the answers to the requests.
    pub refused: Bytes,
    /// Increases that the ports granted to the peer's requests.
    pub approved: Bytes,
    /// Decreases that the ports ordered for the peer.
    pub denied: Bytes,
    /// Increases and decreases that this end has not yet reported to the peer.
    pub owed: (Bytes, Bytes),
    /// The window, in segments.
    pub window: u32,
    /// Whether the window doubles each round trip if the ports approve every request.
    pub start: bool,
    /// Whether this end sends requests. If not, this end has switched to another algorithm.
    pub sending: bool,
    /// Whether tags arrive from the peer.
    pub heard: bool,
    pub sent: Passed,
    pub received: Passed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Super-packets of tagged data; the next field counts segments on the wire.
    pub packets: u32,
    pub segments: u32,
    pub answers: u32,
}

/// Reads the views by socket cookie, in every network namespace.
pub(crate) fn read(pins: &Pins) -> Result<HashMap<u64, View>, AccelError> {
    read_of(|spec| spec.reuse(pins::RECORDS, &pins.pinned(pins::RECORDS)?))
}

pub(crate) fn read_of(
    records: impl FnOnce(&mut Spec) -> Result<(), AccelError>,
) -> Result<HashMap<u64, View>, AccelError> {
    let elf = include_bytes!(concat!(env!("OUT_DIR"), "/caqm_look.bpf.o"));
    let mut spec = Spec::open(WHAT, elf)?;
    records(&mut spec)?;
    let loaded = spec.load()?;
    let bytes = run_in_each(|_| {
        let program = loaded.program("look")?;
        let link = with_libbpf_log(WHAT, || program.attach())?;
        read_iterator(WHAT, &link)
    })?
    .concat();
    let (views, _) = bytes.as_chunks::<VIEW_BYTES>();
    Ok(views.iter().map(View::from_bytes).collect())
}

impl View {
    /// Parses `struct caqm_view` of bpf/caqm_view.h.
    fn from_bytes(bytes: &[u8; VIEW_BYTES]) -> (u64, Self) {
        let wide = |index: usize| {
            u64::from_ne_bytes(bytes[8 * index..].first_chunk().copied().unwrap_or_default())
        };
        let narrow = |index: usize| {
            u32::from_ne_bytes(bytes[48 + 4 * index..].first_chunk().copied().unwrap_or_default())
        };
        let view = Self {
            asked: Bytes::new(wide(1)),
            granted: Bytes::new(wide(2)),
            refused: Bytes::new(wide(3)),
            approved: Bytes::new(wide(4)),
            denied: Bytes::new(wide(5)),
            owed: (Bytes::new(narrow(0).into()), Bytes::new(narrow(1).into())),
            window: narrow(2),
            sent: Passed { packets: narrow(3), segments: narrow(4), answers: narrow(5) },
            received: Passed { packets: narrow(6), segments: narrow(7), answers: narrow(8) },
            start: bytes[84] != 0,
            sending: bytes[85] != 0,
            heard: bytes[86] != 0,
        };
        (wide(0), view)
    }
}

const WHAT: &str = "the program that reads CAQM's records";
const VIEW_BYTES: usize = 88;
