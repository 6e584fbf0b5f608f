//! The stages of a batch after the parser: resolve the megaflows, prefetch the connections, track,
//! and act. A packet without a current megaflow is translated by the pipeline.

use flow::Megaflow;
use flow::step::Translate;
use units::Time;

use super::cache::{Cache, Lookup, MegaflowPrefetch, NO_PROGRAM, Place, Rest, Tracking};
use super::execute::{Runner, first_call};
use super::packet::Packet;
use super::program::compile;
use super::tracker::{Guess, GuessFor, Prefetched, Steps, ToTrack, Tracked, Tracker};
use super::{BATCH, Callees, Datapath, MAX_PASSES, Sink, Stages, credit, milliseconds};

impl Datapath {
    /// Processes the packets of the batch until none recirculates.
    pub(super) fn passes<T, K, S>(
        &mut self,
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        for pass in 0..=MAX_PASSES {
            let count = self.batch.current.len();
            if count == 0 {
                return;
            }
            if pass > 0 {
                self.batch.statistics.recirculated += count as u64;
            }
            for start in (0..count).step_by(BATCH) {
                let mut chosen = [0; BATCH];
                let number = (count - start).min(BATCH);
                chosen[..number].copy_from_slice(&self.batch.current[start..start + number]);
                self.pass(pass, &chosen[..number], now, callees, watch);
            }
            self.batch.turn();
            watch.lap(&mut self.batch.statistics.stages.actions);
        }
        self.batch.statistics.dropped_by_depth += self.batch.current.len() as u64;
    }

    /// Runs one pass of at most [`BATCH`] packets.
    fn pass<T, K, S>(
        &mut self,
        pass: usize,
        chosen: &[u16],
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        let (zones, is_plain) = self.resolve_megaflows(pass, chosen, callees);
        watch.lap(&mut self.batch.statistics.stages.cache);
        let connections = self.prefetch_connections(pass, chosen, &zones, callees);
        if is_plain {
            self.run_plain(chosen, connections.as_ref(), now, callees, watch);
            return;
        }
        for (position, index) in chosen.iter().enumerate() {
            let hash = connections.as_ref().and_then(|connections| connections.hashes[position]);
            self.run_one(*index, self.lookup.places[position], hash, now, callees, watch);
        }
        watch.lap(&mut self.batch.statistics.stages.actions);
    }

    /// Stage 2: resolves the packets' megaflows. Returns the first zone in which each packet's
    /// program tracks the packet. Also returns whether all programs are known, and tracking is at
    /// most their first operation.
    #[inline(always)]
    fn resolve_megaflows<T, K, S>(
        &mut self,
        pass: usize,
        chosen: &[u16],
        callees: &Callees<'_, T, K, S>,
    ) -> ([Option<u16>; BATCH], bool)
    where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: ?Sized,
    {
        let generation = callees.slow.generation();
        self.cache.lookup(&self.batch.packets, chosen, generation, &mut self.lookup);
        self.batch.statistics.masks_probed += std::mem::take(&mut self.lookup.probed);
        let places = &self.lookup.places[..chosen.len()];
        self.lookup.prefetch.guess_next(pass, places);
        if self.lookup.prefetch.has_unresolved() {
            let lookup = if pass == 0 { GuessFor::Arrival } else { GuessFor::Tracked };
            let (packets, tracker) = (&self.batch.packets, &*callees.tracker);
            self.lookup.prefetch.store_guesses(packets, chosen, places, lookup, tracker);
        }
        let mut zones = [None; BATCH];
        let mut is_plain = true;
        // Consecutive packets often have the same program.
        let (mut former, mut zone, mut is_former_plain) = (NO_PROGRAM, None, false);
        for (program, tracked) in self.lookup.programs[..chosen.len()].iter().zip(&mut zones) {
            if *program != former {
                former = *program;
                (zone, is_former_plain) = match *program {
                    NO_PROGRAM => (None, false),
                    program => match self.cache.program(program).tracking {
                        Tracking::None => (None, true),
                        Tracking::First { zone, .. } => (Some(zone), true),
                        Tracking::Elsewhere => (None, false),
                    },
                };
            }
            *tracked = zone;
            is_plain &= is_former_plain;
        }
        (zones, is_plain)
    }

    /// Stage 3: prefetches the connections of packets that are tracked in `zones`, unless stage 1
    /// already did. `None`: no packet is tracked first.
    #[inline(always)]
    fn prefetch_connections<T, K, S>(
        &mut self,
        pass: usize,
        chosen: &[u16],
        zones: &[Option<u16>; BATCH],
        callees: &Callees<'_, T, K, S>,
    ) -> Option<PrefetchedConnections>
    where
        T: ?Sized,
        K: Tracker + ?Sized,
        S: ?Sized,
    {
        if pass == 0 {
            self.connections.guess_next(&zones[..chosen.len()]);
        } else {
            // Drop the prefetched connections: packets may have changed since stage 1.
            self.connections.forget();
        }
        if zones.iter().all(Option::is_none) {
            return None;
        }
        if let Some(prefetched) = self.connections.take(chosen, zones) {
            return Some(prefetched);
        }
        let mut prefetched = PrefetchedConnections::NONE;
        let mut packed = [0; BATCH];
        let mut count = 0;
        for ((index, zone), hash) in chosen.iter().zip(zones).zip(&mut prefetched.hashes) {
            let Some(zone) = zone else { continue };
            let known = callees.tracker.hash(&self.batch.packets[usize::from(*index)], *zone);
            callees.tracker.prefetch_index(known);
            *hash = Some(known);
            packed[count] = known;
            count += 1;
        }
        let mut found = [u32::MAX; BATCH];
        callees.tracker.prefetch(&packed[..count], &mut found[..count]);
        let tracked = prefetched.hashes.iter().zip(&mut prefetched.candidates);
        let tracked = tracked.filter(|(hash, _)| hash.is_some());
        tracked.zip(found).for_each(|((_, candidate), found)| *candidate = found);
        Some(prefetched)
    }

    /// Runs packets whose megaflows are all resolved, stage by stage. The result is the same as if
    /// the packets were processed one after the other.
    fn run_plain<T, K, S>(
        &mut self,
        chosen: &[u16],
        connections: Option<&PrefetchedConnections>,
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        self.batch.statistics.megaflow_hits += chosen.len() as u64;
        let Lookup { places, programs, prefetch, .. } = &mut self.lookup;
        let (places, programs) = (&places[..chosen.len()], &programs[..chosen.len()]);
        self.cache.count_all(places, chosen, &self.batch.packets, now);
        let resolved = Resolved { cache: &self.cache, chosen, places, programs };
        let mut runner = Runner::new(&mut self.batch, callees, now);
        let mut to_track = [const { None }; BATCH];
        if let Some(connections) = connections {
            resolved.track(connections, &mut to_track[..chosen.len()], prefetch, &mut runner);
            watch.lap(&mut runner.statistics().stages.conntrack);
        }
        resolved.act(&to_track[..chosen.len()], &mut runner);
        watch.lap(&mut runner.statistics().stages.actions);
    }

    /// Runs the program of one packet. The pipeline translates the packet if it has no current
    /// megaflow.
    fn run_one<T, K, S>(
        &mut self,
        index: u16,
        place: Place,
        hash: Option<u64>,
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        let generation = callees.slow.generation();
        let packet = &self.batch.packets[usize::from(index)];
        let (mut place, mut hash) = (place, hash);
        let is_current = |place| place != Place::NONE && self.cache.is_current(place, generation);
        if !is_current(place) {
            // An earlier packet of the batch may have installed or replaced the megaflow. The
            // packet's hash is for the zone of the former megaflow, so it is dropped.
            place = self.cache.find(&packet.key);
            hash = None;
        }
        if is_current(place) {
            self.batch.statistics.megaflow_hits += 1;
            self.cache.count(place, &self.batch.packets[usize::from(index)], now);
        } else {
            watch.lap(&mut self.batch.statistics.stages.actions);
            self.batch.statistics.upcalls += 1;
            self.batch.statistics.revalidated += u64::from(place != Place::NONE);
            let now_ms = milliseconds(now);
            let translation = callees.slow.translate(&packet.key, packet.frame.bytes(), now_ms);
            if !translation.is_cacheable || place == Place::NONE && self.cache.is_full() {
                if place != Place::NONE {
                    self.cache.remove(place, &packet.key, now_ms);
                }
                credit(&translation, packet.frame.on_wire(), now);
                watch.lap(&mut self.batch.statistics.stages.classifier);
                let ops = compile(&translation.steps);
                let mut runner = Runner::new(&mut self.batch, callees, now);
                runner.packet(index, &ops, 0, Steps::Own(&translation.steps), None);
                return;
            }
            let is_new = place == Place::NONE;
            if is_new && let Some(installs) = &mut self.installs {
                installs.push(Megaflow::new(&packet.key, &translation));
            }
            if is_new {
                // As in Open vSwitch, a megaflow counts only the packets after the first.
                credit(&translation, packet.frame.on_wire(), now);
            }
            place = self.cache.install(&packet.key, translation, generation, place, now_ms);
            watch.lap(&mut self.batch.statistics.stages.classifier);
            if !is_new {
                self.cache.count(place, &self.batch.packets[usize::from(index)], now);
            }
        }
        let ops = &self.cache.program_of(place).ops;
        let mut runner = Runner::new(&mut self.batch, callees, now);
        runner.packet(index, ops, 0, Steps::Cached(&self.cache, place), hash);
    }

    /// Returns a stopwatch for the next batch. The stopwatch measures one batch in
    /// [`Stages::SAMPLING`].
    pub(super) fn watch(&mut self) -> Stopwatch {
        if !self.batch.statistics.batches.is_multiple_of(Stages::SAMPLING) {
            return Stopwatch::stopped();
        }
        Stopwatch { ticks: Some(self.ticks), last: (self.ticks)() }
    }
}

/// The packets of a pass with their resolved megaflows, by position in the pass.
struct Resolved<'a> {
    cache: &'a Cache,
    chosen: &'a [u16],
    places: &'a [Place],
    programs: &'a [u32],
}

impl<'a> Resolved<'a> {
    /// Stage 4: resolves the packets' connections and updates them. Meanwhile prefetches the
    /// megaflows of the next pass.
    #[inline(always)]
    fn track<K: Tracker + ?Sized, S: Sink + ?Sized>(
        &self,
        connections: &PrefetchedConnections,
        to_track: &mut [Option<ToTrack<'a>>],
        prefetch: &mut MegaflowPrefetch,
        runner: &mut Runner<'_, K, S>,
    ) {
        let cache = self.cache;
        let mut recirculations = [0; BATCH];
        let (mut former, mut program) = (self.programs[0], cache.program(self.programs[0]));
        for (position, slot) in to_track.iter_mut().enumerate() {
            let (place, index) = (self.places[position], self.chosen[position]);
            if self.programs[position] != former {
                former = self.programs[position];
                program = cache.program(former);
            }
            let call = first_call(program.tracking, Steps::Cached(cache, place));
            let candidate = connections.candidates[position];
            *slot = connections.hashes[position]
                .zip(call)
                .map(|(hash, call)| ToTrack::new(index, call, Prefetched { hash, candidate }));
            if let Some(recirculation) = recirculations.get_mut(usize::from(index))
                && let Rest::Recirculate(id) = program.rest
            {
                *recirculation = id;
            }
        }
        // If a packet's program only recirculates the packet after tracking, the key for the next
        // pass is known once the packet is tracked.
        prefetch.prepare(1, cache);
        runner.track_batch(to_track, |packet, tracked, guess| {
            let index = usize::from(tracked.index);
            if let Some(id) = recirculations.get(index).filter(|id| **id != 0) {
                packet.recirculate(*id);
                prefetch.prefetch_guessed(cache, index, &packet.key, tracked.connection, guess);
            }
        });
        prefetch.finish(cache);
    }

    /// Stage 5: runs the rest of the packets' programs.
    #[inline(always)]
    fn act<K: Tracker + ?Sized, S: Sink + ?Sized>(
        &self,
        to_track: &[Option<ToTrack<'a>>],
        runner: &mut Runner<'_, K, S>,
    ) {
        let cache = self.cache;
        let (mut former, mut program) = (self.programs[0], cache.program(self.programs[0]));
        for (position, (index, place)) in self.chosen.iter().zip(self.places).enumerate() {
            if self.programs[position] != former {
                former = self.programs[position];
                program = cache.program(former);
            }
            let waiting = to_track[position].as_ref();
            match waiting.map_or(Tracked::Continues, |packet| packet.tracked) {
                Tracked::Dropped => continue,
                Tracked::Held => {
                    let rest = program.ops.get(1..).unwrap_or_default();
                    runner.released(*index, rest, Steps::Cached(cache, *place));
                    continue;
                }
                Tracked::Continues => {}
            }
            match program.rest {
                Rest::Forward { addresses, port } => runner.forward(*index, addresses, port),
                Rest::Recirculate(id) => runner.recirculate(*index, id),
                Rest::Other => {
                    let done = usize::from(waiting.is_some());
                    let steps = Steps::Cached(cache, *place);
                    runner.packet(*index, &program.ops, done, steps, None);
                }
            }
        }
    }
}

/// The prefetched connections of a batch's packets, by position in the pass: the results of
/// [`Tracker::hash`] and [`Tracker::prefetch`].
#[derive(Debug)]
struct PrefetchedConnections {
    hashes: [Option<u64>; BATCH],
    candidates: [u32; BATCH],
}

impl PrefetchedConnections {
    const NONE: Self = Self { hashes: [None; BATCH], candidates: [u32::MAX; BATCH] };
}

/// The connections that are prefetched while packets are parsed. The prefetch guesses the zone: the
/// zone in which all packets of the last batch were tracked first.
#[derive(Debug, Default)]
pub(super) struct ConnectionPrefetch {
    guessed_zone: Option<u16>,
    /// The guessed zone for this batch.
    zone: Option<u16>,
    hashes: [u64; BATCH],
    candidates: [u32; BATCH],
    count: usize,
}

impl ConnectionPrefetch {
    /// Takes the zone that was guessed for this batch.
    pub(super) fn prepare(&mut self) {
        self.zone = self.guessed_zone;
        self.count = 0;
    }

    /// Whether a zone is guessed for this batch.
    pub(super) fn has_zone(&self) -> bool {
        self.zone.is_some()
    }

    /// Prefetches the part of the index that has the next packet's connection.
    #[inline(always)]
    pub(super) fn prefetch_index<K: Tracker + ?Sized>(&mut self, tracker: &K, packet: &Packet) {
        if let Some(zone) = self.zone
            && let Some(place) = self.hashes.get_mut(self.count)
        {
            *place = tracker.hash(packet, zone);
            tracker.prefetch_index(*place);
            self.count += 1;
        }
    }

    /// Prefetches the connections of the batch.
    pub(super) fn prefetch<K: Tracker + ?Sized>(&mut self, tracker: &K) {
        if self.count > 0 {
            tracker.prefetch(&self.hashes[..self.count], &mut self.candidates[..self.count]);
        }
    }

    /// Returns the packets' connections, each with the connection's guess of the megaflow. `None`:
    /// the connection cannot have a guess.
    #[inline]
    pub(super) fn guesses<K: Tracker + ?Sized>(
        &self,
        tracker: &K,
        packets: &[Packet],
    ) -> impl Iterator<Item = (Prefetched, Option<Guess>)> {
        let (hashes, candidates) = (&self.hashes[..self.count], &self.candidates[..self.count]);
        // Read all guesses before the first use of a guess, so that no packet waits for another
        // packet's connection to load.
        let mut guesses = [None; BATCH];
        tracker.guesses(&packets[..self.count], hashes, candidates, &mut guesses[..self.count]);
        let connections = hashes.iter().zip(candidates);
        let connections =
            connections.map(|(hash, candidate)| Prefetched { hash: *hash, candidate: *candidate });
        connections.zip(guesses)
    }

    /// Returns the connections for the first pass, if all packets are tracked in the guessed zone.
    fn take(
        &mut self,
        chosen: &[u16],
        zones: &[Option<u16>; BATCH],
    ) -> Option<PrefetchedConnections> {
        // The numbers of a batch's packets are their positions in the first pass.
        let is_first = self.count > 0 && std::mem::take(&mut self.count) == chosen.len();
        let is_in_zone = zones.iter().flatten().all(|zone| self.zone == Some(*zone));
        (is_first && is_in_zone).then(|| PrefetchedConnections {
            hashes: std::array::from_fn(|at| zones[at].map(|_| self.hashes[at])),
            candidates: self.candidates,
        })
    }

    fn forget(&mut self) {
        self.count = 0;
    }

    fn guess_next(&mut self, zones: &[Option<u16>]) {
        let first = zones.first().copied().flatten();
        self.guessed_zone = first.filter(|first| zones.iter().all(|zone| *zone == Some(*first)));
    }
}

/// Measures the stages of a batch.
#[derive(Debug)]
pub(super) struct Stopwatch {
    ticks: Option<fn() -> u64>,
    last: u64,
}

impl Stopwatch {
    pub(super) fn stopped() -> Self {
        Self { ticks: None, last: 0 }
    }

    pub(super) fn is_running(&self) -> bool {
        self.ticks.is_some()
    }

    /// Adds the time since the last call of this function to `stage`.
    #[inline(always)]
    pub(super) fn lap(&mut self, stage: &mut u64) {
        if let Some(ticks) = self.ticks {
            let now = ticks();
            *stage += now.wrapping_sub(self.last);
            self.last = now;
        }
    }
}
