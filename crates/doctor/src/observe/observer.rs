use super::focus::Focus;
use super::processes::Watched;
use super::{connections, counters, facts};
use crate::recording::{Connection, Period, Recording, Sample, Unseen};
use probe::clock;
use probe::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use units::{Bytes, Span, Time};

/// How long and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    pub time: Span,
    pub interval: Span,
    pub focus: Focus,
    /// Connections that are kept.
    pub most: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { time: super::TIME, interval: super::INTERVAL, focus: Focus::All, most: 32 }
    }
}

/// Samples, one after the other. The caller sleeps in between.
#[derive(Debug)]
pub struct Observer {
    tree: Tree,
    plan: Plan,
    start: Time,
    samples: Vec<Sample>,
    inodes: BTreeMap<connections::Key, u32>,
    listener_inodes: BTreeMap<SocketAddr, u32>,
    watched: Watched,
    /// Sockets whose processes were looked for.
    searched: BTreeSet<u32>,
    searched_at: Option<Span>,
    searches: usize,
    unseen: BTreeSet<Unseen>,
}

impl Observer {
    /// Takes the first sample.
    pub fn begin(tree: Tree, plan: Plan) -> Self {
        let mut observer = Self {
            tree,
            plan,
            start: clock::now(),
            samples: Vec::new(),
            inodes: BTreeMap::new(),
            listener_inodes: BTreeMap::new(),
            watched: Watched::default(),
            searched: BTreeSet::new(),
            searched_at: None,
            searches: 0,
            unseen: BTreeSet::new(),
        };
        observer.watched.begin(&observer.tree, &observer.plan.focus);
        observer.sample();
        observer
    }

    pub fn sample(&mut self) {
        let mut sample = Sample { at: clock::now().since(self.start), ..Sample::default() };
        counters::read(&self.tree, &mut sample, &mut self.unseen);
        if self.tree.is_here() {
            let found = connections::read(&self.plan.focus, &self.watched, &mut self.unseen);
            self.inodes.extend(found.inodes);
            sample.connections = found.connections;
            sample.listeners = found.listeners;
            sample.states = found.states;
            sample.busiest_remote = found.busiest_remote;
            self.listener_inodes = found.listener_inodes;
        }
        self.find_processes(&sample);
        self.watched.read(&self.tree, &mut sample, &mut self.unseen);
        self.samples.push(sample);
    }

    /// Looks for the processes of connections that are new. That reads all of /proc, so it is done
    /// seldom.
    fn find_processes(&mut self, now: &Sample) {
        let soon = self.searched_at.is_some_and(|at| now.at - at < SEARCH_GAP);
        if self.samples.is_empty() || soon || self.searches >= MOST_SEARCHES {
            return;
        }
        let kept = self.busiest(&now.connections);
        let inodes: BTreeSet<u32> =
            kept.iter().filter_map(|key| self.inodes.get(key)).copied().collect();
        if self.searches > 0 && inodes.is_subset(&self.searched) {
            return;
        }
        self.watched.find(&self.tree, inodes.iter());
        self.searched.extend(inodes);
        (self.searches, self.searched_at) = (self.searches + 1, Some(now.at));
    }

    /// Ends the period and adds it, with the facts of the machine, to a recording.
    pub fn finish(mut self, label: impl Into<String>, recording: &mut Recording) {
        let kept: BTreeSet<_> = self.busiest(&[]).into_iter().collect();
        let mut inodes: BTreeSet<_> =
            kept.iter().filter_map(|key| self.inodes.get(key)).copied().collect();
        // Only the holders of queues with connections in them are of interest.
        let waiting = self.samples.last().into_iter().flat_map(|sample| &sample.listeners);
        let waiting = waiting.filter(|listener| listener.waiting > 0);
        inodes.extend(waiting.filter_map(|listener| self.listener_inodes.get(&listener.local)));
        let holders = self.watched.holders(&self.tree, &inodes, &mut self.unseen);
        let mut peers = BTreeSet::new();
        for sample in &mut self.samples {
            sample.connections.retain(|connection| kept.contains(&connections::key(connection)));
            for connection in &mut sample.connections {
                peers.insert(connection.remote.ip());
                if let Some(inode) = self.inodes.get(&connections::key(connection)) {
                    connection.holders = holders.get(inode).cloned().unwrap_or_default();
                }
            }
        }
        if let Some(sample) = self.samples.last_mut() {
            for listener in &mut sample.listeners {
                let inode = self.listener_inodes.get(&listener.local);
                let known = inode.and_then(|inode| holders.get(inode));
                listener.holders = known.cloned().unwrap_or_default();
            }
        }
        let (earlier, later) = self.watched.busiest(&self.tree);
        if let Some(sample) = self.samples.first_mut() {
            sample.processes = earlier;
        }
        if let Some(sample) = self.samples.last_mut() {
            sample.processes = later;
            self.watched.name_udp(&self.tree, sample);
            self.watched.add_cores(&self.tree, sample);
        }
        facts::read(&self.tree, &peers, &mut recording.machine, &mut self.unseen);
        recording.periods.push(Period {
            label: label.into(),
            samples: self.samples,
            ..Period::default()
        });
        let mut unseen: BTreeSet<_> = recording.unseen.drain(..).collect();
        unseen.append(&mut self.unseen);
        recording.unseen = unseen.into_iter().collect();
    }

    /// The connections that moved most since the first sample, those that wait, and those that try
    /// to open.
    fn busiest(&self, now: &[Connection]) -> Vec<connections::Key> {
        let mut first: BTreeMap<_, &Connection> = BTreeMap::new();
        // A connection that ended before the last sample counts with the bytes until then.
        let mut last: BTreeMap<_, &Connection> = BTreeMap::new();
        for connection in self.samples.iter().flat_map(|sample| &sample.connections).chain(now) {
            first.entry(connections::key(connection)).or_insert(connection);
            last.insert(connections::key(connection), connection);
        }
        let moved = |connection: &Connection| {
            connection.tcp.bytes_acked.unwrap_or_default()
                + connection.tcp.bytes_received.unwrap_or_default()
        };
        let mut ranked: Vec<_> = last
            .into_iter()
            .map(|(key, connection)| {
                let before = first.get(&key).map_or(Bytes::ZERO, |c| moved(c));
                let waits = connection.send_queue > Bytes::ZERO || connection.retransmits > 0;
                (moved(connection) - before, waits, key)
            })
            .collect();
        ranked.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        // Half of the places are for the busiest, the rest for those that wait.
        let (busy, rest) = ranked.split_at(ranked.len().min(self.plan.most / 2));
        let waiting = rest.iter().filter(|(_, waits, _)| *waits);
        let quiet = rest.iter().filter(|(_, waits, _)| !waits);
        let others = waiting.chain(quiet).take(self.plan.most - busy.len());
        busy.iter().chain(others).map(|(_, _, key)| *key).collect()
    }
}

const SEARCH_GAP: Span = Span::from_millis(450);
const MOST_SEARCHES: usize = 8;
