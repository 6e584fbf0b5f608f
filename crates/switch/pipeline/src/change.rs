use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::action::{Action, CtZone};
use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{FlowCommand, FlowMod, Refusal};

use super::event::RuleEvent;
use super::expiry::{Removal, RemovalReason};
use super::rule::Rule;
use super::tables::{Tables, lock};

impl Tables {
    pub fn flow_mod(&mut self, change: FlowMod, now_ms: u64) -> Result<(), Refusal> {
        self.change(&change, now_ms)
    }

    /// Makes all changes. If a change is refused, makes no change and returns the index of the
    /// refused change.
    pub fn change_all(
        &mut self,
        changes: Vec<FlowMod>,
        now_ms: u64,
    ) -> Result<(), (usize, Refusal)> {
        let mut log = Log::default();
        for (index, change) in changes.iter().enumerate() {
            if let Err(refusal) = self.apply(change, now_ms, &mut log) {
                self.undo(log);
                return Err((index, refusal));
            }
        }
        self.finish(log, now_ms);
        Ok(())
    }

    /// Makes a change through the inner locks of the tables. Learn actions change the tables in
    /// this way.
    pub(super) fn change(&self, change: &FlowMod, now_ms: u64) -> Result<(), Refusal> {
        let mut log = Log::default();
        let result = self.apply(change, now_ms, &mut log);
        match result {
            Ok(()) => self.finish(log, now_ms),
            Err(_) => self.undo(log),
        }
        result
    }

    pub(super) fn apply(
        &self,
        change: &FlowMod,
        now_ms: u64,
        log: &mut Log,
    ) -> Result<(), Refusal> {
        if change.table.is_some_and(|table| table >= TABLES) {
            return Err(Refusal::BadTable);
        }
        let first = change.table.unwrap_or(0);
        let tables = change.table.map_or(0..TABLES, |table| table..table + 1);
        match change.command {
            FlowCommand::Add => self.add(change, first, now_ms, log),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                self.check_actions(&change.actions, change.table)?;
                let mut is_any = false;
                let actions: Arc<[Action]> = change.actions.as_slice().into();
                for number in tables {
                    for rule in self.chosen(change, number) {
                        is_any = true;
                        self.modify(rule.modified(change, &actions, now_ms), log);
                    }
                }
                // A modification without a cookie adds no rule; modifications of OpenFlow 1.2 and
                // later have no cookie.
                if !is_any && change.cookie_filter.mask == 0 && change.cookie.is_some() {
                    return self.add(change, first, now_ms, log);
                }
                Ok(())
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                for number in tables {
                    for rule in self.chosen(change, number) {
                        if !rule.sends_to(change.out_port) || !rule.has_group(change.out_group) {
                            continue;
                        }
                        self.remove(rule, RemovalReason::Delete, now_ms, log);
                    }
                }
                Ok(())
            }
        }
    }

    fn add(&self, change: &FlowMod, number: u8, now_ms: u64, log: &mut Log) -> Result<(), Refusal> {
        self.check_actions(&change.actions, Some(number))?;
        let mut table = self.table_mut(number);
        let former = table.rules.find(&change.matching, change.priority).cloned();
        if former.is_none()
            && change.flags.check_overlap
            && table.rules.overlaps(&change.matching, change.priority)
        {
            return Err(Refusal::Overlap);
        }
        if former.is_none() && table.is_full() {
            let evicted = table.first_to_go().ok_or(Refusal::TableFull)?;
            table.take(&evicted);
            log.remove(evicted, RemovalReason::Eviction, now_ms);
        }
        let mask = table.rules.mask(&change.matching.mask);
        let mut rule = Rule::new(mask, number, change, now_ms);
        if let Some(former) = &former {
            if change.flags.reset_counts {
                table.former_packets += former.counters.packets.load(Ordering::Relaxed);
                rule.counters = former.reset_counters();
            } else {
                rule.counters = former.counters.clone();
            }
        }
        rule.changed = self.next_change();
        rule.added = former.as_ref().map_or(rule.changed, |former| former.added);
        let rule = Arc::new(rule);
        table.rules.insert(rule.clone());
        lock(&self.timers).add(&rule);
        log.done.push(match former {
            Some(former) => Done::Replaced(former, rule),
            None => Done::Added(rule),
        });
        Ok(())
    }

    /// Removes the rules of all tables for which `test` is true.
    pub(super) fn remove_where(
        &self,
        reason: RemovalReason,
        now_ms: u64,
        log: &mut Log,
        test: impl Fn(&Rule) -> bool,
    ) {
        for number in 0..TABLES {
            let rules: Vec<_> =
                self.table(number).rules.iter().filter(|rule| test(rule)).cloned().collect();
            rules.into_iter().for_each(|rule| self.remove(rule, reason, now_ms, log));
        }
    }

    pub(super) fn remove(
        &self,
        rule: Arc<Rule>,
        reason: RemovalReason,
        now_ms: u64,
        log: &mut Log,
    ) {
        self.table_mut(rule.table).take(&rule);
        log.remove(rule, reason, now_ms);
    }

    fn modify(&self, mut rule: Rule, log: &mut Log) {
        rule.changed = self.next_change();
        let rule = Arc::new(rule);
        // Meanwhile, a packet on another thread may have changed or removed the former rule.
        let replaced = self.table_mut(rule.table).rules.insert(rule.clone());
        lock(&self.timers).add(&rule);
        log.done.push(match replaced {
            Some(former) => Done::Modified(former, rule),
            None => Done::Added(rule),
        });
    }

    /// Returns the rules of a table that a modification or deletion selects.
    fn chosen(&self, change: &FlowMod, number: u8) -> Vec<Arc<Rule>> {
        let table = self.table(number);
        let is_strict =
            matches!(change.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let mut chosen = if is_strict {
            let found = table.rules.find(&change.matching, change.priority);
            found.cloned().into_iter().collect()
        } else {
            table.rules.within(&change.matching)
        };
        chosen.retain(|rule| change.cookie_filter.takes(rule.cookie));
        chosen
    }

    pub(super) fn finish(&self, log: Log, now_ms: u64) {
        for done in &log.done {
            let is_same = |former: &Rule, rule: &Rule| {
                former.cookie == rule.cookie && former.actions == rule.actions
            };
            self.record(|| match done {
                Done::Added(rule) => {
                    Some(RuleEvent::Added { flow: rule.entry(now_ms), former: Vec::new() })
                }
                Done::Replaced(former, rule) => Some(RuleEvent::Added {
                    flow: rule.entry(now_ms),
                    former: former.actions.to_vec(),
                }),
                Done::Modified(former, rule) if is_same(former, rule) => None,
                Done::Modified(former, rule) => Some(RuleEvent::Modified {
                    flow: rule.entry(now_ms),
                    former: former.actions.to_vec(),
                }),
                Done::Removed(rule, reason) => {
                    Some(RuleEvent::Deleted { flow: rule.entry(now_ms), reason: *reason })
                }
            });
        }
        if !log.removals.is_empty() {
            lock(&self.removals).extend(log.removals);
        }
        let came = log.done.iter().filter_map(|done| match done {
            Done::Added(rule) | Done::Replaced(_, rule) | Done::Modified(_, rule) => Some(&**rule),
            Done::Removed(..) => None,
        });
        let went = log.done.iter().filter_map(|done| match done {
            Done::Removed(rule, _) | Done::Replaced(rule, _) | Done::Modified(rule, _) => {
                Some(&**rule)
            }
            Done::Added(_) => None,
        });
        self.count_rules(came, went, now_ms);
        self.report_vacancies(log.done.iter().filter_map(|done| match done {
            Done::Added(rule) | Done::Removed(rule, _) => Some(rule.table),
            Done::Replaced(..) | Done::Modified(..) => None,
        }));
        if !log.done.is_empty() {
            self.invalidate();
        }
    }

    pub(super) fn undo(&self, log: Log) {
        for done in log.done.into_iter().rev() {
            match done {
                Done::Added(rule) => {
                    self.table_mut(rule.table).rules.remove(&rule);
                }
                Done::Removed(rule, _) => {
                    let mut table = self.table_mut(rule.table);
                    let packets = rule.counters.packets.load(Ordering::Relaxed);
                    table.former_packets = table.former_packets.saturating_sub(packets);
                    table.rules.insert(rule.clone());
                    lock(&self.timers).add(&rule);
                }
                Done::Replaced(former, _) | Done::Modified(former, _) => {
                    self.table_mut(former.table).rules.insert(former.clone());
                    lock(&self.timers).add(&former);
                }
            }
        }
        self.invalidate();
    }

    /// Refuses actions that name an invalid group, meter, table or port. `table`: the rule's table,
    /// if known.
    pub(super) fn check_actions(
        &self,
        actions: &[Action],
        table: Option<u8>,
    ) -> Result<(), Refusal> {
        self.check_list(actions, table, false)
    }

    /// Like [`Tables::check_actions`], for the actions of a bucket. A bucket may name a group that
    /// does not exist yet.
    pub(super) fn check_bucket(&self, actions: &[Action]) -> Result<(), Refusal> {
        self.check_list(actions, None, true)
    }

    fn check_list(
        &self,
        actions: &[Action],
        table: Option<u8>,
        is_bucket: bool,
    ) -> Result<(), Refusal> {
        for action in actions {
            match action {
                Action::Output { port, .. } | Action::OutputTruncated { port, .. } => {
                    check_port(*port)?;
                }
                Action::Enqueue { port, .. }
                    if port.is_reserved()
                        && *port != PortNumber::IN_PORT
                        && *port != PortNumber::LOCAL =>
                {
                    return Err(Refusal::BadOutPort);
                }
                Action::Group(group) if !is_bucket && self.groups.group(*group).is_none() => {
                    return Err(Refusal::BadOutGroup);
                }
                Action::Meter(meter) if !self.has_meter(*meter) => {
                    return Err(Refusal::BadMeter);
                }
                Action::GotoTable(to)
                    if *to >= TABLES || table.is_some_and(|table| *to <= table) =>
                {
                    return Err(Refusal::BadInstructionTable);
                }
                Action::SetField { field, .. } if !field.is_writable() => {
                    return Err(Refusal::BadSetField);
                }
                Action::Ct(ct) => {
                    if ct.table.is_some_and(|table| table >= TABLES) {
                        return Err(Refusal::BadTable);
                    }
                    if let CtZone::From(source) = ct.zone
                        && source.width != 16
                    {
                        return Err(Refusal::BadActionArgument);
                    }
                }
                Action::Clone(nested) | Action::WriteActions(nested) => {
                    self.check_list(nested, table, is_bucket)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn check_port(port: PortNumber) -> Result<(), Refusal> {
    match port {
        PortNumber::NONE | PortNumber::UNSET => Err(Refusal::BadOutPort),
        PortNumber(0xff00..=0xffff_feff) => Err(Refusal::BadOutPort),
        PortNumber(0xffff_ff00..0xffff_fff7) => Err(Refusal::BadOutPort),
        _ => Ok(()),
    }
}

/// The changes made so far, in order, so that a refusal can revert them.
#[derive(Debug, Default)]
pub(super) struct Log {
    done: Vec<Done>,
    removals: Vec<Removal>,
}

impl Log {
    /// Records the removal of a rule.
    fn remove(&mut self, rule: Arc<Rule>, reason: RemovalReason, now_ms: u64) {
        if rule.flags.send_flow_removed {
            self.removals.push(Removal { rule: rule.entry(now_ms), reason });
        }
        self.done.push(Done::Removed(rule, reason));
    }
}

#[derive(Debug)]
enum Done {
    Added(Arc<Rule>),
    Removed(Arc<Rule>, RemovalReason),
    /// The former rule, and the added rule that replaced it.
    Replaced(Arc<Rule>, Arc<Rule>),
    /// The former rule, and the same rule with other actions.
    Modified(Arc<Rule>, Arc<Rule>),
}
