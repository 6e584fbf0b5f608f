//! The interface between the datapath and connection tracking.

use flow::step::{Step, Track};
use units::Time;

use super::cache::{Cache, Place};
use super::packet::Packet;

/// Connection tracking, as the datapath sees it: Open vSwitch's `ct(…)`.
///
/// [`Tracker::track`] finds or makes the connection of a packet, applies the connection's address
/// translation to the packet ([`Packet::set_ipv4`], [`Packet::set_ipv6`] and [`Packet::set_ports`]
/// keep checksums and key right; ICMP errors carry a packet of their own, which the tracker edits
/// in [`Packet::frame`]), and writes the state to the key: `ct_state`, `ct_zone`, `ct_mark`,
/// `ct_label` and the connection's original addresses and ports, all in the words from
/// [`flow::word::CT`] to [`flow::word::CT_TP`].
///
/// With a large table, lookups need not wait for memory if the tracker sees the packets of a batch
/// early. `prefetch_index` gets the hash of a packet that will probably be tracked, and `prefetch`
/// the hashes of a batch. If tracking is the first step of all packets' megaflows, `track_batch`
/// gets the whole batch with the results of `hash` and `prefetch`. In other batches `track` gets
/// each packet alone. If an earlier step changed a packet, `track` gets no hash.
pub trait Tracker {
    /// Returns a hash of the packet's connection in a zone.
    fn hash(&self, packet: &Packet, zone: u16) -> u64;

    /// Starts to load what [`Tracker::prefetch`] reads for this hash.
    fn prefetch_index(&self, _hash: u64) {}

    /// Starts to load the connections of hashes whose index was prefetched. Writes a number for
    /// each hash to `candidates`; the caller passes this number back in [`Prefetched::candidate`].
    fn prefetch(&self, hashes: &[u64], candidates: &mut [u32]);

    /// Tracks a packet. `hash` is the result of [`Tracker::hash`] for the packet in its present
    /// form and for this zone.
    fn track(
        &mut self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        now: Time,
    ) -> Tracked;

    /// Tracks packets of a batch in order. Calls `then` for each packet that continues; `then` must
    /// not track. `then` also gets the guess that [`Tracker::store_guess`] stored in the connection
    /// for [`GuessFor::Tracked`], or `None` for a connection that cannot have a guess.
    fn track_batch(
        &mut self,
        packets: &mut [Packet],
        batch: &mut [Option<ToTrack<'_>>],
        now: Time,
        mut then: impl FnMut(&mut Packet, &ToTrack<'_>, Option<Guess>),
    ) {
        for waiting in batch.iter_mut().flatten() {
            if let Some(packet) = packets.get_mut(usize::from(waiting.index)) {
                waiting.tracked =
                    self.track(packet, &waiting.call, Some(waiting.connection.hash), now);
                if waiting.tracked == Tracked::Continues {
                    then(packet, waiting, None);
                }
            }
        }
    }

    /// Stores a guess in the connection of a packet, for later packets of the same direction.
    fn store_guess(&self, _: &Packet, _connection: Prefetched, _for: GuessFor, _: Guess) {}

    /// Writes to the output the packets' guesses for [`GuessFor::Arrival`]; `None` for a packet
    /// whose connection cannot have a guess. `prefetch` has started to load the connections.
    fn guesses(
        &self,
        _packets: &[Packet],
        _hashes: &[u64],
        _candidates: &[u32],
        guesses: &mut [Option<Guess>],
    ) {
        guesses.fill(None);
    }
}

/// A guess of the megaflow that a packet will match. The tracker keeps the guess for the datapath.
/// The datapath compares the megaflow with the packet, so a wrong guess costs only time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guess(pub(super) u32);

impl Guess {
    pub(super) const NONE: Self = Self(0);
}

/// The lookup for which a guess is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuessFor {
    /// The lookup of the first pass, before the packet is tracked.
    Arrival,
    /// The lookup of the pass after tracking.
    Tracked,
}

/// The connection of a packet, prefetched by its hash and not compared yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prefetched {
    /// The result of [`Tracker::hash`].
    pub hash: u64,
    /// The result of [`Tracker::prefetch`].
    pub candidate: u32,
}

/// A packet of a batch that waits for its tracking.
#[derive(Debug)]
pub struct ToTrack<'a> {
    /// The packet's index in the batch's list of packets.
    pub index: u16,
    pub call: TrackCall<'a>,
    pub connection: Prefetched,
    pub tracked: Tracked,
}

impl<'a> ToTrack<'a> {
    #[must_use]
    pub fn new(index: u16, call: TrackCall<'a>, connection: Prefetched) -> Self {
        Self { index, call, connection, tracked: Tracked::Continues }
    }
}

/// The result of tracking a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracked {
    Continues,
    /// The packet is dropped. The tracker has counted the reason, for example exhausted ports.
    Dropped,
    /// The packet is a fragment, and the tracker keeps it. If the fragment completes its IP packet,
    /// [`Packet::released`] has all fragments, which continue in place of this fragment.
    Held,
}

/// A call of `ct(…)`, with the fields that each packet needs. Only new connections need the other
/// fields: reading them with [`TrackCall::track`] costs a few memory accesses.
#[derive(Clone, Copy)]
pub struct TrackCall<'a> {
    pub zone: u16,
    pub commit: bool,
    pub force: bool,
    /// Whether the call has a `nat(…)` argument, with or without a direction.
    pub has_nat: bool,
    /// Whether `exec(…)` sets bits of ct_mark or ct_label.
    pub has_marks: bool,
    pub(super) steps: Steps<'a>,
    /// The call's position among all `Track` steps, including nested steps.
    pub(super) ordinal: u16,
}

/// The steps that a program was compiled from. For a megaflow, the steps are looked up only when
/// they are needed.
#[derive(Clone, Copy)]
pub(super) enum Steps<'a> {
    Own(&'a [Step]),
    Cached(&'a Cache, Place),
}

impl<'a> Steps<'a> {
    pub(super) fn steps(self) -> &'a [Step] {
        match self {
            Self::Own(steps) => steps,
            Self::Cached(cache, place) => cache.steps(place),
        }
    }
}

impl<'a> TrackCall<'a> {
    /// Builds the call of the first `Track` in `steps`, for tests.
    #[must_use]
    pub fn first_of(steps: &'a [Step]) -> Option<Self> {
        let track = nth(steps, &mut 0)?;
        Some(Self {
            zone: track.zone,
            commit: track.commit,
            force: track.force,
            has_nat: track.nat.is_some(),
            has_marks: track.mark.is_some() || track.label.is_some(),
            steps: Steps::Own(steps),
            ordinal: 0,
        })
    }

    /// Returns the whole `Track` step.
    #[must_use]
    pub fn track(&self) -> &'a Track {
        static NOTHING: std::sync::OnceLock<Track> = std::sync::OnceLock::new();
        let mut ordinal = self.ordinal;
        nth(self.steps.steps(), &mut ordinal).unwrap_or_else(|| NOTHING.get_or_init(Track::default))
    }
}

impl std::fmt::Debug for TrackCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrackCall").field("track", self.track()).finish_non_exhaustive()
    }
}

fn nth<'a>(steps: &'a [Step], ordinal: &mut u16) -> Option<&'a Track> {
    for step in steps {
        match step {
            Step::Track(track) if *ordinal == 0 => return Some(track),
            Step::Track(_) => *ordinal -= 1,
            Step::Clone(nested) => {
                if let Some(track) = nth(nested, ordinal) {
                    return Some(track);
                }
            }
            Step::CheckLength(check) => {
                let mut branches = check.branches();
                if let Some(track) = branches.find_map(|branch| nth(&branch.steps, ordinal)) {
                    return Some(track);
                }
            }
            _ => {}
        }
    }
    None
}

/// A tracker that tracks nothing: every packet has the state "untracked".
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTracker;

impl Tracker for NoTracker {
    fn hash(&self, _: &Packet, _: u16) -> u64 {
        0
    }

    fn prefetch(&self, _: &[u64], _: &mut [u32]) {}

    fn track(&mut self, _: &mut Packet, _: &TrackCall<'_>, _: Option<u64>, _: Time) -> Tracked {
        Tracked::Continues
    }
}
