//! The buckets of a select group, chosen by the datapath's hash of a packet.

use flow::request::{GroupEntry, GroupType};
use flow::step::PacketHash;

/// A table that maps the low bits of the hash to buckets. A bucket's share of the table equals the
/// share of its weight in the sum of all weights.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) hash: PacketHash,
    /// The index of each slot's bucket. The number of slots is a power of two.
    buckets: Box<[u32]>,
}

impl Slots {
    /// Builds the slots of a group. Returns `None` if the pipeline must hash for the group: the
    /// group asks for another hash, all weights are 0, or the weights need too many slots.
    pub(super) fn new(entry: &GroupEntry) -> Option<Self> {
        if entry.kind != GroupType::Select {
            return None;
        }
        let weights: Vec<_> = entry.buckets.iter().map(|bucket| bucket.weight).collect();
        Some(Self { hash: hash_of(entry)?, buckets: distribute(&weights)? })
    }

    /// Returns the mask of the hash bits that choose a slot.
    pub(super) fn mask(&self) -> u32 {
        self.buckets.len() as u32 - 1
    }

    /// Returns the buckets of all slots, starting at the hash's slot. If a bucket is not live, the
    /// next live bucket in this order gets the packet. The slots after those of a bucket that is
    /// not live belong to many buckets, so these buckets share its connections by weight.
    pub(super) fn of(&self, hash: u32) -> impl Iterator<Item = usize> {
        let (behind, first) = self.buckets.split_at((hash & self.mask()) as usize);
        first.iter().chain(behind).map(|position| *position as usize)
    }
}

/// Returns the hash that the group asks for. If the group names no method, the hash is symmetric,
/// as in Open vSwitch.
fn hash_of(entry: &GroupEntry) -> Option<PacketHash> {
    match &entry.selection {
        None => Some(PacketHash { is_symmetric: true, basis: 0 }),
        Some((method, parameter, _)) if method == "dp_hash" => Some(PacketHash {
            is_symmetric: parameter >> 32 == SYMMETRIC_L4,
            basis: *parameter as u32,
        }),
        Some(_) => None,
    }
}

/// Assigns a bucket to each slot by Webster's method. Each slot goes to the bucket whose weight,
/// divided by the odd number for its slots so far, is highest. The lightest bucket gets at least
/// one slot.
fn distribute(weights: &[u16]) -> Option<Box<[u32]>> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let least = weights.iter().filter(|weight| **weight > 0).min()?;
    let needed = total.div_ceil((*least).into()).next_power_of_two();
    let count = needed.max(FEWEST);
    if count > MOST {
        return None;
    }
    // Each bucket's position, weight and divisor.
    let mut shares: Vec<_> = (0_u32..)
        .zip(weights)
        .filter(|(_, weight)| **weight > 0)
        .map(|(position, weight)| (position, u64::from(*weight), 1_u64))
        .collect();
    let slots = (0..count).map(|_| {
        let mut best = 0;
        for (at, (_, weight, divisor)) in shares.iter().enumerate() {
            let (_, best_weight, best_divisor) = shares[best];
            if weight * best_divisor > best_weight * divisor {
                best = at;
            }
        }
        shares[best].2 += 2;
        shares[best].0
    });
    Some(slots.collect())
}

/// The limits of the number of slots, as in Open vSwitch.
const FEWEST: u64 = 16;
const MOST: u64 = 256;
/// The number that Open vSwitch gives the symmetric hash algorithm.
const SYMMETRIC_L4: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::port_number::PortNumber;
    use flow::request::{Bucket, Selection};

    fn group(weights: &[u16], selection: Option<Selection>) -> Option<Slots> {
        let bucket = |weight: &u16| Bucket {
            id: 0,
            weight: *weight,
            watch_port: PortNumber::NONE,
            watch_group: u32::MAX,
            actions: Vec::new(),
        };
        let buckets = weights.iter().map(bucket).collect();
        Slots::new(&GroupEntry { group: 1, kind: GroupType::Select, buckets, selection })
    }

    fn counts(weights: &[u16]) -> Vec<usize> {
        let slots = group(weights, None).expect("slots").buckets;
        let count = |position| slots.iter().filter(|slot| **slot as usize == position).count();
        (0..weights.len()).map(count).collect()
    }

    #[test]
    fn a_bucket_gets_slots_in_proportion_to_its_weight() {
        assert_eq!(counts(&[1]), [16]);
        assert_eq!(counts(&[1, 1]), [8, 8]);
        assert_eq!(counts(&[2000, 0]), [16, 0]);
        assert_eq!(counts(&[5, 10, 25, 60, 0]), [2, 3, 8, 19, 0]);
        assert_eq!(counts(&[1, 255]), [1, 255]);
        assert_eq!(counts(&[7; 256]), [1; 256]);
        // The weights need more slots than allowed, or all weights are zero.
        for weights in [&[1, 256][..], &[1; 257], &[0, 0], &[]] {
            assert!(group(weights, None).is_none());
        }
    }

    #[test]
    fn the_slots_of_a_hash_start_at_the_hash_and_wrap() {
        let slots = group(&[1, 1, 2], None).expect("slots");
        assert_eq!(slots.mask(), 15);
        for hash in [0, 5, 0xffff_fff7] {
            let order: Vec<_> = slots.of(hash).collect();
            let expected = (0..16).map(|at| slots.buckets[(hash as usize + at) % 16] as usize);
            assert!(order.iter().copied().eq(expected));
        }
    }

    #[test]
    fn a_groups_selection_method_chooses_the_hash() {
        let hash = |method: &str, parameter| {
            let selection = Some((method.to_owned(), parameter, Vec::new()));
            group(&[1, 1], selection).map(|slots| (slots.hash.is_symmetric, slots.hash.basis))
        };
        assert_eq!(hash("dp_hash", 0), Some((false, 0)));
        assert_eq!(hash("dp_hash", 1 << 32 | 7), Some((true, 7)));
        assert_eq!(hash("dp_hash", 9 << 32 | 7), Some((false, 7)));
        assert_eq!(hash("hash", 5), None);
    }
}
