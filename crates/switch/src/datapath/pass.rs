//! A batch's way through cache, pipeline, connection tracking and programs.

use units::Time;

use super::cache::{Place, Tracking};
use super::execute::{Runner, first_call};
use super::program::compile;
use super::step::Translate;
use super::tracker::{Awaited, Steps, Tracked, Tracker};
use super::{Around, BATCH, Datapath, MAX_PASSES, Sink, Stages, credit, milliseconds};

impl Datapath {
    /// Lets the packets of the batch go through the switch until none recirculates.
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
                self.pass(&chosen[..number], now, around, watch);
            }
            self.lane.turn();
            watch.lap(&mut self.lane.statistics.stages.actions);
        }
        self.lane.statistics.dropped_by_depth += self.lane.current.len() as u64;
    }

    /// One pass of at most [`BATCH`] packets.
    fn pass<T, K, S>(
        &mut self,
        chosen: &[u16],
        now: Time,
        around: &mut Around<'_, T, K, S>,
        watch: &mut Stopwatch,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        self.cache.lookup(&self.lane.packets, chosen, &mut self.lookup);
        self.lane.statistics.masks_probed += std::mem::take(&mut self.lookup.probed);
        let generation = around.slow.generation();
        let places = &self.lookup.places[..chosen.len()];
        let is_current =
            |place: &Place| *place != Place::NONE && self.cache.is_current(*place, generation);
        let mut is_plain = true;
        let mut zones = [None; BATCH];
        for (place, zone) in places.iter().zip(&mut zones) {
            if !is_current(place) {
                is_plain = false;
                continue;
            }
            match self.cache.program(*place).tracking {
                Tracking::None => {}
                Tracking::First { zone: first } => *zone = Some(first),
                Tracking::Elsewhere => is_plain = false,
            }
        }
        watch.lap(&mut self.lane.statistics.stages.cache);

        let mut hashes = [None; BATCH];
        let has_tracking = zones.iter().any(Option::is_some);
        if has_tracking {
            for ((index, zone), hash) in chosen.iter().zip(&zones).zip(&mut hashes) {
                let packet = &self.lane.packets[usize::from(*index)];
                *hash = zone.map(|zone| around.tracker.hash(packet, zone));
            }
        }
        if is_plain {
            self.run_plain(chosen, &hashes, has_tracking, now, around, watch);
            return;
        }
        if has_tracking {
            let mut packed = [0; BATCH];
            let known = hashes.iter().flatten();
            let count = packed.iter_mut().zip(known).map(|(slot, hash)| *slot = *hash).count();
            around.tracker.warm(&packed[..count]);
        }
        for (position, index) in chosen.iter().enumerate() {
            let place = self.lookup.places[position];
            self.run_one(*index, place, hashes[position], now, around, watch);
        }
        watch.lap(&mut self.lane.statistics.stages.actions);
    }

    /// Runs packets whose megaflows are all known, stage by stage. The result is the same
    /// as if the packets were processed one after the other.
    fn run_plain<T, K, S>(
        &mut self,
        chosen: &[u16],
        hashes: &[Option<u64>; BATCH],
        has_tracking: bool,
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
        for (index, place) in chosen.iter().zip(places) {
            self.cache.count(*place, &self.lane.packets[usize::from(*index)], now);
        }
        let mut runner = Runner::new(&mut self.lane, around, now);
        let mut batch = [const { None }; BATCH];
        if has_tracking {
            for (position, slot) in batch[..chosen.len()].iter_mut().enumerate() {
                let (place, steps) =
                    (places[position], Steps::Cached(&self.cache, places[position]));
                let call = first_call(&self.cache.program(place).ops, steps);
                *slot = hashes[position]
                    .zip(call)
                    .map(|(hash, call)| Awaited::new(chosen[position], call, hash));
            }
            runner.track_batch(&mut batch[..chosen.len()]);
            watch.lap(&mut runner.statistics().stages.conntrack);
        }
        for (position, (index, place)) in chosen.iter().zip(places).enumerate() {
            let awaited = batch[position].as_ref();
            if awaited.is_some_and(|awaited| awaited.tracked == Tracked::Dropped) {
                continue;
            }
            let ops = &self.cache.program(*place).ops;
            let done = usize::from(awaited.is_some());
            runner.packet(*index, ops, done, Steps::Cached(&self.cache, *place), None);
        }
        watch.lap(&mut runner.statistics().stages.actions);
    }

    /// Runs one packet, which may have to be translated first.
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
            // An earlier packet of the batch may have brought the megaflow, or replaced it. The
            // hash was for the former one's zone.
            place = self.cache.find(&packet.key);
            hash = None;
        }
        if is_current(place) {
            self.lane.statistics.megaflow_hits += 1;
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
                credit(&translation, packet.frame.len() as u64, now);
                watch.lap(&mut self.lane.statistics.stages.classifier);
                let ops = compile(&translation.steps);
                let mut runner = Runner::new(&mut self.lane, around, now);
                runner.packet(index, &ops, 0, Steps::Own(&translation.steps), None);
                return;
            }
            place = self.cache.install(&packet.key, translation, generation, place, now_ms);
            watch.lap(&mut self.lane.statistics.stages.classifier);
        }
        self.cache.count(place, &self.lane.packets[usize::from(index)], now);
        let ops = &self.cache.program(place).ops;
        let mut runner = Runner::new(&mut self.lane, around, now);
        runner.packet(index, ops, 0, Steps::Cached(&self.cache, place), hash);
    }

    /// A stopwatch for the batch that begins: it runs for one in [`Stages::SAMPLING`].
    pub(super) fn watch(&mut self) -> Stopwatch {
        if !self.lane.statistics.batches.is_multiple_of(Stages::SAMPLING) {
            return Stopwatch::stopped();
        }
        Stopwatch { ticks: Some(self.ticks), last: (self.ticks)() }
    }
}

/// Measures stages of a batch.
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

    /// Adds the time since the last call to a stage.
    #[inline(always)]
    pub(super) fn lap(&mut self, stage: &mut u64) {
        if let Some(ticks) = self.ticks {
            let now = ticks();
            *stage += now.wrapping_sub(self.last);
            self.last = now;
        }
    }
}
