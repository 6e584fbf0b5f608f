use std::sync::{Arc, Weak};

use flow::request::{FlowFilter, Flows, Refusal};
use pipeline::{Rule, Tables};

use super::clock::Clock;
use super::ordered::{Mutex, rank};

/// Snapshots of the rules of a table, or of all tables, for replies that are being written.
/// Requests for the same tables share a snapshot until a rule changes, and the last reply frees the
/// snapshot. A reply applies its filter to a rule only when it writes that rule.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last: Mutex<Option<Last>, { rank::LAST }>,
}

#[derive(Debug)]
struct Last {
    generation: u64,
    /// The table of the rules; `None`: all tables.
    table: Option<u8>,
    snapshot: Weak<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    rules: Vec<Arc<Rule>>,
    /// The number of the latest change of these rules.
    newest: u64,
}

impl Snapshots {
    /// Returns the rules that match a filter now.
    pub(super) fn flows(
        &self,
        tables: &Tables,
        filter: &FlowFilter,
        clock: &Arc<Clock>,
    ) -> Result<Flows, Refusal> {
        self.select(tables, filter, clock, SEARCHED_AT_ONCE)
    }

    /// Like [`Snapshots::flows`], but with a limit: a search that checks at most `most` rules runs
    /// at once.
    fn select(
        &self,
        tables: &Tables,
        filter: &FlowFilter,
        clock: &Arc<Clock>,
        most: usize,
    ) -> Result<Flows, Refusal> {
        let snapshot = match tables.is_search_short(filter, most) {
            true => Arc::new(Snapshot::of(tables.rules(filter)?)),
            false => self.snapshot(tables, filter.table)?,
        };
        Ok(flows(snapshot, filter, clock))
    }

    fn snapshot(&self, tables: &Tables, table: Option<u8>) -> Result<Arc<Snapshot>, Refusal> {
        let mut last = self.last.lock();
        let generation = tables.generation();
        let is_same = |last: &&Last| last.generation == generation && last.table == table;
        if let Some(snapshot) =
            last.as_ref().filter(is_same).and_then(|last| last.snapshot.upgrade())
        {
            return Ok(snapshot);
        }
        let all = FlowFilter { table, ..FlowFilter::all() };
        let snapshot = Arc::new(Snapshot::of(tables.rules(&all)?));
        *last = Some(Last { generation, table, snapshot: Arc::downgrade(&snapshot) });
        Ok(snapshot)
    }
}

impl Snapshot {
    fn of(rules: Vec<Arc<Rule>>) -> Self {
        let newest = rules.iter().map(|rule| rule.changed).max();
        Self { rules, newest: newest.unwrap_or(0) }
    }
}

/// Returns the rules that match a filter now and whose last change is later than change number
/// `since`, in the order of their changes.
pub(super) fn changes(
    tables: &Tables,
    filter: &FlowFilter,
    since: u64,
    clock: &Arc<Clock>,
) -> Result<Flows, Refusal> {
    let mut rules = tables.filtered(filter)?;
    rules.retain(|rule| rule.changed > since);
    rules.sort_by_key(|rule| rule.changed);
    Ok(flows(Arc::new(Snapshot::of(rules)), filter, clock))
}

/// Returns the rules of a snapshot that match a filter.
fn flows(snapshot: Arc<Snapshot>, filter: &FlowFilter, clock: &Arc<Clock>) -> Flows {
    let (filter, clock) = (filter.clone(), clock.clone());
    let newest = snapshot.newest;
    let rules = (0..snapshot.rules.len()).map(move |index| {
        let rule = &snapshot.rules[index];
        rule.is_taken_by(&filter).then(|| rule.entry(clock.now_ms()))
    });
    Flows::selected(newest, rules)
}

/// Maximum number of rules and masks for which a search runs as soon as the request arrives.
const SEARCHED_AT_ONCE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::request::{CookieFilter, FlowCommand, FlowMod};

    /// Adds a rule whose cookie is its priority.
    fn add(tables: &mut Tables, priority: u16) {
        let cookie = Some(priority.into());
        let change = FlowMod { priority, cookie, ..FlowMod::new(FlowCommand::Add) };
        tables.flow_mod(change, 0).unwrap();
    }

    fn priorities(flows: Flows) -> Vec<u16> {
        flows.map(|flow| flow.priority).collect()
    }

    #[test]
    fn a_reply_lists_the_rules_at_the_time_of_the_request() {
        let (mut tables, clock) = (Tables::new(), Arc::new(Clock::start()));
        let snapshots = Snapshots::default();
        let all = FlowFilter::all();
        add(&mut tables, 1);
        add(&mut tables, 2);
        let former = snapshots.flows(&tables, &all, &clock).unwrap();
        add(&mut tables, 3);
        tables
            .flow_mod(FlowMod { priority: 1, ..FlowMod::new(FlowCommand::DeleteStrict) }, 0)
            .unwrap();
        let later = snapshots.flows(&tables, &all, &clock).unwrap();
        assert_eq!(later.newest(), former.newest() + 1);
        assert_eq!(priorities(former), [2, 1]);
        assert_eq!(priorities(later), [3, 2]);
    }

    #[test]
    fn a_reply_filters_a_rule_only_when_it_writes_the_rule() {
        let (mut tables, clock) = (Tables::new(), Arc::new(Clock::start()));
        let snapshots = Snapshots::default();
        [1, 2, 3].into_iter().for_each(|priority| add(&mut tables, priority));
        let cookie = CookieFilter { value: 2, mask: u64::MAX };
        let filter = FlowFilter { cookie, ..FlowFilter::all() };
        let mut flows = snapshots.select(&tables, &filter, &clock, 0).unwrap();
        assert!(flows.look().is_none() && !flows.is_over());
        assert_eq!(flows.look().map(|flow| flow.priority), Some(2));
        assert!(flows.look().is_none() && flows.is_over());
        // A short search runs at once. The list of a short search has only the matching rule.
        let mut flows = snapshots.flows(&tables, &filter, &clock).unwrap();
        assert_eq!(flows.look().map(|flow| flow.priority), Some(2));
        assert!(flows.is_over());
    }

    #[test]
    fn changed_rules_are_listed_in_the_order_of_their_changes() {
        let (mut tables, clock) = (Tables::new(), Arc::new(Clock::start()));
        [3, 5, 4].into_iter().for_each(|priority| add(&mut tables, priority));
        let all = FlowFilter::all();
        assert_eq!(priorities(changes(&tables, &all, 0, &clock).unwrap()), [3, 5, 4]);
        assert_eq!(priorities(changes(&tables, &all, 1, &clock).unwrap()), [5, 4]);
        assert!(priorities(changes(&tables, &all, 3, &clock).unwrap()).is_empty());
    }

    #[test]
    fn requests_for_the_same_tables_share_a_snapshot_until_a_rule_changes() {
        let mut tables = Tables::new();
        let snapshots = Snapshots::default();
        add(&mut tables, 1);
        let first = snapshots.snapshot(&tables, None).unwrap();
        assert!(Arc::ptr_eq(&first, &snapshots.snapshot(&tables, None).unwrap()));
        assert!(snapshots.snapshot(&tables, Some(1)).unwrap().rules.is_empty());
        let second = snapshots.snapshot(&tables, None).unwrap();
        add(&mut tables, 2);
        assert_eq!(snapshots.snapshot(&tables, None).unwrap().rules.len(), 2);
        assert_eq!((first.rules.len(), second.rules.len()), (1, 1));
    }

    #[test]
    fn the_last_reply_frees_its_snapshot() {
        let mut tables = Tables::new();
        let snapshots = Snapshots::default();
        add(&mut tables, 1);
        let clock = Arc::new(Clock::start());
        let flows = snapshots.select(&tables, &FlowFilter::all(), &clock, 0).unwrap();
        let is_there = || {
            let last = snapshots.last.lock();
            last.as_ref().is_some_and(|last| last.snapshot.strong_count() > 0)
        };
        assert!(is_there());
        drop(flows);
        assert!(!is_there());
    }
}
