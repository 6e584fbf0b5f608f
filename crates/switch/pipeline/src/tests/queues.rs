//! The queue of packets, and translations with very many steps.

use flow::action::{Action, Ct};
use flow::port_number::PortNumber;
use flow::step::{PortIndex, Step};
use flow::{Field, Key, Match};

use super::packets::{add, bridge, output, outputs, translate, udp};
use crate::Tables;

/// Builds a bridge with a rule in table 0 and a rule in table 1.
fn tables(first: Vec<Action>, second: Vec<Action>) -> Tables {
    let mut tables = bridge(4);
    tables.flow_mod(add(0, 1, Match::any(), first), 0).expect("added");
    tables.flow_mod(add(1, 1, Match::any(), second), 0).expect("added");
    tables
}

fn steps(actions: Vec<Action>) -> Vec<Step> {
    translate(&tables(actions, Vec::new()), &udp(1, 1, 2)).steps.to_vec()
}

const fn out(port: u16) -> Step {
    Step::Output(PortIndex(port))
}

fn enqueue(port: u32, queue: u32) -> Action {
    Action::Enqueue { port: PortNumber(port), queue }
}

const fn queue(queue: u32) -> Step {
    Step::SetPriority(queue)
}

#[test]
fn enqueue_sets_the_queue_for_its_own_output() {
    // Port 1 is the port at which the packet arrived, and port 9 does not exist.
    let actions =
        vec![enqueue(2, 1), enqueue(1, 2), enqueue(9, 3), enqueue(3, 1), enqueue(4, 2), output(2)];
    let expected = [queue(1), out(2), out(3), queue(2), out(4), queue(0), out(2)];
    assert_eq!(steps(actions), expected);
}

#[test]
fn set_queue_sets_the_queue_until_pop_queue() {
    let set = Action::SetQueue;
    let actions = vec![
        output(2),
        set(5),
        set(6),
        output(3),
        enqueue(4, 7),
        output(4),
        Action::PopQueue,
        output(2),
    ];
    let expected = [out(2), queue(6), out(3), queue(7), out(4), queue(6), out(4), queue(0), out(2)];
    assert_eq!(steps(actions), expected);
    // The queue has no effect, because no output follows it.
    assert_eq!(steps(vec![set(5), Action::PopQueue, output(2), set(6)]), [out(2)]);
    assert_eq!(steps(vec![set(0), output(2)]), [out(2)]);
}

#[test]
fn the_last_set_queue_in_the_action_set_applies() {
    let set = |queue| Action::WriteActions(vec![Action::SetQueue(queue)]);
    let actions = vec![set(1), Action::WriteActions(vec![output(2)]), set(3)];
    assert_eq!(steps(actions), [queue(3), out(2)]);
}

#[test]
fn a_clone_action_has_a_separate_queue() {
    let copy = |port| Action::Clone(vec![Action::SetQueue(1), output(port)]);
    let expected = [queue(1), out(2), queue(0), out(3)];
    assert_eq!(steps(vec![copy(2), output(3)]), expected);
    // A copy that changes its queue does not change the queue of the packet.
    let changes = Action::Clone(vec![Action::SetTpDst(9), Action::SetQueue(1), output(2)]);
    let steps = steps(vec![Action::SetQueue(4), output(4), changes, output(3)]);
    let [first, second, Step::Clone(nested), last] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((first, second, last), (&queue(4), &out(4), &out(3)));
    assert!(matches!(&nested[..], [Step::Rewrite(_), Step::SetPriority(1), Step::Output(_)]));
}

#[test]
fn a_packet_keeps_its_queue_over_a_recirculation() {
    let next = vec![output(2), enqueue(3, 8), Action::PopQueue, output(4)];
    let track = Action::Ct(Box::new(Ct { table: Some(1), ..Ct::default() }));
    let tables = tables(vec![Action::SetQueue(7), track], next);
    let mut packet = udp(1, 1, 2);
    let first = translate(&tables, &packet);
    let [Step::SetPriority(7), Step::Track(_), Step::Recirculate(id)] = &*first.steps else {
        panic!("{:?}", first.steps);
    };
    packet.write(Field::RecircId, (*id).into());
    let second = translate(&tables, &packet);
    assert_eq!(*second.steps, [out(2), queue(8), out(3), queue(0), out(4)]);
}

#[test]
fn setting_a_queue_does_not_widen_the_mask_of_a_megaflow() {
    let mask = |actions| translate(&tables(actions, Vec::new()), &udp(1, 1, 2)).mask;
    assert_eq!(mask(vec![enqueue(2, 1), output(3)]), mask(vec![output(2), output(3)]));
}

#[test]
fn a_packet_that_arrives_with_a_queue_has_no_queue_after_pop_queue() {
    let tables = tables(vec![enqueue(2, 1), output(3), Action::PopQueue, output(4)], Vec::new());
    let mut packet = udp(1, 1, 2);
    packet.write_at(Key::PRIORITY, 1);
    assert_eq!(*translate(&tables, &packet).steps, [out(2), out(3), out(4)]);
}

/// Builds tables in which each table runs the next table twice; the last table has `outputs`
/// outputs.
fn doubling(levels: u8, outputs: usize) -> Tables {
    let mut tables = bridge(4);
    for table in 0..levels {
        let next = Action::Resubmit { port: None, table: Some(table + 1), with_ct: false };
        let rule = add(table, 1, Match::any(), vec![next.clone(), next]);
        tables.flow_mod(rule, 0).expect("added");
    }
    let last = add(levels, 1, Match::any(), vec![output(2); outputs]);
    tables.flow_mod(last, 0).expect("added");
    tables
}

#[test]
fn resubmissions_end_after_64_kb_of_steps() {
    // The translation keeps the outputs of the rule that exceeds the limit.
    for (count, sent, is_cacheable) in [(7, 7 << 10, true), (8, 8 << 10, false), (9, 8199, false)] {
        let translation = translate(&doubling(10, count), &udp(1, 1, 2));
        assert_eq!(outputs(&translation).len(), sent);
        assert_eq!(translation.is_cacheable, is_cacheable, "{count}");
    }
}
