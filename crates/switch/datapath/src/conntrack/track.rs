//! The tracking of a packet.

mod assisted;
mod fragment;
mod passes;
mod search;
pub(super) mod shares;

use std::sync::atomic::{AtomicU32, Ordering};

use flow::step::Track;
use flow::{Key, word};
use units::Time;

use super::domain::{Both, Held, Start, ones};
use super::entry::{Entry, NONE, Translation, Verdict};
use super::extract::{Extracted, Verify, extract};
use super::helpers::Expectation;
use super::index::Reference;
use super::nat::Choice;
use super::settings::Phase;
use super::shard::{Candidates, Found, Remainder, Shard};
use super::tcp::Segment;
use super::translate::translate;
use super::tuple::{Place, TCP, Tuple};
use super::view::{Shown, View, state};
use super::{Conntrack, NO_LIMIT, milliseconds};
use crate::tracker::ToTrack;
use crate::{Guess, Packet, TrackCall, Tracked};

/// A packet to track, its `ct` call, and the results of its lookup so far.
struct Case<'v, 'f, 'c, 'd> {
    view: &'v mut View<'f>,
    call: &'c TrackCall<'d>,
    extracted: &'c Extracted,
    segment: Option<Segment>,
    /// The flags that an earlier pass in this zone has set.
    prior: u16,
    place: Place,
    now: u64,
    /// The expectation that the packet's connection fulfils.
    expected: Option<Expectation>,
    /// The original tuple of the control connection.
    parent: Option<Tuple>,
}

/// The next step after a lookup.
enum Next {
    Done(Tracked),
    Create,
}

impl Conntrack {
    /// Tracks the packets of a batch in order, as [`Conntrack::track`] does. If all the packets'
    /// connections are known, the packets of a domain are tracked together under one lock. A
    /// connection is in one domain, so its packets keep their order. Calls `then` under that lock
    /// with each packet that continues.
    pub(super) fn track_batch(
        &self,
        start: Start,
        packets: &mut [Packet],
        batch: &mut [Option<ToTrack<'_>>],
        now: Time,
        mut then: impl FnMut(&mut Packet, &ToTrack<'_>, Option<Guess>),
    ) {
        let mut hashes = [0; MOST_PREFETCHED];
        let mut found = [NONE; MOST_PREFETCHED];
        let mut places = [0; MOST_PREFETCHED];
        let mut count = 0;
        for (at, waiting) in batch.iter().enumerate().take(MOST_PREFETCHED) {
            if let Some(waiting) = waiting {
                (hashes[count], places[count]) = (waiting.connection.hash, at as u8);
                found[count] = waiting.connection.candidate;
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        let mut order: [u8; MOST_PREFETCHED] = std::array::from_fn(|at| at as u8);
        let mut held = None;
        if self.domains.count() > 1 && found[..count].iter().all(|entry| *entry != NONE) {
            let homes = hashes[..count].iter().map(|hash| self.home(place(*hash)));
            let mut next = 0;
            self.domains.group(start, homes, |_, group| {
                for at in ones(group) {
                    order[next] = at as u8;
                    next += 1;
                }
            });
        }
        for at in order[..count].iter().map(|at| usize::from(*at)) {
            let Some(waiting) = &mut batch[usize::from(places[at])] else { continue };
            let Some(packet) = packets.get_mut(usize::from(waiting.index)) else { continue };
            if found[at] != NONE {
                let shard = self.hold(&mut held, self.home(place(waiting.connection.hash)));
                let (entry, now) = (found[at], milliseconds(now));
                if let Some(guess) = self.track_known(shard, entry, packet, &waiting.call, now) {
                    held.iter_mut().for_each(Held::count_hit);
                    then(packet, waiting, Some(guess));
                    continue;
                }
            }
            if packet.is_fragment() {
                held = None;
            }
            let (call, hash) = (&waiting.call, Some(waiting.connection.hash));
            waiting.tracked = self.track_packet(packet, call, now, |view| {
                let look_up = |case: &mut Case<'_, '_, '_, '_>| {
                    self.look_up_candidate(&mut held, found[at], case)
                };
                self.track_by(view, call, hash, now, look_up)
            });
            if waiting.tracked == Tracked::Continues {
                then(packet, waiting, None);
            }
        }
    }

    /// Tracks a packet by calling `track`; tracks a fragment together with the packet that it
    /// belongs to.
    #[inline(always)]
    pub(super) fn track_packet(
        &self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        now: Time,
        track: impl FnOnce(&mut View<'_>) -> Tracked,
    ) -> Tracked {
        if packet.is_fragment()
            && let Some(tracked) = self.track_fragment(packet, call, now)
        {
            return tracked;
        }
        let mut view = View::of(packet);
        view.is_resizable = true;
        let tracked = track(&mut view);
        if let Some(splice) = view.splice.take() {
            splice.apply(packet);
        }
        tracked
    }

    /// Locks a shard, unless `held` already holds the lock of this shard. Unlocks another held
    /// shard first.
    #[inline(always)]
    fn hold<'s, 'h>(&'s self, held: &'h mut Option<Held<'s>>, home: u8) -> &'h mut Shard {
        if held.as_mut().is_some_and(|held| !held.turn(home)) {
            *held = None;
        }
        held.get_or_insert_with(|| self.shard(home))
    }

    /// Looks at the entry that was found for the batch. Unlocks the shard before another shard is
    /// needed or the table changes.
    #[inline]
    fn look_up_candidate<'s>(
        &'s self,
        held: &mut Option<Held<'s>>,
        candidate: u32,
        case: &mut Case<'_, '_, '_, '_>,
    ) -> Next {
        let home = self.home(case.place);
        if candidate != NONE {
            let shard = self.hold(held, home);
            // Since the prefetch, another packet may have removed the entry or stored another entry
            // in its slot. The comparison of the tuple shows such a change.
            if let Some(entry) = shard.entries.get(candidate)
                && let Some(is_reply) = case.direction_of(entry)
            {
                let (next, remainder) = self.hit(shard, candidate, is_reply, case);
                match next {
                    Next::Done(_) => held.iter_mut().for_each(Held::count_hit),
                    Next::Create => {
                        *held = None;
                        self.forget(remainder.as_slice());
                    }
                }
                return next;
            }
        }
        *held = None;
        self.look_up(case)
    }

    /// Finds or makes the connection of a packet, applies its translation, and writes the state to
    /// the packet's key. `hash` is the result of [`Conntrack::hash`] for the packet as it is now
    /// and for this zone.
    #[inline]
    pub fn track(
        &self,
        view: &mut View<'_>,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        now: Time,
    ) -> Tracked {
        self.track_by(view, call, hash, now, |case| self.look_up(case))
    }

    #[inline(always)]
    fn track_by(
        &self,
        view: &mut View<'_>,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        now: Time,
        look_up: impl FnOnce(&mut Case<'_, '_, '_, '_>) -> Next,
    ) -> Tracked {
        let has_prior = view.state() & state::TRACKED != 0 && view.zone() == call.zone;
        let prior = if has_prior { view.state() } else { 0 };
        let protocol = protocol(view.key);
        let network = self.verify_checksums && !has_prior;
        let verify = Verify { network, transport: network && !view.is_unfinished };
        let extracted = extract(view.frame, view.headers, call.zone, protocol, verify);
        let Some(extracted) = &extracted else {
            return self.invalid(view, call.zone, None);
        };
        let segment = if protocol == TCP {
            let range = view.headers.transport..view.headers.end;
            view.frame.get(range).and_then(Segment::read)
        } else {
            None
        };
        let place = match hash {
            Some(hash) if hash != 0 => place(hash),
            _ => self.hasher.place(&extracted.tuple),
        };
        let now = milliseconds(now);
        let mut case = Case {
            view,
            call,
            extracted,
            segment,
            prior,
            place,
            now,
            expected: None,
            parent: None,
        };
        match look_up(&mut case) {
            Next::Done(outcome) => outcome,
            Next::Create => self.create(&mut case),
        }
    }

    fn invalid(&self, view: &mut View<'_>, zone: u16, tuple: Option<&Tuple>) -> Tracked {
        self.totals.invalid.fetch_add(1, Ordering::Relaxed);
        let state = state::INVALID | state::TRACKED;
        view.set_connection(&Shown { state, zone, ..Shown::default() }, tuple);
        Tracked::Continues
    }

    fn look_up(&self, case: &mut Case<'_, '_, '_, '_>) -> Next {
        let tuple = &case.lookup_tuple();
        let home = self.home(case.place);
        let mut shard = self.shard(home);
        match shard.find(tuple, case.place.tag) {
            Found::Here { entry, is_reply } => self.hit_and_release(shard, entry, is_reply, case),
            Found::Nowhere => Next::Create,
            Found::Elsewhere(candidates) => {
                drop(shard);
                for reference in candidates.iter() {
                    shard = self.shard(reference.shard);
                    let entry = shard.entries.any(reference.entry);
                    if let Some(is_reply) = entry.direction(tuple) {
                        return self.hit_and_release(shard, reference.entry, is_reply, case);
                    }
                    drop(shard);
                }
                Next::Create
            }
        }
    }

    #[inline]
    fn hit_and_release(
        &self,
        mut shard: Held<'_>,
        number: u32,
        is_reply: bool,
        case: &mut Case<'_, '_, '_, '_>,
    ) -> Next {
        let (next, remainder) = self.hit(&mut shard, number, is_reply, case);
        if matches!(next, Next::Done(_)) {
            shard.count_hit();
        }
        drop(shard);
        if let Some(remainder) = remainder {
            self.forget(&[remainder]);
        }
        next
    }

    #[inline]
    fn hit(
        &self,
        shard: &mut Shard,
        number: u32,
        found_reply: bool,
        case: &mut Case<'_, '_, '_, '_>,
    ) -> (Next, Option<Remainder>) {
        let rules = &shard.rules;
        let entry = shard.entries.entry_mut(number);
        let is_reply = found_reply != case.was_translated();
        if entry.has_expired(case.now) {
            shard.counts.expired += 1;
            return (Next::Create, self.remove(shard, number));
        }
        if case.call.force && is_reply && case.extracted.inner.is_none() {
            shard.counts.removed += 1;
            return (Next::Create, self.remove(shard, number));
        }
        case.forget_other_connection(entry);
        let mut flags = case.prior | state::TRACKED;
        let expires_before = entry.expires;
        let relations = entry.is_assisted().then(|| self.helpers.relations(&entry.original()));
        if let Some(relations) = &relations {
            case.begin_assisted(relations, is_reply);
            flags |= case.related();
        }
        if case.extracted.inner.is_some() {
            flags |= state::RELATED | if is_reply { state::REPLY } else { 0 };
        } else if case.is_uncounted() {
            match entry.update(case.segment.as_ref(), is_reply, rules, case.now) {
                Verdict::Established => {
                    flags &= !state::NEW;
                    flags |= state::ESTABLISHED | if is_reply { state::REPLY } else { 0 };
                }
                Verdict::New => flags |= state::NEW,
                Verdict::Invalid => flags = state::INVALID | state::TRACKED,
                Verdict::Restart => {
                    shard.counts.removed += 1;
                    return (Next::Create, self.remove(shard, number));
                }
            }
        }
        if case.applies_translation()
            && flags & state::INVALID == 0
            && entry.translation().is_some()
        {
            flags |= case.translate(entry, is_reply);
        }
        if case.call.has_marks {
            set_marks(entry, case.call.track());
        }
        if relations.is_some() && flags & state::INVALID == 0 {
            flags |= self.assist(case, entry, is_reply);
        }
        case.show(flags, entry);
        if entry.expires < expires_before {
            // An entry must not stay in a timer slot that is later than its new expiry.
            shard.wheel.remove(&mut shard.entries, number);
            shard.wheel.insert(&mut shard.entries, number);
        }
        if flags & state::INVALID != 0 {
            self.totals.invalid.fetch_add(1, Ordering::Relaxed);
        }
        (Next::Done(Tracked::Continues), None)
    }

    /// Handles a packet without a connection.
    fn create(&self, case: &mut Case<'_, '_, '_, '_>) -> Tracked {
        let tuple = case.extracted.tuple;
        let may_start = case.extracted.inner.is_none()
            && (tuple.protocol != TCP || case.segment.as_ref().is_some_and(Segment::may_start))
            && tuple.kind.is_request(tuple.protocol);
        if !may_start {
            return self.invalid(case.view, case.call.zone, Some(&tuple));
        }
        case.expected = self.helpers.expected(&tuple);
        case.parent = case.expected.map(|expected| expected.parent);
        if !case.call.commit {
            return case.show_new(&tuple);
        }
        let track = case.call.track();
        let nat = track.nat.as_ref().filter(|nat| nat.direction.is_some());
        if !self.admit(case) {
            return if nat.is_some() { Tracked::Dropped } else { case.show_new(&tuple) };
        }
        let random = self.totals.drawn.fetch_add(RANDOM_STEP, Ordering::Relaxed);
        let random = self.hasher.choice(&[random]);
        let choice = match case.expected {
            Some(Expectation { translation, address, .. }) if case.call.has_nat => {
                Some(Choice::only(translation, address, &tuple))
            }
            _ => nat.and_then(|nat| Choice::new(nat, &tuple, &self.hasher, random)),
        };
        match choice {
            None => self.create_plain(case),
            Some(choice) => self.create_translated(case, &choice, random),
        }
    }

    /// Counts a new connection and returns true, unless a limit forbids the connection.
    fn admit(&self, case: &Case<'_, '_, '_, '_>) -> bool {
        let zone = usize::from(case.call.zone);
        let limit = match self.limits.zones[zone].load(Ordering::Relaxed) {
            NO_LIMIT => self.limits.default_zone.load(Ordering::Relaxed),
            limit => limit,
        };
        let is_over = |count: &AtomicU32, limit| count.load(Ordering::Relaxed) > limit;
        let of_zone = &self.totals.zones[zone];
        if of_zone.fetch_add(1, Ordering::Relaxed) >= limit
            && (!self.evict(case, Some(case.call.zone), limit) || is_over(of_zone, limit))
        {
            of_zone.fetch_sub(1, Ordering::Relaxed);
            self.totals.zone_full.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.totals.holders.add(case.holder());
        let limit = self.limits.connections.load(Ordering::Relaxed);
        let of_all = &self.totals.connections;
        let count = of_all.fetch_add(1, Ordering::Relaxed);
        if count >= limit - limit / 8 {
            self.reclaim(case);
        }
        // The new connection's own shard may still count expired connections; `reclaim` has
        // collected only some expired connections.
        if count >= limit
            && is_over(of_all, limit)
            && (!self.evict(case, None, limit) || is_over(of_all, limit))
        {
            self.dismiss(case);
            self.totals.full.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Reverts the counts of `admit`.
    fn dismiss(&self, case: &Case<'_, '_, '_, '_>) {
        self.totals.connections.fetch_sub(1, Ordering::Relaxed);
        self.totals.zones[usize::from(case.call.zone)].fetch_sub(1, Ordering::Relaxed);
        self.totals.holders.subtract(case.holder());
    }

    /// Makes space in the shard of a new connection: removes expired connections, and some
    /// half-open connections before they expire.
    fn reclaim(&self, case: &Case<'_, '_, '_, '_>) {
        let mut shard = self.shard(self.home(case.place));
        let mut remainders = self.collect(&mut shard, case.now, RECLAIM_BUDGET);
        let lifetime = shard.rules.lifetimes.of(Phase::TcpSynSent);
        let latest = (case.now + lifetime).saturating_sub(HALF_OPEN_MS.min(lifetime));
        let entries = &shard.entries;
        let early = shard.wheel.soonest(entries, RECLAIM_BUDGET, |number| {
            let entry = entries.entry(number);
            entry.is_half_open() && entry.expires <= latest
        });
        for number in early {
            shard.counts.reclaimed += 1;
            remainders.extend(self.remove(&mut shard, number));
        }
        drop(shard);
        self.forget(&remainders);
    }

    /// Commits a connection without a translation. Its two tuples hash to the same shard, so one
    /// lock is enough.
    fn create_plain(&self, case: &mut Case<'_, '_, '_, '_>) -> Tracked {
        let tuple = case.extracted.tuple;
        let reply = tuple.reversed();
        let home = self.home(case.place);
        let mut shard = self.shard(home);
        // Since the lookup, another thread may have made the connection, or a connection whose
        // translation uses the tuple.
        let mut checked = Candidates::default();
        loop {
            match shard.find(&tuple, case.place.tag) {
                Found::Here { entry, is_reply } => {
                    self.dismiss(case);
                    return self.found_late(shard, entry, is_reply, case);
                }
                Found::Elsewhere(candidates) if candidates != checked => {
                    drop(shard);
                    if let Some(tracked) = self.found_elsewhere(&candidates, case) {
                        return tracked;
                    }
                    if candidates.iter().any(|reference| {
                        let owner = self.shard(reference.shard);
                        owner.entries.any(reference.entry).is_live_as(&reply, case.now)
                    }) {
                        return self.clash(case);
                    }
                    checked = candidates;
                    shard = self.shard(home);
                }
                Found::Elsewhere(_) | Found::Nowhere => break,
            }
        }
        if let Found::Here { entry, .. } = shard.find(&reply, case.place.tag)
            && shard.entries.entry(entry).is_live_as(&reply, case.now)
        {
            return self.clash(case);
        }
        let remainders = self.collect(&mut shard, case.now, COMMIT_BUDGET);
        let entry = case.entry(&shard);
        let outcome = match shard.insert(entry, case.place.tag, case.now) {
            Some(number) => {
                let entry = shard.entries.entry_mut(number);
                if case.call.has_marks {
                    set_marks(entry, case.call.track());
                }
                self.start_assisting(case, entry);
                case.show(state::NEW | state::TRACKED | case.related(), entry);
                Tracked::Continues
            }
            None => {
                self.dismiss(case);
                self.totals.full.fetch_add(1, Ordering::Relaxed);
                case.show_new(&tuple)
            }
        };
        drop(shard);
        self.forget(&remainders);
        outcome
    }

    /// Checks whether a connection of another shard uses the tuple of a new connection. Since the
    /// lookup, another thread may have made a connection whose translation uses the tuple.
    fn found_elsewhere(
        &self,
        candidates: &Candidates,
        case: &mut Case<'_, '_, '_, '_>,
    ) -> Option<Tracked> {
        for reference in candidates.iter() {
            let shard = self.shard(reference.shard);
            let entry = shard.entries.any(reference.entry);
            if let Some(is_reply) = entry.direction(&case.extracted.tuple)
                && !entry.has_expired(case.now)
            {
                self.dismiss(case);
                return Some(self.found_late(shard, reference.entry, is_reply, case));
            }
        }
        None
    }

    fn clash(&self, case: &mut Case<'_, '_, '_, '_>) -> Tracked {
        self.dismiss(case);
        self.totals.clashed.fetch_add(1, Ordering::Relaxed);
        case.show_new(&case.extracted.tuple.clone())
    }

    /// Commits a connection with a translation. For each address to try, locks the shards of the
    /// original tuple and of the reply tuple.
    fn create_translated(
        &self,
        case: &mut Case<'_, '_, '_, '_>,
        choice: &Choice,
        random: u64,
    ) -> Tracked {
        let tuple = case.extracted.tuple;
        let home = self.home(case.place);
        let mut checked = Candidates::default();
        for address in choice.addresses() {
            let other = self.home(self.hasher.place(&address));
            let mut shards = loop {
                let mut shards = self.domains.lock_both(home, other);
                match shards.own().find(&tuple, case.place.tag) {
                    Found::Here { entry, is_reply } => {
                        self.dismiss(case);
                        return self.found_late(shards.into_own(), entry, is_reply, case);
                    }
                    Found::Elsewhere(candidates) if candidates != checked => {
                        drop(shards);
                        if let Some(tracked) = self.found_elsewhere(&candidates, case) {
                            return tracked;
                        }
                        checked = candidates;
                    }
                    Found::Elsewhere(_) | Found::Nowhere => break shards,
                }
            };
            let reply = choice.free_ports(address, random, |reply| {
                let tag = self.hasher.place(reply).tag;
                self.is_free(shards.other(), reply, tag, case.now)
            });
            let Some(reply) = reply else {
                continue;
            };
            let entry = case.entry(shards.own());
            let translated = Translated { entry, translation: choice.translation, reply };
            return self.commit_translated(case, translated, shards);
        }
        self.dismiss(case);
        self.totals.exhausted.fetch_add(1, Ordering::Relaxed);
        Tracked::Dropped
    }

    fn commit_translated(
        &self,
        case: &mut Case<'_, '_, '_, '_>,
        translated: Translated,
        mut shards: Both<'_>,
    ) -> Tracked {
        let Translated { mut entry, translation, reply } = translated;
        entry.translate(translation, &reply);
        let own = shards.own();
        let shard = own.number;
        let remainders = self.collect(own, case.now, COMMIT_BUDGET);
        let Some(number) = own.insert(entry, case.place.tag, case.now) else {
            drop(shards);
            self.forget(&remainders);
            self.dismiss(case);
            self.totals.full.fetch_add(1, Ordering::Relaxed);
            return Tracked::Dropped;
        };
        let reference = Reference { shard, entry: number };
        let tag = self.hasher.place(&reply).tag;
        shards.other().index.insert(tag, reference);
        let mut own = shards.into_own();
        let entry = own.entries.entry_mut(number);
        if case.call.has_marks {
            set_marks(entry, case.call.track());
        }
        let flags = case.translate(entry, false) | case.related();
        self.start_assisting(case, entry);
        case.show(state::NEW | state::TRACKED | flags, entry);
        drop(own);
        self.forget(&remainders);
        Tracked::Continues
    }

    /// Whether no live connection in a shard's index has this tuple in either direction.
    fn is_free(&self, shard: &mut Shard, tuple: &Tuple, tag: u32, now: u64) -> bool {
        match shard.find(tuple, tag) {
            Found::Nowhere => true,
            Found::Elsewhere(_) => false,
            // Remove an expired connection if all its references are in this shard. Any other
            // expired connection uses its tuple until its shard collects the connection.
            Found::Here { entry, .. } => {
                let is_plain = shard.entries.entry(entry).translation().is_none();
                let is_expired = shard.entries.entry(entry).has_expired(now);
                if is_expired && (is_plain || self.domains.shards() == 1) {
                    shard.counts.expired += 1;
                    self.remove(shard, entry);
                    return true;
                }
                false
            }
        }
    }

    /// Handles a connection that appeared between lookup and commit. If the packet was already
    /// translated, its tuple may belong to a third connection; the packet then stays without a
    /// connection.
    fn found_late(
        &self,
        shard: Held<'_>,
        number: u32,
        is_reply: bool,
        case: &mut Case<'_, '_, '_, '_>,
    ) -> Tracked {
        if case.was_translated() {
            drop(shard);
            return case.show_new(&case.extracted.tuple.clone());
        }
        match self.hit_and_release(shard, number, is_reply, case) {
            Next::Done(outcome) => outcome,
            Next::Create => case.show_new(&case.extracted.tuple.clone()),
        }
    }
}

struct Translated {
    entry: Entry,
    translation: Translation,
    reply: Tuple,
}

impl Case<'_, '_, '_, '_> {
    /// Returns the tuple to look up. For an already translated packet, this tuple is the reverse of
    /// the other direction's tuple.
    #[inline]
    fn lookup_tuple(&self) -> Tuple {
        let tuple = self.extracted.tuple;
        if self.was_translated() { tuple.reversed() } else { tuple }
    }

    #[inline]
    fn direction_of(&self, entry: &Entry) -> Option<bool> {
        entry.direction(&self.lookup_tuple())
    }

    fn was_translated(&self) -> bool {
        self.prior & state::TRANSLATED != 0
    }

    fn entry(&self, shard: &Shard) -> Entry {
        let segment = self.segment.as_ref();
        let mut entry =
            Entry::new(&self.extracted.tuple, segment, &shard.rules.lifetimes, self.now);
        entry.set_holder(self.holder());
        entry.helper = self.call.track().alg;
        if let Some(expected) = &self.expected {
            entry.mark = expected.mark;
            entry.set_label(expected.label);
        }
        if entry.helper != 0 || self.expected.is_some() {
            entry.set_assisted();
        }
        entry
    }

    /// Returns the flag `rel` if another connection announced this connection.
    fn related(&self) -> u16 {
        if self.parent.is_some() && self.extracted.inner.is_none() { state::RELATED } else { 0 }
    }

    /// Translates the packet, and returns the flag for source or for destination translation.
    fn translate(&mut self, entry: &Entry, is_reply: bool) -> u16 {
        // `wanted` is the reverse of the tuple that the other direction expects.
        let wanted = if is_reply { entry.original() } else { entry.reply() }.reversed();
        translate(self.view, self.extracted, &wanted);
        match (entry.translation(), is_reply) {
            (Some(Translation::Source), false) | (Some(Translation::Destination), true) => {
                state::SOURCE_NAT
            }
            (Some(_), _) => state::DESTINATION_NAT,
            (None, _) => 0,
        }
    }

    fn show(&mut self, flags: u16, entry: &Entry) {
        let shown =
            Shown { state: flags, zone: self.call.zone, mark: entry.mark, label: entry.label() };
        let original = self.parent.unwrap_or_else(|| entry.original());
        self.view.set_connection(&shown, Some(&original));
    }

    fn show_new(&mut self, tuple: &Tuple) -> Tracked {
        let state = state::NEW | state::TRACKED | self.related();
        let mut shown = Shown { state, zone: self.call.zone, ..Shown::default() };
        if let Some(expected) = &self.expected {
            (shown.mark, shown.label) = (expected.mark, expected.label);
        }
        self.view.set_connection(&shown, Some(&self.parent.unwrap_or(*tuple)));
        Tracked::Continues
    }
}

pub(super) fn set_marks(entry: &mut Entry, track: &Track) {
    if let Some((value, mask)) = track.mark {
        entry.mark = value & mask | entry.mark & !mask;
    }
    if let Some((value, mask)) = track.label {
        entry.set_label(value & mask | entry.label() & !mask);
    }
}

fn protocol(key: &Key) -> u8 {
    (key.words[word::NW] >> 48) as u8
}

fn place(hash: u64) -> Place {
    Place { home: (hash >> 32) as u32, tag: hash as u32 }
}

/// A bit of a hash that tells the lookup to load the entry's second cache line. The bit is free,
/// because shard numbers are small.
pub(super) const FAR: u64 = 1 << 63;
const MOST_PREFETCHED: usize = 64;
/// Number of steps of the timer wheel at each new connection. More than one step, so that
/// collection keeps up with new connections.
const COMMIT_BUDGET: u32 = 4;
const RECLAIM_BUDGET: u32 = 32;
/// The lifetime of a half-open connection when the table is nearly full.
const HALF_OPEN_MS: u64 = 5_000;
const RANDOM_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
