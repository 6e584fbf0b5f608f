//! The TCP sockets of this namespace over several samples. A listing walks through all sockets, and
//! reads only the bytes that each moved. The samples between two listings look up the busiest
//! sockets one by one, and record them.

use super::connections::{add, connection, has_data, state_name};
use super::ended::Ended;
use super::focus::Focus;
use super::processes::Watched;
use crate::recording::{Listener, RemotePorts, Sample, ShortLived, TCP_CONNECTIONS, Unseen};
use probe::tcp::{Diag, Ends, Filter, Queues, RawSocket, TcpInfo, TcpSocket, TcpState, Timer};
use probe::tree::Tree;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use units::{Bytes, Span};

#[derive(Debug)]
pub(super) struct Sockets {
    diag: Diag,
    /// The tracks by the socket's cookie.
    tracks: HashMap<u64, Track>,
    /// The cookies of the connections that are recorded in each sample.
    chosen: HashSet<u64>,
    /// Maximum number of connections in the recording.
    most: usize,
    /// Every connection of the first and of the latest listing: a connection that is kept in the
    /// end may have been chosen only later.
    first: Messages,
    latest: Messages,
    listings: u32,
    looks: u32,
    states: BTreeMap<String, u64>,
    busiest_remote: Option<RemotePorts>,
    listener_inodes: BTreeMap<SocketAddr, u32>,
    /// Connections outside the focus, to the hosts of connections in focus.
    beside: HashSet<u64>,
    ended: Ended,
}

/// The bytes of a connection until now.
#[derive(Debug)]
struct Track {
    ends: Ends,
    inode: u32,
    first: u64,
    last: u64,
    waits: bool,
    /// Whether the connection is open, and neither of its ends waits for data or for an answer.
    rests: bool,
    /// The number of the first listing with the connection.
    opened: u32,
    /// The number of the last listing with the connection.
    listing: u32,
    /// The time of the first listing with the connection.
    opened_at: Span,
    /// The time of the last listing with the connection.
    seen_at: Span,
    /// The minimum round trip, only for a connection that opened during the observation.
    min_rtt: Span,
    /// Whether the connection was brief, if the kernel announced its end.
    ended_brief: Option<bool>,
}

/// The kernel's messages of one listing.
#[derive(Debug, Default)]
struct Messages {
    /// The index of the sample in the period.
    place: usize,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Sockets {
    pub(super) fn new(most: usize) -> Self {
        Self {
            diag: Diag::without_algorithm(),
            tracks: HashMap::new(),
            chosen: HashSet::new(),
            most,
            first: Messages::default(),
            latest: Messages::default(),
            listings: 0,
            looks: 0,
            states: BTreeMap::new(),
            busiest_remote: None,
            listener_inodes: BTreeMap::new(),
            beside: HashSet::new(),
            ended: Ended::default(),
        }
    }

    /// Starts to count connections that end between two listings.
    pub(super) fn count_ended(&mut self, unseen: &mut BTreeSet<Unseen>) {
        self.ended = Ended::begin(unseen);
    }

    /// Reads which connections have ended since the last call. Sockets without a process have no
    /// inode: a connection belongs to the process in focus if its far end, or its local port, is
    /// that of another connection of the process.
    pub(super) fn read_ended(&mut self, focus: &Focus) {
        let of_process: HashSet<SocketAddr> = match focus {
            Focus::Process(_) => self.own_tracks().flat_map(|(_, track)| track.ends()).collect(),
            _ => HashSet::new(),
        };
        let is_asked = |socket: &RawSocket<'_>| match focus {
            Focus::Process(_) => {
                of_process.contains(&socket.remote()) || of_process.contains(&socket.local())
            }
            _ => is_at(focus, socket),
        };
        let (tracks, is_begun) = (&mut self.tracks, self.listings > 0);
        self.ended.read(|socket, is_brief| match tracks.get_mut(&socket.cookie()) {
            Some(track) => {
                track.ended_brief = Some(is_brief);
                track.last = track.last.max(moved(socket));
                false
            }
            None => is_begun && is_brief && is_asked(socket),
        });
    }

    /// Returns the far ends of connections that no listing had.
    pub(super) fn ended_hosts(&self) -> BTreeSet<IpAddr> {
        self.ended.hosts()
    }

    fn own_tracks(&self) -> impl Iterator<Item = (&u64, &Track)> {
        self.tracks.iter().filter(|(cookie, _)| !self.beside.contains(cookie))
    }

    /// Lists all sockets. `place`: the index of the sample in the period. The sockets of a process
    /// in focus are those that `watched` knows or finds in `tree`.
    pub(super) fn list(
        &mut self,
        tree: &Tree,
        focus: &Focus,
        watched: &mut Watched,
        place: usize,
        sample: &mut Sample,
        unseen: &mut BTreeSet<Unseen>,
    ) {
        self.listings += 1;
        let mut messages = std::mem::take(&mut self.latest);
        messages.begin(place);
        let mut rest = Messages::default();
        let mut states = [0u64; STATES];
        let mut ports = Ports::default();
        let mut listeners = Vec::new();
        let has_focus = *focus != Focus::All;
        let read = self.diag.each(&Filter::all(), |socket| {
            let Some(state) = socket.state() else { return };
            if let Some(count) = states.get_mut(state as usize) {
                *count += 1;
            }
            ports.add(&socket, state);
            if state == TcpState::Listen {
                listeners.extend(listener(&socket));
            } else if has_data(state) {
                match is_at(focus, &socket) {
                    true => messages.push(&socket),
                    false if has_focus => rest.push(&socket),
                    false => {}
                }
            }
        });
        if let Err(error) = read {
            add(unseen, TCP_CONNECTIONS, &error);
            // Connections that this listing did not see have not ended.
            self.listings -= 1;
            return;
        }
        if let Focus::Process(pid) = focus {
            rest = of_process(tree, *pid, watched, &rest, &mut messages, sample.at);
        }
        if has_focus {
            self.add_beside(&rest, &mut messages);
        }
        for socket in messages.sockets() {
            self.track(&socket, sample.at);
        }
        if self.tracks.len() > MOST_TRACKS {
            let now = self.listings;
            self.tracks.retain(|_, track| track.listing == now);
        }
        let now = self.listings;
        self.chosen = self.ranked(self.most * 2, |track| track.listing == now).collect();
        for socket in messages.sockets().filter(|one| self.chosen.contains(&one.cookie())) {
            sample.connections.extend(TcpSocket::of(socket).and_then(connection));
        }
        self.states.clear();
        for (number, count) in states.iter().enumerate().filter(|(_, count)| **count > 0) {
            let Some(state) = u8::try_from(number).ok().and_then(TcpState::from_number) else {
                continue;
            };
            *self.states.entry(state_name(state).to_owned()).or_default() += count;
        }
        self.busiest_remote = ports.busiest();
        self.finish_sample(listeners, sample);
        match self.listings {
            1 => self.first = messages,
            _ => self.latest = messages,
        }
    }

    /// Looks up the chosen connections, and reads the sockets that listen. Passes over most quiet
    /// connections, unless `has_focus` is set: the user asks about these connections.
    pub(super) fn look(
        &mut self,
        has_focus: bool,
        sample: &mut Sample,
        unseen: &mut BTreeSet<Unseen>,
    ) {
        let has_all = has_focus || self.looks.is_multiple_of(QUIET_GAP);
        self.looks += 1;
        let is_quiet = |cookie: &u64| self.tracks.get(cookie).is_some_and(Track::is_quiet);
        let chosen = self.chosen.iter().copied();
        let chosen: Vec<u64> = chosen.filter(|cookie| has_all || !is_quiet(cookie)).collect();
        if !self.look_up(&chosen, sample, unseen) {
            return;
        }
        let mut listeners = Vec::new();
        let read = self.diag.each_bare(&Filter::listening(), |socket| {
            listeners.extend(listener(&socket));
        });
        if let Err(error) = read {
            add(unseen, TCP_CONNECTIONS, &error);
        }
        self.finish_sample(listeners, sample);
    }

    /// Adds the kept connections that [`Self::look`] passed over to the last sample.
    pub(super) fn look_rest(
        &mut self,
        kept: &HashSet<u64>,
        sample: &mut Sample,
        unseen: &mut BTreeSet<Unseen>,
    ) {
        let has: HashSet<u64> = sample.connections.iter().map(|one| one.cookie).collect();
        let rest = kept.iter().copied().filter(|cookie| self.chosen.contains(cookie));
        let rest: Vec<u64> = rest.filter(|cookie| !has.contains(cookie)).collect();
        self.look_up(&rest, sample, unseen);
    }

    /// Looks up connections one by one. Returns whether the kernel answered.
    fn look_up(
        &mut self,
        cookies: &[u64],
        sample: &mut Sample,
        unseen: &mut BTreeSet<Unseen>,
    ) -> bool {
        for cookie in cookies {
            let Some(track) = self.tracks.get_mut(cookie) else { continue };
            if track.ended_brief.is_some() {
                continue;
            }
            let looked = self.diag.one(track.ends, |socket| {
                track.note(&socket);
                sample.connections.extend(TcpSocket::of(socket).and_then(connection));
            });
            if let Err(error) = looked {
                add(unseen, TCP_CONNECTIONS, &error);
                return false;
            }
        }
        true
    }

    fn finish_sample(&mut self, mut listeners: Vec<(Listener, u32)>, sample: &mut Sample) {
        self.listener_inodes =
            listeners.iter().map(|(listener, inode)| (listener.local, *inode)).collect();
        // A recording keeps the listeners with the fullest queues.
        listeners.sort_by_key(|(listener, _)| Reverse(listener.waiting));
        listeners.truncate(MOST_LISTENERS);
        sample.listeners = listeners.into_iter().map(|(listener, _)| listener).collect();
        sample.states = self.states.clone();
        sample.busiest_remote = self.busiest_remote.clone();
    }

    /// Adds the connections to the same hosts that moved most data. If a connection in focus loses
    /// more than these connections, a shared queue does not explain its losses.
    fn add_beside(&mut self, rest: &Messages, messages: &mut Messages) {
        let hosts: HashSet<_> = messages.sockets().map(|one| one.remote().ip()).collect();
        let is_ended = |one: &RawSocket<'_>| {
            messages
                .sockets()
                .any(|other| other.remote() == one.local() && other.local() == one.remote())
        };
        let mut beside: Vec<_> =
            rest.sockets().filter(|one| hosts.contains(&one.remote().ip())).collect();
        beside.sort_by_key(|one| Reverse(moved(one)));
        beside.truncate(MOST_BESIDE);
        beside.retain(|one| !is_ended(one));
        for socket in &beside {
            self.beside.insert(socket.cookie());
            messages.push(socket);
        }
    }

    fn track(&mut self, socket: &RawSocket<'_>, at: Span) {
        let is_first = self.listings == 1;
        let track = self.tracks.entry(socket.cookie()).or_insert_with(|| Track {
            ends: socket.ends(),
            inode: socket.inode(),
            // A connection of a later listing opened during the observation: all its bytes count.
            first: if is_first { moved(socket) } else { 0 },
            last: 0,
            waits: false,
            rests: false,
            opened: self.listings,
            listing: 0,
            opened_at: at,
            seen_at: at,
            min_rtt: Span::ZERO,
            ended_brief: None,
        });
        track.listing = self.listings;
        track.seen_at = at;
        if track.opened > 1 {
            let known = socket.info().and_then(|info| TcpInfo::from_bytes(info).min_rtt);
            track.min_rtt = known.unwrap_or(track.min_rtt);
        }
        track.inode = socket.inode();
        track.note(socket);
    }

    /// Returns the cookies of the connections that moved most since the first listing, then of the
    /// connections that wait, among them unanswered handshakes.
    fn ranked(
        &self,
        most: usize,
        is_of_interest: impl Fn(&Track) -> bool,
    ) -> impl Iterator<Item = u64> {
        let tracks = self.tracks.iter().filter(|(_, track)| is_of_interest(track));
        let mut ranked: Vec<_> = tracks
            .map(|(cookie, track)| (track.last.saturating_sub(track.first), track.waits, *cookie))
            .collect();
        ranked.sort_unstable_by_key(|(bytes, _, cookie)| (Reverse(*bytes), *cookie));
        // Half of the slots are for the busiest connections, the rest for the connections that
        // wait.
        let rest = ranked.split_off(ranked.len().min(most / 2));
        let (waiting, quiet): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, waits, _)| *waits);
        let others = most - ranked.len();
        ranked
            .into_iter()
            .chain(waiting.into_iter().chain(quiet).take(others))
            .map(|(_, _, cookie)| cookie)
    }

    /// Returns the cookies of the connections to keep.
    pub(super) fn kept(&self) -> HashSet<u64> {
        self.ranked(self.most, |_| true).collect()
    }

    /// Returns the connections that opened and ended within half of the listings and within few
    /// round trips, and connections that ended before a listing saw the connection.
    pub(super) fn short_lived(&self) -> ShortLived {
        let tracks = self.own_tracks().map(|(_, track)| track);
        let short = tracks.filter(|track| track.is_short(self.listings));
        short.fold(self.ended.short(), |sum, track| ShortLived {
            connections: sum.connections + 1,
            bytes: sum.bytes + Bytes::new(track.last),
        })
    }

    /// Returns the inodes of all connections' sockets.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u32> {
        self.tracks.values().map(|track| track.inode)
    }

    pub(super) fn inode(&self, cookie: u64) -> Option<u32> {
        self.tracks.get(&cookie).map(|track| track.inode)
    }

    /// Returns the inodes of the listeners of this sample that have waiting connections.
    pub(super) fn waiting(&self, sample: &Sample) -> impl Iterator<Item = u32> {
        let waiting = sample.listeners.iter().filter(|listener| listener.waiting > 0);
        waiting.filter_map(move |listener| self.listener_inode(&listener.local))
    }

    pub(super) fn listener_inode(&self, local: &SocketAddr) -> Option<u32> {
        self.listener_inodes.get(local).copied()
    }

    /// Drops all connections except the connections to keep, and adds the kept connections to the
    /// samples of the first and of the latest listing.
    pub(super) fn finish(&self, kept: &HashSet<u64>, samples: &mut [Sample]) {
        for sample in samples.iter_mut() {
            sample.connections.retain(|connection| kept.contains(&connection.cookie));
        }
        for messages in [&self.first, &self.latest] {
            let Some(sample) = samples.get_mut(messages.place) else { continue };
            let has: HashSet<u64> = sample.connections.iter().map(|one| one.cookie).collect();
            let is_missing = |cookie: u64| kept.contains(&cookie) && !has.contains(&cookie);
            for socket in messages.sockets().filter(|one| is_missing(one.cookie())) {
                sample.connections.extend(TcpSocket::of(socket).and_then(connection));
            }
        }
        for connection in samples.iter_mut().flat_map(|sample| &mut sample.connections) {
            connection.beside = self.beside.contains(&connection.cookie);
        }
    }
}

impl Track {
    /// Whether the connection opened and ended within half of the `listings` of an observation.
    /// After many round trips the window has grown; a connection that one listing saw is short.
    fn is_short(&self, listings: u32) -> bool {
        let seen = self.listing - self.opened + 1;
        let is_brief = self.seen_at - self.opened_at <= self.min_rtt * ShortLived::ROUND_TRIPS;
        let has_ended = self.listing < listings || self.ended_brief.is_some();
        self.opened > 1
            && has_ended
            && seen * 2 <= listings
            && is_brief
            && self.ended_brief != Some(false)
    }

    fn ends(&self) -> [SocketAddr; 2] {
        [self.ends.local, self.ends.remote]
    }

    fn note(&mut self, socket: &RawSocket<'_>) {
        // For a connection in FIN-WAIT-2 that no process holds, the kernel reports no byte counts.
        self.last = self.last.max(moved(socket));
        let (receive, send) = match socket.queues() {
            Queues::Data { receive, send } => (receive, send),
            Queues::Accept { .. } => (Bytes::ZERO, Bytes::ZERO),
        };
        let again = matches!(socket.timer(), Some(Timer::Retransmit { retransmits: 1.., .. }));
        self.waits = send > Bytes::ZERO || again;
        let is_open = socket.state() == Some(TcpState::Established);
        self.rests = is_open && !self.waits && receive == Bytes::ZERO;
    }

    /// Whether the connection has moved no data since the first listing, and rests.
    fn is_quiet(&self) -> bool {
        self.rests && self.last == self.first
    }
}

impl Messages {
    fn begin(&mut self, place: usize) {
        self.place = place;
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, socket: &RawSocket<'_>) {
        self.bytes.extend_from_slice(socket.message());
        self.ends.push(self.bytes.len());
    }

    fn sockets(&self) -> impl Iterator<Item = RawSocket<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| RawSocket::new(&self.bytes[start..*end]))
    }
}

/// Local ports by destination. Connections that peers opened to a listener share its port and do
/// not count: the kernel lists the listening sockets before the connections.
#[derive(Debug, Default)]
struct Ports {
    listening: HashSet<u16>,
    used: HashMap<SocketAddr, (u64, u64)>,
}

impl Ports {
    fn add(&mut self, socket: &RawSocket<'_>, state: TcpState) {
        let port = socket.local().port();
        if state == TcpState::Listen {
            self.listening.insert(port);
        } else if !self.listening.contains(&port) {
            let (ports, time_wait) = self.used.entry(socket.remote()).or_default();
            *ports += 1;
            *time_wait += u64::from(state == TcpState::TimeWait);
        }
    }

    fn busiest(self) -> Option<RemotePorts> {
        let most = self.used.into_iter().max_by_key(|(remote, (ports, _))| (*ports, *remote))?;
        let (remote, (ports, time_wait)) = most;
        Some(RemotePorts { remote, ports, time_wait })
    }
}

fn moved(socket: &RawSocket<'_>) -> u64 {
    socket.info().and_then(TcpInfo::moved).map_or(0, Bytes::count)
}

fn listener(socket: &RawSocket<'_>) -> Option<(Listener, u32)> {
    let Queues::Accept { waiting, limit } = socket.queues() else { return None };
    let local = socket.local();
    Some((Listener { local, holders: Vec::new(), waiting, limit }, socket.inode()))
}

/// Moves the sockets of a process from `all` to `messages`. Returns the other sockets. A connection
/// within this machine belongs to the process at either end.
fn of_process(
    tree: &Tree,
    pid: u32,
    watched: &mut Watched,
    all: &Messages,
    messages: &mut Messages,
    now: Span,
) -> Messages {
    let inodes = all.sockets().map(|socket| socket.inode()).filter(|inode| *inode != 0);
    watched.look_again(tree, pid, inodes.collect(), now);
    let mut others = Messages::default();
    for socket in all.sockets() {
        match watched.has_socket(socket.inode()) {
            true => messages.push(&socket),
            false => others.push(&socket),
        }
    }
    let ends: HashSet<_> =
        messages.sockets().map(|socket| (socket.local(), socket.remote())).collect();
    for socket in others.sockets() {
        if ends.contains(&(socket.remote(), socket.local())) {
            messages.push(&socket);
        }
    }
    others
}

/// Whether an address of the connection is in focus.
fn is_at(focus: &Focus, socket: &RawSocket<'_>) -> bool {
    match focus {
        Focus::All => true,
        Focus::Process(_) => false,
        Focus::Port(port) => socket.local().port() == *port || socket.remote().port() == *port,
        Focus::Address(address) => {
            let address = address.to_canonical();
            socket.remote().ip() == address || socket.local().ip() == address
        }
        Focus::Socket(end) => socket.local() == *end || socket.remote() == *end,
    }
}

/// A quiet connection is in each fourth of the samples that look up connections.
const QUIET_GAP: u32 = 4;
const MOST_BESIDE: usize = 8;
const MOST_LISTENERS: usize = 64;
const MOST_TRACKS: usize = 400_000;
/// More than the highest number of a TCP state.
const STATES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// A transfer between two listings, on one of many connections.
    #[test]
    fn a_connection_that_moves_data_is_kept_from_its_first_sample_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let focus = Focus::Port(address.port());
        let pair = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        let mut ends: Vec<_> = (0..20).map(pair).collect();
        let (tree, mut watched) = (Tree::here(), Watched::default());
        let mut unseen = BTreeSet::new();
        let mut sockets = Sockets::new(4);
        let mut samples = vec![Sample::default(), Sample::default(), Sample::default()];
        sockets.list(&tree, &focus, &mut watched, 0, &mut samples[0], &mut unseen);
        assert_eq!(samples[0].connections.len(), 8);
        ends[19].0.write_all(&[1; 1000]).unwrap();
        sockets.list(&tree, &focus, &mut watched, 1, &mut samples[1], &mut unseen);
        sockets.look(true, &mut samples[2], &mut unseen);
        let local = ends[19].0.local_addr().unwrap();
        let kept = sockets.kept();
        assert_eq!(kept.len(), 4);
        sockets.finish(&kept, &mut samples);
        for sample in &samples {
            assert!(sample.connections.iter().any(|one| one.local == local), "{samples:?}");
            assert!(sample.listeners.iter().any(|one| one.local == address));
        }
        assert!(unseen.is_empty(), "{unseen:?}");
    }

    #[test]
    fn a_quiet_connection_is_looked_up_seldom_and_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let mut server = listener.accept().unwrap().0;
        let (tree, mut watched) = (Tree::here(), Watched::default());
        let mut unseen = BTreeSet::new();
        // Sixteen places also hold connections of other programs to this address.
        let mut sockets = Sockets::new(16);
        let mut samples = [(); 7].map(|()| Sample::default());
        let focus = Focus::Port(address.port());
        sockets.list(&tree, &focus, &mut watched, 0, &mut samples[0], &mut unseen);
        for sample in &mut samples[1..4] {
            sockets.look(false, sample, &mut unseen);
        }
        let kept = sockets.kept();
        sockets.look_rest(&kept, &mut samples[3], &mut unseen);
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        sockets.look(true, &mut samples[4], &mut unseen);
        for sample in &mut samples[5..7] {
            sockets.look(false, sample, &mut unseen);
        }
        let counts = samples.each_ref().map(|sample| {
            let ends = sample.connections.iter().map(|one| [one.local, one.remote]);
            ends.filter(|ends| ends.contains(&address)).count()
        });
        assert_eq!(counts, [2, 2, 0, 2, 2, 2, 2], "{unseen:?}");
    }

    /// BBR needs half a second for a few segments over a long round trip.
    #[test]
    fn a_connection_of_several_listings_is_short_lived_if_it_opened_and_ended() {
        let any: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let ends = Ends { local: any, remote: any, interface: 0, cookie: 0 };
        let is_short = |opened: u32, listing: u32, rtt: u64| {
            let at = |place: u32| Span::from_millis(250) * u64::from(place);
            let track = Track {
                ends,
                inode: 0,
                first: 0,
                last: 9,
                waits: false,
                rests: false,
                opened,
                listing,
                opened_at: at(opened),
                seen_at: at(listing),
                min_rtt: Span::from_millis(rtt),
                ended_brief: None,
            };
            track.is_short(20)
        };
        assert!(is_short(4, 4, 400) && is_short(4, 9, 400));
        // The first connection began before the observation, the second connection is open, and the
        // third connection lasts too long.
        assert!(!is_short(1, 4, 400) && !is_short(18, 20, 400) && !is_short(3, 17, 400));
        // A connection of many round trips is short only if a single listing saw it.
        assert!(is_short(4, 4, 1) && is_short(4, 5, 20) && !is_short(4, 9, 20));
    }

    #[test]
    fn connections_that_end_between_two_listings_are_short_lived() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let focus = Focus::Port(address.port());
        let mut unseen = BTreeSet::new();
        let mut sockets = Sockets::new(4);
        sockets.count_ended(&mut unseen);
        let (tree, mut watched) = (Tree::here(), Watched::default());
        sockets.list(&tree, &focus, &mut watched, 0, &mut Sample::default(), &mut unseen);
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).unwrap();
            let mut server = listener.accept().unwrap().0;
            client.write_all(&[1; 1000]).unwrap();
            drop(client);
            server.read_to_end(&mut Vec::new()).unwrap();
        }
        // The kernel announces the end of a socket a little later.
        let deadline = Instant::now() + Duration::from_secs(60);
        while sockets.short_lived().connections < 3 && Instant::now() < deadline {
            sockets.read_ended(&focus);
            std::thread::sleep(Duration::from_millis(1));
        }
        let short = sockets.short_lived();
        assert!(short.connections == 3 && short.bytes >= Bytes::new(3000), "{short:?} {unseen:?}");
        assert_eq!(sockets.ended_hosts(), BTreeSet::from([address.ip()]));
    }

    #[test]
    fn a_search_for_a_connection_that_has_ended_is_no_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pair = (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        let (tree, mut watched) = (Tree::here(), Watched::default());
        let mut unseen = BTreeSet::new();
        let mut sockets = Sockets::new(4);
        let [mut first, mut last] = [Sample::default(), Sample::default()];
        let focus = Focus::Port(address.port());
        sockets.list(&tree, &focus, &mut watched, 0, &mut first, &mut unseen);
        assert_eq!(first.connections.len(), 2);
        drop((pair, listener));
        sockets.look(true, &mut last, &mut unseen);
        assert!(last.listeners.iter().all(|one| one.local != address));
        assert!(unseen.is_empty(), "{unseen:?}");
    }
}
