use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{
    FlowEntry, FlowFilter, Fragments, GroupEntry, GroupMod, GroupStatistics, MeterCommand,
    MeterEntry, MeterMod, MeterStatistics, Refusal, TABLES, TableEntry, TableLimit, TableMod,
    TableStatus,
};
use flow::step::{Counters, MeterId};

use super::bond::Bond;
use super::change::Log;
use super::event::{RecordedEvent, RuleEvent};
use super::expiry::{Removal, RemovalReason, Timers};
use super::group::{Group, Groups};
use super::learned_cookies::LearnedCookies;
use super::mac::{FormerMac, MacCounts, MacEntry, MacTable, MacTableFull};
use super::meter::Meter;
use super::mirror::{Mirror, MirrorOutput};
use super::patch::Patch;
use super::ports::{BridgePort, Ports};
use super::recirculation::Recirculations;
use super::references::{Named, References};
use super::rule::Rule;
use super::table::Table;
use super::translate::Failure;
use super::vlans::PortVlans;

/// All the state of a bridge on which translations depend.
///
/// Translations borrow the tables. A translation that learns changes the tables through inner
/// locks.
#[derive(Debug)]
pub struct Tables {
    /// The index of the bridge in the switch.
    pub(super) place: u16,
    pub(super) tables: Vec<RwLock<Table>>,
    pub(super) groups: Groups,
    meters: BTreeMap<u32, Meter>,
    ports: Ports,
    pub(super) macs: Mutex<MacTable>,
    pub(super) recirculations: Mutex<Recirculations>,
    pub(super) timers: Mutex<Timers>,
    pub(super) removals: Mutex<Vec<Removal>>,
    /// Whether changes of rules are recorded for monitors.
    pub is_watched: bool,
    /// Whether a controller requested the change that is being made.
    is_requested: bool,
    pub(super) events: Mutex<Vec<RecordedEvent>>,
    table_statuses: Mutex<Vec<TableStatus>>,
    pub(super) learned_cookies: Mutex<LearnedCookies>,
    pub(super) references: Mutex<References>,
    /// The number of the latest change of a rule.
    changes: AtomicU64,
    generation: Arc<AtomicU64>,
    /// The generations of the bridges whose translations may reach this bridge through patch ports.
    followers: Vec<Arc<AtomicU64>>,
    /// Whether packets that match no rule go to the controllers.
    pub is_miss_sent: bool,
    /// Whether the bridge forwards by NORMAL instead of its rules, because no controller is
    /// connected.
    is_standalone: bool,
    fragments: Fragments,
    /// Whether NORMAL forwards to the addresses that bridges keep for themselves.
    pub(super) forwards_reserved: bool,
    /// Whether megaflows and steps must equal those of Open vSwitch.
    pub(super) is_alike: bool,
    /// The counters of the packets that each limit dropped, in the order of [`Failure::ALL`].
    pub(super) failures: [Arc<Counters>; Failure::ALL.len()],
}

impl Tables {
    /// Creates the tables of the first bridge of a switch.
    #[must_use]
    pub fn new() -> Self {
        Self::at(0)
    }

    /// Creates the tables of the bridge with this index in the switch.
    #[must_use]
    pub fn at(place: u16) -> Self {
        Self {
            place,
            tables: (0..TABLES).map(|_| RwLock::default()).collect(),
            groups: Groups::default(),
            meters: BTreeMap::new(),
            ports: Ports::default(),
            macs: Mutex::default(),
            recirculations: Mutex::default(),
            timers: Mutex::default(),
            removals: Mutex::default(),
            is_watched: false,
            is_requested: false,
            events: Mutex::default(),
            table_statuses: Mutex::default(),
            learned_cookies: Mutex::default(),
            references: Mutex::default(),
            changes: AtomicU64::new(0),
            generation: Arc::new(AtomicU64::new(1)),
            followers: Vec::new(),
            is_miss_sent: false,
            is_standalone: false,
            fragments: Fragments::default(),
            forwards_reserved: false,
            is_alike: false,
            failures: Default::default(),
        }
    }

    /// Returns the generation, which changes whenever earlier translations may be outdated.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the counter behind [`Tables::generation`], for readers that do not borrow the
    /// tables.
    #[must_use]
    pub fn generation_source(&self) -> Arc<AtomicU64> {
        self.generation.clone()
    }

    /// How the tables handle IP fragments.
    #[must_use]
    pub fn fragments(&self) -> Fragments {
        self.fragments
    }

    /// Returns the number of packets that a limit dropped.
    #[must_use]
    pub fn failed_packets(&self, failure: Failure) -> u64 {
        self.failures[failure as usize].packets.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_standalone(&self) -> bool {
        self.is_standalone
    }

    /// Sets whether the bridge forwards by NORMAL instead of its rules.
    pub fn set_standalone(&mut self, is_standalone: bool) {
        if self.is_standalone != is_standalone {
            self.is_standalone = is_standalone;
            self.invalidate();
        }
    }

    /// Makes megaflows equal those of Open vSwitch. Megaflows then also depend on the former values
    /// of fields that steps set, so that there are more megaflows.
    pub fn set_alike(&mut self) {
        if !std::mem::replace(&mut self.is_alike, true) {
            self.invalidate();
        }
    }

    pub fn set_fragments(&mut self, fragments: Fragments) {
        if self.fragments != fragments {
            self.fragments = fragments;
            self.invalidate();
        }
    }

    /// Returns the rules that match a filter, sorted by table, then by descending priority.
    pub fn flows(&self, filter: &FlowFilter, now_ms: u64) -> Result<Vec<FlowEntry>, Refusal> {
        Ok(self.rules(filter)?.iter().map(|rule| rule.entry(now_ms)).collect())
    }

    /// Like [`Tables::flows`], but returns the rules themselves.
    pub fn rules(&self, filter: &FlowFilter) -> Result<Vec<Arc<Rule>>, Refusal> {
        let mut rules = self.filtered(filter)?;
        rules.sort_by_cached_key(|rule| (rule.table, std::cmp::Reverse(rule.priority)));
        Ok(rules)
    }

    /// Whether a rule still exists. The rule's actions may have changed.
    #[must_use]
    pub fn has_flow(&self, flow: &FlowEntry) -> bool {
        if flow.table >= TABLES {
            return false;
        }
        let table = self.table(flow.table);
        let found = table.rules.find(&flow.matching, flow.priority);
        found.is_some_and(|rule| rule.added == flow.added)
    }

    #[must_use]
    pub fn tables(&self) -> Vec<TableEntry> {
        (0..TABLES).filter_map(|number| self.table_entry(number)).collect()
    }

    #[must_use]
    pub fn table_entry(&self, number: u8) -> Option<TableEntry> {
        if number >= TABLES {
            return None;
        }
        Some(self.table(number).entry(number))
    }

    /// Changes the settings of a table, or of all tables.
    pub fn table_mod(&mut self, change: &TableMod) -> Result<(), Refusal> {
        match change.table {
            // Open vSwitch reserves this table for itself.
            Some(TABLES) => return Err(Refusal::ReservedTable),
            Some(table) if table > TABLES => return Err(Refusal::BadTable),
            _ => {}
        }
        for number in change.table.map_or(0..TABLES, |table| table..table + 1) {
            self.table_mut(number).configure(change);
        }
        self.invalidate();
        Ok(())
    }

    /// Limits the rules of a table. Evicts rules beyond the limit if eviction is on.
    pub fn limit_table(&mut self, number: u8, limit: TableLimit, now_ms: u64) {
        if number >= TABLES || self.table(number).limit == limit {
            return;
        }
        self.table_mut(number).limit = limit;
        let mut log = Log::default();
        let evicted = self.table(number).beyond_limit();
        for rule in evicted {
            self.remove(rule, RemovalReason::Eviction, now_ms, &mut log);
        }
        self.finish(log, now_ms);
    }

    /// Gives a table a name for users.
    pub fn name_table(&mut self, number: u8, name: &str) -> Result<(), Refusal> {
        if number >= TABLES {
            return Err(Refusal::BadTableFeature);
        }
        if self.table_mut(number).rename(name) { Ok(()) } else { Err(Refusal::FixedTableName) }
    }

    /// Gives a table a name that OpenFlow cannot change, or removes that name.
    pub fn fix_table_name(&mut self, number: u8, name: Option<&str>) {
        if number < TABLES {
            self.table_mut(number).fix_name(name);
        }
    }

    #[must_use]
    pub fn port_set(&self) -> &Ports {
        &self.ports
    }

    /// Adds a port. Returns the replaced port, which had the same number.
    pub fn insert_port(&mut self, port: BridgePort) -> Option<BridgePort> {
        let former = self.ports.insert(port);
        self.invalidate();
        former
    }

    /// Sets the VLANs of a port. If the VLANs change, the addresses learned at the port are
    /// removed.
    pub fn set_port_vlans(&mut self, number: PortNumber, vlans: PortVlans) {
        let plain = PortVlans::default();
        let former = self.ports.vlans(number).unwrap_or(&plain);
        if *former == vlans || (former.is_plain() && vlans.is_plain()) {
            return;
        }
        self.ports.set_vlans(number, vlans);
        lock(&self.macs).forget(number);
        self.invalidate();
    }

    /// Sets the mirrors of the bridge, at most [`Mirror::MOST`].
    pub fn set_mirrors(&mut self, mut mirrors: Vec<Mirror>) {
        mirrors.truncate(Mirror::MOST);
        if self.ports.mirrors != mirrors {
            for mirror in &mirrors {
                // NORMAL does not send to a mirror's output port, so the addresses learned at this
                // port are removed.
                if let MirrorOutput::Port(port) = mirror.output {
                    lock(&self.macs).forget(port);
                }
            }
            self.ports.mirrors = mirrors;
            self.invalidate();
        }
    }

    /// Sets the peer of a patch port.
    pub fn set_patch(&mut self, number: PortNumber, patch: Option<Patch>) {
        if self.ports.set_patch(number, patch) {
            self.invalidate();
        }
    }

    /// Sets the generations of the bridges whose translations may reach this bridge through patch
    /// ports. A change of this bridge also changes these generations.
    pub fn set_followers(&mut self, followers: Vec<Arc<AtomicU64>>) {
        let is_same = followers.len() == self.followers.len()
            && followers.iter().zip(&self.followers).all(|(a, b)| Arc::ptr_eq(a, b));
        if !is_same {
            self.followers = followers;
            self.invalidate();
        }
    }

    /// Sets the present bonds of the bridge. Returns whether the bonds changed.
    pub fn set_bonds(&mut self, bonds: Vec<Bond>) -> bool {
        if *self.ports.bonds() == *bonds {
            return false;
        }
        let members = self.ports.bonds().iter().chain(&bonds).flat_map(|bond| &bond.members);
        let former: BTreeMap<_, _> =
            members.map(|port| (*port, self.ports.bundle(*port))).collect();
        self.ports.set_bonds(bonds);
        // Addresses learned at the ports of changed bonds now belong to another port, so the
        // addresses are removed.
        let moved = former.into_iter().filter(|(port, former)| self.ports.bundle(*port) != *former);
        let gone: BTreeSet<_> = moved.flat_map(|(port, former)| [port, former]).collect();
        for port in gone {
            lock(&self.macs).forget(port);
        }
        self.invalidate();
        true
    }

    pub fn remove_port(&mut self, number: PortNumber) -> Option<BridgePort> {
        let removed = self.ports.remove(number)?;
        lock(&self.macs).forget(number);
        self.invalidate();
        Some(removed)
    }

    pub fn group_mod(&mut self, change: GroupMod, now_ms: u64) -> Result<(), Refusal> {
        let mut log = Log::default();
        self.change_groups(&change, now_ms, &mut log)?;
        self.finish(log, now_ms);
        self.invalidate();
        Ok(())
    }

    pub(super) fn change_groups(
        &mut self,
        change: &GroupMod,
        now_ms: u64,
        log: &mut Log,
    ) -> Result<(), Refusal> {
        for bucket in &change.buckets {
            self.check_bucket(&bucket.actions)?;
        }
        // The list of deleted groups is sorted by number.
        let gone = self.groups.change(change, now_ms)?;
        let is_gone =
            |action: &Action| matches!(action, Action::Group(id) if gone.binary_search(id).is_ok());
        if !gone.is_empty() {
            self.remove_where(RemovalReason::GroupDelete, now_ms, log, |rule| {
                super::rule::any(&rule.actions, &is_gone)
            });
        }
        Ok(())
    }

    /// Returns the number of a group if the group exists, or the numbers of all groups if `group`
    /// is [`GroupMod::ALL`].
    #[must_use]
    pub fn group_numbers(&self, group: u32) -> Vec<u32> {
        self.chosen_groups(group).map(|group| group.entry.group).collect()
    }

    #[must_use]
    pub fn groups(&self, group: u32) -> Vec<GroupEntry> {
        self.chosen_groups(group).map(|group| group.entry.clone()).collect()
    }

    #[must_use]
    pub fn group_statistics(&self, group: u32, now_ms: u64) -> Vec<GroupStatistics> {
        let references = lock(&self.references);
        let rules = |group: &Group| references.of(Named::Group(group.entry.group));
        self.chosen_groups(group).map(|group| group.statistics(rules(group), now_ms)).collect()
    }

    pub fn meter_mod(&mut self, change: MeterMod, now_ms: u64) -> Result<(), Refusal> {
        let exists = self.meters.contains_key(&change.meter);
        match change.command {
            MeterCommand::Add if exists => return Err(Refusal::MeterExists),
            MeterCommand::Modify if !exists => return Err(Refusal::UnknownMeter),
            MeterCommand::Add | MeterCommand::Modify => {
                let is_virtual = matches!(change.meter, MeterMod::SLOW_PATH | MeterMod::CONTROLLER);
                if !is_virtual && !(1..=LAST_METER).contains(&change.meter) {
                    return Err(Refusal::BadMeter);
                }
                let created_ms =
                    self.meters.get(&change.meter).map_or(now_ms, |old| old.created_ms);
                self.meters.insert(change.meter, Meter::new(&change, created_ms));
            }
            MeterCommand::Delete => {
                let is_gone = |id: u32| change.meter == MeterMod::ALL || change.meter == id;
                self.meters.retain(|id, _| !is_gone(*id));
                let mut log = Log::default();
                self.remove_where(RemovalReason::MeterDelete, now_ms, &mut log, |rule| {
                    let meters =
                        |action: &Action| matches!(action, Action::Meter(id) if is_gone(*id));
                    super::rule::any(&rule.actions, &meters)
                });
                self.finish(log, now_ms);
            }
        }
        self.invalidate();
        Ok(())
    }

    /// Returns the number of a meter, or the numbers of all meters if `meter` is [`MeterMod::ALL`].
    pub fn meter_numbers(&self, meter: u32) -> Result<Vec<u32>, Refusal> {
        Ok(self.chosen_meters(meter)?.map(|meter| meter.entry.meter).collect())
    }

    pub fn meters(&self, meter: u32) -> Result<Vec<MeterEntry>, Refusal> {
        Ok(self.chosen_meters(meter)?.map(|meter| meter.entry.clone()).collect())
    }

    /// Returns the statistics of meters: the number of rules that use each meter. The datapath
    /// counts the packets.
    pub fn meter_statistics(
        &self,
        meter: u32,
        now_ms: u64,
    ) -> Result<Vec<MeterStatistics>, Refusal> {
        let meters = self.chosen_meters(meter)?;
        let references = lock(&self.references);
        let rules = |meter: &Meter| references.of(Named::Meter(meter.entry.meter));
        Ok(meters.map(|meter| meter.statistics(rules(meter), now_ms)).collect())
    }

    /// Removes the rules whose timeouts have passed, and ages the MAC table.
    pub fn expire(&mut self, now_ms: u64) -> Vec<Removal> {
        let mut removed = Vec::new();
        let mut gone = Vec::new();
        loop {
            let due = lock(&self.timers).due(now_ms);
            let Some(rule) = due else { break };
            let Some((at, is_idle)) = rule.deadline() else { continue };
            if at > now_ms {
                lock(&self.timers).add(&rule);
                continue;
            }
            let reason =
                if is_idle { RemovalReason::IdleTimeout } else { RemovalReason::HardTimeout };
            if self.table_mut(rule.table).take(&rule) {
                let entry = rule.entry(now_ms);
                self.record(|| Some(RuleEvent::Deleted { flow: entry.clone(), reason }));
                removed.push(Removal { rule: entry, reason });
                gone.push(rule);
            }
        }
        self.count_rules(std::iter::empty(), gone.iter().map(AsRef::as_ref), now_ms);
        self.report_vacancies(gone.iter().map(|rule| rule.table));
        let has_aged = lock(&self.macs).expire(now_ms);
        if has_aged || !removed.is_empty() {
            self.invalidate();
        }
        lock(&self.recirculations).sweep(now_ms);
        removed
    }

    /// Returns the earliest time at which [`Tables::expire`] can remove a rule.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        lock(&self.timers).next()
    }

    /// Returns the rules with the flag send_flow_rem that changes have removed since the last call.
    /// Rules removed by timeouts are not included.
    #[must_use]
    pub fn take_removals(&self) -> Vec<Removal> {
        std::mem::take(&mut *lock(&self.removals))
    }

    /// Returns the changes of rules since the last call, in order. The list is empty unless the
    /// tables are watched.
    #[must_use]
    pub fn take_events(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// Returns the changes of tables' vacancies since the last call.
    #[must_use]
    pub fn take_table_statuses(&self) -> Vec<TableStatus> {
        std::mem::take(&mut *lock(&self.table_statuses))
    }

    /// Makes changes that a controller requested, and marks their events as requested.
    pub fn requested<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        self.is_requested = true;
        let outcome = change(self);
        self.is_requested = false;
        outcome
    }

    /// Returns the addresses that NORMAL learned, for `fdb/show`.
    #[must_use]
    pub fn mac_entries(&self, now_ms: u64) -> Vec<MacEntry> {
        lock(&self.macs).entries(now_ms)
    }

    #[must_use]
    pub fn mac_counts(&self) -> MacCounts {
        lock(&self.macs).counts()
    }

    pub fn clear_mac_counts(&self) {
        lock(&self.macs).clear_counts();
    }

    /// Changes the aging time and the maximum number of learned addresses.
    pub fn limit_macs(&mut self, aging_seconds: u64, capacity: usize) {
        lock(&self.macs).limit(aging_seconds, capacity);
        self.invalidate();
    }

    /// Sets whether NORMAL forwards to reserved addresses, such as those of BPDUs and LLDP.
    pub fn set_forwards_reserved(&mut self, forwards_reserved: bool) {
        if self.forwards_reserved != forwards_reserved {
            self.forwards_reserved = forwards_reserved;
            self.invalidate();
        }
    }

    /// Removes the learned addresses, as `fdb/flush` does.
    pub fn clear_macs(&mut self) {
        lock(&self.macs).clear();
        self.invalidate();
    }

    /// Adds an address at a port, as `fdb/add` does. Returns the replaced entry.
    pub fn add_mac(
        &mut self,
        vlan: u16,
        address: [u8; 6],
        port: PortNumber,
    ) -> Result<Option<FormerMac>, MacTableFull> {
        let former = lock(&self.macs).add(vlan, address, port);
        self.invalidate();
        former
    }

    /// Removes an address that a command added. Returns false if no command has added the address.
    pub fn remove_mac(&mut self, vlan: u16, address: [u8; 6]) -> bool {
        let is_removed = lock(&self.macs).remove_added(vlan, address);
        self.invalidate();
        is_removed
    }

    /// Whether the recirculation state with this number exists.
    #[must_use]
    pub fn has_recirculation(&self, id: u32) -> bool {
        lock(&self.recirculations).state(id).is_some()
    }

    /// Sets whether packets that match no rule go to the controllers.
    pub fn send_misses(&mut self, is_sent: bool) {
        if self.is_miss_sent != is_sent {
            self.is_miss_sent = is_sent;
            self.invalidate();
        }
    }

    pub(super) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for follower in &self.followers {
            follower.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn record(&self, event: impl FnOnce() -> Option<RuleEvent>) {
        if self.is_watched {
            let is_requested = self.is_requested;
            let event = event().map(|event| RecordedEvent { event, is_requested });
            lock(&self.events).extend(event);
        }
    }

    /// Reports vacancies of tables whose rules were added or removed.
    pub(super) fn report_vacancies(&self, tables: impl Iterator<Item = u8>) {
        let mut last = None;
        for number in tables {
            // Consecutive changes mostly concern the same table, and few tables report their
            // vacancy.
            if last.replace(number) != Some(number) && self.table(number).is_reporting() {
                let status = self.table_mut(number).report(number);
                lock(&self.table_statuses).extend(status);
            }
        }
    }

    /// Returns the number for a new change of a rule.
    pub(super) fn next_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn has_meter(&self, meter: u32) -> bool {
        self.meters.contains_key(&meter)
    }

    /// Returns the meter of packet-ins: the action's own meter if it exists, otherwise the virtual
    /// meter.
    pub(super) fn controller_meter(&self, own: Option<u32>) -> Option<MeterId> {
        let mut meters = [own, Some(MeterMod::CONTROLLER)].into_iter().flatten();
        meters.find(|meter| self.has_meter(*meter)).map(|meter| self.meter_id(meter))
    }

    /// Returns the meter's identity in the datapath.
    pub(super) fn meter_id(&self, meter: u32) -> MeterId {
        MeterId { bridge: self.place, meter }
    }

    pub(super) fn table(&self, number: u8) -> RwLockReadGuard<'_, Table> {
        self.tables[usize::from(number)].read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn table_mut(&self, number: u8) -> RwLockWriteGuard<'_, Table> {
        self.tables[usize::from(number)].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Tables::rules`], but in any order.
    pub fn filtered(&self, filter: &FlowFilter) -> Result<Vec<Arc<Rule>>, Refusal> {
        let mut found = Vec::new();
        for number in tables_of(filter) {
            let rules = self.table(number).rules.within(&filter.matching);
            found.extend(rules.into_iter().filter(|rule| {
                filter.cookie.takes(rule.cookie)
                    && rule.sends_to(filter.out_port)
                    && rule.has_group(filter.out_group)
            }));
        }
        Ok(found)
    }

    /// Whether the search for the rules that match a filter checks at most `most` masks and rules.
    pub fn is_search_short(&self, filter: &FlowFilter, most: usize) -> bool {
        let mut length = 0;
        tables_of(filter).all(|number| {
            length += self.table(number).rules.search_length(&filter.matching, most);
            length <= most
        })
    }

    fn chosen_groups(&self, group: u32) -> impl Iterator<Item = &Group> {
        let numbers = if group == GroupMod::ALL { 0..=u32::MAX } else { group..=group };
        self.groups.within(numbers)
    }

    fn chosen_meters(&self, meter: u32) -> Result<impl Iterator<Item = &Meter>, Refusal> {
        if meter != MeterMod::ALL && !self.meters.contains_key(&meter) {
            return Err(Refusal::UnknownMeter);
        }
        let numbers = if meter == MeterMod::ALL { 0..=u32::MAX } else { meter..=meter };
        Ok(self.meters.range(numbers).map(|(_, meter)| meter))
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the numbers of the tables that a filter selects.
fn tables_of(filter: &FlowFilter) -> std::ops::Range<u8> {
    match filter.table {
        None => 0..TABLES,
        Some(table) if table < TABLES => table..table + 1,
        Some(_) => 0..0,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const LAST_METER: u32 = 0xffff_0000;
