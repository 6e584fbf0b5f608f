//! Connections that a control connection announces: `ct(alg=ftp)` and `ct(alg=tftp)`.
//!
//! A connection with a helper is a control connection. The helper reads the packets of the control
//! connection, and expects the connections that these packets announce. A packet of an expected
//! connection has the state `rel`, and shows the original tuple of its parent, the control
//! connection. If the control connection is translated, the helper also translates the addresses in
//! the messages. If the length of a message changes, the tracker corrects the sequence numbers of
//! later segments.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use port::Frame;
use wire::checksum::Sum;

use super::entry::{Entry, Translation};
use super::extract::u32_at;
use super::ftp::{self, Malformed};
use super::tuple::{Ports, TCP, Tuple, UDP};
use super::view::{Headers, View};
use crate::checksum::{Change, fixed};
use crate::{Packet, flag};

/// The control connections and the connections that they announce.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    table: Mutex<Table>,
    /// The number of expected connections, readable without the lock.
    expected: AtomicU32,
}

#[derive(Debug, Default)]
struct Table {
    /// The expected connections, by the tuple of the first packet with source port 0.
    expected: HashMap<Tuple, Expectation>,
    /// The expected connections of a control connection.
    announced: HashMap<Tuple, Vec<Tuple>>,
    /// The parents of connections that were expected, by the connections' original tuples.
    parents: HashMap<Tuple, Tuple>,
    /// The shifts of the sequence numbers in both directions, by the control connections' original
    /// tuples.
    skews: HashMap<Tuple, [Skew; 2]>,
}

/// A connection that a control connection has announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expectation {
    pub(super) parent: Tuple,
    pub(super) mark: u32,
    pub(super) label: u128,
    /// For a rule with `nat`, the translation that follows from the parent's translation.
    pub(super) translation: Translation,
    pub(super) address: u128,
}

/// A connection's parent, and the shifts of the connection's sequence numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Relations {
    pub(super) parent: Option<Tuple>,
    skews: [Skew; 2],
}

/// The shift of sequence numbers that rewritten messages cause.
#[derive(Debug, Clone, Copy, Default)]
struct Skew {
    /// The sequence number of the last rewritten segment, as its sender wrote it.
    position: u32,
    /// The shift of the sequence numbers up to `position`, and the shift after `position`.
    before: i32,
    after: i32,
}

/// The replacement of a text in a packet.
#[derive(Debug)]
pub(super) struct Splice {
    at: usize,
    length: usize,
    text: String,
}

impl Helpers {
    /// Returns the expectation that a packet of this tuple fulfils.
    pub(super) fn expected(&self, tuple: &Tuple) -> Option<Expectation> {
        if self.expected.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let ports = Ports { source: 0, ..tuple.ports };
        self.table().expected.get(&Tuple { ports, ..*tuple }).copied()
    }

    /// Records the parent of a connection that fulfilled the parent's expectation.
    pub(super) fn adopt(&self, child: &Tuple, parent: &Tuple) {
        self.table().parents.insert(*child, *parent);
    }

    pub(super) fn relations(&self, original: &Tuple) -> Relations {
        let table = self.table();
        Relations {
            parent: table.parents.get(original).copied(),
            skews: table.skews.get(original).copied().unwrap_or_default(),
        }
    }

    /// Removes a connection that ended, and the expectations that it announced.
    pub(super) fn forget(&self, original: &Tuple) {
        let mut table = self.table();
        table.parents.remove(original);
        table.skews.remove(original);
        for announced in table.announced.remove(original).unwrap_or_default() {
            table.expected.remove(&announced);
        }
        self.expected.store(table.expected.len() as u32, Ordering::Relaxed);
    }

    /// Reads a packet of a control connection, before its sequence number is corrected. `rewrites`:
    /// the packet is translated, and its length may change.
    pub(super) fn read(
        &self,
        entry: &Entry,
        view: &mut View<'_>,
        is_reply: bool,
        rewrites: bool,
    ) -> Result<(), Malformed> {
        match (entry.helper, entry.protocol()) {
            (TFTP, UDP) if !is_reply => {
                self.expect(entry, entry.original().ports.source, is_reply);
                Ok(())
            }
            (FTP, TCP) => self.read_ftp(entry, view, is_reply, rewrites),
            _ => Ok(()),
        }
    }

    fn read_ftp(
        &self,
        entry: &Entry,
        view: &mut View<'_>,
        is_reply: bool,
        rewrites: bool,
    ) -> Result<(), Malformed> {
        let headers = view.headers;
        let Some(segment) = view.frame.get(headers.transport..headers.end) else { return Ok(()) };
        let Some(offset) = segment.get(12).map(|byte| usize::from(*byte >> 4) * 4) else {
            return Ok(());
        };
        let data = segment.get(offset..).unwrap_or_default();
        let Some(found) = ftp::read(data, is_reply) else { return Ok(()) };
        let announcement = found?;
        let (original, reply) = (entry.original(), entry.reply());
        // The announcer's address as the announcer sees it, and as its peer sees it.
        let (own, shown) = match is_reply {
            true => (reply.source_address(), original.destination_address()),
            false => (original.source_address(), reply.destination_address()),
        };
        if let Some(address) = &announcement.address {
            // An announced address of a third host is an attack on that host (RFC 2577 section 3).
            if address.value != own && address.value != shown {
                return Err(Malformed);
            }
            let text = address.rewritten(shown);
            let at = headers.transport + offset + address.text.start;
            let length = address.text.len();
            if rewrites && view.frame.get(at..at + length) != Some(text.as_bytes()) {
                let change = text.len() as i32 - length as i32;
                let sequence = u32_at(segment, 4).unwrap_or_default();
                view.splice = Some(Splice { at, length, text });
                self.skew(&original, is_reply, sequence, change);
            }
        }
        self.expect(entry, announcement.port, is_reply);
        Ok(())
    }

    /// Expects the connection to a port that an endpoint of a control connection has announced.
    fn expect(&self, entry: &Entry, port: u16, is_reply: bool) {
        let (original, reply) = (entry.original(), entry.reply());
        let is_destination = entry.translation() == Some(Translation::Destination);
        // As in Open vSwitch, the translation sets the address that the announcer's peer cannot
        // see.
        let (direction, translation, address) = match (is_reply, is_destination) {
            (true, true) => (original, Translation::Destination, reply.source),
            (true, false) => (original, Translation::Source, reply.destination),
            (false, true) => (reply, Translation::Source, original.destination),
            (false, false) => (reply, Translation::Destination, original.source),
        };
        let announced = Tuple { ports: Ports { source: 0, destination: port }, ..direction };
        let expectation = Expectation {
            parent: original,
            mark: entry.mark,
            label: entry.label(),
            translation,
            address,
        };
        let mut table = self.table();
        let table = &mut *table;
        if table.expected.contains_key(&announced) || table.expected.len() >= MOST_EXPECTED {
            return;
        }
        let of_parent = table.announced.entry(original).or_default();
        if of_parent.len() >= MOST_OF_PARENT {
            table.expected.remove(&of_parent.remove(0));
        }
        of_parent.push(announced);
        table.expected.insert(announced, expectation);
        self.expected.store(table.expected.len() as u32, Ordering::Relaxed);
    }

    /// Adds `change` to the sequence numbers after `sequence`. A retransmitted segment adds
    /// nothing.
    fn skew(&self, control: &Tuple, is_reply: bool, sequence: u32, change: i32) {
        let mut table = self.table();
        if change == 0 && !table.skews.contains_key(control) {
            return;
        }
        let skew = &mut table.skews.entry(*control).or_default()[usize::from(is_reply)];
        if skew.before == skew.after || is_behind(sequence, skew.position) {
            *skew = Skew {
                position: sequence,
                before: skew.after,
                after: skew.after.wrapping_add(change),
            };
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relations {
    /// Changes a packet's acknowledgement number to the receiver's sequence numbers.
    pub(super) fn correct_acknowledgement(&self, view: &mut View<'_>, is_reply: bool) {
        let skew = self.skews[usize::from(!is_reply)];
        correct(view, 8, |number| {
            let change = match is_behind(number.wrapping_sub(skew.before as u32), skew.position) {
                true => skew.after,
                false => skew.before,
            };
            number.wrapping_sub(change as u32)
        });
    }

    /// Changes a packet's sequence number to the numbers that the receiver expects.
    pub(super) fn correct_sequence(&self, view: &mut View<'_>, is_reply: bool) {
        let skew = self.skews[usize::from(is_reply)];
        correct(view, 4, |number| {
            let is_behind = is_behind(number, skew.position);
            number.wrapping_add_signed(if is_behind { skew.after } else { skew.before })
        });
    }
}

impl Splice {
    /// Replaces the text, and updates the lengths and checksums that depend on it.
    pub(super) fn apply(&self, packet: &mut Packet) {
        let Self { at, length, text } = self;
        let bytes = packet.frame.bytes();
        let (Some(front), Some(back)) = (bytes.get(..*at), bytes.get(at + length..)) else {
            return;
        };
        let whole = [front, text.as_bytes(), back].concat();
        let mut frame = Frame::from_bytes(&whole, packet.frame.arrival());
        let network = packet.layout.network as usize;
        let end = (packet.layout.end as usize + text.len()).saturating_sub(*length);
        let is_v6 = packet.layout.has(flag::IPV6);
        let headers = Headers { network, transport: packet.layout.transport as usize, end };
        let is_unfinished = packet.layout.has(flag::UNFINISHED);
        if complete(frame.bytes_mut(), headers, is_v6, is_unfinished).is_some() {
            frame.set_offload(packet.frame.offload());
            packet.frame = frame;
            packet.parse();
        }
    }
}

/// Writes the lengths and checksums of a TCP packet. If the network card completes the checksum,
/// the field gets only the pseudo-header's sum.
fn complete(frame: &mut [u8], headers: Headers, is_v6: bool, is_unfinished: bool) -> Option<()> {
    let Headers { network, transport, end } = headers;
    let length = end.checked_sub(network)?;
    let header = frame.get_mut(network..transport)?;
    let addresses = if is_v6 {
        let payload = u16::try_from(length.checked_sub(40)?).ok()?;
        header.get_mut(4..6)?.copy_from_slice(&payload.to_be_bytes());
        Sum::of(header.get(8..40)?)
    } else {
        let total = u16::try_from(length).ok()?;
        header.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        header.get_mut(10..12)?.fill(0);
        let checksum = Sum::of(header).checksum();
        header.get_mut(10..12)?.copy_from_slice(&checksum.to_be_bytes());
        Sum::of(header.get(12..20)?)
    };
    let segment = frame.get_mut(transport..end)?;
    segment.get_mut(16..18)?.fill(0);
    let pseudo = addresses.plus_long(segment.len() as u32).plus_word(TCP.into());
    let sum = match is_unfinished {
        true => pseudo.folded(),
        false => pseudo.plus(Sum::of(segment)).checksum(),
    };
    segment.get_mut(16..18)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Changes a 32-bit number at offset `at` of a TCP header, and updates the checksum.
fn correct(view: &mut View<'_>, at: usize, change: impl FnOnce(u32) -> u32) {
    let headers = view.headers;
    let Some(segment) = view.frame.get_mut(headers.transport..headers.end) else { return };
    let Some(header) = segment.first_chunk_mut::<20>() else { return };
    let Some(former) = u32_at(header, at) else { return };
    let new = change(former);
    header[at..at + 4].copy_from_slice(&new.to_be_bytes());
    let checksum = u16::from_be_bytes([header[16], header[17]]);
    let change = Change::of(former.into(), new.into());
    let checksum = fixed(checksum, Change::NONE, change, view.is_unfinished);
    header[16..18].copy_from_slice(&checksum.to_be_bytes());
}

fn is_behind(number: u32, position: u32) -> bool {
    (number.wrapping_sub(position) as i32) > 0
}

/// The ports of `alg=ftp` and `alg=tftp`, which also identify the helpers.
pub(super) const FTP: u16 = 21;
pub(super) const TFTP: u16 = 69;
/// Limits on the memory of control connections.
const MOST_EXPECTED: usize = 65_536;
const MOST_OF_PARENT: usize = 16;
