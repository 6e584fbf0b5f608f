use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flow::request::{Bridge, Change, GroupMod, Refusal};

use super::Version;
use super::footprint::footprint;
use super::octets::{Put, Reader};

/// A message of a bundle: its change, and its first bytes, which an error message repeats.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) change: Change,
    pub(super) xid: u32,
    pub(super) start: Vec<u8>,
}

/// The memory that the bundles of several connections share.
#[derive(Debug)]
pub struct BundleMemory {
    free: AtomicUsize,
}

impl BundleMemory {
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { free: AtomicUsize::new(bytes) }
    }
}

impl Default for BundleMemory {
    fn default() -> Self {
        Self::new(MOST_OF_ALL)
    }
}

/// A bundle's part of a [`BundleMemory`]. Dropping this value returns the memory.
#[derive(Debug)]
struct Share {
    memory: Arc<BundleMemory>,
    bytes: usize,
}

impl Share {
    /// Reserves `bytes` more bytes. Returns false if the memory has not enough free bytes.
    fn grow(&mut self, bytes: usize) -> bool {
        let free = &self.memory.free;
        let less = |free: usize| free.checked_sub(bytes);
        let is_taken = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    fn clear(&mut self) {
        self.memory.free.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The limits of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Limits {
    const USUAL: Self = Self { messages: MOST_MESSAGES, bytes: MOST_BYTES };
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    is_closed: bool,
    /// Whether a message exceeded the limits. Such a bundle is empty and cannot be committed.
    is_overfull: bool,
    share: Share,
    /// The number and the first bytes of the message that opened the bundle, for an error message.
    opening: (u32, Vec<u8>),
    /// Whether a message concerned the bundle since the last call of `expire`.
    is_touched: bool,
    /// The time of the first call of `expire` after the last message.
    used_ms: u64,
    waiting: Vec<Waiting>,
}

/// The open bundles of a connection.
#[derive(Debug)]
pub(super) struct Bundles {
    bundles: HashMap<u32, Bundle>,
    memory: Arc<BundleMemory>,
    pub(super) limits: Limits,
}

/// The fields with which both types of bundle messages begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) kind: u16,
    pub(super) flags: u16,
}

impl Control {
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, Refusal> {
        Ok(Self { id: body.u32()?, kind: body.u16()?, flags: body.u16()? })
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        out.put_u16(self.kind);
        out.put_u16(self.flags);
    }
}

/// The result when a commit passes its changes to the bridge.
#[derive(Debug)]
pub(super) enum Committed {
    /// The bridge made all changes. The list has the changes of groups with their message numbers.
    Done(Vec<(u32, GroupMod)>),
    /// The bridge made no change. The fields are the number and the bytes of the refused message,
    /// and the reason.
    Refused(u32, Vec<u8>, Refusal),
}

impl Bundles {
    pub(super) fn new(memory: Arc<BundleMemory>) -> Self {
        Self { bundles: HashMap::new(), memory, limits: Limits::USUAL }
    }

    pub(super) fn open(
        &mut self,
        control: Control,
        opening: (u32, Vec<u8>),
    ) -> Result<(), Refusal> {
        if self.bundles.contains_key(&control.id) {
            self.bundles.remove(&control.id);
            return Err(Refusal::BadBundle);
        }
        if control.flags & !(ATOMIC | ORDERED) != 0 {
            return Err(Refusal::BadBundleFlags);
        }
        let mut share = Share { memory: self.memory.clone(), bytes: 0 };
        if self.bundles.len() >= MAX_BUNDLES || !share.grow(opening.1.len()) {
            return Err(Refusal::TooManyBundles);
        }
        let bundle = Bundle {
            flags: control.flags,
            is_closed: false,
            is_overfull: false,
            share,
            opening,
            is_touched: true,
            used_ms: 0,
            waiting: Vec::new(),
        };
        self.bundles.insert(control.id, bundle);
        Ok(())
    }

    pub(super) fn add(&mut self, control: Control, waiting: Waiting) -> Result<(), Refusal> {
        // A message for a bundle that does not exist opens the bundle.
        let bundle = match self.bundles.contains_key(&control.id) {
            true => self.bundles.get_mut(&control.id).ok_or(Refusal::BadBundle)?,
            false => {
                self.open(control, (waiting.xid, waiting.start.clone()))?;
                self.bundles.get_mut(&control.id).ok_or(Refusal::BadBundle)?
            }
        };
        if bundle.is_closed {
            self.bundles.remove(&control.id);
            return Err(Refusal::BundleClosed);
        }
        if bundle.flags != control.flags {
            self.bundles.remove(&control.id);
            return Err(Refusal::BadBundleFlags);
        }
        bundle.is_touched = true;
        let bytes = size_of::<Waiting>() + waiting.start.len() + footprint(&waiting.change);
        let has_place = !bundle.is_overfull
            && bundle.waiting.len() < self.limits.messages
            && bundle.share.bytes.saturating_add(bytes) <= self.limits.bytes
            && bundle.share.grow(bytes);
        if !has_place {
            // The bundle now lacks this message, so a commit would not make all changes that the
            // peer asked for.
            bundle.is_overfull = true;
            bundle.waiting = Vec::new();
            bundle.share.clear();
            return Err(Refusal::BundleTooLarge);
        }
        bundle.waiting.push(waiting);
        Ok(())
    }

    pub(super) fn close(&mut self, control: Control) -> Result<(), Refusal> {
        let bundle = self.bundles.get_mut(&control.id).ok_or(Refusal::BadBundle)?;
        if bundle.is_closed {
            self.bundles.remove(&control.id);
            return Err(Refusal::BundleClosed);
        }
        if bundle.flags != control.flags {
            self.bundles.remove(&control.id);
            return Err(Refusal::BadBundleFlags);
        }
        bundle.is_closed = true;
        bundle.is_touched = true;
        Ok(())
    }

    /// Removes the bundles that have had no message for ten seconds. Returns the messages that
    /// opened these bundles.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<(u32, Vec<u8>)> {
        let mut expired = Vec::new();
        self.bundles.retain(|_, bundle| {
            if std::mem::take(&mut bundle.is_touched) {
                bundle.used_ms = now_ms;
            }
            let is_kept = now_ms < bundle.used_ms.saturating_add(LONGEST_PAUSE_MS);
            if !is_kept {
                expired.push(std::mem::take(&mut bundle.opening));
            }
            is_kept
        });
        expired
    }

    pub(super) fn discard(&mut self, control: Control) -> Result<(), Refusal> {
        self.bundles.remove(&control.id).map(|_| ()).ok_or(Refusal::BadBundle)
    }

    /// Passes the changes to the bridge.
    pub(super) fn commit(
        &mut self,
        control: Control,
        bridge: &mut dyn Bridge,
    ) -> Result<Committed, Refusal> {
        let bundle = self.bundles.remove(&control.id).ok_or(Refusal::BadBundle)?;
        if bundle.flags != control.flags {
            return Err(Refusal::BadBundleFlags);
        }
        if bundle.is_overfull {
            return Err(Refusal::BundleTooLarge);
        }
        let (mut changes, mut heads, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for waiting in bundle.waiting {
            if let Change::Group(change) = &waiting.change {
                groups.push((waiting.xid, change.clone()));
            }
            changes.push(waiting.change);
            heads.push((waiting.xid, waiting.start));
        }
        match bridge.commit(changes) {
            Ok(()) => Ok(Committed::Done(groups)),
            Err((index, refusal)) => {
                let (xid, start) = heads.into_iter().nth(index).unwrap_or_default();
                Ok(Committed::Refused(xid, start, refusal))
            }
        }
    }
}

/// Whether a message may be in a bundle.
pub(super) fn is_allowed(kind: u8, version: Version) -> bool {
    version >= Version::V13 && matches!(kind, 13..=16)
}

const ATOMIC: u16 = 1;
const ORDERED: u16 = 2;
/// Maximum number of bundles of a connection.
pub(super) const MAX_BUNDLES: usize = 64;
/// Maximum number of messages in a bundle, and maximum number of their bytes.
const MOST_MESSAGES: usize = 1 << 20;
pub(super) const MOST_BYTES: usize = 768 << 20;
/// Maximum size of all bundles of a bridge together, in bytes.
const MOST_OF_ALL: usize = 1 << 30;
/// Maximum pause between messages of a bundle, as in Open vSwitch.
const LONGEST_PAUSE_MS: u64 = 10_000;
