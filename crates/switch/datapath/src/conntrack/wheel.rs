use super::entry::NONE;
use super::slab::Slab;

/// Timers of entries: a hashed hierarchical wheel (Varghese and Lauck, 1987).
///
/// A packet that prolongs a connection changes only `Entry::expires`, and the entry stays in its
/// slot. When the slot's time comes, the wheel moves the entry to the slot of its new expiry, or
/// reports it as expired. A packet that shortens a connection's lifetime, such as a reset, moves
/// the entry at once.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The first entry of each slot's list, by level.
    heads: Box<[u32; LEVELS * SLOTS]>,
    /// A bit for each slot that has entries.
    used: [[u64; SLOTS / 64]; LEVELS],
    /// The tick that is processed next.
    tick: u64,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { heads: Box::new([NONE; LEVELS * SLOTS]), used: [[0; SLOTS / 64]; LEVELS], tick: 0 }
    }

    /// Sets the current time of a wheel that has no entries yet.
    pub(super) fn start(&mut self, now: u64) {
        self.tick = self.tick.max(now / TICK_MS);
    }

    /// Puts an entry into the slot of its expiry.
    pub(super) fn insert(&mut self, slab: &mut Slab, number: u32) {
        let expiry = slab.entry(number).expires.div_ceil(TICK_MS);
        let distance = expiry.saturating_sub(self.tick);
        let (level, position) = if distance < SLOTS as u64 {
            (0, expiry.max(self.tick))
        } else {
            // The current slot of an upper level is never used: its time has passed, and comes
            // again only after a revolution of the level. Entries that expire later than the last
            // slot wait in the last slot, and move on from there.
            let (level, ticks) =
                if distance < LEVEL_2_TICKS { (1, LEVEL_1_TICKS) } else { (2, LEVEL_2_TICKS) };
            let last = self.tick / ticks + SLOTS as u64 - 1;
            (level, (expiry / ticks).min(last))
        };
        let slot = level * SLOTS + position as usize % SLOTS;
        let head = std::mem::replace(&mut self.heads[slot], number);
        let entry = slab.entry_mut(number);
        (entry.far.slot, entry.next, entry.previous) = (slot as u16, head, NONE);
        if head != NONE {
            slab.entry_mut(head).previous = number;
        }
        self.used[level][slot % SLOTS / 64] |= 1 << (slot % 64);
    }

    pub(super) fn remove(&mut self, slab: &mut Slab, number: u32) {
        let entry = slab.entry(number);
        let (slot, next, previous) = (usize::from(entry.far.slot), entry.next, entry.previous);
        if next != NONE {
            slab.entry_mut(next).previous = previous;
        }
        if previous != NONE {
            slab.entry_mut(previous).next = next;
            return;
        }
        self.heads[slot] = next;
        if next == NONE {
            self.used[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
        }
    }

    /// Advances towards `now`. Returns an expired entry, which the caller removes from its slot.
    /// Returns `None` if no entry up to `now` has expired, or if `budget`, which each step lowers,
    /// is used up.
    pub(super) fn next_expired(
        &mut self,
        slab: &mut Slab,
        now: u64,
        budget: &mut u32,
    ) -> Option<u32> {
        let target = now / TICK_MS;
        while self.tick <= target && *budget > 0 {
            *budget -= 1;
            let slot = self.tick as usize % SLOTS;
            let head = self.heads[slot];
            if head != NONE {
                if slab.entry(head).has_expired(now) {
                    return Some(head);
                }
                self.remove(slab, head);
                self.insert(slab, head);
                continue;
            }
            if self.cascade(slab) {
                continue;
            }
            // Skip to the next used slot or to the next slot of level 1, in one step.
            let boundary = (self.tick / LEVEL_1_TICKS + 1) * LEVEL_1_TICKS;
            let next = self.next_used(boundary);
            if self.tick == target {
                return None;
            }
            self.tick = next.min(target);
        }
        None
    }

    /// Calls `visit` for at most `budget` entries, those that expire soonest. Returns the entries
    /// for which `visit` is true.
    pub(super) fn soonest(
        &self,
        slab: &Slab,
        budget: u32,
        mut visit: impl FnMut(u32) -> bool,
    ) -> Vec<u32> {
        let mut chosen = Vec::new();
        let mut left = budget;
        for distance in 0..SLOTS as u64 {
            let mut number = self.heads[(self.tick + distance) as usize % SLOTS];
            while number != NONE && left > 0 {
                left -= 1;
                if visit(number) {
                    chosen.push(number);
                }
                number = slab.entry(number).next;
            }
            if left == 0 {
                break;
            }
        }
        chosen
    }

    /// Moves an entry from the slot of an upper level that begins at this tick to a lower level.
    /// Returns false if that slot has no entry.
    fn cascade(&mut self, slab: &mut Slab) -> bool {
        for (level, ticks) in [(2, LEVEL_2_TICKS), (1, LEVEL_1_TICKS)] {
            if self.tick.is_multiple_of(ticks) {
                let slot = level * SLOTS + (self.tick / ticks) as usize % SLOTS;
                let head = self.heads[slot];
                if head != NONE {
                    self.remove(slab, head);
                    self.insert(slab, head);
                    return true;
                }
            }
        }
        false
    }

    /// Returns the next tick that has a used slot in level 0, or `boundary`.
    fn next_used(&self, boundary: u64) -> u64 {
        let mut tick = self.tick + 1;
        while tick < boundary {
            let slot = tick as usize % SLOTS;
            let word = self.used[0][slot / 64] >> (slot % 64);
            if word != 0 {
                return (tick + u64::from(word.trailing_zeros())).min(boundary);
            }
            tick += 64 - (slot % 64) as u64;
        }
        boundary
    }
}

const LEVELS: usize = 3;
const SLOTS: usize = 256;
/// The precision at which expired connections are collected. Lookups compare milliseconds.
const TICK_MS: u64 = 256;
/// About a minute: the span of level 0.
const LEVEL_1_TICKS: u64 = SLOTS as u64;
/// About five hours: the span of levels 0 and 1.
const LEVEL_2_TICKS: u64 = LEVEL_1_TICKS * SLOTS as u64;
