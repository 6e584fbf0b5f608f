use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::port_number::PortNumber;
use flow::step::Counters;

/// The ports behind which NORMAL has seen MAC addresses, by VLAN.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<(u16, [u8; 6]), Learned>,
    /// The learned entries, sorted by the time of their last use, the oldest first. The times in
    /// this list may be outdated.
    by_age: BTreeSet<(u64, u16, [u8; 6])>,
    /// The number of learned entries of each port.
    by_port: HashMap<PortNumber, usize>,
    aging_ms: u64,
    capacity: usize,
    counts: MacCounts,
}

/// The counts of a MAC table since the start or the last clearing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MacCounts {
    /// The number of entries, and the maximum number.
    pub entries: usize,
    pub capacity: usize,
    /// Entries that a command added.
    pub fixed: usize,
    pub learned: u64,
    pub expired: u64,
    pub evicted: u64,
    /// Learned addresses that moved to another port.
    pub moved: u64,
    /// Number of times that the address of an added entry appeared at another port; the entry
    /// stayed.
    pub not_moved: u64,
}

#[derive(Debug, Clone)]
struct Learned {
    port: PortNumber,
    /// The time under which `by_age` lists the entry.
    listed_ms: u64,
    /// The counters to which megaflows with this source address add their packets.
    seen: Arc<Counters>,
    /// Whether a command added the entry. Such an entry does not age or move.
    is_fixed: bool,
}

impl Learned {
    fn used_ms(&self) -> u64 {
        self.seen.used.load(Ordering::Relaxed)
    }
}

/// A line of `fdb/show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacEntry {
    pub port: PortNumber,
    pub vlan: u16,
    pub address: [u8; 6],
    /// The age of the entry; `None` for an entry that a command added.
    pub age_seconds: Option<u64>,
}

/// An entry that was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerMac {
    pub port: PortNumber,
    pub is_fixed: bool,
}

impl MacTable {
    pub const AGING_SECONDS: u64 = 300;
    pub const CAPACITY: usize = 8192;

    #[must_use]
    pub fn new(aging_seconds: u64, capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            by_age: BTreeSet::new(),
            by_port: HashMap::new(),
            aging_ms: aging_seconds * 1000,
            capacity: capacity.max(1),
            counts: MacCounts::default(),
        }
    }

    /// Changes the limits. Addresses beyond the limits are removed later.
    pub fn limit(&mut self, aging_seconds: u64, capacity: usize) {
        self.aging_ms = aging_seconds * 1000;
        self.capacity = capacity.max(1);
    }

    /// Returns the port of a MAC address.
    #[must_use]
    pub fn port(&self, vlan: u16, address: [u8; 6], now_ms: u64) -> Option<PortNumber> {
        let entry = self.entries.get(&(vlan, address))?;
        (entry.is_fixed || now_ms < entry.used_ms() + self.aging_ms).then_some(entry.port)
    }

    /// Returns the counters of an entry. Each packet that these counters count renews the entry.
    #[must_use]
    pub fn seen(&self, vlan: u16, address: [u8; 6]) -> Option<Arc<Counters>> {
        self.entries.get(&(vlan, address)).map(|entry| entry.seen.clone())
    }

    /// Learns a MAC address at a port. Returns whether the entry is new or has moved to another
    /// port.
    pub fn learn(&mut self, vlan: u16, address: [u8; 6], port: PortNumber, now_ms: u64) -> bool {
        if address[0] & 1 != 0 {
            return false;
        }
        let known = self.entries.get(&(vlan, address));
        if let Some(entry) = known
            && entry.is_fixed
        {
            self.counts.not_moved += u64::from(entry.port != port);
            return false;
        }
        if let Some(entry) = known
            && entry.port == port
        {
            let is_news = entry.used_ms() + self.aging_ms <= now_ms;
            entry.seen.used.fetch_max(now_ms, Ordering::Relaxed);
            return is_news;
        }
        let seen = Arc::new(Counters::default());
        seen.used.store(now_ms, Ordering::Relaxed);
        let entry = Learned { port, listed_ms: now_ms, seen, is_fixed: false };
        if known.is_none() && self.entries.len() >= self.capacity {
            // Evict before the new address is counted, because its port may have fewer addresses
            // than other ports.
            self.forget_oldest();
        }
        self.counts.learned += 1;
        if let Some(former) = self.entries.insert((vlan, address), entry) {
            self.counts.learned -= 1;
            self.counts.moved += 1;
            self.unlist((former.listed_ms, vlan, address), former.port);
        }
        self.by_age.insert((now_ms, vlan, address));
        *self.by_port.entry(port).or_insert(0) += 1;
        if self.entries.len() > self.capacity {
            self.forget_oldest();
        }
        true
    }

    /// Adds an entry that never ages. Returns the replaced entry, or `Err` if the table is full.
    pub fn add(
        &mut self,
        vlan: u16,
        address: [u8; 6],
        port: PortNumber,
    ) -> Result<Option<FormerMac>, MacTableFull> {
        let key = (vlan, address);
        if !self.entries.contains_key(&key) && self.entries.len() >= self.capacity {
            return Err(MacTableFull);
        }
        let entry = Learned { port, listed_ms: 0, seen: Arc::default(), is_fixed: true };
        let former = self.entries.insert(key, entry);
        if let Some(former) = former.as_ref().filter(|former| !former.is_fixed) {
            self.unlist((former.listed_ms, vlan, address), former.port);
        }
        Ok(former.map(|former| FormerMac { port: former.port, is_fixed: former.is_fixed }))
    }

    /// Removes an entry that a command added. Returns false if no command has added the entry.
    pub fn remove_added(&mut self, vlan: u16, address: [u8; 6]) -> bool {
        let is_there = self.entries.get(&(vlan, address)).is_some_and(|entry| entry.is_fixed);
        if is_there {
            self.entries.remove(&(vlan, address));
        }
        is_there
    }

    /// Removes the addresses that were not seen for the aging time. Returns whether an address was
    /// removed.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let mut has_expired = false;
        while let Some(first) = self.by_age.first().copied()
            && first.0 + self.aging_ms <= now_ms
        {
            if !self.list_again(first) {
                self.remove_learned(first);
                self.counts.expired += 1;
                has_expired = true;
            }
        }
        has_expired
    }

    #[must_use]
    pub fn counts(&self) -> MacCounts {
        let fixed = self.entries.len() - self.by_age.len();
        let (entries, capacity) = (self.entries.len(), self.capacity);
        MacCounts { entries, capacity, fixed, ..self.counts }
    }

    pub fn clear_counts(&mut self) {
        self.counts = MacCounts::default();
    }

    /// Removes all learned entries.
    pub fn clear(&mut self) {
        self.entries.retain(|_, entry| entry.is_fixed);
        self.by_age.clear();
        self.by_port.clear();
    }

    /// Removes the learned entries of a port.
    pub fn forget(&mut self, port: PortNumber) {
        self.entries.retain(|_, entry| entry.port != port);
        let entries = &self.entries;
        self.by_age.retain(|(_, vlan, address)| entries.contains_key(&(*vlan, *address)));
        self.by_port.remove(&port);
    }

    /// Returns all entries as `fdb/show` lists them, the longest unused first.
    #[must_use]
    pub fn entries(&self, now_ms: u64) -> Vec<MacEntry> {
        let mut known: Vec<_> = self.entries.iter().collect();
        known.sort_by_key(|(key, entry)| (entry.is_fixed, entry.used_ms(), **key));
        let entry = |(key, entry): (&(u16, [u8; 6]), &Learned)| MacEntry {
            port: entry.port,
            vlan: key.0,
            address: key.1,
            age_seconds: (!entry.is_fixed).then(|| now_ms.saturating_sub(entry.used_ms()) / 1000),
        };
        known.into_iter().map(entry).collect()
    }

    /// Removes the oldest address of the ports with the most addresses. Ports with fewer addresses
    /// keep all their addresses.
    fn forget_oldest(&mut self) {
        let Some(most) = self.by_port.values().max().copied() else { return };
        loop {
            let (entries, by_port) = (&self.entries, &self.by_port);
            let has_most = |listed: &&(u64, u16, [u8; 6])| {
                let entry = entries.get(&(listed.1, listed.2));
                entry.is_some_and(|entry| by_port.get(&entry.port) == Some(&most))
            };
            let Some(first) = self.by_age.iter().find(has_most).copied() else { return };
            if !self.list_again(first) {
                self.remove_learned(first);
                self.counts.evicted += 1;
                return;
            }
        }
    }

    fn remove_learned(&mut self, listed: (u64, u16, [u8; 6])) {
        if let Some(entry) = self.entries.remove(&(listed.1, listed.2)) {
            self.unlist(listed, entry.port);
        }
    }

    fn unlist(&mut self, listed: (u64, u16, [u8; 6]), port: PortNumber) {
        self.by_age.remove(&listed);
        if let Some(count) = self.by_port.get_mut(&port) {
            *count = count.saturating_sub(1);
        }
    }

    /// Lists an entry again under the time of its last use. Returns whether the entry was used
    /// since the listed time.
    fn list_again(&mut self, listed: (u64, u16, [u8; 6])) -> bool {
        let (listed_ms, vlan, address) = listed;
        let Some(entry) = self.entries.get_mut(&(vlan, address)) else { return false };
        let used_ms = entry.used_ms();
        if used_ms <= listed_ms {
            return false;
        }
        entry.listed_ms = used_ms;
        self.by_age.remove(&listed);
        self.by_age.insert((used_ms, vlan, address));
        true
    }
}

/// An entry cannot be added, because the MAC table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacTableFull;

impl Default for MacTable {
    fn default() -> Self {
        Self::new(Self::AGING_SECONDS, Self::CAPACITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const C: [u8; 6] = [2, 0, 0, 0, 0, 3];

    #[test]
    fn a_learned_mac_address_is_found_until_it_ages_out() {
        let mut table = MacTable::default();
        assert!(table.learn(0, A, PortNumber(1), 0));
        assert!(!table.learn(0, A, PortNumber(1), 1000));
        assert!(table.learn(0, A, PortNumber(2), 2000));
        assert_eq!(table.port(0, A, 3000), Some(PortNumber(2)));
        assert_eq!(table.port(1, A, 3000), None);
        assert_eq!(table.port(0, A, 302_000), None);
        assert!(table.expire(302_000));
        assert!(table.entries(302_000).is_empty());
    }

    #[test]
    fn a_full_mac_table_evicts_the_address_that_was_unused_longest() {
        let mut table = MacTable::new(300, 2);
        table.learn(0, A, PortNumber(1), 0);
        table.learn(0, B, PortNumber(1), 1);
        table.learn(0, A, PortNumber(1), 2);
        table.learn(0, C, PortNumber(1), 3);
        assert_eq!(table.port(0, B, 4), None);
        let listed: Vec<_> = table.entries(4).iter().map(|entry| entry.address).collect();
        assert_eq!(listed.len(), 2);
        assert!(listed.contains(&A) && listed.contains(&C));
    }

    #[test]
    fn a_full_mac_table_shares_its_entries_among_the_ports() {
        let mut table = MacTable::new(300, 10);
        let mut now_ms = 0;
        for port in 1..=5 {
            for last in 0..2 {
                now_ms += 1;
                table.learn(0, [2, 0, 0, 0, port, last], PortNumber(port.into()), now_ms);
            }
        }
        for last in 0..16 {
            now_ms += 1;
            table.learn(0, [2, 0, 0, 0, 6, last], PortNumber(6), now_ms);
        }
        let entries = table.entries(now_ms);
        let mut counts: Vec<_> = (1..=6)
            .map(|port| entries.iter().filter(|entry| entry.port == PortNumber(port)).count())
            .collect();
        assert_eq!(counts.pop(), Some(3));
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_static_mac_entry_does_not_move() {
        let mut table = MacTable::new(300, 2);
        table.learn(0, A, PortNumber(1), 0);
        let former = FormerMac { port: PortNumber(1), is_fixed: false };
        assert_eq!(table.add(0, A, PortNumber(2)), Ok(Some(former)));
        assert!(!table.learn(0, A, PortNumber(3), 1000));
        assert!(!table.expire(10_000_000));
        table.clear();
        assert_eq!(table.port(0, A, 10_000_000), Some(PortNumber(2)));
        assert_eq!((table.counts().fixed, table.counts().not_moved), (1, 1));
        // Learned addresses replace each other, but not the added address.
        table.learn(0, B, PortNumber(1), 0);
        table.learn(0, C, PortNumber(1), 1);
        assert_eq!(table.entries(1).len(), 2);
        assert_eq!(table.add(0, B, PortNumber(2)), Err(MacTableFull));
        assert!(!table.remove_added(0, C) && table.remove_added(0, A));
        assert_eq!(table.port(0, A, 1), None);
    }

    #[test]
    fn a_multicast_source_address_is_not_learned() {
        let mut table = MacTable::default();
        assert!(!table.learn(0, [1, 0, 0, 0, 0, 1], PortNumber(1), 0));
        assert!(table.entries(0).is_empty());
    }
}
