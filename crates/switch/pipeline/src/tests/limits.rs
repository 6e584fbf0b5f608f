//! Tables with settings: limits and names.

use flow::request::{
    FlowCommand, FlowMod, Refusal, TableLimit, TableMod, TableStatus, VacancyChange,
};
use flow::{Field, Match};

use super::packets::{add, bridge, matching};
use crate::{RemovalReason, Tables};

fn to(destination: u32) -> Match {
    matching(&[(Field::EthType, 0x0800), (Field::IpDst, destination.into())])
}

/// Returns a rule of table 0, which drops packets.
fn rule(destination: u32) -> FlowMod {
    add(0, 1, to(destination), Vec::new())
}

fn delete(destination: u32) -> FlowMod {
    FlowMod { command: FlowCommand::DeleteStrict, ..rule(destination) }
}

fn limited(most: u32, is_evicting: bool) -> Tables {
    let mut tables = bridge(1);
    tables.limit_table(0, TableLimit { rules: Some(most), is_evicting }, 0);
    tables
}

fn count(tables: &Tables) -> u32 {
    tables.table_entry(0).unwrap().active
}

fn settings(is_evicting: Option<bool>, vacancy: Option<Option<(u8, u8)>>) -> TableMod {
    TableMod { table: Some(0), miss: None, is_evicting, vacancy }
}

#[test]
fn a_full_flow_table_refuses_a_further_rule() {
    let mut tables = limited(2, false);
    for destination in 1..=2 {
        tables.flow_mod(rule(destination), 0).unwrap();
    }
    let modify = FlowMod { command: FlowCommand::ModifyStrict, cookie: Some(1), ..rule(3) };
    for change in [rule(3), modify] {
        assert_eq!(tables.flow_mod(change, 0), Err(Refusal::TableFull));
    }
    // A rule that replaces another rule needs no further space, and the other tables have no limit.
    tables.flow_mod(rule(1), 0).unwrap();
    tables.flow_mod(FlowMod { table: Some(1), ..rule(3) }, 0).unwrap();
    assert_eq!(tables.table_entry(0).unwrap().max_entries, 2);
    // A deletion makes space for later changes in the same list.
    let changes = vec![delete(1), rule(3), rule(4)];
    assert_eq!(tables.change_all(changes, 0), Err((2, Refusal::TableFull)));
    tables.change_all(vec![delete(1), rule(3)], 0).unwrap();
    assert_eq!(count(&tables), 2);
}

#[test]
fn eviction_removes_the_least_important_rule_then_the_first_to_expire() {
    let mut tables = limited(3, true);
    let with = |destination, importance, hard_timeout| FlowMod {
        importance,
        hard_timeout,
        ..rule(destination)
    };
    for mut change in [with(1, 5, 10), with(2, 4, 30), with(3, 4, 20)] {
        change.flags.send_flow_removed = true;
        tables.flow_mod(change, 0).unwrap();
    }
    for destination in 4..=6 {
        tables.flow_mod(rule(destination), 0).unwrap();
    }
    let removals = tables.take_removals();
    let gone: Vec<_> = removals.iter().map(|removal| removal.rule.matching.clone()).collect();
    assert_eq!(gone, [to(3), to(2), to(1)]);
    assert!(removals.iter().all(|removal| removal.reason == RemovalReason::Eviction));
    // Rules without timeouts are not evicted.
    assert_eq!(tables.flow_mod(rule(7), 0), Err(Refusal::TableFull));
}

#[test]
fn a_controller_turns_eviction_on_and_off() {
    let mut tables = limited(1, false);
    let with = |destination| FlowMod { idle_timeout: 9, ..rule(destination) };
    tables.flow_mod(with(1), 0).unwrap();
    tables.table_mod(&settings(Some(true), None)).unwrap();
    tables.flow_mod(with(2), 0).unwrap();
    assert_eq!(count(&tables), 1);
    tables.table_mod(&settings(Some(false), None)).unwrap();
    assert_eq!(tables.flow_mod(with(3), 0), Err(Refusal::TableFull));
}

#[test]
fn a_new_limit_evicts_rules_only_if_eviction_is_on() {
    let mut tables = bridge(1);
    for destination in 1..=5 {
        let hard_timeout = if destination <= 3 { 10 * destination as u16 } else { 0 };
        tables.flow_mod(FlowMod { hard_timeout, ..rule(destination) }, 0).unwrap();
    }
    tables.limit_table(0, TableLimit { rules: Some(4), is_evicting: false }, 0);
    assert_eq!(count(&tables), 5);
    tables.limit_table(0, TableLimit { rules: Some(4), is_evicting: true }, 0);
    assert_eq!(count(&tables), 4);
    tables.limit_table(0, TableLimit { rules: Some(1), is_evicting: true }, 0);
    assert_eq!(count(&tables), 2);
}

/// Returns the reported changes of the vacancy, each with its value.
fn reported(tables: &Tables) -> Vec<(VacancyChange, u8)> {
    let of = |status: TableStatus| (status.change, status.vacancy);
    tables.take_table_statuses().into_iter().map(of).collect()
}

#[test]
fn a_table_reports_vacancy_down_and_then_vacancy_up() {
    let mut tables = limited(10, false);
    tables.table_mod(&settings(None, Some(Some((20, 80))))).unwrap();
    for destination in 1..=10 {
        tables.flow_mod(rule(destination), 0).unwrap();
    }
    assert_eq!(reported(&tables), [(VacancyChange::Down, 10)]);
    for destination in 1..=10 {
        tables.flow_mod(delete(destination), 0).unwrap();
    }
    assert_eq!(reported(&tables), [(VacancyChange::Up, 90)]);
    // A table that starts below its upper limit first reports a rise above that limit.
    tables.table_mod(&settings(None, Some(None))).unwrap();
    for destination in 1..=3 {
        tables.flow_mod(rule(destination), 0).unwrap();
    }
    tables.table_mod(&settings(None, Some(Some((20, 80))))).unwrap();
    for destination in 4..=10 {
        tables.flow_mod(rule(destination), 0).unwrap();
    }
    assert!(reported(&tables).is_empty());
    let all = FlowMod { command: FlowCommand::Delete, ..add(0, 0, Match::any(), Vec::new()) };
    tables.flow_mod(all, 0).unwrap();
    assert_eq!(reported(&tables), [(VacancyChange::Up, 100)]);
}

#[test]
fn rules_that_expire_raise_the_vacancy() {
    let mut tables = limited(1, false);
    tables.table_mod(&settings(None, Some(Some((20, 80))))).unwrap();
    tables.flow_mod(FlowMod { hard_timeout: 1, ..rule(1) }, 0).unwrap();
    assert_eq!(reported(&tables), [(VacancyChange::Down, 0)]);
    assert_eq!(tables.expire(1001).len(), 1);
    assert_eq!(reported(&tables), [(VacancyChange::Up, 100)]);
}

#[test]
fn openflow_names_the_tables_that_the_settings_do_not_name() {
    let mut tables = bridge(1);
    let name = |tables: &Tables| tables.table_entry(0).unwrap().name;
    tables.name_table(0, "of").unwrap();
    tables.fix_table_name(0, None);
    assert_eq!(name(&tables), "of");
    tables.fix_table_name(0, Some("fixed"));
    assert_eq!(tables.name_table(0, "of"), Err(Refusal::FixedTableName));
    tables.name_table(0, "fixed").unwrap();
    assert_eq!(name(&tables), "fixed");
    tables.fix_table_name(0, None);
    assert_eq!(name(&tables), "");
    tables.name_table(0, "of").unwrap();
    assert_eq!(name(&tables), "of");
}
