use super::focus::Focus;
use super::pace::Pace;
use super::processes::{Watched, named_udp};
use super::sockets::Sockets;
use super::{DropWatch, counters, facts};
use crate::recording::{ConnectionState, Period, Recording, Sample, Unseen};
use probe::clock;
use probe::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use units::{Bytes, Span, Time};

/// The length of an observation, and the bounds of its samples.
#[derive(Debug, Clone)]
pub struct Plan {
    pub time: Span,
    /// Minimum time between two samples. A longer pause follows an expensive sample.
    pub interval: Span,
    pub focus: Focus,
    /// Maximum number of connections in the recording.
    pub most: usize,
    /// CPU time that counts as the observation's although it was used before: to start the program,
    /// or to judge the previous observation. The samples leave room for this time.
    pub spent: Span,
    /// Counts the packets that the kernel drops; `None`: drops are not counted.
    pub drops: Option<Arc<DropWatch>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            time: super::TIME,
            interval: super::INTERVAL,
            focus: Focus::All,
            most: 32,
            spent: Span::ZERO,
            drops: None,
        }
    }
}

/// Takes samples one after the other. The caller sleeps between two samples.
#[derive(Debug)]
pub struct Observer {
    tree: Tree,
    plan: Plan,
    start: Time,
    /// The CPU time of the observing thread at the start.
    cpu_before: Span,
    samples: Vec<Sample>,
    pace: Pace,
    sockets: Sockets,
    watched: Watched,
    searched_at: Option<Span>,
    searches: usize,
    /// CPU time of all searches for processes, and of the last search.
    searching: Span,
    search: Span,
    unseen: BTreeSet<Unseen>,
    /// The counts at the start; `None` if the kernel's drops are not counted.
    drops_before: Option<accel::drops::Drops>,
}

impl Observer {
    /// Takes the first sample.
    pub fn begin(tree: Tree, plan: Plan) -> Self {
        let mut observer = Self {
            tree,
            start: clock::now(),
            cpu_before: clock::own_thread_cpu_time(),
            samples: Vec::new(),
            pace: Pace::new(plan.interval, plan.time, plan.spent),
            sockets: Sockets::new(plan.most),
            plan,
            watched: Watched::default(),
            searched_at: None,
            searches: 0,
            searching: Span::ZERO,
            search: Span::ZERO,
            unseen: BTreeSet::new(),
            drops_before: None,
        };
        observer.drops_before = observer.read_drops();
        observer.watched.begin(&observer.tree, &observer.plan.focus);
        // Notices from before the first listing are of no use, but count towards the maximum number
        // of notices.
        if observer.tree.is_here() {
            observer.sockets.count_ended(&mut observer.unseen);
        }
        observer.pace.spend(clock::own_thread_cpu_time() - observer.cpu_before);
        observer.sample();
        observer
    }

    fn read_drops(&mut self) -> Option<accel::drops::Drops> {
        match self.plan.drops.as_ref()?.read() {
            Ok(drops) => Some(drops),
            Err(reason) => {
                let what = "the kernel's reasons of dropped packets".to_owned();
                self.unseen.insert(Unseen { what, reason });
                None
            }
        }
    }

    /// Returns the time to wait before the next sample, so that the observation takes little CPU
    /// time.
    pub fn pause(&self) -> Span {
        self.pace.pause()
    }

    pub fn sample(&mut self) {
        let begun = clock::own_thread_cpu_time();
        let mut sample = Sample { at: clock::now().since(self.start), ..Sample::default() };
        counters::read(&self.tree, &mut sample, &mut self.unseen);
        let lists = self.pace.lists(sample.at);
        if self.tree.is_here() {
            let (focus, place) = (&self.plan.focus, self.samples.len());
            self.sockets.read_ended(focus);
            match lists {
                true => {
                    let (tree, watched) = (&self.tree, &mut self.watched);
                    self.sockets.list(tree, focus, watched, place, &mut sample, &mut self.unseen);
                }
                false => {
                    let has_focus = *focus != Focus::All;
                    self.sockets.look(has_focus, &mut sample, &mut self.unseen);
                }
            }
        }
        // A search for processes is rare and does not count as the cost of a sample. Later listings
        // wait until the CPU time of the search fits into the observation's share.
        let searching = clock::own_thread_cpu_time();
        self.find_processes(&sample);
        let searched = clock::own_thread_cpu_time() - searching;
        self.watched.read(&self.tree, &mut sample, &mut self.unseen);
        self.pace.note(lists, clock::own_thread_cpu_time() - begun - searched);
        self.pace.spend(searched);
        self.samples.push(sample);
    }

    /// Looks for the processes of new connections, including connections that may be kept later,
    /// and for processes that may have received an open connection. The search reads all of /proc,
    /// so it is rare.
    fn find_processes(&mut self, sample: &Sample) {
        let now = sample.at;
        let soon = self.searched_at.is_some_and(|at| now - at < SEARCH_GAP);
        if self.samples.is_empty() || soon || self.searches >= MOST_SEARCHES {
            return;
        }
        let is_affordable = |share: f64| is_affordable(self.searching, self.search, now, share);
        let kept = self.sockets.kept();
        let inodes: BTreeSet<u32> =
            kept.iter().filter_map(|cookie| self.sockets.inode(*cookie)).collect();
        let is_new = is_affordable(SEARCH_SHARE) && !self.watched.has_searched(&inodes);
        let is_few = self.searches < MOST_PASSED && is_affordable(PASSED_SHARE);
        // Old kernels count a process's descriptors by a walk through all of them.
        let counting = clock::own_thread_cpu_time();
        let may_have_passed = is_few && self.watched.has_changed(&self.tree);
        self.searching = self.searching + (clock::own_thread_cpu_time() - counting);
        if self.searches == 0 || is_new || may_have_passed {
            let begun = clock::own_thread_cpu_time();
            // The end of the observation needs the processes of these sockets, too.
            let others = named_udp(sample).into_iter().chain(self.sockets.waiting(sample));
            let others = others.chain(self.sockets.inodes().take(MOST_SEARCHED));
            self.watched.search(&self.tree, inodes.iter().copied().chain(others).collect());
            (self.searches, self.searched_at) = (self.searches + 1, Some(now));
            self.search = clock::own_thread_cpu_time() - begun;
            self.searching = self.searching + self.search;
        }
        self.watched.take(&self.tree, &inodes);
    }

    /// Ends the period and adds it, with the facts of the machine, to a recording.
    pub fn finish(mut self, label: impl Into<String>, recording: &mut Recording) {
        let kept = self.sockets.kept();
        if let Some(last) = self.samples.last_mut()
            && self.tree.is_here()
        {
            self.sockets.look_rest(&kept, last, &mut self.unseen);
        }
        let mut inodes: BTreeSet<u32> =
            kept.iter().filter_map(|cookie| self.sockets.inode(*cookie)).collect();
        // Only the processes behind listeners with waiting connections are needed.
        if let Some(last) = self.samples.last() {
            inodes.extend(self.sockets.waiting(last));
        }
        let udp = self.samples.last().map(named_udp).unwrap_or_default();
        let elapsed = clock::now().since(self.start);
        if is_affordable(self.searching, self.search, elapsed, SEARCH_SHARE)
            && self.watched.has_changed(&self.tree)
        {
            self.watched.search(&self.tree, inodes.union(&udp).copied().collect());
        }
        let holders = self.watched.holders(&self.tree, &inodes, &udp, &mut self.unseen);
        let of = |inode: Option<u32>| inode.and_then(|inode| holders.get(&inode)).cloned();
        let mut peers = self.sockets.ended_hosts();
        self.sockets.finish(&kept, &mut self.samples);
        for connection in self.samples.iter_mut().flat_map(|sample| &mut sample.connections) {
            peers.insert(connection.remote.ip());
            let holders = of(self.sockets.inode(connection.cookie));
            connection.holders = holders.unwrap_or_default();
        }
        if let Some(sample) = self.samples.last_mut() {
            for listener in &mut sample.listeners {
                let holders = of(self.sockets.listener_inode(&listener.local));
                listener.holders = holders.unwrap_or_default();
            }
        }
        let (earlier, later) = self.watched.busiest(&self.tree);
        if let Some(sample) = self.samples.first_mut() {
            sample.processes = earlier;
        }
        if let Some(sample) = self.samples.last_mut() {
            sample.processes = later;
            self.watched.name_udp(&self.tree, sample);
        }
        let ends = ends_elsewhere(&self.samples);
        let far_ends = match self.samples.last() {
            Some(sample) => self.watched.far_ends(&self.tree, &ends, &sample.processes),
            None => Vec::new(),
        };
        facts::read(&self.tree, &peers, &mut recording.machine, &mut self.unseen);
        let mut interfaces = recording.machine.interfaces.values();
        let has_tunnel = interfaces.any(|one| one.kind.as_deref() == Some("tun"));
        if let Some(sample) = self.samples.last_mut() {
            self.watched.add_places(&self.tree, sample, has_tunnel || !self.tree.is_here());
        }
        let drops = self.read_drops().zip(self.drops_before.as_ref());
        let drops = drops.zip(self.plan.drops.as_ref());
        let drops = drops.map(|((now, before), watch)| watch.recorded(now.since(before)));
        recording.periods.push(Period {
            label: label.into(),
            samples: self.samples,
            far_ends,
            short_lived: self.tree.is_here().then(|| self.sockets.short_lived()),
            observer: own_pid(&self.tree),
            drops,
            own_cpu: Some(self.plan.spent + (clock::own_thread_cpu_time() - self.cpu_before)),
            ..Period::default()
        });
        let mut unseen: BTreeSet<_> = recording.unseen.drain(..).collect();
        unseen.append(&mut self.unseen);
        recording.unseen = unseen.into_iter().collect();
    }
}

/// Whether the share of a core has room for a further search at `now`, after searches that took
/// `spent`, and the last of them `last`. On a machine with many descriptors that opens connections
/// all the time, each search costs as much as many samples. The end of the observation finds the
/// processes of the other connections.
fn is_affordable(spent: Span, last: Span, now: Span, share: f64) -> bool {
    (spent + last).secs_f64() <= now.secs_f64() * share
}

/// Returns the connections whose far end may be in another network namespace of this machine: the
/// connections move data or wait, and their other end is not in this namespace. Few connections
/// keep the search cheap, because the kernel walks its whole socket table for each namespace.
fn ends_elsewhere(samples: &[Sample]) -> BTreeSet<(SocketAddr, SocketAddr)> {
    let mut moved = BTreeMap::new();
    for connection in samples.iter().flat_map(|sample| &sample.connections) {
        let bytes = [connection.tcp.bytes_acked, connection.tcp.bytes_received]
            .map(Option::unwrap_or_default);
        let waits = connection.send_queue > Bytes::ZERO
            || connection.receive_queue > Bytes::ZERO
            || connection.state != ConnectionState::Established;
        let ends = (connection.local, connection.remote);
        let (_, last, waited) = moved.entry(ends).or_insert((bytes, bytes, waits));
        (*last, *waited) = (bytes, *waited || waits);
    }
    let is_elsewhere = |(local, remote): &(SocketAddr, SocketAddr)| {
        !remote.ip().is_loopback() && !moved.contains_key(&(*remote, *local))
    };
    let of_interest = moved.iter().filter(|(_, (first, last, waited))| *waited || first != last);
    of_interest.map(|(ends, _)| *ends).filter(is_elsewhere).collect()
}

/// Returns the PID of this process in /proc, which may show another PID namespace.
fn own_pid(tree: &Tree) -> Option<u32> {
    let link = tree.is_here().then(|| tree.link("/proc/self")).flatten()?;
    link.to_str()?.parse().ok()
}

const SEARCH_GAP: Span = Span::from_millis(450);
const MOST_SEARCHES: usize = 8;
/// Number of searches after which only new connections cause another search, and no longer
/// connections that a process may have passed to another process.
const MOST_PASSED: usize = 4;
/// The share of a core that searches after the first may take.
const SEARCH_SHARE: f64 = 0.005;
/// The share of a core below which a connection that a process may have passed on may cause a
/// search.
const PASSED_SHARE: f64 = 0.002;
/// Maximum number of sockets in one search for their processes.
const MOST_SEARCHED: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Machine;
    use crate::rules::sketch::Sketch;

    #[test]
    fn the_cpu_time_before_the_first_sample_counts_as_the_observations() {
        let plan = Plan { spent: Span::from_secs(5), ..Plan::default() };
        let mut recording = Recording::new(Machine::default());
        Observer::begin(Tree::here(), plan).finish("this machine", &mut recording);
        assert!(recording.periods[0].own_cpu >= Some(Span::from_secs(5)), "{recording:?}");
    }

    #[test]
    fn expensive_searches_for_processes_are_rare() {
        let searches = |cost: Span| {
            let (mut spent, mut count) = (cost, 1);
            for tick in 1..=20 {
                if is_affordable(spent, cost, SEARCH_GAP * tick, SEARCH_SHARE) {
                    (spent, count) = (spent + cost, count + 1);
                }
            }
            count
        };
        assert_eq!(searches(Span::from_millis(1)), 21);
        assert_eq!(searches(Span::from_millis(10)), 4);
        assert_eq!(searches(Span::from_millis(100)), 1);
    }

    #[test]
    fn only_busy_connections_are_searched_for_in_other_namespaces() {
        let ends = |sketch: &Sketch| ends_elsewhere(&sketch.recording().periods[0].samples);
        assert_eq!(ends(&Sketch::new()).len(), 1);
        assert!(ends(&Sketch::new().with_receiver(|_, _| {})).is_empty());
        let quiet = Sketch::new().sender(|_, sender| {
            sender.send_queue = Bytes::ZERO;
            sender.tcp.bytes_acked = Some(Bytes::new(9));
        });
        assert!(ends(&quiet).is_empty());
        let loopback = Sketch::new().sender(|_, sender| {
            sender.remote = "127.0.0.1:80".parse().unwrap();
        });
        assert!(ends(&loopback).is_empty());
    }
}
