use super::connections::add;
use super::focus::Focus;
use crate::recording::{Group, Holder, InnerEnd, Sample, SocketLimit, Task, UdpSocket, Unseen};
use probe::cgroup::{self, CgroupMounts, CgroupPaths, Level};
use probe::clock;
use probe::local_addresses::LocalAddresses;
use probe::process::{Holders, Process};
use probe::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use units::Span;

/// The processes that hold the connections of interest, and the busiest other processes.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pids: BTreeSet<u32>,
    /// The inode numbers of the sockets that the process in focus holds.
    sockets: BTreeSet<u32>,
    /// The inode numbers of all sockets of the last listing.
    listed: HashSet<u32>,
    /// The number of descriptors of the process in focus at the last listing.
    descriptors: Option<u64>,
    /// The time of the last reading of these descriptors.
    read_at: Option<Span>,
    /// The CPU time of the last reading of these descriptors.
    reading: Span,
    places: Vec<Place>,
    mounts: Option<CgroupMounts>,
    /// The control groups that limit the socket memory of these processes.
    socket_limits: BTreeMap<cgroup::SocketLimit, BTreeSet<u32>>,
    /// The sockets whose processes were searched for.
    searched: BTreeSet<u32>,
    /// The processes that a search found, by socket.
    found: BTreeMap<u32, Vec<u32>>,
    /// The number of processes whose descriptors this user may not read, at the last search.
    refused: usize,
    /// The processes behind the sockets of interest, with the processes of their pipelines. The
    /// sockets may be closed at the end of the observation.
    known: BTreeMap<u32, Vec<u32>>,
    /// The names and limits of the processes at their last reading.
    holders: BTreeMap<u32, Holder>,
    /// The number of descriptors of these processes at the last search.
    counts: BTreeMap<u32, Option<u64>>,
    /// All processes at the first sample. The busiest processes follow from the difference.
    first: Option<Vec<Task>>,
}

/// Processes that share their control groups, as the workers of a service do.
#[derive(Debug)]
struct Place {
    paths: CgroupPaths,
    limits: Vec<cgroup::SocketLimit>,
    pids: BTreeSet<u32>,
}

impl Watched {
    pub(super) fn begin(&mut self, tree: &Tree, focus: &Focus) {
        if let Focus::Process(pid) = focus {
            self.watch(tree, *pid);
        }
    }

    /// Adds the sockets that the process in focus has opened since the last listing. `listed`: the
    /// inodes of the sockets of this listing. Reads the descriptors, of which a process may have
    /// many thousands, only if one of these sockets is new, if the number of descriptors has
    /// changed, or after a second and more: another process may have passed an open socket to this
    /// process.
    pub(super) fn look_again(&mut self, tree: &Tree, pid: u32, listed: HashSet<u32>, now: Span) {
        let descriptors = tree.descriptors(pid);
        let gap = READ_AGAIN.max(self.reading * READ_GAP);
        let is_old = self.read_at.is_none_or(|at| now - at >= gap);
        if is_old || descriptors != self.descriptors || !listed.is_subset(&self.listed) {
            let begun = clock::own_thread_cpu_time();
            self.sockets.extend(Holders::sockets_of(tree, pid).unwrap_or_default());
            self.reading = clock::own_thread_cpu_time() - begun;
            self.read_at = Some(now);
        }
        (self.listed, self.descriptors) = (listed, descriptors);
    }

    pub(super) fn has_socket(&self, inode: u32) -> bool {
        inode != 0 && self.sockets.contains(&inode)
    }

    pub(super) fn has_searched(&self, inodes: &BTreeSet<u32>) -> bool {
        inodes.is_subset(&self.searched)
    }

    /// Searches all processes for the holders of these sockets.
    pub(super) fn search(&mut self, tree: &Tree, mut inodes: BTreeSet<u32>) {
        let is_unowned = inodes.remove(&0);
        let found = Holders::find(tree, &inodes).unwrap_or_default();
        self.add(&found);
        self.refused = found.refused;
        self.searched.append(&mut inodes);
        if is_unowned {
            self.searched.insert(0);
        }
        for (pid, count) in &mut self.counts {
            *count = tree.descriptors(*pid);
        }
    }

    /// Whether a process behind a socket of interest has opened or closed a descriptor, or has
    /// ended, since the last search. The process may have passed the socket to another process.
    pub(super) fn has_changed(&self, tree: &Tree) -> bool {
        let mut some = self.counts.iter().take(MOST_PROCESSES);
        some.any(|(pid, count)| tree.descriptors(*pid) != *count)
    }

    fn add(&mut self, found: &Holders) {
        for (inode, pids) in &found.of {
            self.found.insert(*inode, pids.iter().copied().take(MOST_HOLDERS).collect());
        }
    }

    /// Watches the processes behind these sockets, if a search found them.
    pub(super) fn take(&mut self, tree: &Tree, inodes: &BTreeSet<u32>) {
        let new = self.keep(tree, inodes);
        let known = new.iter().filter_map(|inode| self.known.get(inode));
        let pids: BTreeSet<u32> = known.flatten().copied().take(MOST_PROCESSES).collect();
        for pid in pids {
            self.watch(tree, pid);
        }
    }

    /// Finds the processes of each socket that is new or that has a new holder: first its holders,
    /// then the processes of the holders' pipelines, which set its pace, then its earlier holders.
    /// Returns these sockets.
    fn keep(&mut self, tree: &Tree, inodes: &BTreeSet<u32>) -> Vec<u32> {
        let is_new = |inode: &u32| {
            let known = self.known.get(inode);
            let is_known = |pid: &u32| known.is_some_and(|known| known.contains(pid));
            self.found.get(inode).is_some_and(|pids| !pids.iter().all(is_known))
        };
        let new: Vec<u32> = inodes.iter().copied().filter(is_new).collect();
        let all: BTreeSet<u32> =
            new.iter().filter_map(|inode| self.found.get(inode)).flatten().copied().collect();
        let pipelines = match tree.is_here() && all.len() <= MOST_PROCESSES {
            true => probe::process::pipelines(tree, &all),
            false => BTreeMap::new(),
        };
        for inode in &new {
            let mut pids = self.found.get(inode).cloned().unwrap_or_default();
            let others = pids.iter().filter_map(|pid| pipelines.get(pid)).flatten().copied();
            let others: BTreeSet<u32> = others.filter(|other| !pids.contains(other)).collect();
            pids.extend(others.into_iter().take(MOST_HOLDERS));
            let earlier = self.known.get(inode).into_iter().flatten().copied();
            let earlier: Vec<u32> = earlier.filter(|pid| !pids.contains(pid)).collect();
            pids.extend(earlier.into_iter().take(MOST_HOLDERS));
            for pid in &pids {
                if self.holders.contains_key(pid) {
                    continue;
                }
                let Some(holder) = holder(tree, *pid) else { continue };
                // This process opens and closes descriptors all the time.
                if *pid != std::process::id() {
                    self.counts.insert(*pid, holder.descriptors);
                }
                self.holders.insert(*pid, holder);
            }
            self.known.insert(*inode, pids);
        }
        new
    }

    fn watch(&mut self, tree: &Tree, pid: u32) {
        if !self.pids.insert(pid) || !tree.is_here() {
            return;
        }
        let mounts = self.mounts.get_or_insert_with(|| CgroupMounts::read().unwrap_or_default());
        let Ok(paths) = CgroupPaths::of_mounted(pid, mounts) else { return };
        let known = self.places.iter().position(|place| place.paths == paths);
        let at = known.unwrap_or_else(|| {
            let limits = paths.socket_limits().unwrap_or_default();
            self.places.push(Place { paths, limits, pids: BTreeSet::new() });
            self.places.len() - 1
        });
        let place = &mut self.places[at];
        place.pids.insert(pid);
        for limit in &place.limits {
            self.socket_limits.entry(limit.clone()).or_default().insert(pid);
        }
    }

    pub(super) fn read(&mut self, tree: &Tree, sample: &mut Sample, unseen: &mut BTreeSet<Unseen>) {
        for pid in &self.pids {
            match probe::process::Task::first_of(tree, *pid, MOST_THREADS) {
                Ok(tasks) => sample.tasks.extend(tasks.into_iter().map(task)),
                Err(error) if tree.has(&format!("/proc/{pid}")) => {
                    add(unseen, "threads of a process", &error);
                }
                // The process has ended.
                Err(_) => {}
            }
        }
        for place in &self.places {
            for level in Level::all_at(&place.paths).unwrap_or_default() {
                let path = level.path.display().to_string();
                if let Some(known) = sample.groups.iter_mut().find(|group| group.path == path) {
                    known.pids.extend(&place.pids);
                    known.pids.sort_unstable();
                    continue;
                }
                let throttling = level.throttling.unwrap_or_default();
                sample.groups.push(Group {
                    path,
                    pids: place.pids.iter().copied().collect(),
                    granted: level.quota.map(|quota| quota.granted),
                    period: level.quota.map(|quota| quota.period),
                    periods: throttling.periods,
                    throttled: throttling.throttled,
                    throttled_time: throttling.time,
                });
            }
        }
        for (limit, pids) in &self.socket_limits {
            if let Ok(Some(figures)) = limit.read() {
                sample.socket_limits.push(SocketLimit {
                    path: limit.path().display().to_string(),
                    pids: pids.iter().copied().collect(),
                    most: figures.most,
                    used: figures.used,
                    refused: figures.refused,
                });
            }
        }
        if self.first.is_none() {
            self.first = Some(all(tree, unseen));
        }
    }

    /// Returns the processes behind each socket. Searches for the processes behind `others` too, so
    /// that one search serves both.
    pub(super) fn holders(
        &mut self,
        tree: &Tree,
        inodes: &BTreeSet<u32>,
        others: &BTreeSet<u32>,
        unseen: &mut BTreeSet<Unseen>,
    ) -> BTreeMap<u32, Vec<Holder>> {
        // An earlier search has not found the sockets of the kernel, which no process has open.
        let is_known =
            |inode: &u32| self.found.contains_key(inode) || self.searched.contains(inode);
        let new = inodes.union(others).copied().filter(|inode| *inode != 0 && !is_known(inode));
        let new: BTreeSet<u32> = new.collect();
        if !new.is_empty() {
            match Holders::find(tree, &new) {
                Ok(found) => {
                    self.add(&found);
                    self.refused = found.refused;
                }
                Err(error) => {
                    add(unseen, "processes", &error);
                    return BTreeMap::new();
                }
            }
        }
        let is_found = |inode: &u32| *inode == 0 || self.found.contains_key(inode);
        if self.refused > 0 && !inodes.iter().all(is_found) {
            unseen.insert(Unseen {
                what: "the processes behind some connections".to_owned(),
                reason: format!("{} processes belong to other users; run it as root", self.refused),
            });
        }
        self.keep(tree, inodes);
        // Reads the number of descriptors at the end, if the process still exists.
        for (pid, known) in &mut self.holders {
            if let Some(now) = holder(tree, *pid) {
                *known = now;
            }
        }
        let of = |pids: &Vec<u32>| {
            pids.iter().filter_map(|pid| self.holders.get(pid)).cloned().collect()
        };
        self.known.iter().map(|(inode, pids)| (*inode, of(pids))).collect()
    }

    /// Returns the far ends of these connections that a process in another network namespace of
    /// this machine holds. Looks in the namespaces of busy processes first; a stopped process is
    /// not busy.
    pub(super) fn far_ends(
        &self,
        tree: &Tree,
        ends: &BTreeSet<(SocketAddr, SocketAddr)>,
        busy: &[Task],
    ) -> Vec<InnerEnd> {
        let Some(own) = tree.link("/proc/thread-self/ns/net").filter(|_| tree.is_here()) else {
            return Vec::new();
        };
        let mut read = BTreeSet::from([own]);
        let mut found = BTreeMap::new();
        let others = self.first.iter().flatten();
        let processes = busy.iter().chain(others).filter(|process| process.in_kernel != Some(true));
        for process in processes.take(if ends.is_empty() { 0 } else { MOST_ASKED }) {
            if read.len() > MOST_SPACES {
                break;
            }
            let directory = format!("/proc/{}", process.pid);
            let space = tree.link(&format!("{directory}/ns/net"));
            if !space.is_some_and(|space| read.insert(space)) {
                continue;
            }
            // The far ends whose address the process's namespace has.
            let addresses = LocalAddresses::of(tree, process.pid);
            let is_local =
                |ip: IpAddr| addresses.as_ref().is_none_or(|addresses| addresses.contains(ip));
            let mut wanted: BTreeSet<(SocketAddr, SocketAddr)> =
                ends.iter().filter(|(_, remote)| is_local(remote.ip())).copied().collect();
            // A socket of IPv6 may have a connection of IPv4.
            for table in ["tcp", "tcp6"] {
                let is_in_table =
                    |(_, remote): &(SocketAddr, SocketAddr)| table == "tcp6" || remote.is_ipv4();
                if !wanted.iter().any(is_in_table) {
                    continue;
                }
                let text = tree.text(&format!("{directory}/net/{table}")).unwrap_or_default();
                let is_other = |local, remote| wanted.contains(&(remote, local));
                for (local, remote, inode) in probe::tcp::table::sockets(&text, is_other) {
                    wanted.remove(&(remote, local));
                    found.insert(inode, (local, remote));
                }
            }
        }
        let holders = Holders::find(tree, &found.keys().copied().collect()).unwrap_or_default();
        let far = found.into_iter().map(|(inode, (local, remote))| {
            let pids = holders.of.get(&inode).into_iter().flatten().take(MOST_HOLDERS);
            let holders = pids.filter_map(|pid| holder(tree, *pid)).collect();
            InnerEnd { local, remote, holders }
        });
        far.collect()
    }

    /// Returns the busiest processes, as they were at the first sample and as they are now.
    pub(super) fn busiest(&self, tree: &Tree) -> (Vec<Task>, Vec<Task>) {
        let first = self.first.as_deref().unwrap_or_default();
        let before: BTreeMap<_, _> =
            first.iter().map(|task| ((task.pid, task.started), task)).collect();
        let mut ranked: Vec<_> = all(tree, &mut BTreeSet::new())
            .into_iter()
            .filter_map(|task| {
                let earlier = before.get(&(task.pid, task.started))?;
                let spent = (task.user + task.system) - (earlier.user + earlier.system);
                Some((spent, (*earlier).clone(), task))
            })
            .collect();
        ranked.sort_by_key(|(spent, ..)| std::cmp::Reverse(*spent));
        ranked.truncate(MOST_BUSY);
        ranked.into_iter().map(|(_, earlier, later)| (earlier, later)).unzip()
    }

    /// Adds to each thread and busy process the cores that it may run on. Adds whether the control
    /// group of a thread is frozen, and the tunnels of a process. `has_tunnel`: without a tunnel
    /// interface in this namespace, the descriptors of the busiest processes need not be read.
    pub(super) fn add_places(&self, tree: &Tree, sample: &mut Sample, has_tunnel: bool) {
        let cores = probe::process::Task::cores_allowed;
        let frozen = self.places.iter().filter(|place| {
            let is_frozen = place.paths.is_frozen();
            is_frozen.is_ok_and(|frozen| frozen == Some(true))
        });
        let frozen: BTreeSet<u32> = frozen.flat_map(|place| &place.pids).copied().collect();
        for task in &mut sample.tasks {
            task.frozen = frozen.contains(&task.pid);
        }
        for task in sample.tasks.iter_mut().take(MOST_THREADS) {
            task.allowed = cores(tree, task.pid, task.tid);
        }
        for process in &mut sample.processes {
            process.allowed = cores(tree, process.pid, process.pid);
            if has_tunnel {
                process.tunnels = tunnels(tree, process.pid);
            }
        }
    }

    /// Names the holders of the UDP sockets that [`named_udp`] chose.
    pub(super) fn name_udp(&self, tree: &Tree, sample: &mut Sample) {
        for udp in &mut sample.udp {
            let pids = self.found.get(&udp.inode).into_iter().flatten();
            udp.holders = pids.filter_map(|pid| holder(tree, *pid)).collect();
        }
    }
}

/// Returns the inodes of UDP sockets that dropped packets, or that ask a name server.
pub(super) fn named_udp(sample: &Sample) -> BTreeSet<u32> {
    let is_named = |udp: &&UdpSocket| udp.drops > 0 || udp.asks_for_names();
    sample.udp.iter().filter(is_named).map(|udp| udp.inode).collect()
}

fn holder(tree: &Tree, pid: u32) -> Option<Holder> {
    let limits = tree.text(&format!("/proc/{pid}/limits")).unwrap_or_default();
    let most = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    Some(Holder {
        pid,
        name: units::foreign(tree.line(&format!("/proc/{pid}/comm"))?).to_string(),
        descriptors: tree.descriptors(pid),
        descriptors_most: most,
        group: tree.text(&format!("/proc/{pid}/cgroup")).ok().and_then(|text| group(&text)),
    })
}

/// Returns the first group in `/proc/PID/cgroup` that is not the root, in the order: version 2, the
/// CPU controller, systemd.
fn group(text: &str) -> Option<String> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of = |wanted: &str| {
        let mut lines = lines();
        let (_, path) = lines
            .find(|(names, path)| *path != "/" && names.split(',').any(|name| name == wanted))?;
        Some(units::foreign(path).to_string())
    };
    of("").or_else(|| of("cpu")).or_else(|| of("name=systemd"))
}

/// Returns every process as one task.
fn all(tree: &Tree, unseen: &mut BTreeSet<Unseen>) -> Vec<Task> {
    let names = match tree.names("/proc") {
        Ok(names) => names,
        Err(error) => {
            add(unseen, "processes", &error);
            return Vec::new();
        }
    };
    let pids = names.iter().filter_map(|name| name.parse::<u32>().ok()).take(MOST_LISTED);
    let tick = clock::tick();
    pids.filter_map(|pid| {
        let text = tree.text(&format!("/proc/{pid}/stat")).ok()?;
        let process = Process::parse(&text, tick).ok()?;
        Some(Task {
            pid,
            tid: 0,
            started: process.started,
            name: units::foreign(process.name).to_string(),
            state: process.state.to_string(),
            user: process.cpu.user,
            system: process.cpu.system,
            // The process's other threads may be on other cores.
            core: process.core.filter(|_| process.threads == 1),
            in_kernel: Some(process.in_kernel),
            ..Task::default()
        })
    })
    .collect()
}

fn task(task: probe::process::Task) -> Task {
    Task {
        pid: task.pid,
        tid: task.tid,
        started: task.started,
        name: units::foreign(task.name).to_string(),
        state: task.state.to_string(),
        user: task.user,
        system: task.system,
        ran: task.ran,
        waited: task.waited,
        io_waited: task.io_waited,
        core: task.core,
        in_kernel: None,
        frozen: false,
        allowed: None,
        tunnels: Vec::new(),
    }
}

/// Returns the interfaces behind the descriptors of `/dev/net/tun` that a process has open.
fn tunnels(tree: &Tree, pid: u32) -> Vec<String> {
    let descriptors = tree.names(&format!("/proc/{pid}/fd")).unwrap_or_default();
    let is_tunnel = |descriptor: &&String| {
        let target = tree.link(&format!("/proc/{pid}/fd/{descriptor}"));
        target.is_some_and(|target| target == Path::new("/dev/net/tun"))
    };
    let interface = |descriptor: &String| {
        let text = tree.text(&format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
        let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
        Some(units::foreign(name.trim()).to_string())
    };
    let some = descriptors.iter().take(MOST_DESCRIPTORS);
    some.filter(is_tunnel).filter_map(interface).take(MOST_TUNNELS).collect()
}

/// Minimum time after which the descriptors of a process in focus are read again without a sign of
/// change, and the minimum as a multiple of the CPU time of a reading.
const READ_AGAIN: Span = Span::from_secs(1);
const READ_GAP: u64 = 200;
const MOST_PROCESSES: usize = 32;
/// Maximum number of holders of one socket.
const MOST_HOLDERS: usize = 4;
const MOST_THREADS: usize = 128;
const MOST_DESCRIPTORS: usize = 64;
const MOST_TUNNELS: usize = 8;
/// Maximum number of processes whose network namespace is read. [`MOST_SPACES`]: maximum number of
/// namespaces whose sockets are read, because the kernel walks the whole socket table of a
/// namespace.
const MOST_ASKED: usize = 4096;
const MOST_SPACES: usize = 16;
const MOST_BUSY: usize = 16;
const MOST_LISTED: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn inode(socket: &impl AsRawFd) -> u32 {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        u32::try_from(std::fs::metadata(path).unwrap().ino()).unwrap()
    }

    #[test]
    fn a_socket_chosen_later_needs_no_second_search_of_proc() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let inodes = listeners.each_ref().map(inode);
        let (tree, own, both) = (Tree::here(), std::process::id(), BTreeSet::from(inodes));
        let mut watched = Watched::default();
        assert!(!watched.has_searched(&both));
        watched.search(&tree, both.clone());
        watched.take(&tree, &BTreeSet::from([inodes[0]]));
        assert!(watched.pids.contains(&own) && watched.has_searched(&both));
        assert!(!watched.known.contains_key(&inodes[1]));
        watched.take(&tree, &both);
        assert!(watched.known[&inodes[1]].contains(&own));
        let holders = watched.holders(&tree, &both, &BTreeSet::new(), &mut BTreeSet::new());
        let is_own = |holder: &Holder| holder.pid == own && holder.descriptors > Some(2);
        assert!(holders[&inodes[1]].iter().any(is_own), "{holders:?}");
    }

    #[test]
    fn one_search_finds_the_processes_of_connections_and_of_udp_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp = |drops: u64, inode: u32| UdpSocket {
            local: socket.local_addr().unwrap(),
            remote: None,
            inode,
            holders: Vec::new(),
            receive_queue: units::Bytes::ZERO,
            drops,
        };
        let udp = vec![udp(3, inode(&socket)), udp(0, 0)];
        let mut sample = Sample { udp, ..Sample::default() };
        let named = named_udp(&sample);
        assert_eq!(named, BTreeSet::from([inode(&socket)]));
        let (tree, mut watched) = (Tree::here(), Watched::default());
        let inodes = BTreeSet::from([inode(&listener)]);
        let holders = watched.holders(&tree, &inodes, &named, &mut BTreeSet::new());
        assert_eq!(holders.keys().copied().collect::<BTreeSet<_>>(), inodes);
        // The observation searches once for a socket without a process.
        watched.found.remove(&inode(&listener));
        watched.searched.insert(inode(&listener));
        let again = BTreeSet::from([inode(&listener)]);
        watched.known.clear();
        let holders = watched.holders(&tree, &again, &BTreeSet::new(), &mut BTreeSet::new());
        assert!(holders.is_empty(), "{holders:?}");
        watched.name_udp(&tree, &mut sample);
        let own = std::process::id();
        assert!(sample.udp[0].holders.iter().any(|holder| holder.pid == own), "{sample:?}");
        assert!(sample.udp[1].holders.is_empty());
    }

    #[test]
    fn the_descriptors_of_a_process_in_focus_are_read_again_for_a_new_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let known = inode(&listener);
        let mut command = Command::new("sleep");
        let mut child = command.arg("600").stdin(OwnedFd::from(listener)).spawn().unwrap();
        let (tree, pid, mut watched) = (Tree::here(), child.id(), Watched::default());
        let mut reads = |listed: &[u32], now: Span| {
            watched.look_again(&tree, pid, listed.iter().copied().collect(), now);
            let has_read = watched.has_socket(known);
            watched.sockets.clear();
            has_read
        };
        let first = reads(&[known], Span::ZERO);
        // The number of descriptors changes while the process starts.
        let deadline = Instant::now() + Duration::from_secs(60);
        while reads(&[known], Span::ZERO) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_late = Instant::now() >= deadline;
        let again = reads(&[known, known + 1], Span::ZERO);
        // A socket that another process passes is in the listing before.
        let later = reads(&[known, known + 1], READ_AGAIN);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((first, is_late, again, later), (true, false, true, true));
    }

    #[test]
    fn a_process_that_receives_an_open_socket_is_found_beside_the_earlier_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let passed = || {
            let copy = OwnedFd::from(listener.try_clone().unwrap());
            Command::new("sleep").arg("600").stdin(copy).spawn().unwrap()
        };
        let (tree, inodes) = (Tree::here(), BTreeSet::from([inode(&listener)]));
        let mut watched = Watched::default();
        let mut first = passed();
        watched.search(&tree, inodes.clone());
        watched.take(&tree, &inodes);
        // The number of descriptors changes while the process starts.
        let deadline = Instant::now() + Duration::from_secs(60);
        while watched.has_changed(&tree) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            watched.search(&tree, inodes.clone());
        }
        let is_late = Instant::now() >= deadline;
        let mut second = passed();
        first.kill().unwrap();
        first.wait().unwrap();
        let has_changed = watched.has_changed(&tree);
        watched.search(&tree, inodes.clone());
        watched.take(&tree, &inodes);
        second.kill().unwrap();
        second.wait().unwrap();
        let known = &watched.known[&inode(&listener)];
        assert!(!is_late && has_changed, "{watched:?}");
        assert!([&first, &second].iter().all(|one| known.contains(&one.id())), "{known:?}");
    }

    #[test]
    fn the_groups_that_processes_share_are_read_once() {
        match CgroupPaths::own() {
            Err(error) if error.is_not_supported() => {
                return testing::skip_because(testing::Need::CpuLimit, error);
            }
            own => drop(own.unwrap()),
        }
        let mut children = [(); 3].map(|()| Command::new("sleep").arg("600").spawn().unwrap());
        let (tree, mut watched, mut sample) = (Tree::here(), Watched::default(), Sample::default());
        let mut pids = children.each_ref().map(std::process::Child::id);
        for pid in pids {
            watched.watch(&tree, pid);
        }
        watched.read(&tree, &mut sample, &mut BTreeSet::new());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        pids.sort_unstable();
        assert_eq!(watched.places.len(), 1, "{:?}", watched.places);
        assert!(sample.groups.iter().all(|group| group.pids == pids), "{:?}", sample.groups);
    }
}
