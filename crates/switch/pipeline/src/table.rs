use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::request::{TableConfig, TableEntry, TableLimit, TableMod, TableStatus, VacancyChange};
use flow::step::Counters;

use super::classifier::Classifier;
use super::rule::Rule;

/// A table of rules.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rules: Classifier,
    pub(super) missed: Arc<Counters>,
    /// The number of packets that removed rules have counted.
    pub(super) former_packets: u64,
    pub(super) config: TableConfig,
    pub(super) limit: TableLimit,
    name: String,
    /// Whether the switch's settings name the table. OpenFlow then cannot rename the table.
    has_fixed_name: bool,
    /// The next change of the vacancy that the table has to report.
    awaited: Option<VacancyChange>,
}

impl Table {
    /// Removes a rule and keeps its packet count.
    pub(super) fn take(&mut self, rule: &Arc<Rule>) -> bool {
        let is_there = self.rules.remove(rule);
        if is_there {
            self.former_packets += rule.counters.packets.load(Ordering::Relaxed);
        }
        is_there
    }

    pub(super) fn entry(&self, number: u8) -> TableEntry {
        let packets = |rule: &Arc<Rule>| rule.counters.packets.load(Ordering::Relaxed);
        let matched = self.former_packets + self.rules.iter().map(packets).sum::<u64>();
        TableEntry {
            table: number,
            name: self.name.clone(),
            active: self.rules.len() as u32,
            lookups: matched + self.missed.packets.load(Ordering::Relaxed),
            matched,
            max_entries: self.limit.rules.unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES),
            config: self.config,
            vacancy: self.vacancy(),
        }
    }

    /// Changes the settings. If the change turns vacancy reports on, the first report is a rise for
    /// a vacancy below the upper limit, and otherwise a fall.
    pub(super) fn configure(&mut self, change: &TableMod) {
        self.config.miss = change.miss.unwrap_or(self.config.miss);
        self.config.is_evicting = change.is_evicting.unwrap_or(self.config.is_evicting);
        if let Some(vacancy) = change.vacancy {
            self.config.vacancy = vacancy;
            let is_below = vacancy.is_some_and(|(_, up)| self.vacancy() < up);
            let first = if is_below { VacancyChange::Up } else { VacancyChange::Down };
            self.awaited = vacancy.map(|_| self.awaited.unwrap_or(first));
        }
    }

    /// Sets the table's name as OpenFlow asks. Returns false if the switch's settings give the
    /// table another name.
    pub(super) fn rename(&mut self, name: &str) -> bool {
        if self.has_fixed_name {
            return self.name == name;
        }
        name.clone_into(&mut self.name);
        true
    }

    /// Sets the table's name from the switch's settings, or removes the name.
    pub(super) fn fix_name(&mut self, name: Option<&str>) {
        if name.is_some() || self.has_fixed_name {
            name.unwrap_or_default().clone_into(&mut self.name);
            self.has_fixed_name = name.is_some();
        }
    }

    /// Whether the table has no space for another rule.
    pub(super) fn is_full(&self) -> bool {
        self.limit.rules.is_some_and(|most| self.rules.len() >= most as usize)
    }

    /// Returns the rule to evict for a new rule.
    pub(super) fn first_to_go(&self) -> Option<Arc<Rule>> {
        self.evictable().min_by_key(|(order, _)| *order).map(|(_, rule)| rule.clone())
    }

    /// Returns the rules to evict because the table has more rules than its limit.
    pub(super) fn beyond_limit(&self) -> Vec<Arc<Rule>> {
        let most = self.limit.rules.map_or(usize::MAX, |most| most as usize);
        let excess = self.rules.len().saturating_sub(most);
        if excess == 0 {
            return Vec::new();
        }
        let mut rules: Vec<_> = self.evictable().collect();
        rules.sort_unstable_by_key(|(order, _)| *order);
        rules.into_iter().take(excess).map(|(_, rule)| rule.clone()).collect()
    }

    /// Whether the table reports its vacancy.
    pub(super) fn is_reporting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns the vacancy report that is due, if any. After a fall, the table reports a rise next;
    /// after a rise, a fall.
    pub(super) fn report(&mut self, number: u8) -> Option<TableStatus> {
        let (down, up) = self.config.vacancy?;
        let vacancy = self.vacancy();
        let (change, next) = if vacancy < down {
            (VacancyChange::Down, VacancyChange::Up)
        } else if vacancy > up {
            (VacancyChange::Up, VacancyChange::Down)
        } else {
            return None;
        };
        if self.awaited != Some(change) {
            return None;
        }
        self.awaited = Some(next);
        Some(TableStatus { change, table: number, config: self.config, vacancy })
    }

    /// Returns the percentage of free entries.
    fn vacancy(&self) -> u8 {
        let most = u64::from(self.limit.rules.unwrap_or(u32::MAX)).max(1);
        let free = most.saturating_sub(self.rules.len() as u64);
        (free * 100 / most) as u8
    }

    /// Returns the rules that may be evicted, with their order, if eviction is on. As in Open
    /// vSwitch, rules without timeouts stay. The least important rule is evicted first, then the
    /// rule that expires first.
    fn evictable(&self) -> impl Iterator<Item = ((u16, u64, u64), &Arc<Rule>)> {
        let is_evicting = self.limit.is_evicting || self.config.is_evicting;
        let rules = self.rules.iter().filter(move |_| is_evicting);
        rules.filter_map(|rule| {
            let (deadline, _) = rule.deadline()?;
            Some(((rule.importance, deadline, rule.added), rule))
        })
    }
}

/// The limit that the switch reports for a table without a limit.
const MAX_ENTRIES: u32 = 1_000_000;
