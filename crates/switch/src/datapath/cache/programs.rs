//! Programs, shared by the megaflows that do the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::datapath::program::Op;

#[derive(Debug, Default)]
pub(super) struct Programs {
    programs: Vec<Program>,
    by_hash: HashMap<u64, Vec<u32>>,
    hasher: RandomState,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(in crate::datapath) struct Program {
    pub(in crate::datapath) ops: Box<[Op]>,
    pub(in crate::datapath) tracking: Tracking,
    users: u32,
}

/// How a program uses connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::datapath) enum Tracking {
    None,
    /// In its first operation, and nowhere else.
    First {
        zone: u16,
    },
    Elsewhere,
}

impl Programs {
    #[inline(always)]
    pub(super) fn program(&self, id: u32) -> &Program {
        &self.programs[id as usize]
    }

    /// The number of a program with these operations. The caller becomes a user of it.
    pub(super) fn intern(&mut self, ops: Box<[Op]>) -> u32 {
        let hash = self.hasher.hash_one(&ops);
        let same = self.by_hash.entry(hash).or_default();
        for id in same.iter() {
            let program = &mut self.programs[*id as usize];
            if program.ops == ops {
                program.users += 1;
                return *id;
            }
        }
        let program = Program { tracking: tracking(&ops), ops, users: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.programs[id as usize] = program;
                id
            }
            None => {
                self.programs.push(program);
                self.programs.len() as u32 - 1
            }
        };
        same.push(id);
        id
    }

    /// Ends one use of a program.
    pub(super) fn release(&mut self, id: u32) {
        let program = &mut self.programs[id as usize];
        program.users -= 1;
        if program.users > 0 {
            return;
        }
        let ops = std::mem::take(&mut program.ops);
        let hash = self.hasher.hash_one(&ops);
        if let Some(same) = self.by_hash.get_mut(&hash) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        self.free.push(id);
    }
}

fn tracking(ops: &[Op]) -> Tracking {
    let Some((first, rest)) = ops.split_first() else { return Tracking::None };
    match (first, any_track(rest)) {
        (Op::Track { zone, .. }, false) => Tracking::First { zone: *zone },
        (Op::Track { .. }, true) => Tracking::Elsewhere,
        (Op::Clone { ops, .. }, false) if !any_track(ops) => Tracking::None,
        (Op::Clone { .. }, _) | (_, true) => Tracking::Elsewhere,
        (_, false) => Tracking::None,
    }
}

fn any_track(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Track { .. } => true,
        Op::Clone { ops, .. } => any_track(ops),
        _ => false,
    })
}
