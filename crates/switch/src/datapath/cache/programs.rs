//! Programs, shared by the megaflows that do the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::datapath::program::{Op, WHOLE, compile};
use crate::datapath::step::{PortIndex, Step};

/// Growth moves a small part of the programs at a time, because a packet waits for it.
#[derive(Debug)]
pub(super) struct Programs {
    chunks: Vec<Vec<Program>>,
    /// By the hash of the operations, whose last bits choose the part.
    by_hash: Box<[HashMap<u64, Vec<u32>>]>,
    hasher: RandomState,
    free: Vec<u32>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            by_hash: (0..PARTS).map(|_| HashMap::new()).collect(),
            hasher: RandomState::default(),
            free: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(in crate::datapath) struct Program {
    pub(in crate::datapath) ops: Box<[Op]>,
    pub(in crate::datapath) tracking: Tracking,
    pub(in crate::datapath) rest: Rest,
    /// Those of its first user. Most others have equal ones, and share them.
    steps: Arc<[Step]>,
    users: u32,
}

/// How a program uses connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::datapath) enum Tracking {
    None,
    /// In its first operation, and nowhere else.
    First {
        zone: u16,
        flags: u8,
    },
    Elsewhere,
}

/// The operations behind the first one that tracks, or all of a program that does not: those of
/// most packets are here, so that they need not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::datapath) enum Rest {
    Recirculate(u32),
    Forward { addresses: Option<[u8; 12]>, port: PortIndex },
    Other,
}

impl Programs {
    #[inline(always)]
    pub(super) fn program(&self, id: u32) -> &Program {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// The number of a program for these steps, and the steps. The caller becomes a user of it.
    pub(super) fn intern(&mut self, steps: Arc<[Step]>) -> (u32, Arc<[Step]>) {
        let ops = compile(&steps);
        let hash = self.hasher.hash_one(&ops);
        let same = self.by_hash[hash as usize % PARTS].entry(hash).or_default();
        for id in same.iter() {
            let program = &mut self.chunks[*id as usize / CHUNK][*id as usize % CHUNK];
            if program.ops == ops {
                program.users += 1;
                // Operations do not have all that steps have, such as translated addresses.
                let shared = Some(&program.steps).filter(|shared| **shared == steps).cloned();
                return (*id, shared.unwrap_or(steps));
            }
        }
        let tracking = tracking(&ops);
        let rest = rest(&ops, tracking);
        let program = Program { tracking, rest, ops, steps: steps.clone(), users: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.chunks[id as usize / CHUNK][id as usize % CHUNK] = program;
                id
            }
            None => append(&mut self.chunks, program),
        };
        same.push(id);
        (id, steps)
    }

    /// Ends one use of a program.
    pub(super) fn release(&mut self, id: u32) {
        let program = &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK];
        program.users -= 1;
        if program.users > 0 {
            return;
        }
        let ops = std::mem::take(&mut program.ops);
        program.steps = Arc::new([]);
        let hash = self.hasher.hash_one(&ops);
        let part = &mut self.by_hash[hash as usize % PARTS];
        if let Some(same) = part.get_mut(&hash) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                part.remove(&hash);
            }
        }
        self.free.push(id);
    }
}

fn append(chunks: &mut Vec<Vec<Program>>, program: Program) -> u32 {
    if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
        chunks.push(Vec::new());
    }
    let first = (chunks.len() - 1) * CHUNK;
    let Some(chunk) = chunks.last_mut() else { unreachable!("a chunk was added") };
    chunk.push(program);
    (first + chunk.len() - 1) as u32
}

fn tracking(ops: &[Op]) -> Tracking {
    let Some((first, rest)) = ops.split_first() else { return Tracking::None };
    match (first, any_track(rest)) {
        (Op::Track { zone, flags, .. }, false) => Tracking::First { zone: *zone, flags: *flags },
        (Op::Track { .. }, true) => Tracking::Elsewhere,
        (Op::Clone { ops, .. }, false) if !any_track(ops) => Tracking::None,
        (Op::Clone { .. }, _) | (_, true) => Tracking::Elsewhere,
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
        _ => false,
    })
}

/// Programs that are together in memory.
const CHUNK: usize = 1024;
const PARTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::step::Track;

    #[test]
    fn equal_steps_are_in_memory_once() {
        let mut programs = Programs::default();
        let forward = || Arc::from([Step::PopVlan, Step::Output(PortIndex(1))]);
        let (id, first) = programs.intern(forward());
        let (same_id, same) = programs.intern(forward());
        assert_eq!(id, same_id);
        assert!(Arc::ptr_eq(&first, &same));
        programs.release(id);
        programs.release(id);
        assert_eq!(Arc::strong_count(&first), 2);
    }

    #[test]
    fn users_of_a_program_keep_steps_that_differ() {
        let mut programs = Programs::default();
        let mark = |mark| {
            let track = Track { mark: Some((mark, u32::MAX)), ..Track::default() };
            Arc::from([Step::Track(Box::new(track))])
        };
        let (id, first) = programs.intern(mark(1));
        let (same_id, second) = programs.intern(mark(2));
        assert_eq!(id, same_id);
        assert_eq!((first, second), (mark(1), mark(2)));
    }
}
