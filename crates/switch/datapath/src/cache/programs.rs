//! Programs, shared by megaflows with the same operations.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use flow::step::{PortIndex, Step};

use crate::program::{Op, WHOLE, compile};

/// The hash table of programs is divided into parts, because packets wait while a part grows.
#[derive(Debug)]
pub(super) struct Programs {
    programs: Slab<Program>,
    steps: Slab<Steps>,
    /// The numbers of programs, by the hash of their operations. The hash's last bits choose the
    /// part.
    by_hash: Box<[HashMap<u64, Vec<u32>>]>,
    hasher: RandomState,
}

/// The numbers of a megaflow's program and of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(super) struct Behaviour {
    pub(super) program: u32,
    steps: u32,
}

impl Behaviour {
    /// The behaviour of a slot without a megaflow.
    pub(super) const NONE: Self = Self { program: NO_PROGRAM, steps: u32::MAX };
}

/// A list of values, indexed by number. A value keeps its address in memory.
#[derive(Debug)]
struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

/// Steps that several megaflows share.
#[derive(Debug)]
struct Steps {
    steps: Arc<[Step]>,
    /// The number of megaflows and programs that use these steps.
    users: u32,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            programs: Slab::default(),
            steps: Slab::default(),
            by_hash: (0..PARTS).map(|_| HashMap::new()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline(always)]
    fn get(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    fn get_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            *self.get_mut(id) = value;
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::new());
        }
        let first = (self.chunks.len() - 1) * CHUNK;
        let Some(chunk) = self.chunks.last_mut() else { unreachable!("a chunk was added") };
        chunk.push(value);
        (first + chunk.len() - 1) as u32
    }
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) ops: Box<[Op]>,
    pub(crate) tracking: Tracking,
    pub(crate) rest: Rest,
    /// The steps of the first megaflow that used the program. Most later megaflows have equal steps
    /// and share these steps.
    steps: u32,
    users: u32,
}

/// How a program uses connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    None,
    /// Only the first operation tracks the packet.
    First {
        zone: u16,
        flags: u8,
    },
    Elsewhere,
}

/// The operations after the tracking operation, or all operations of a program that does not track.
/// The most frequent lists are stored here, so that a packet need not fetch the list of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Recirculate(u32),
    Forward { addresses: Option<[u8; 12]>, port: PortIndex },
    Other,
}

impl Programs {
    #[inline(always)]
    pub(super) fn program(&self, id: u32) -> &Program {
        self.programs.get(id)
    }

    pub(super) fn steps(&self, behaviour: Behaviour) -> &Arc<[Step]> {
        &self.steps.get(behaviour.steps).steps
    }

    /// Returns the number of a program for these steps and the number of the steps, and counts one
    /// more use of both.
    pub(super) fn intern(&mut self, steps: Arc<[Step]>) -> Behaviour {
        let ops = compile(&steps);
        let hash = self.hasher.hash_one(&ops);
        let same = self.by_hash[hash as usize % PARTS].entry(hash).or_default();
        if let Some(id) = same.iter().copied().find(|id| self.programs.get(*id).ops == ops) {
            let program = self.programs.get_mut(id);
            program.users += 1;
            let shared = self.steps.get_mut(program.steps);
            // Steps with equal operations may differ, for example in the addresses of a
            // translation.
            if shared.steps == steps {
                shared.users += 1;
                return Behaviour { program: id, steps: program.steps };
            }
            return Behaviour { program: id, steps: self.steps.insert(Steps { steps, users: 1 }) };
        }
        let tracking = tracking(&ops);
        let rest = rest(&ops, tracking);
        let steps = self.steps.insert(Steps { steps, users: 2 });
        let id = self.programs.insert(Program { tracking, rest, ops, steps, users: 1 });
        same.push(id);
        Behaviour { program: id, steps }
    }

    /// Ends one use of a program and its steps.
    pub(super) fn release(&mut self, behaviour: Behaviour) {
        self.release_steps(behaviour.steps);
        let id = behaviour.program;
        let program = self.programs.get_mut(id);
        program.users -= 1;
        if program.users > 0 {
            return;
        }
        let (ops, steps) = (std::mem::take(&mut program.ops), program.steps);
        self.release_steps(steps);
        let hash = self.hasher.hash_one(&ops);
        let part = &mut self.by_hash[hash as usize % PARTS];
        if let Some(same) = part.get_mut(&hash) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                part.remove(&hash);
            }
        }
        self.programs.free.push(id);
    }

    fn release_steps(&mut self, id: u32) {
        let steps = self.steps.get_mut(id);
        steps.users -= 1;
        if steps.users == 0 {
            steps.steps = Arc::new([]);
            self.steps.free.push(id);
        }
    }
}

fn tracking(ops: &[Op]) -> Tracking {
    let Some((first, rest)) = ops.split_first() else { return Tracking::None };
    match (first, any_track(rest)) {
        (Op::Track { zone, flags, .. }, false) => Tracking::First { zone: *zone, flags: *flags },
        (Op::Track { .. }, true) => Tracking::Elsewhere,
        (Op::Clone { ops, .. }, false) if !any_track(ops) => Tracking::None,
        (Op::CheckLength(_), false) if !any_track(&ops[..1]) => Tracking::None,
        (Op::Clone { .. } | Op::CheckLength(_), _) | (_, true) => Tracking::Elsewhere,
        (_, false) => Tracking::None,
    }
}

fn rest(ops: &[Op], tracking: Tracking) -> Rest {
    let ops = match tracking {
        Tracking::First { .. } => ops.get(1..).unwrap_or_default(),
        Tracking::None => ops,
        Tracking::Elsewhere => return Rest::Other,
    };
    match ops {
        [Op::Recirculate(id)] => Rest::Recirculate(*id),
        [Op::Output { port, is_last: true, length: WHOLE }] => {
            Rest::Forward { addresses: None, port: *port }
        }
        [Op::Addresses(addresses), Op::Output { port, is_last: true, length: WHOLE }] => {
            Rest::Forward { addresses: Some(*addresses), port: *port }
        }
        _ => Rest::Other,
    }
}

fn any_track(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Track { .. } => true,
        Op::Clone { ops, .. } => any_track(ops),
        Op::CheckLength(check) => check.branches().any(any_track),
        _ => false,
    })
}

/// The number that means "no program".
pub(crate) const NO_PROGRAM: u32 = u32::MAX;
/// Number of programs in one chunk of memory.
const CHUNK: usize = 1024;
const PARTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::step::Track;

    #[test]
    fn equal_action_lists_share_memory() {
        let mut programs = Programs::default();
        let forward = || Arc::from([Step::PopVlan, Step::Output(PortIndex(1))]);
        let first = programs.intern(forward());
        assert_eq!(programs.intern(forward()), first);
        let steps = programs.steps(first).clone();
        programs.release(first);
        assert_eq!(programs.steps(first), &steps);
        programs.release(first);
        assert_eq!(Arc::strong_count(&steps), 1);
        // A later program reuses both released numbers.
        assert_eq!(programs.intern(forward()), first);
    }

    #[test]
    fn megaflows_that_share_a_program_keep_different_steps() {
        let mut programs = Programs::default();
        let mark = |mark| {
            let track = Track { mark: Some((mark, u32::MAX)), ..Track::default() };
            Arc::from([Step::Track(Box::new(track))])
        };
        let (first, second) = (programs.intern(mark(1)), programs.intern(mark(2)));
        assert_eq!(first.program, second.program);
        assert_eq!((programs.steps(first), programs.steps(second)), (&mark(1), &mark(2)));
        // The program keeps its first steps for later users.
        programs.release(first);
        assert_eq!(programs.intern(mark(1)), first);
        programs.release(first);
        programs.release(second);
        assert_eq!(programs.steps.free.len(), 2);
    }
}
