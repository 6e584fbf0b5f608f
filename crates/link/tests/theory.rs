//! Compares the model with queueing theory, and checks that its random decisions are independent.

#![allow(clippy::unwrap_used)]

mod support;

use link::LinkConfig;
use rand_pcg::{Pcg64, rand_core::Rng};
use std::collections::BTreeSet;
use support::{TestPacket, at, drain, link};
use units::{Share, Span};

/// M/D/1: Poisson arrivals and equal packets wait rho / (2 (1 - rho)) service times on average
/// (Pollaczek and Khinchine).
#[test]
fn the_mean_wait_matches_the_formula_of_an_m_d_1_queue() {
    let service = 10_000.0;
    for load in [0.3, 0.5, 0.8, 0.9] {
        let config = LinkConfig {
            rate: "1gbit".parse().unwrap(),
            queue: "droptail:1000000p".parse().unwrap(),
            ..LinkConfig::default()
        };
        let mut link = link(&config);
        let mut random = Pcg64::new(1, 2);
        let mut now = 0.0;
        for number in 0..2_000_000u64 {
            let unit = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            now += -unit.ln() * service / load;
            link.arrive(at(now as u64), TestPacket::new(number, 1250));
            while link.deliver(at(now as u64)).is_some() {}
        }
        let expected = service * load / (2.0 * (1.0 - load));
        let wait = link.stats().sojourns.mean().nanos() as f64;
        let error = (wait - expected) / expected;
        assert!(error.abs() < 0.03, "load {load}: {wait} ns, not {expected}");
        // By Little's law, the mean number of waiting packets follows from the mean wait.
        let held = link.stats().occupancy.mean() / 1250.0;
        let by_little = wait * load / service;
        assert!((held - by_little).abs() / by_little < 0.01, "{held} {by_little}");
    }
}

/// A second impairment does not change which packets the first impairment affects.
#[test]
fn impairments_are_independent() {
    let alone = |config: LinkConfig| impaired(&config);
    let share = Share::new(0.05).unwrap();
    let only = LinkConfig { seed: 99, ..LinkConfig::default() };
    let all = impaired(&LinkConfig {
        loss: "5%".parse().unwrap(),
        corrupt: share,
        duplicate: share,
        jitter: "1ms,normal".parse().unwrap(),
        reorder: "5%,20ms".parse().unwrap(),
        ..only.clone()
    });
    let loss = alone(LinkConfig { loss: "5%".parse().unwrap(), ..only.clone() });
    let corrupt = alone(LinkConfig { corrupt: share, ..only.clone() });
    let duplicate = alone(LinkConfig { duplicate: share, ..only.clone() });
    let reorder = alone(LinkConfig { reorder: "5%,20ms".parse().unwrap(), ..only });
    assert_eq!(all.lost, loss.lost);
    let survivors = |set: BTreeSet<u64>| &set - &loss.lost;
    assert_eq!(all.corrupted, survivors(corrupt.corrupted));
    assert_eq!(all.duplicated, survivors(duplicate.duplicated));
    assert_eq!(all.late, survivors(reorder.late));
    for set in [&all.lost, &all.corrupted, &all.duplicated, &all.late] {
        assert!((400..600).contains(&set.len()), "{}", set.len());
    }
}

/// A seed gives the same decisions in every version, so that a lab repeats exactly.
#[test]
fn a_seed_loses_the_same_packets_in_every_version() {
    let lost = |loss: &str| {
        let config = LinkConfig { loss: loss.parse().unwrap(), seed: 1, ..LinkConfig::default() };
        impaired(&config).lost.into_iter().take(8).collect::<Vec<u64>>()
    };
    assert_eq!(lost("1%"), BERNOULLI);
    assert_eq!(lost("gilbert:p=1%,r=30%"), GILBERT);
    assert_eq!(lost("gilbert:p=0.1%,r=3%,every=1ms"), GILBERT_BY_TIME);
}

struct Impaired {
    lost: BTreeSet<u64>,
    corrupted: BTreeSet<u64>,
    duplicated: BTreeSet<u64>,
    /// Packets that arrive later than jitter alone explains.
    late: BTreeSet<u64>,
}

/// Returns the outcome for 10,000 packets, one every 10 ms.
fn impaired(config: &LinkConfig) -> Impaired {
    let config = LinkConfig { delay: Span::from_millis(7), ..config.clone() };
    let mut link = link(&config);
    for number in 0..10_000 {
        link.arrive(at(number * 10_000_000), TestPacket::new(number, 100));
    }
    let mut result = Impaired {
        lost: (0..10_000).collect(),
        corrupted: BTreeSet::new(),
        duplicated: BTreeSet::new(),
        late: BTreeSet::new(),
    };
    for (when, packet) in drain(&mut link) {
        let number = packet.number;
        if !result.lost.remove(&number) {
            result.duplicated.insert(number);
        }
        if packet.corrupted.is_some() {
            result.corrupted.insert(number);
        }
        if when > number * 10_000_000 + 15_000_000 {
            result.late.insert(number);
        }
    }
    result
}

const BERNOULLI: [u64; 8] = [47, 187, 294, 319, 414, 518, 836, 862];
const GILBERT_BY_TIME: [u64; 8] = [24, 25, 26, 94, 160, 551, 552, 553];
const GILBERT: [u64; 8] = [24, 94, 95, 96, 160, 161, 162, 163];
