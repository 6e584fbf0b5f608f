//! Connection tracking and address translation, as Open vSwitch's userspace datapath does them.
//!
//! [`Conntrack`] is shared by all threads that forward packets, each of which has a
//! [`ThreadTracker`]. [`Conntrack`] does no I/O and reads no clock: the time comes with each call,
//! and random choices follow [`Settings::seed`].
//!
//! | file | for |
//! | --- | --- |
//! | `view.rs`, `extract.rs` | a packet, and the tuple that names its connection |
//! | `tuple.rs` | tuples and their hashes |
//! | `entry.rs`, `tcp.rs` | a connection and its states |
//! | `shard.rs`, `index.rs`, `slab.rs`, `wheel.rs` | the table of connections |
//! | `domain.rs` | the locks of that table |
//! | `nat.rs`, `translate.rs` | the choice of a translation, and its application |
//! | `track.rs`, `thread.rs` | the processing of a packet |
//! | `track/shares.rs` | space in a full table for ports and zones with few connections |
//! | `known.rs` | a faster path for most packets: TCP or UDP over IPv4, of a known connection |
//! | `helpers.rs`, `ftp.rs` | connections that a control connection announces |
//! | `fragments.rs` | fragments that wait for the rest of their packet |
//! | `admin.rs` | dumps, flushes and limits |
//!
//! # Rules beyond the manual pages
//!
//! - Fragments wait until all fragments of their packet have arrived. After 15 seconds they are
//!   discarded and counted. The whole packet is tracked; then all its fragments go on in order.
//! - Without reassembly, the first fragment of a packet is tracked by its ports; its checksum and
//!   the length of its data are not checked. Later fragments have no ports and are invalid.
//! - A packet that a connection's state calls invalid is not translated: it has the flags `inv` and
//!   `trk` alone.
//! - If a new translation finds no free port or the table is full, the packet is dropped and
//!   counted, because it would leave untranslated. A new connection without a translation stays
//!   uncommitted if the table is full, and its packet continues, as in Open vSwitch.
//! - A packet counts once for its connection, even if it passes `ct` in the same zone several
//!   times.
//! - When the table is nearly full, TCP connections whose handshake is not complete are removed
//!   five seconds after their last packet.
//! - When the table or a zone is full, a new connection of a port with few connections in its zone
//!   replaces a connection of a port with many. A connection with replies is replaced only if its
//!   port has a quarter of the limit.
//! - No two live connections of a zone have equal tuples in either direction. A connection without
//!   a translation stays uncommitted, and is counted, if its reply tuple belongs to another
//!   connection.
//! - With several shards, a translation also counts a tuple as used if a connection of another
//!   shard has the same 32-bit hash. The reverse tuple has the same hash. The new connection then
//!   gets another port although its own is free; at 262,144 connections that happens to one in
//!   16,000.

mod admin;
mod domain;
mod entry;
mod extract;
mod fragments;
mod ftp;
mod helpers;
mod index;
mod known;
mod nat;
mod settings;
mod shard;
mod slab;
mod tcp;
mod thread;
mod track;
mod translate;
mod tuple;
mod view;
mod wheel;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use units::Time;

pub use self::admin::{Counts, Statistics, ZoneLimit};
use self::domain::{Domains, Held};
use self::entry::Rules;
use self::fragments::Fragments;
pub use self::fragments::{FragmentCounts, FragmentLimits, FragmentStatus, IncompletePacket};
use self::helpers::Helpers;
use self::index::{MAX_SHARDS, Whereabouts};
use self::settings::Lifetimes;
pub use self::settings::{Settings, Timeouts};
use self::shard::{Remainder, Shard};
pub use self::thread::ThreadTracker;
use self::track::shares::Holders;
use self::tuple::{Hasher, Place};
pub use self::view::{Headers, View};

/// All connections of a datapath.
#[derive(Debug)]
pub struct Conntrack {
    domains: Domains,
    /// The memory addresses of the shards' indices.
    lines: Box<[Arc<Whereabouts>]>,
    hasher: Hasher,
    verify_checksums: bool,
    limits: Limits,
    totals: Totals,
    fragments: Fragments,
    helpers: Helpers,
    /// The time of the last call of [`Conntrack::expire`].
    expired_ms: AtomicU64,
    /// The number of [`ThreadTracker`]s so far, modulo 256.
    trackers: AtomicU8,
}

#[derive(Debug)]
struct Limits {
    connections: AtomicU32,
    /// The limit of each zone; [`NO_LIMIT`] for a zone without a separate limit.
    zones: Box<[AtomicU32]>,
    default_zone: AtomicU32,
}

/// Counters that all threads change, for example at new connections. The alignment separates these
/// counters from the fields that all threads read for each packet.
#[derive(Debug)]
#[repr(align(128))]
struct Totals {
    connections: AtomicU32,
    zones: Box<[AtomicU32]>,
    holders: Holders,
    invalid: AtomicU64,
    full: AtomicU64,
    zone_full: AtomicU64,
    exhausted: AtomicU64,
    clashed: AtomicU64,
    /// The state of the generator of random choices: the seed, increased by each choice.
    drawn: AtomicU64,
}

impl Conntrack {
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let count = shards(settings.threads);
        let rules = Rules {
            lifetimes: Lifetimes::new(&settings.timeouts),
            checks_tcp_sequence: settings.check_tcp_sequence,
        };
        let shards: Vec<_> = (0..count).map(|number| Shard::new(number as u8, rules)).collect();
        let zone_array = |value| (0..=u16::MAX).map(|_| AtomicU32::new(value)).collect();
        Self {
            lines: shards.iter().map(|shard| shard.index.whereabouts()).collect(),
            domains: Domains::new(shards),
            hasher: Hasher::new(settings.seed),
            verify_checksums: settings.verify_checksums,
            limits: Limits {
                connections: AtomicU32::new(settings.max_connections),
                zones: zone_array(NO_LIMIT),
                default_zone: AtomicU32::new(NO_LIMIT),
            },
            totals: Totals {
                connections: AtomicU32::new(0),
                zones: zone_array(0),
                holders: Holders::new(),
                invalid: AtomicU64::new(0),
                full: AtomicU64::new(0),
                zone_full: AtomicU64::new(0),
                exhausted: AtomicU64::new(0),
                clashed: AtomicU64::new(0),
                drawn: AtomicU64::new(settings.seed),
            },
            fragments: Fragments::default(),
            helpers: Helpers::default(),
            expired_ms: AtomicU64::new(0),
            trackers: AtomicU8::new(0),
        }
    }

    /// Removes expired connections, and returns memory. The work of a call is bounded; the bound is
    /// larger after a pause. Calls every few milliseconds are enough. Lookups never find an expired
    /// connection, even if nobody calls this function.
    pub fn expire(&self, now: Time) {
        self.fragments.expire(milliseconds(now));
        let before = self.expired_ms.swap(milliseconds(now), Ordering::Relaxed);
        let passed = milliseconds(now).saturating_sub(before).min(LONGEST_PAUSE_MS) as u32;
        let budget = EXPIRY_BUDGET.max(passed * EXPIRED_EACH_MS);
        for number in 0..self.domains.shards() as u8 {
            // If another thread has locked the shard, the next call collects the shard.
            if let Some(mut shard) = self.domains.try_lock(number) {
                let remainders = self.collect(&mut shard, milliseconds(now), budget);
                shard.tidy();
                drop(shard);
                self.forget(&remainders);
            }
        }
    }

    /// Sets the number of threads that track packets from now on, up to [`Settings::threads`].
    pub fn set_threads(&self, threads: usize) {
        self.domains.divide(shards(threads));
    }

    fn shard(&self, number: u8) -> Held<'_> {
        self.domains.lock(number)
    }

    fn home(&self, place: Place) -> u8 {
        (place.home as usize & (self.domains.shards() - 1)) as u8
    }

    /// Removes expired connections of a shard.
    fn collect(&self, shard: &mut Shard, now: u64, mut budget: u32) -> Vec<Remainder> {
        let mut remainders = Vec::new();
        while let Some(number) = shard.wheel.next_expired(&mut shard.entries, now, &mut budget) {
            shard.counts.expired += 1;
            remainders.extend(self.remove(shard, number));
        }
        remainders
    }

    /// Removes a connection. The caller then releases the lock and passes the result to `forget`.
    fn remove(&self, shard: &mut Shard, number: u32) -> Option<Remainder> {
        let entry = shard.entries.entry(number);
        let places = [self.hasher.place(&entry.original()), self.hasher.place(&entry.reply())];
        if entry.is_assisted() {
            self.helpers.forget(&entry.original());
        }
        self.totals.connections.fetch_sub(1, Ordering::Relaxed);
        self.totals.zones[usize::from(entry.zone())].fetch_sub(1, Ordering::Relaxed);
        self.totals.holders.subtract(entry.holder());
        shard.remove(number, places, |place| self.home(place))
    }

    /// Removes the references to removed connections from the indices of other shards. Until this
    /// call, such a reference names an entry with another tuple, which lookups skip.
    fn forget(&self, remainders: &[Remainder]) {
        for Remainder { place, reference } in remainders {
            self.shard(self.home(*place)).index.remove(place.tag, *reference);
        }
    }
}

/// Returns the number of shards for this number of threads.
fn shards(threads: usize) -> usize {
    let count = if threads <= 1 { 1 } else { threads.saturating_mul(SHARDS_PER_THREAD) };
    count.min(MAX_SHARDS).next_power_of_two()
}

fn milliseconds(now: Time) -> u64 {
    now.nanos() / 1_000_000
}

/// Shards per thread: enough that two threads seldom want the same shard, and few enough that a
/// batch has several packets for each shard.
const SHARDS_PER_THREAD: usize = 4;
const EXPIRY_BUDGET: u32 = 256;
/// Maximum number of connections collected per millisecond. A thread without packets collects ten
/// times a second.
const EXPIRED_EACH_MS: u32 = 20;
const LONGEST_PAUSE_MS: u64 = 100;
/// The limit that means "no limit".
const NO_LIMIT: u32 = u32::MAX;
