use super::LimitedBy;
use crate::observe::series::{MOST_POINTS, Merge, Series, Table};
use probe::tcp::{TcpInfo, TcpUse};
use units::{Rate, Span};

/// The series of all streams of a test: the throughput of each stream, and the kernel's metrics of
/// each sending stream. A receiver's kernel sees only acknowledgements.
#[derive(Debug)]
pub(super) struct Tables {
    /// Each table with the indices of the streams that have a line in it.
    quantities: Vec<(Table, Vec<usize>, Value)>,
    limits: Vec<(usize, Table)>,
}

#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) throughput: Option<Rate>,
    rtt: Option<Span>,
    cwnd: Option<f64>,
    send_window: Option<f64>,
    delivery_rate: Option<Rate>,
    retransmits: Option<f64>,
    reordered: Option<f64>,
    limited: Option<LimitedBy>,
}

impl Reading {
    pub(super) fn at(throughput: Option<Rate>) -> Self {
        Self { throughput, ..Self::default() }
    }

    pub(super) fn fill(&mut self, info: &TcpInfo, used: Option<TcpUse>) {
        self.rtt = info.rtt;
        self.cwnd = info.cwnd().map(|bytes| bytes.count() as f64);
        self.send_window = info.snd_wnd.map(|bytes| bytes.count() as f64);
        self.delivery_rate = info.delivery_rate;
        if let Some(used) = used {
            self.retransmits = used.retrans.map(f64::from);
            self.reordered = used.reord_seen.map(f64::from);
            self.limited = LimitedBy::of(&used);
        }
    }
}

impl Tables {
    /// `streams`: each stream's number, and whether this side sends on it.
    pub(super) fn new(streams: impl ExactSizeIterator<Item = (u32, bool)> + Clone) -> Self {
        let limit = (MOST_VALUES / streams.len().max(1)).clamp(LEAST_POINTS, MOST_POINTS);
        let senders = streams.clone().enumerate().filter(|(_, (_, sends))| *sends);
        let quantities = QUANTITIES.into_iter().map(|(name, unit, merge, value)| {
            let mut table = Table::new(name, merge, limit);
            let mut places = Vec::new();
            let is_told = |sends: bool| sends || name == THROUGHPUT;
            for (index, (id, _)) in streams.clone().enumerate().filter(|(_, (_, s))| is_told(*s)) {
                table.column(id.to_string(), unit);
                places.push(index);
            }
            (table, places, value)
        });
        let limits = senders.map(|(index, (id, _))| {
            let mut table = Table::new("limited_by", Merge::Mean, limit).stacked(id);
            LIMITS.into_iter().for_each(|name| table.column(name, "%"));
            (index, table)
        });
        Self { quantities: quantities.collect(), limits: limits.collect() }
    }

    pub(super) fn push(&mut self, at: Span, readings: &[Reading]) {
        for (table, places, value) in &mut self.quantities {
            table.push(at, places.iter().map(|index| value(readings.get(*index)?)));
        }
        for (index, table) in &mut self.limits {
            let limited = readings.get(*index).and_then(|reading| reading.limited);
            match limited {
                Some(limited) => table.push(at, limited.percents().map(Some)),
                None => table.push(at, [None; 4]),
            }
        }
    }

    pub(super) fn into_series(self) -> Vec<Series> {
        let quantities = self.quantities.into_iter().map(|(table, ..)| table);
        let limits = self.limits.into_iter().map(|(_, table)| table);
        quantities.chain(limits).filter_map(Table::into_series).collect()
    }
}

/// Looks up a quantity by name; returns its static name, its unit, and how its points are merged.
pub(super) fn quantity(name: &str) -> Option<(&'static str, &'static str, Merge)> {
    let known = QUANTITIES.into_iter().find(|(known, ..)| *known == name);
    known.map(|(name, unit, merge, _)| (name, unit, merge))
}

pub(super) fn limit_name(name: &str) -> Option<&'static str> {
    LIMITS.into_iter().find(|known| *known == name)
}

type Value = fn(&Reading) -> Option<f64>;
type Quantity = (&'static str, &'static str, Merge, Value);

const QUANTITIES: [Quantity; 7] = [
    (THROUGHPUT, "Mbit/s", Merge::Mean, |r| r.throughput.map(Rate::mbit_per_second)),
    ("rtt", "ms", Merge::Mean, |r| r.rtt.map(Span::millis_f64)),
    ("cwnd", "kB", Merge::Mean, |r| r.cwnd.map(|bytes| bytes / 1e3)),
    ("send_window", "kB", Merge::Mean, |r| r.send_window.map(|bytes| bytes / 1e3)),
    ("delivery_rate", "Mbit/s", Merge::Mean, |r| r.delivery_rate.map(Rate::mbit_per_second)),
    ("retransmits", "segments", Merge::Sum, |r| r.retransmits),
    ("reordering", "events", Merge::Sum, |r| r.reordered),
];
const THROUGHPUT: &str = "throughput";
const LIMITS: [&str; 4] = ["application", "receive window", "send buffer", "congestion"];
/// Maximum number of values of one quantity in all streams together: with 128 streams each stream
/// has 125 points.
const MOST_VALUES: usize = 16_000;
const LEAST_POINTS: usize = 100;
