//! Actions that change rules: learn and fin_timeout.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::action::{Action, Learn, LearnDestination, LearnSource, Subfield};
use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowMod};
use flow::step::Counters;
use flow::{Field, Match, Prerequisite};

use super::Way;
use super::fields::{read_part, write_part};
use crate::tables::lock;

impl Way<'_> {
    pub(super) fn learn(&mut self, learn: &Learn) {
        let change = self.learned(learn);
        let mut is_allowed = true;
        if self.lengths.is_elsewhere() {
            // A packet with the other result of the length check learns the rule when it is
            // translated separately.
            self.is_cacheable = false;
        } else if self.observer.is_none() {
            is_allowed = self.store_learned(learn, &change);
        }
        if let Some(result) = learn.result {
            self.write(result, is_allowed.into());
        }
    }

    /// Returns the change that adds the learned rule.
    fn learned(&mut self, learn: &Learn) -> FlowMod {
        let mut change = FlowMod::new(FlowCommand::ModifyStrict);
        change.table = Some(learn.table);
        change.priority = learn.priority;
        change.cookie = Some(learn.cookie);
        change.idle_timeout = learn.idle_timeout;
        change.hard_timeout = learn.hard_timeout;
        change.flags.send_flow_removed = learn.send_flow_removed;
        if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
            let (idle, hard) = (learn.fin_idle_timeout, learn.fin_hard_timeout);
            change.actions.push(Action::FinTimeout { idle, hard });
        }
        let mut matching = Match::any();
        for spec in &learn.specs {
            let value = match spec.source {
                LearnSource::Value(value) => value,
                LearnSource::Field(source) => self.read(source),
            };
            match spec.destination {
                LearnDestination::Match(destination) => {
                    let part = Subfield { width: spec.width, ..destination };
                    write_part(&mut matching.value, part, value);
                    write_part(&mut matching.mask, part, u128::MAX);
                }
                LearnDestination::Load(destination) => {
                    let destination = Subfield { width: spec.width, ..destination };
                    change.actions.push(Action::Load { destination, value });
                }
                LearnDestination::Output => {
                    let port = if spec.width <= 16 {
                        PortNumber::from_16_bits(value as u16)
                    } else {
                        PortNumber(value as u32)
                    };
                    change.actions.push(Action::Output { port, max_len: 0 });
                }
            }
        }
        change.matching = matching;
        change
    }

    /// Stores the learned rule. Returns `false` if the limit allows no further rule.
    fn store_learned(&mut self, learn: &Learn, change: &FlowMod) -> bool {
        if learn.table >= flow::request::TABLES {
            return false;
        }
        if !self.confirm(change) {
            if learn.limit != 0 && self.is_over(learn, change) {
                // Later packets try again, because a rule may have been removed meanwhile.
                self.is_cacheable = false;
                return false;
            }
            if self.tables.change(change, self.now_ms).is_err() || !self.confirm(change) {
                self.is_cacheable = false;
            }
        }
        if learn.delete_learned {
            // The learned rule may be removed together with the rule that learns it. A megaflow
            // must not outlive both rules.
            self.is_cacheable &= self.rule.is_some();
        }
        true
    }

    /// Whether the learned rule already exists with the packet's values. If so, restarts the rule's
    /// hard timeout, now and with each packet of the megaflow.
    fn confirm(&mut self, change: &FlowMod) -> bool {
        let table = self.tables.table(change.table.unwrap_or(0));
        let Some(rule) = table.rules.find(&change.matching, change.priority) else { return false };
        if *rule.actions != *change.actions || Some(rule.cookie) != change.cookie {
            return false;
        }
        let refreshed: &Arc<Counters> = rule.refreshed.get_or_init(Arc::default);
        refreshed.used.fetch_max(self.now_ms, Ordering::Relaxed);
        self.counters.push(refreshed.clone());
        true
    }

    fn is_over(&self, learn: &Learn, change: &FlowMod) -> bool {
        let table = self.tables.table(learn.table);
        if table.rules.find(&change.matching, change.priority).is_some() {
            return false;
        }
        let learned = table.rules.iter().filter(|rule| rule.cookie == learn.cookie);
        learned.take(learn.limit as usize).count() >= learn.limit as usize
    }

    /// Shortens the rule's timeouts at the end of a TCP connection.
    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) {
        if !self.has(Prerequisite::Tcp) {
            return;
        }
        let ends = Subfield { field: Field::TcpFlags, start: 0, width: 3 };
        const FIN_OR_RST: u128 = 0b101;
        if self.read(ends) & FIN_OR_RST == 0 || self.observer.is_some() {
            return;
        }
        debug_assert_eq!(read_part(&self.flow, ends), self.flow.read(Field::TcpFlags) & 7);
        if self.lengths.is_elsewhere() {
            self.is_cacheable = false;
            return;
        }
        let Some(rule) = &self.rule else { return };
        for (timeout, value) in [(&rule.idle_timeout, idle), (&rule.hard_timeout, hard)] {
            let former = timeout.load(Ordering::Relaxed);
            if value != 0 && (former == 0 || value < former) {
                timeout.store(value, Ordering::Relaxed);
            }
        }
        lock(&self.tables.timers).add(rule);
    }
}
