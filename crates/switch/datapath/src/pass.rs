//! The processing of a batch: cache, pipeline, connection tracking and programs.

use flow::Megaflow;
use flow::step::Translate;
use units::Time;

use super::cache::{NO_PROGRAM, Place, Rest, Tracking};
use super::execute::{Runner, first_call};
use super::packet::Packet;
use super::program::compile;
use super::tracker::{Awaited, Guess, Known, Moment, Steps, Tracked, Tracker};
use super::{Around, BATCH, Datapath, MAX_PASSES, Sink, Stages, credit, milliseconds};

impl Datapath {
    /// Processes the packets of the batch until none recirculates.
    pub(super) fn passes<T, K, S>(
        &mut self,
        now: Time,
        around: &mut Around<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        for pass in 0..=MAX_PASSES {
            let count = self.lane.current.len();
            if count == 0 {
                return;
            }
            if pass > 0 {
                self.lane.statistics.recirculated += count as u64;
            }
            for start in (0..count).step_by(BATCH) {
                let mut chosen = [0; BATCH];
                let number = (count - start).min(BATCH);
                chosen[..number].copy_from_slice(&self.lane.current[start..start + number]);
                self.pass(pass, &chosen[..number], now, around, watch);
            }
            self.lane.turn();
            watch.lap(&mut self.lane.statistics.stages.actions);
        }
        self.lane.statistics.dropped_by_depth += self.lane.current.len() as u64;
    }

    /// Runs one pass of at most [`BATCH`] packets.
    fn pass<T, K, S>(
        &mut self,
        pass: usize,
        chosen: &[u16],
        now: Time,
        around: &mut Around<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        let generation = around.slow.generation();
        self.cache.lookup(&self.lane.packets, chosen, generation, &mut self.lookup);
        self.lane.statistics.masks_probed += std::mem::take(&mut self.lookup.probed);
        let places = &self.lookup.places[..chosen.len()];
        self.lookup.ahead.learn(pass, places);
        if self.lookup.ahead.has_unguessed() {
            let moment = if pass == 0 { Moment::Arrival } else { Moment::Tracked };
            let (packets, tracker) = (&self.lane.packets, &*around.tracker);
            self.lookup.ahead.remember(packets, chosen, places, moment, tracker);
        }
        let programs = self.lookup.programs;
        let mut zones = [None; BATCH];
        let mut is_plain = true;
        // Consecutive packets often have the same program.
        let (mut former, mut zone, mut is_former_plain) = (NO_PROGRAM, None, false);
        for (program, tracked) in programs[..chosen.len()].iter().zip(&mut zones) {
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
        watch.lap(&mut self.lane.statistics.stages.cache);

        let has_tracking = zones.iter().any(Option::is_some);
        if pass == 0 {
            self.early.learn(&zones[..chosen.len()]);
        } else {
            // Packets may have changed since the early search.
            self.early.forget();
        }
        let sought = if has_tracking { self.seek(chosen, &zones, around) } else { Sought::NONE };
        if is_plain {
            let sought = has_tracking.then_some(&sought);
            self.run_plain(chosen, &programs, sought, now, around, watch);
            return;
        }
        for (position, index) in chosen.iter().enumerate() {
            let place = self.lookup.places[position];
            self.run_one(*index, place, sought.hashes[position], now, around, watch);
        }
        watch.lap(&mut self.lane.statistics.stages.actions);
    }

    /// Starts to load the connections of packets that are tracked in `zones`, unless the early
    /// search already did.
    fn seek<T, K, S>(
        &mut self,
        chosen: &[u16],
        zones: &[Option<u16>; BATCH],
        around: &Around<'_, T, K, S>,
    ) -> Sought
    where
        T: ?Sized,
        K: Tracker + ?Sized,
        S: ?Sized,
    {
        if let Some(sought) = self.early.take(chosen, zones) {
            return sought;
        }
        let mut sought = Sought::NONE;
        let mut packed = [0; BATCH];
        let mut count = 0;
        for ((index, zone), hash) in chosen.iter().zip(zones).zip(&mut sought.hashes) {
            let Some(zone) = zone else { continue };
            let known = around.tracker.hash(&self.lane.packets[usize::from(*index)], *zone);
            around.tracker.announce(known);
            *hash = Some(known);
            packed[count] = known;
            count += 1;
        }
        let mut found = [u32::MAX; BATCH];
        around.tracker.warm(&packed[..count], &mut found[..count]);
        let tracked = sought.hashes.iter().zip(&mut sought.candidates);
        let tracked = tracked.filter(|(hash, _)| hash.is_some());
        tracked.zip(found).for_each(|((_, candidate), found)| *candidate = found);
        sought
    }

    /// Runs packets whose megaflows are all known, stage by stage. The result is the same as if the
    /// packets were processed one after the other.
    fn run_plain<T, K, S>(
        &mut self,
        chosen: &[u16],
        programs: &[u32; BATCH],
        sought: Option<&Sought>,
        now: Time,
        around: &mut Around<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        self.lane.statistics.megaflow_hits += chosen.len() as u64;
        let places = &self.lookup.places[..chosen.len()];
        self.cache.count_all(places, chosen, &self.lane.packets, now);
        let mut runner = Runner::new(&mut self.lane, around, now);
        let mut batch = [const { None }; BATCH];
        if let Some(sought) = sought {
            let mut recirculations = [0; BATCH];
            let (mut former, mut program) = (programs[0], self.cache.program(programs[0]));
            for (position, slot) in batch[..chosen.len()].iter_mut().enumerate() {
                let (place, index) = (places[position], chosen[position]);
                if programs[position] != former {
                    former = programs[position];
                    program = self.cache.program(former);
                }
                let call = first_call(program.tracking, Steps::Cached(&self.cache, place));
                let candidate = sought.candidates[position];
                *slot = sought.hashes[position]
                    .zip(call)
                    .map(|(hash, call)| Awaited::new(index, call, hash, candidate));
                if let Some(recirculation) = recirculations.get_mut(usize::from(index))
                    && let Rest::Recirculate(id) = program.rest
                {
                    *recirculation = id;
                }
            }
            // If a packet's program only recirculates the packet after tracking, the packet's next
            // key is already known. The next lookup then starts here.
            let (cache, ahead) = (&self.cache, &mut self.lookup.ahead);
            ahead.prepare(1, cache);
            runner.track_batch(&mut batch[..chosen.len()], |packet, awaited, guess| {
                let index = usize::from(awaited.index);
                if let Some(id) = recirculations.get(index).filter(|id| **id != 0) {
                    packet.recirculate(*id);
                    ahead.begin_known(cache, index, &packet.key, awaited.known(), guess);
                }
            });
            ahead.finish(cache);
            watch.lap(&mut runner.statistics().stages.conntrack);
        }
        let (mut former, mut program) = (programs[0], self.cache.program(programs[0]));
        for (position, (index, place)) in chosen.iter().zip(places).enumerate() {
            if programs[position] != former {
                former = programs[position];
                program = self.cache.program(former);
            }
            let awaited = batch[position].as_ref();
            let tracked = awaited.map_or(Tracked::Continues, |awaited| awaited.tracked);
            if tracked == Tracked::Dropped {
                continue;
            }
            if tracked == Tracked::Held {
                let rest = program.ops.get(1..).unwrap_or_default();
                runner.released(*index, rest, Steps::Cached(&self.cache, *place));
                continue;
            }
            match program.rest {
                Rest::Forward { addresses, port } => runner.forward(*index, addresses, port),
                Rest::Recirculate(id) => runner.recirculate(*index, id),
                Rest::Other => {
                    let done = usize::from(awaited.is_some());
                    let steps = Steps::Cached(&self.cache, *place);
                    runner.packet(*index, &program.ops, done, steps, None);
                }
            }
        }
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
        around: &mut Around<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        let generation = around.slow.generation();
        let packet = &self.lane.packets[usize::from(index)];
        let (mut place, mut hash) = (place, hash);
        let is_current = |place| place != Place::NONE && self.cache.is_current(place, generation);
        if !is_current(place) {
            // An earlier packet of the batch may have installed or replaced the megaflow. The hash
            // was computed for the zone of the former megaflow.
            place = self.cache.find(&packet.key);
            hash = None;
        }
        if is_current(place) {
            self.lane.statistics.megaflow_hits += 1;
            self.cache.count(place, &self.lane.packets[usize::from(index)], now);
        } else {
            watch.lap(&mut self.lane.statistics.stages.actions);
            self.lane.statistics.upcalls += 1;
            self.lane.statistics.revalidated += u64::from(place != Place::NONE);
            let now_ms = milliseconds(now);
            let translation = around.slow.translate(&packet.key, packet.frame.bytes(), now_ms);
            if !translation.is_cacheable || place == Place::NONE && self.cache.is_full() {
                if place != Place::NONE {
                    self.cache.remove(place, &packet.key, now_ms);
                }
                credit(&translation, packet.frame.on_wire(), now);
                watch.lap(&mut self.lane.statistics.stages.classifier);
                let ops = compile(&translation.steps);
                let mut runner = Runner::new(&mut self.lane, around, now);
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
            watch.lap(&mut self.lane.statistics.stages.classifier);
            if !is_new {
                self.cache.count(place, &self.lane.packets[usize::from(index)], now);
            }
        }
        let ops = &self.cache.program_of(place).ops;
        let mut runner = Runner::new(&mut self.lane, around, now);
        runner.packet(index, ops, 0, Steps::Cached(&self.cache, place), hash);
    }

    /// Returns a stopwatch for the next batch. The stopwatch measures one batch in
    /// [`Stages::SAMPLING`].
    pub(super) fn watch(&mut self) -> Stopwatch {
        if !self.lane.statistics.batches.is_multiple_of(Stages::SAMPLING) {
            return Stopwatch::stopped();
        }
        Stopwatch { ticks: Some(self.ticks), last: (self.ticks)() }
    }
}

/// The connections of a batch's packets, by their positions in the pass: the results of
/// [`Tracker::hash`] and [`Tracker::warm`].
#[derive(Debug)]
struct Sought {
    hashes: [Option<u64>; BATCH],
    candidates: [u32; BATCH],
}

impl Sought {
    const NONE: Self = Self { hashes: [None; BATCH], candidates: [u32::MAX; BATCH] };
}

/// The search for connections that begins when packets arrive. The search uses the zone in which
/// the last batch was tracked first.
#[derive(Debug, Default)]
pub(super) struct Early {
    usual: Option<u16>,
    zone: Option<u16>,
    hashes: [u64; BATCH],
    candidates: [u32; BATCH],
    count: usize,
}

impl Early {
    /// Prepares for the packets of a batch.
    pub(super) fn prepare(&mut self) {
        self.zone = self.usual;
        self.count = 0;
    }

    /// Whether the early search runs for this batch.
    pub(super) fn searches(&self) -> bool {
        self.zone.is_some()
    }

    /// Begins the search for the connection of the next packet.
    #[inline(always)]
    pub(super) fn begin<K: Tracker + ?Sized>(&mut self, tracker: &K, packet: &Packet) {
        if let Some(zone) = self.zone
            && let Some(place) = self.hashes.get_mut(self.count)
        {
            *place = tracker.hash(packet, zone);
            tracker.announce(*place);
            self.count += 1;
        }
    }

    pub(super) fn finish<K: Tracker + ?Sized>(&mut self, tracker: &K) {
        if self.count > 0 {
            tracker.warm(&self.hashes[..self.count], &mut self.candidates[..self.count]);
        }
    }

    /// Returns the connections of the packets, each with the guess for its arrival. `None`: the
    /// connection cannot have a guess.
    #[inline]
    pub(super) fn recall<K: Tracker + ?Sized>(
        &self,
        tracker: &K,
        packets: &[Packet],
    ) -> impl Iterator<Item = (Known, Option<Guess>)> {
        let (hashes, candidates) = (&self.hashes[..self.count], &self.candidates[..self.count]);
        // All guesses are read before the first is used, so that no packet waits for another
        // packet's connection to load.
        let mut guesses = [None; BATCH];
        tracker.recall(&packets[..self.count], hashes, candidates, &mut guesses[..self.count]);
        let known = hashes.iter().zip(candidates);
        known.map(|(hash, candidate)| Known { hash: *hash, candidate: *candidate }).zip(guesses)
    }

    /// Returns the search's result for the first pass, if all packets are tracked in the expected
    /// zone.
    fn take(&mut self, chosen: &[u16], zones: &[Option<u16>; BATCH]) -> Option<Sought> {
        // The numbers of a batch's packets are their positions in the first pass.
        let is_first = self.count > 0 && std::mem::take(&mut self.count) == chosen.len();
        let is_in_zone = zones.iter().flatten().all(|zone| self.zone == Some(*zone));
        (is_first && is_in_zone).then(|| Sought {
            hashes: std::array::from_fn(|at| zones[at].map(|_| self.hashes[at])),
            candidates: self.candidates,
        })
    }

    fn forget(&mut self) {
        self.count = 0;
    }

    fn learn(&mut self, zones: &[Option<u16>]) {
        let first = zones.first().copied().flatten();
        self.usual = first.filter(|first| zones.iter().all(|zone| *zone == Some(*first)));
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

    /// Adds the time since the last call to `stage`.
    #[inline(always)]
    pub(super) fn lap(&mut self, stage: &mut u64) {
        if let Some(ticks) = self.ticks {
            let now = ticks();
            *stage += now.wrapping_sub(self.last);
            self.last = now;
        }
    }
}
