//! Steps, compiled to the operations that packets run.

use flow::step::{LengthCheck, PacketHash, PortIndex, Step};
use flow::{WORDS, word};

/// An operation of a program. The last operation that uses a packet consumes the packet; earlier
/// operations use copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Output {
        port: PortIndex,
        is_last: bool,
        length: u32,
    },
    /// The source and destination MAC addresses, the destination first.
    Addresses([u8; 12]),
    /// Words of the key: each with its index, value and mask.
    Write(Box<[(u8, u64, u64)]>),
    PushVlan {
        tpid: u16,
        tci: u16,
    },
    PopVlan,
    PushMpls {
        ethertype: u16,
        entry: u32,
    },
    PopMpls {
        ethertype: u16,
    },
    Track {
        zone: u16,
        flags: u8,
        ordinal: u16,
    },
    ClearTracking,
    Hash(PacketHash),
    Recirculate(u32),
    Meter(flow::step::MeterId),
    /// Sets the egress queue of later outputs.
    SetQueue(u32),
    /// Runs operations on a copy.
    Clone {
        ops: Box<[Op]>,
        is_last: bool,
    },
    Controller {
        ordinal: u16,
    },
    CheckLength(Box<LengthOp>),
}

impl Op {
    /// Whether the operation needs packets with complete checksums that are not super-packets.
    /// `is_tagged`: the packet has a VLAN tag.
    pub(super) fn needs_frames(&self, is_tagged: bool) -> bool {
        match self {
            Self::Output { length, .. } => *length != WHOLE,
            Self::PushVlan { .. } => is_tagged,
            Self::PushMpls { .. }
            | Self::PopMpls { .. }
            | Self::Controller { .. }
            | Self::CheckLength(_) => true,
            _ => false,
        }
    }
}

/// The operations of a [`Step::CheckLength`], which run on a copy unless the check is the last
/// operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LengthOp {
    length: u16,
    pub(super) ordinal: u16,
    larger: Box<[Op]>,
    others: Box<[Op]>,
    pub(super) is_last: bool,
}

impl LengthOp {
    pub(super) fn branches(&self) -> impl Iterator<Item = &[Op]> {
        [&*self.larger, &*self.others].into_iter()
    }

    pub(super) fn branch(&self, length: usize) -> &[Op] {
        if length > usize::from(self.length) { &self.larger } else { &self.others }
    }
}

pub(super) mod track_flag {
    pub(crate) const COMMIT: u8 = 1;
    pub(crate) const FORCE: u8 = 2;
    pub(crate) const NAT: u8 = 4;
    pub(crate) const MARKS: u8 = 8;
}

pub(super) fn compile(steps: &[Step]) -> Box<[Op]> {
    let mut compiler = Compiler { tracks: 0, controllers: 0, checks: 0 };
    compiler.list(steps)
}

struct Compiler {
    tracks: u16,
    controllers: u16,
    checks: u16,
}

impl Compiler {
    fn list(&mut self, steps: &[Step]) -> Box<[Op]> {
        let mut ops = Vec::with_capacity(steps.len());
        let mut length = WHOLE;
        for step in steps {
            ops.extend(self.step(step, &mut length));
        }
        // An output, a clone or a length check that is the last operation consumes the packet.
        match ops.last_mut() {
            Some(Op::Output { is_last, .. } | Op::Clone { is_last, .. }) => *is_last = true,
            Some(Op::CheckLength(check)) => check.is_last = true,
            _ => {}
        }
        ops.into()
    }

    fn step(&mut self, step: &Step, length: &mut u32) -> Option<Op> {
        Some(match step {
            Step::Output(port) => {
                let length = std::mem::replace(length, WHOLE);
                Op::Output { port: *port, is_last: false, length }
            }
            Step::Rewrite(rewrite) => {
                let mask = &rewrite.mask.words;
                let value = &rewrite.value.words;
                let used: Vec<_> =
                    (word::ETH_SRC..WORDS).filter(|index| mask[*index] != 0).collect();
                let is_address = |index: usize| mask[index] == !0xffff;
                if used == [word::ETH_SRC, word::ETH_DST] && used.iter().all(|i| is_address(*i)) {
                    let mut addresses = [0; 12];
                    addresses[..6].copy_from_slice(&value[word::ETH_DST].to_be_bytes()[..6]);
                    addresses[6..].copy_from_slice(&value[word::ETH_SRC].to_be_bytes()[..6]);
                    return Some(Op::Addresses(addresses));
                }
                if used.is_empty() {
                    return None;
                }
                let words = used.iter().map(|index| (*index as u8, value[*index], mask[*index]));
                Op::Write(words.collect())
            }
            Step::PushVlan { tpid, tci } => Op::PushVlan { tpid: *tpid, tci: *tci },
            Step::PopVlan => Op::PopVlan,
            Step::PushMpls { ethertype, entry } => {
                Op::PushMpls { ethertype: *ethertype, entry: *entry }
            }
            Step::PopMpls { ethertype } => Op::PopMpls { ethertype: *ethertype },
            Step::Track(track) => {
                let has_marks = track.mark.is_some() || track.label.is_some();
                let bits = [
                    (track.commit, track_flag::COMMIT),
                    (track.force, track_flag::FORCE),
                    (track.nat.is_some(), track_flag::NAT),
                    (has_marks, track_flag::MARKS),
                ];
                let flags = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
                let ordinal = self.tracks;
                self.tracks += 1;
                Op::Track { zone: track.zone, flags, ordinal }
            }
            Step::ClearTracking => Op::ClearTracking,
            Step::Hash(hash) => Op::Hash(*hash),
            Step::Recirculate(id) => Op::Recirculate(*id),
            Step::Meter(meter) => Op::Meter(*meter),
            Step::Truncate(bytes) => {
                *length = *bytes;
                return None;
            }
            Step::SetPriority(queue) => Op::SetQueue(*queue),
            Step::Clone(nested) => Op::Clone { ops: self.list(nested), is_last: false },
            Step::Controller(_) => {
                let ordinal = self.controllers;
                self.controllers += 1;
                Op::Controller { ordinal }
            }
            Step::CheckLength(check) => {
                let ordinal = self.checks;
                self.checks += 1;
                let (larger, others) =
                    (self.list(&check.larger.steps), self.list(&check.others.steps));
                let length = check.length;
                let op = LengthOp { length, ordinal, larger, others, is_last: false };
                Op::CheckLength(Box::new(op))
            }
        })
    }
}

/// Returns the controller step with this ordinal; the compiler numbers the steps.
pub(super) fn controller<'a>(
    steps: &'a [Step],
    ordinal: &mut u16,
) -> Option<&'a flow::step::ControllerStep> {
    for step in steps {
        match step {
            Step::Controller(step) if *ordinal == 0 => return Some(step),
            Step::Controller(_) => *ordinal -= 1,
            Step::Clone(nested) => {
                if let Some(step) = controller(nested, ordinal) {
                    return Some(step);
                }
            }
            Step::CheckLength(check) => {
                let mut branches = check.branches();
                if let Some(step) = branches.find_map(|branch| controller(&branch.steps, ordinal)) {
                    return Some(step);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the length check with this ordinal; the compiler numbers the steps.
pub(super) fn length_check<'a>(steps: &'a [Step], ordinal: &mut u16) -> Option<&'a LengthCheck> {
    for step in steps {
        let found = match step {
            Step::CheckLength(check) if *ordinal == 0 => return Some(check),
            Step::CheckLength(check) => {
                *ordinal -= 1;
                check.branches().find_map(|branch| length_check(&branch.steps, ordinal))
            }
            Step::Clone(nested) => length_check(nested, ordinal),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The output length that means: do not truncate the packet.
pub(super) const WHOLE: u32 = u32::MAX;
