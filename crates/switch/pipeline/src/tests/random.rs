//! Random rules and packets.

use std::sync::Arc;

use flow::action::{Action, Subfield};
use flow::request::FlowMod;
use flow::{Field, Key, Match, WORDS, word};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::packets::{add, bridge, output, translate};
use crate::{Classifier, Mask, Rule};

#[test]
fn the_classifier_agrees_with_a_linear_search() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..400 {
        let mut classifier = Classifier::default();
        let mut rules: Vec<Arc<Rule>> = Vec::new();
        for _ in 0..random.random_range(1..60) {
            let change = random_rule(&mut random, 0);
            let mask = Arc::new(Mask::new(&change.matching.mask));
            let rule = Arc::new(Rule::new(mask, 0, &change, 0));
            if let Some(replaced) = classifier.insert(rule.clone()) {
                rules.retain(|other| !Arc::ptr_eq(other, &replaced));
            }
            rules.push(rule);
            if random.random_range(0..4) == 0 {
                let removed = rules.swap_remove(random.random_range(0..rules.len()));
                assert!(classifier.remove(&removed));
                assert!(!classifier.remove(&removed));
            }
        }
        assert_eq!(classifier.len(), rules.len());
        assert_eq!(classifier.iter().count(), rules.len());
        for _ in 0..250 {
            let key = random_packet(&mut random);
            let mut mask = Key::ZERO;
            let found = classifier.lookup(&key, &mut mask).map(|rule| rule.priority);
            assert_eq!(found, linear(&rules, &key));
            let other = agreeing(&mut random, &key, &mask);
            assert_eq!(linear(&rules, &other), found, "under {mask:?}");
        }
    }
}

#[test]
fn packets_that_agree_under_the_mask_have_the_same_translation() {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    for _ in 0..300 {
        let mut tables = bridge(4);
        for _ in 0..random.random_range(1..30) {
            let table = random.random_range(0..4);
            let change = random_rule(&mut random, table);
            tables.flow_mod(change, 0).expect("a valid rule");
        }
        for _ in 0..60 {
            let key = random_packet(&mut random);
            let first = translate(&tables, &key);
            let other = agreeing(&mut random, &key, &first.mask);
            let second = translate(&tables, &other);
            assert_eq!(first.steps, second.steps, "{key:?} {other:?}");
            // If an address shows that no rule of a mask matches, the search skips the later words.
            // Which of the two addresses shows the mismatch may differ, so only the words before
            // the addresses must be equal.
            let comparable = |mask: &Key| {
                let mut mask = mask.clone();
                mask.words[word::IPV4..].fill(0);
                mask
            };
            assert_eq!(comparable(&first.mask), comparable(&second.mask), "{key:?} {other:?}");
        }
    }
}

#[test]
fn removed_rules_leave_no_state() {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut classifier = Classifier::default();
    let mut rules = Vec::new();
    for number in 0..2000_u32 {
        let mut matching = Match::any();
        matching.set(Field::EthType, 0x0800);
        matching.set(Field::IpDst, number.into());
        let change = add(0, 1, matching, Vec::new());
        let mask = classifier.mask(&change.matching.mask);
        let rule = Arc::new(Rule::new(mask, 0, &change, 0));
        classifier.insert(rule.clone());
        rules.push(rule);
    }
    while !rules.is_empty() {
        let rule = rules.swap_remove(random.random_range(0..rules.len()));
        assert!(classifier.remove(&rule));
        for rest in rules.iter().take(3) {
            assert!(classifier.find(&rest.matching(), 1).is_some());
        }
    }
    assert!(classifier.is_empty());
    let mut mask = Key::ZERO;
    assert!(classifier.lookup(&random_packet(&mut random), &mut mask).is_none());
    assert_eq!(mask, Key::ZERO);
}

fn linear(rules: &[Arc<Rule>], key: &Key) -> Option<u16> {
    rules.iter().filter(|rule| rule.matching().matches(key)).map(|rule| rule.priority).max()
}

/// Returns a random packet that equals `key` in all bits of `mask`.
fn agreeing(random: &mut Pcg64Mcg, key: &Key, mask: &Key) -> Key {
    let other = random_packet(random);
    let mut agreeing = Key::ZERO;
    for index in 0..WORDS {
        let kept = mask.words[index];
        agreeing.words[index] = key.words[index] & kept | other.words[index] & !kept;
    }
    agreeing
}

fn random_packet(random: &mut Pcg64Mcg) -> Key {
    let mut key = Key::ZERO;
    let mut set = |field, below: u128| {
        let value = random.random_range(0..below);
        key.write(field, value);
    };
    set(Field::InPort, 5);
    set(Field::Reg0, 3);
    set(Field::Reg1, 3);
    set(Field::Metadata, 3);
    set(Field::EthSrc, 3);
    set(Field::EthDst, 3);
    set(Field::IpSrc, 8);
    set(Field::IpDst, 8);
    set(Field::Ipv6Src, 8);
    set(Field::Ipv6Dst, 8);
    set(Field::NwTtl, 4);
    set(Field::NwTos, 3);
    set(Field::TcpSrc, 4);
    set(Field::TcpDst, 4);
    set(Field::IpFrag, 4);
    let tag = random.random_range(0..3_u128);
    key.write(Field::VlanTci, if tag == 0 { 0 } else { 0x1000 | tag });
    key.write(Field::EthType, [0x0800, 0x0806, 0x86dd][random.random_range(0..3)]);
    key.write(Field::NwProto, [6, 17, 1][random.random_range(0..3)]);
    key
}

fn random_rule(random: &mut Pcg64Mcg, table: u8) -> FlowMod {
    let packet = random_packet(random);
    let mut matching = Match::any();
    for field in MATCHED {
        if random.random_range(0..5) == 0 {
            // The first two masks are prefixes; the third mask is not a prefix.
            let masks = [u128::MAX, u128::MAX << 1, 0b101];
            let mask = masks[random.random_range(0..3)];
            matching.set_masked(*field, packet.read(*field), mask);
        }
    }
    let actions = (0..random.random_range(0..5)).map(|_| random_action(random, table)).collect();
    add(table, random.random_range(0..10), matching, actions)
}

fn random_action(random: &mut Pcg64Mcg, table: u8) -> Action {
    let field = WRITTEN[random.random_range(0..WRITTEN.len())];
    let source = WRITTEN[random.random_range(0..WRITTEN.len())];
    let part = |field| Subfield { field, start: 0, width: 2 };
    match random.random_range(0..16) {
        0 => Action::SetField { field, value: 1, mask: u128::MAX },
        1 => Action::SetField { field, value: 2, mask: 2 },
        2 => Action::Move { source: part(source), destination: part(field) },
        3 => Action::Load { destination: part(field), value: 3 },
        4 => Action::StackPush(part(source)),
        5 => Action::StackPop(part(field)),
        6 => Action::SetVlanVid(2),
        7 => Action::StripVlan,
        8 => Action::PushVlan(0x8100),
        9 => Action::DecTtl(vec![0]),
        10 => Action::SetTpDst(9),
        11 => Action::Clone(vec![
            Action::SetField { field, value: 1, mask: u128::MAX },
            output(random.random_range(1..5)),
        ]),
        12 if table < 3 => Action::Resubmit {
            port: None,
            table: Some(random.random_range(table + 1..4)),
            with_ct: random.random_range(0..4) == 0,
        },
        13 => Action::WriteActions(vec![Action::SetTpSrc(8), output(random.random_range(1..5))]),
        _ => output(random.random_range(1..5)),
    }
}

const MATCHED: &[Field] = &[
    Field::InPort,
    Field::Reg0,
    Field::Reg1,
    Field::Metadata,
    Field::EthSrc,
    Field::EthDst,
    Field::EthType,
    Field::VlanTci,
    Field::IpSrc,
    Field::IpDst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::NwProto,
    Field::NwTtl,
    Field::TcpSrc,
    Field::TcpDst,
];

const WRITTEN: &[Field] = &[
    Field::Reg0,
    Field::Reg1,
    Field::Metadata,
    Field::EthSrc,
    Field::EthDst,
    Field::VlanTci,
    Field::DlVlan,
    Field::IpSrc,
    Field::IpDst,
    Field::NwTos,
    Field::NwTtl,
    Field::TcpSrc,
    Field::TcpDst,
    Field::InPort,
];
