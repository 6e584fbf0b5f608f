//! The data and settings behind the commands of `ovs-appctl dpctl/`.

use std::sync::atomic::Ordering;

use flow::connection::{self, Connection, TupleMatch};
use units::{Span, Time};

use super::entry::{Entry, Rules};
use super::fragments::{FragmentLimits, FragmentStatus};
use super::settings::Lifetimes;
use super::tuple::{ICMP, ICMPV6, SCTP, TCP, Tuple, UDP, is_icmp};
use super::{Conntrack, NO_LIMIT, Timeouts, milliseconds};

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets of known connections.
    pub hits: u64,
    pub created: u64,
    pub expired: u64,
    /// Connections that were removed early because the table or their zone was full or nearly full.
    pub reclaimed: u64,
    /// Connections that were flushed, or that a later connection replaced.
    pub removed: u64,
    /// Packets with the state `inv`.
    pub invalid: u64,
    /// New connections for which the table had no space.
    pub full: u64,
    /// New connections for which their zone's limit left no space.
    pub zone_full: u64,
    /// New connections that needed a translation for which no port was free.
    pub exhausted: u64,
    /// New connections whose reply tuple already belongs to another connection.
    pub clashed: u64,
    /// The memory of the table in bytes.
    pub bytes: u64,
}

/// The counts that `dpctl/ct-stats-show` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    pub total: u32,
    pub tcp: u32,
    pub udp: u32,
    pub sctp: u32,
    pub icmp: u32,
    pub icmpv6: u32,
    pub other: u32,
    /// TCP connections by the name of their state, in the order of the states.
    pub tcp_states: Vec<(&'static str, u32)>,
}

/// A line of `dpctl/ct-get-limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLimit {
    pub zone: u16,
    /// 0 for no limit.
    pub limit: u32,
    pub count: u32,
}

impl Conntrack {
    /// Calls `visit` with each live connection, of one zone or of all zones, and its remaining
    /// lifetime. A shard is locked only while its connections are copied.
    pub fn dump(&self, zone: Option<u16>, now: Time, mut visit: impl FnMut(&Connection, Span)) {
        let now = milliseconds(now);
        for number in 0..self.domains.shards() {
            for entry in self.copies(number as u8, zone, now) {
                let left = Span::from_millis(entry.expires.saturating_sub(now));
                visit(&shown(&entry), left);
            }
        }
    }

    /// Counts live connections by protocol.
    #[must_use]
    pub fn counts(&self, zone: Option<u16>, now: Time) -> Counts {
        let mut counts = Counts::default();
        for number in 0..self.domains.shards() {
            for entry in self.copies(number as u8, zone, milliseconds(now)) {
                counts.add(&entry);
            }
        }
        counts
    }

    /// Removes all connections, or the connections of one zone. Returns the number of removed
    /// connections.
    pub fn flush(&self, zone: Option<u16>) -> u64 {
        self.flush_where(|entry| zone.is_none_or(|zone| entry.zone() == zone))
    }

    /// Removes the connections whose tuples match, of one zone or of all zones. If `original` names
    /// a whole connection, it may match either direction, and a missing zone means zone 0.
    pub fn flush_tuples(
        &self,
        zone: Option<u16>,
        original: &TupleMatch,
        reply: &TupleMatch,
    ) -> u64 {
        if original.names_connection() && *reply == TupleMatch::default() {
            let zone = zone.unwrap_or(0);
            return self.flush_where(|entry| {
                let tuple = entry.original();
                entry.zone() == zone
                    && (matches(original, &tuple) || matches(original, &tuple.reversed()))
            });
        }
        self.flush_where(|entry| {
            zone.is_none_or(|zone| entry.zone() == zone)
                && matches(original, &entry.original())
                && matches(reply, &entry.reply())
        })
    }

    /// Returns the number of connections, as `dpctl/ct-get-nconns` prints it.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.totals.connections.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.limits.connections.load(Ordering::Relaxed)
    }

    /// Sets the limit on connections. Existing connections above the limit stay.
    pub fn set_max_connections(&self, limit: u32) {
        self.limits.connections.store(limit, Ordering::Relaxed);
    }

    /// Returns the limit of zones without a separate limit; 0 if there is no limit.
    #[must_use]
    pub fn default_zone_limit(&self) -> u32 {
        shown_limit(self.limits.default_zone.load(Ordering::Relaxed))
    }

    /// Sets the limit of zones without a separate limit; 0 removes the limit.
    pub fn set_default_zone_limit(&self, limit: u32) {
        self.limits.default_zone.store(stored_limit(limit), Ordering::Relaxed);
    }

    #[must_use]
    pub fn zone_limit(&self, zone: u16) -> ZoneLimit {
        let own = self.limits.zones[usize::from(zone)].load(Ordering::Relaxed);
        let limit = if own == NO_LIMIT { self.default_zone_limit() } else { own };
        let count = self.totals.zones[usize::from(zone)].load(Ordering::Relaxed);
        ZoneLimit { zone, limit, count }
    }

    /// Returns the zones that have a separate limit.
    #[must_use]
    pub fn zone_limits(&self) -> Vec<ZoneLimit> {
        let has_limit =
            |zone: &u16| self.limits.zones[usize::from(*zone)].load(Ordering::Relaxed) != NO_LIMIT;
        (0..=u16::MAX).filter(has_limit).map(|zone| self.zone_limit(zone)).collect()
    }

    pub fn set_zone_limit(&self, zone: u16, limit: u32) {
        let limit = limit.min(NO_LIMIT - 1);
        self.limits.zones[usize::from(zone)].store(limit, Ordering::Relaxed);
    }

    /// Removes a zone's separate limit, so that the default limit applies.
    pub fn remove_zone_limit(&self, zone: u16) {
        self.limits.zones[usize::from(zone)].store(NO_LIMIT, Ordering::Relaxed);
    }

    /// Sets the timeouts that apply to later packets; a connection keeps its lifetime until its
    /// next packet.
    pub fn set_timeouts(&self, timeouts: &Timeouts) {
        let lifetimes = Lifetimes::new(timeouts);
        self.change_rules(|rules| rules.lifetimes = lifetimes);
    }

    #[must_use]
    pub fn checks_tcp_sequence(&self) -> bool {
        self.shard(0).rules.checks_tcp_sequence
    }

    pub fn set_checks_tcp_sequence(&self, checks: bool) {
        self.change_rules(|rules| rules.checks_tcp_sequence = checks);
    }

    /// Returns the limits and counters of fragment reassembly.
    #[must_use]
    pub fn fragment_status(&self) -> FragmentStatus {
        self.fragments.status()
    }

    pub fn change_fragment_limits(&self, change: impl FnOnce(&mut FragmentLimits)) {
        self.fragments.change(change);
    }

    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mut statistics = Statistics {
            invalid: read(&self.totals.invalid),
            full: read(&self.totals.full),
            zone_full: read(&self.totals.zone_full),
            exhausted: read(&self.totals.exhausted),
            clashed: read(&self.totals.clashed),
            hits: self.domains.hits(),
            ..Statistics::default()
        };
        for number in 0..self.domains.shards() {
            let shard = self.shard(number as u8);
            statistics.created += shard.counts.created;
            statistics.expired += shard.counts.expired;
            statistics.reclaimed += shard.counts.reclaimed;
            statistics.removed += shard.counts.removed;
            statistics.bytes += (shard.entries.bytes() + shard.index.bytes()) as u64;
        }
        statistics
    }

    fn change_rules(&self, mut change: impl FnMut(&mut Rules)) {
        for number in 0..self.domains.shards() {
            change(&mut self.shard(number as u8).rules);
        }
    }

    fn copies(&self, number: u8, zone: Option<u16>, now: u64) -> Vec<Entry> {
        let shard = self.shard(number);
        let is_wanted =
            |entry: &Entry| !entry.has_expired(now) && zone.is_none_or(|zone| entry.zone() == zone);
        shard.entries.iter().map(|(_, entry)| *entry).filter(is_wanted).collect()
    }

    fn flush_where(&self, is_wanted: impl Fn(&Entry) -> bool) -> u64 {
        let mut count = 0;
        for number in 0..self.domains.shards() {
            let mut shard = self.shard(number as u8);
            let entries = shard.entries.iter();
            let chosen: Vec<u32> =
                entries.filter(|(_, entry)| is_wanted(entry)).map(|(number, _)| number).collect();
            let mut remainders = Vec::new();
            for number in &chosen {
                remainders.extend(self.remove(&mut shard, *number));
            }
            shard.counts.removed += chosen.len() as u64;
            count += chosen.len() as u64;
            drop(shard);
            self.forget(&remainders);
        }
        count
    }
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        self.total += 1;
        let count = match entry.protocol() {
            TCP => &mut self.tcp,
            UDP => &mut self.udp,
            SCTP => &mut self.sctp,
            ICMP => &mut self.icmp,
            ICMPV6 => &mut self.icmpv6,
            _ => &mut self.other,
        };
        *count += 1;
        let Some(state) = entry.tcp_state() else {
            return;
        };
        match self.tcp_states.iter_mut().find(|(name, _)| *name == state.name()) {
            Some((_, count)) => *count += 1,
            None => {
                self.tcp_states.push((state.name(), 1));
                let order = |name| STATE_NAMES.iter().position(|listed| *listed == name);
                self.tcp_states.sort_by_key(|(name, _)| order(*name));
            }
        }
    }
}

fn matches(wanted: &TupleMatch, tuple: &Tuple) -> bool {
    fn is<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
        wanted.is_none_or(|wanted| wanted == value)
    }
    let (id, kind) = (tuple.ports.source, tuple.kind.icmp_type());
    let rest = if is_icmp(tuple.protocol) {
        is(wanted.icmp_id, id) && is(wanted.icmp_type, kind) && is(wanted.icmp_code, 0)
    } else {
        is(wanted.source_port, tuple.ports.source)
            && is(wanted.destination_port, tuple.ports.destination)
    };
    rest && is(wanted.source, tuple.source_address())
        && is(wanted.destination, tuple.destination_address())
        && is(wanted.protocol, tuple.protocol)
}

fn shown(entry: &Entry) -> Connection {
    Connection {
        protocol: entry.protocol(),
        original: shown_tuple(&entry.original()),
        reply: shown_tuple(&entry.reply()),
        zone: entry.zone(),
        mark: entry.mark,
        labels: entry.label(),
        state: entry.tcp_state().map(|state| state.name()),
        helper: match entry.helper {
            21 => Some("ftp"),
            69 => Some("tftp"),
            _ => None,
        },
    }
}

fn shown_tuple(tuple: &Tuple) -> connection::Tuple {
    let mut ports = tuple.ports;
    if is_icmp(tuple.protocol) {
        ports.destination = u16::from_be_bytes([tuple.kind.icmp_type(), 0]);
    }
    connection::Tuple {
        source: tuple.source_address(),
        destination: tuple.destination_address(),
        source_port: ports.source,
        destination_port: ports.destination,
    }
}

fn stored_limit(limit: u32) -> u32 {
    if limit == 0 { NO_LIMIT } else { limit }
}

fn shown_limit(limit: u32) -> u32 {
    if limit == NO_LIMIT { 0 } else { limit }
}

const STATE_NAMES: &[&str] = &["CLOSED", "SYN_SENT", "ESTABLISHED", "CLOSING", "TIME_WAIT"];
