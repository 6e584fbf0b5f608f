//! The reference implementation: it translates each packet, and changes frames with [`PlainFrame`].

use datapath::extract;
use flow::step::{Step, Translate};
use flow::{Field, WORDS, word};
use pipeline::{Tables, Translator};

use super::plain_frame::PlainFrame;

#[derive(Default)]
pub(super) struct Reference {
    pub(super) sent: Vec<(u16, Vec<u8>)>,
    /// The frames of packet-ins.
    pub(super) packet_ins: Vec<Vec<u8>>,
}

/// A packet that recirculates, with its state.
struct Again {
    id: u32,
    /// The packet's `dp_hash`.
    hash: u32,
    frame: Vec<u8>,
}

impl Reference {
    /// Processes a frame by the tables, and counts the frame for the rules that it matches.
    pub(super) fn process(&mut self, tables: &Tables, in_port: u32, frame: &[u8]) {
        self.pass(tables, in_port, Again { id: 0, hash: 0, frame: frame.to_vec() }, 0);
    }

    fn pass(&mut self, tables: &Tables, in_port: u32, packet: Again, depth: usize) {
        if depth > datapath::MAX_PASSES {
            return;
        }
        let Again { id, hash, frame } = packet;
        let mut key = extract(in_port, &frame);
        key.write(Field::RecircId, id.into());
        key.write(Field::DpHash, hash.into());
        let translation = Translator::new(tables).translate(&key, &frame, 0);
        for counters in &translation.counters {
            counters.add(1, frame.len() as u64, 0);
        }
        let mut again = Vec::new();
        self.run(&translation.steps, (PlainFrame::new(frame), hash), &mut again);
        for packet in again {
            self.pass(tables, in_port, packet, depth + 1);
        }
    }

    fn run(&mut self, steps: &[Step], packet: (PlainFrame, u32), again: &mut Vec<Again>) {
        let (mut frame, mut hash) = packet;
        let mut length = usize::MAX;
        for step in steps {
            match step {
                Step::Output(port) => {
                    let mut bytes = frame.bytes.clone();
                    bytes.truncate(std::mem::replace(&mut length, usize::MAX));
                    self.sent.push((port.0, bytes));
                }
                Step::Rewrite(rewrite) => {
                    for field in FIELDS {
                        let mask = rewrite.mask.read(*field);
                        if mask != 0 {
                            frame.set(*field, rewrite.value.read(*field), mask);
                        }
                    }
                    let known = FIELDS.iter().map(|field| usize::from(field.place().word));
                    let known: Vec<_> = known.collect();
                    assert!(
                        (word::ETH_SRC..WORDS).all(|index| rewrite.mask.words[index] == 0
                            || known.contains(&index)
                            || index > word::IPV6_SRC && index < word::NW),
                        "a rewrite that the reference does not know: {rewrite:?}"
                    );
                }
                Step::PushVlan { tpid, tci } => frame.push_vlan(*tpid, *tci),
                Step::PopVlan => frame.pop_vlan(),
                Step::PushMpls { ethertype, entry } => frame.push_mpls(*ethertype, *entry),
                Step::PopMpls { ethertype } => frame.pop_mpls(*ethertype),
                Step::Hash(how) => hash = how.of(&extract(0, &frame.bytes)),
                Step::Recirculate(id) => {
                    again.push(Again { id: *id, hash, frame: frame.bytes.clone() });
                }
                Step::Truncate(bytes) => length = *bytes as usize,
                Step::Clone(nested) => self.run(nested, (frame.clone(), hash), again),
                Step::Controller(step) => {
                    let mut bytes = frame.bytes.clone();
                    bytes.truncate(step.max_len.into());
                    self.packet_ins.push(bytes);
                }
                Step::CheckLength(check) => {
                    let branch = check.branch(frame.bytes.len());
                    for counters in &branch.counters {
                        counters.add(1, frame.bytes.len() as u64, 0);
                    }
                    self.run(&branch.steps, (frame.clone(), hash), again);
                }
                Step::Track(_) | Step::ClearTracking | Step::Meter(_) | Step::SetPriority(_) => {}
            }
        }
    }
}

const FIELDS: &[Field] = &[
    Field::EthSrc,
    Field::EthDst,
    Field::VlanTci,
    Field::MplsLabel,
    Field::MplsTc,
    Field::MplsTtl,
    Field::IpSrc,
    Field::IpDst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::NwTos,
    Field::NwEcn,
    Field::NwTtl,
    Field::ArpOp,
    Field::TcpSrc,
    Field::TcpDst,
    Field::ArpSha,
    Field::ArpTha,
];
