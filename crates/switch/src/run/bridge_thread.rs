use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flow::request::{FlowCommand, FlowMod};
use host::BoundFile;
use openflow::{BundleMemory, Version};
use ovsdb::topology::Carrier;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{foreign, visible};

use super::bridge::{BridgeEvent, BridgeState, ControllerState};
use super::bridge_session::BridgeSession;
use super::connection::{Closed, Connection, is_transient};
use super::remote::{ControllerTimes, Remote};
use super::snoop::SnoopSocket;
use super::stream::{Origin, Stream};
use super::switch::Switch;

/// The thread of a bridge: its OpenFlow connections, and the timeouts of its rules.
pub(super) struct BridgeThread {
    bridge: Arc<BridgeState>,
    session: BridgeSession,
    unix: UnixListener,
    /// Removes the socket's file when it is dropped.
    _file: BoundFile,
    /// Listeners, each with its address as written in the settings.
    tcp: Vec<(Remote, TcpListener)>,
    snoop: SnoopSocket,
    connections: Vec<Connection>,
    /// The number of the newest connection.
    last_number: u64,
    /// The memory for bundles: each [`Origin`] has one memory for all its connections.
    memory: [Arc<BundleMemory>; 2],
    /// The index of the connection that the next iteration serves first.
    first: usize,
    controllers: Vec<Controller>,
    /// The datapath ID and the versions of OpenFlow that the connections have.
    identity: (u64, Vec<Version>),
    /// The last time at which a controller was connected, on the switch's clock.
    controlled_ms: u64,
    scratch: Vec<u8>,
    expires: Instant,
    checks: Instant,
    /// The last time at which a peer sent something.
    served: Option<Instant>,
    stop: Arc<AtomicBool>,
}

/// A controller to which the switch connects.
#[derive(Debug, Clone)]
struct Controller {
    remote: Remote,
    /// The time of the next connection attempt; `None` while connected.
    next: Option<Instant>,
    pause: Duration,
    last_error: Option<String>,
}

/// The listeners of a bridge.
pub(super) struct Doors {
    pub(super) unix: UnixListener,
    pub(super) file: BoundFile,
    /// The socket for peers that snoop on controllers.
    pub(super) snoop: (UnixListener, BoundFile),
    pub(super) tcp: Vec<(Remote, TcpListener)>,
    pub(super) controllers: Vec<Remote>,
}

impl BridgeThread {
    pub(super) fn new(
        switch: Arc<Switch>,
        bridge: Arc<BridgeState>,
        doors: Doors,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let now = Instant::now();
        Self {
            controlled_ms: bridge.clock.now_ms(),
            identity: bridge.identity(),
            session: BridgeSession::new(bridge.clone(), switch),
            bridge,
            unix: doors.unix,
            _file: doors.file,
            tcp: doors.tcp,
            snoop: SnoopSocket::new(doors.snoop),
            connections: Vec::new(),
            last_number: 0,
            memory: Default::default(),
            first: 0,
            controllers: doors.controllers.into_iter().map(Controller::new).collect(),
            scratch: vec![0; READ],
            expires: now,
            checks: now,
            served: None,
            stop,
        }
    }

    /// Serves the connections until the bridge is removed.
    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.change_remotes();
        self.change_identity();
        self.reconnect();
        self.connect_to_controllers();
        Origin::ALL.into_iter().for_each(|origin| self.free_a_place(origin));
        let ready = self.wait();
        self.bridge.waker.clear();
        self.bridge.run_lacp();
        self.accept();
        self.accept_snoopers();
        // Expire rules first, so that no request sees a rule after its timeout.
        self.expire_rules();
        if ready.iter().any(|ready| ready.contains(PollFlags::IN)) {
            self.served = Some(Instant::now());
        }
        self.look_at_controllers();
        self.serve(&ready);
        self.dispatch();
        self.expire_bundles();
        self.check();
        self.copy_to_snoopers();
    }

    /// Applies new controllers and listening addresses. A connection to a controller that stays in
    /// the settings remains open.
    fn change_remotes(&mut self) {
        let Some(remotes) = self.bridge.take_remotes() else { return };
        let open = std::mem::take(&mut self.tcp).into_iter();
        self.tcp = open.filter_map(|(at, door)| Some((remotes.kept(at)?, door))).collect();
        self.tcp.extend(remotes.added);
        self.snoop.keep(&remotes.controllers);
        let former = std::mem::take(&mut self.controllers);
        let remote = |connection: &Connection| Some(former[connection.controller?].remote);
        let places: Vec<_> = self.connections.iter().map(remote).collect();
        let mut places = places.into_iter();
        self.connections.retain_mut(|connection| {
            let Some(Some(remote)) = places.next() else { return true };
            connection.controller = remotes.controllers.iter().position(|wanted| *wanted == remote);
            connection.controller.is_some()
        });
        self.controllers = remotes
            .controllers
            .into_iter()
            .map(|remote| {
                let known = former.iter().find(|controller| controller.remote == remote);
                known.cloned().unwrap_or_else(|| Controller::new(remote))
            })
            .collect();
        self.first = 0;
        self.tell_controllers();
    }

    /// Closes the connections if the datapath ID or the versions of OpenFlow have changed.
    fn change_identity(&mut self) {
        let identity = self.bridge.identity();
        if identity != self.identity {
            self.identity = identity;
            let all = (0..self.connections.len()).map(|index| (index, Closed::Changed)).collect();
            self.close(all);
        }
    }

    /// Closes the connections to controllers if a command has asked for new ones.
    fn reconnect(&mut self) {
        if !self.bridge.takes_reconnect() {
            return;
        }
        let all = self.connections.iter().enumerate();
        let own = all.filter(|(_, connection)| connection.controller.is_some());
        let own = own.map(|(index, _)| (index, Closed::Reconnect)).collect();
        self.close(own);
        for controller in &mut self.controllers {
            (controller.next, controller.pause) = (Some(Instant::now()), FIRST_PAUSE);
        }
    }

    /// Makes a standalone bridge a learning switch after a time without a controller, and an
    /// ordinary bridge again when a controller is back. As in Open vSwitch, the rules of the lost
    /// controller are removed first.
    fn look_at_controllers(&mut self) {
        let now_ms = self.bridge.clock.now_ms();
        let is_controller = |c: &Connection| c.controller.is_some() && c.is_established();
        if self.controllers.is_empty() || self.connections.iter().any(is_controller) {
            self.controlled_ms = now_ms;
        }
        let lost_ms = now_ms.saturating_sub(self.controlled_ms);
        let probe_ms = |controller: &Controller| self.bridge.times_of(controller.remote).probe_ms;
        let longest = self.controllers.iter().filter_map(probe_ms).max();
        // As in Open vSwitch, three times the longest probe interval.
        let alone_ms = longest.unwrap_or(ControllerTimes::PROBE_MS).saturating_mul(3);
        let is_alone = lost_ms >= alone_ms && self.bridge.is_standalone();
        if is_alone == self.bridge.tables().is_standalone() {
            return;
        }
        let name = &self.bridge.name;
        let mut tables = self.bridge.tables_mut();
        if is_alone {
            tracing::warn!(
                "bridge {name}: no controller for {} s: forwards as a learning switch",
                lost_ms / 1000
            );
            // Deleting all rules never fails.
            let _ = tables.flow_mod(FlowMod::new(FlowCommand::Delete), now_ms);
        } else {
            tracing::info!("bridge {name}: no longer forwards as a learning switch");
        }
        tables.set_standalone(is_alone);
    }

    /// Stores the states of the connections to controllers in the bridge.
    fn tell_controllers(&self) {
        let state = |(index, controller): (usize, &Controller)| {
            let mut own = self.connections.iter().filter(|c| c.controller == Some(index));
            let open = own.find(|connection| connection.is_established());
            ControllerState {
                remote: controller.remote,
                is_connected: open.is_some(),
                role: open.map_or("other", Connection::role_name),
                last_error: controller.last_error.clone(),
            }
        };
        self.bridge.set_controllers(self.controllers.iter().enumerate().map(state).collect());
    }

    /// Waits until there is work. Returns the readiness of each connection.
    fn wait(&self) -> Vec<PollFlags> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.bridge.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.unix.as_fd(), PollFlags::IN),
        ];
        let tcp = self.tcp.iter().map(|(_, listener)| listener.as_fd());
        fds.extend(tcp.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let first = fds.len();
        let is_full = Origin::ALL.map(|origin| self.is_full(origin));
        let mut has_work = false;
        for connection in &self.connections {
            let is_full = is_full[connection.origin() as usize];
            let wanted = if is_full { PollFlags::OUT } else { PollFlags::all() };
            let fd: BorrowedFd<'_> = connection.as_fd();
            fds.push(PollFd::from_borrowed_fd(fd, connection.interest() & wanted));
            has_work |= !is_full && connection.has_work();
        }
        let snoop = self.snoop.interests();
        fds.extend(snoop.map(|(fd, wanted)| PollFd::from_borrowed_fd(fd, wanted)));
        let pause = if has_work { Duration::ZERO } else { PAUSE };
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        if has_work || !self.has_event_soon(&mut fds) {
            // A signal may interrupt the wait; the iteration then runs early, which does no harm.
            let _ = poll(&mut fds, Some(&pause));
        }
        fds[first..].iter().take(self.connections.len()).map(PollFd::revents).collect()
    }

    /// Polls for a short time if a peer has just sent something. A peer that waits for each reply
    /// sends its next request at once, and falling asleep would take longer.
    fn has_event_soon(&self, fds: &mut [PollFd<'_>]) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while self.served.is_some_and(|served| served.elapsed() < SOON) {
            if poll(fds, Some(&now)).is_ok_and(|ready| ready > 0) {
                return true;
            }
            // The peer may share this CPU.
            std::thread::yield_now();
        }
        false
    }

    fn accept(&mut self) {
        loop {
            let accepted = match self.unix.accept() {
                Ok((stream, _)) => Stream::unix(stream),
                Err(error) if is_transient(&error) => break,
                Err(error) => Err(error),
            };
            if !self.admit(accepted) {
                break;
            }
        }
        for index in 0..self.tcp.len() {
            while let Ok((stream, _)) = self.tcp[index].1.accept() {
                let Some(stream) = self.begin(self.tcp[index].0, stream) else { continue };
                if !self.admit(stream) {
                    break;
                }
            }
        }
    }

    /// Accepts peers that snoop on a controller, and begins to copy the messages between the bridge
    /// and its controllers for these peers.
    fn accept_snoopers(&mut self) {
        let name = &self.bridge.name;
        loop {
            match self.snoop.accept() {
                Ok(Some(stream)) => match self.snooped() {
                    Some(controller) => self.snoop.add(stream, controller),
                    None => tracing::info!("bridge {name}: no controller to snoop on"),
                },
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("bridge {name}: cannot accept: {error}");
                    std::thread::sleep(Duration::from_millis(10));
                    break;
                }
            }
        }
        for connection in &mut self.connections {
            let controller = connection.controller.map(|index| self.controllers[index].remote);
            let is_snooped = controller.is_some_and(|remote| self.snoop.is_watching(remote));
            connection.set_snooped(is_snooped);
        }
    }

    /// Returns the controller whose messages a new peer of the snoop socket gets. As in Open
    /// vSwitch, a master is preferred and a slave comes after the other controllers. A controller
    /// without a connection comes last.
    fn snooped(&self) -> Option<Remote> {
        let preference = |(index, _): &(usize, &Controller)| {
            let mut own = self.connections.iter().filter(|c| c.controller == Some(*index));
            own.find(|c| c.is_established()).map_or(0, Connection::preference)
        };
        // Among controllers of equal rank, the first controller in the settings is chosen.
        let best = self.controllers.iter().enumerate().rev().max_by_key(preference);
        best.map(|(_, controller)| controller.remote)
    }

    fn copy_to_snoopers(&mut self) {
        for connection in &mut self.connections {
            if let Some(index) = connection.controller {
                self.snoop.copy(self.controllers[index].remote, &connection.take_copies());
            }
        }
        self.snoop.run(&mut self.scratch);
    }

    /// Returns an accepted connection as a stream. Returns `None` for a TLS connection if the files
    /// for TLS are unusable.
    fn begin(&self, at: Remote, stream: TcpStream) -> Option<std::io::Result<Stream>> {
        if at.carrier == Carrier::Tcp {
            return Some(Stream::tcp(stream));
        }
        match self.session.switch.tls.server() {
            Ok(config) => Some(Stream::tls(stream, config)),
            Err(error) => {
                tracing::info!("bridge {}: refused a connection: {error}", self.bridge.name);
                None
            }
        }
    }

    /// Adds a connection, or closes it if its origin has too many connections.
    fn admit(&mut self, accepted: std::io::Result<Stream>) -> bool {
        match accepted {
            Ok(stream) if self.count(stream.origin()) < MOST_CONNECTIONS => {
                let number = self.next_number();
                let memory = self.memory[stream.origin() as usize].clone();
                let now_ms = self.bridge.clock.now_ms();
                self.connections.push(Connection::accepted(
                    number,
                    stream,
                    &self.identity.1,
                    memory,
                    now_ms,
                ));
                true
            }
            Ok(stream) => {
                tracing::warn!(
                    "bridge {}: refused a connection: {MOST_CONNECTIONS} by {} are open",
                    self.bridge.name,
                    stream.origin().name()
                );
                true
            }
            Err(error) => {
                tracing::warn!("bridge {}: cannot accept: {error}", self.bridge.name);
                // The cause, such as a lack of descriptors, may be temporary.
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns the number of accepted connections of an origin. Connections to controllers in the
    /// settings are not counted.
    fn count(&self, origin: Origin) -> usize {
        self.connections
            .iter()
            .filter(|connection| connection.accepted_by() == Some(origin))
            .count()
    }

    /// If an origin has its maximum number of connections, closes the connection that has waited
    /// longest for a hello, unless this wait is very short.
    fn free_a_place(&mut self, origin: Origin) {
        if self.count(origin) < MOST_CONNECTIONS {
            return;
        }
        let own = self.connections.iter().enumerate();
        let own = own.filter(|(_, connection)| connection.accepted_by() == Some(origin));
        let silent = own.filter_map(|(index, connection)| Some((connection.greeting()?, index)));
        if let Some((time, index)) = silent.max()
            && time > SHORTEST_GREETING
        {
            self.close(vec![(index, Closed::NoHello)]);
        }
    }

    /// Whether the queued output for an origin's peers is so large that the requests of these peers
    /// must wait.
    fn is_full(&self, origin: Origin) -> bool {
        let own = self.connections.iter().filter(|connection| connection.origin() == origin);
        own.map(|connection| connection.backlog().0).sum::<usize>() > MOST_OUTPUT
    }

    /// Closes connections whose peers do not read, until the origin's queued output is below its
    /// limit.
    fn make_room(&mut self, origin: Origin) {
        while self.is_full(origin) {
            let backlogs = self.connections.iter().map(|connection| match connection.origin() {
                own if own == origin => connection.backlog(),
                _ => (0, Duration::ZERO),
            });
            let Some(slowest) = slowest(backlogs) else { return };
            self.connections[slowest].abandon();
        }
    }

    /// Serves each connection once. TCP peers share a limited time, so that they do not delay peers
    /// on UNIX sockets. The next call begins with the first peer that was not served.
    fn serve(&mut self, ready: &[PollFlags]) {
        let mut closed = Vec::new();
        let count = self.connections.len();
        let begin = Instant::now();
        let first = self.first;
        let mut late = None;
        for index in (first.min(count)..count).chain(0..first.min(count)) {
            let is_late = begin.elapsed() > TCP_TURN;
            if is_late && self.connections[index].origin() == Origin::Tcp {
                late = late.or(Some(index));
                continue;
            }
            let ready = ready.get(index).copied().unwrap_or(PollFlags::empty());
            if let Err(reason) = self.serve_one(index, ready) {
                closed.push((index, reason));
            }
        }
        self.first = late.unwrap_or(0);
        self.close(closed);
        self.look_at_interests();
    }

    fn serve_one(&mut self, index: usize, ready: PollFlags) -> Result<(), Closed> {
        let now_ms = self.bridge.clock.now_ms();
        let connection = &mut self.connections[index];
        if ready.contains(PollFlags::OUT) {
            connection.write(now_ms)?;
        }
        let origin = connection.origin();
        self.make_room(origin);
        if self.is_full(origin) {
            return self.connections[index].write_if_open(now_ms);
        }
        let connection = &mut self.connections[index];
        connection.resume_monitors(&self.session);
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            connection.read(&mut self.scratch, now_ms)?;
        }
        // Report changes before requests are handled, because the first reply to a new monitor
        // includes these changes.
        self.dispatch();
        let Some((before, [this, behind @ ..])) = self.connections.split_at_mut_checked(index)
        else {
            return Ok(());
        };
        self.session.requester = Some(this.number);
        let bridge = self.bridge.clone();
        let mut is_watched = this.is_monitoring()
            || before.iter().chain(behind.iter()).any(Connection::is_monitoring);
        this.answer_some(REQUESTS, &mut self.session, |this, bridge_session, xid| {
            if this.take_claim() {
                let generation = *bridge_session.generation();
                before
                    .iter_mut()
                    .chain(behind.iter_mut())
                    .for_each(|other| other.demote(generation));
            }
            for forward in this.take_forwards() {
                before
                    .iter_mut()
                    .chain(behind.iter_mut())
                    .for_each(|other| other.forward(&forward));
            }
            // If a request began the first monitor, the tables record changes from this request on.
            is_watched |= this.is_monitoring();
            let removals = bridge.tables().take_removals();
            let events = if is_watched { bridge.tables().take_events() } else { Vec::new() };
            if removals.is_empty() && events.is_empty() {
                return;
            }
            this.rule_events(&events, Some(xid));
            for removal in &removals {
                this.flow_removed(&removal.rule, removal.reason);
            }
            for other in before.iter_mut().chain(behind.iter_mut()) {
                other.rule_events(&events, None);
                for removal in &removals {
                    other.flow_removed(&removal.rule, removal.reason);
                }
            }
        })?;
        if this.is_established()
            && let Some(controller) = this.controller
        {
            self.controllers[controller].pause = FIRST_PAUSE;
        }
        this.write_if_open(now_ms)
    }

    /// Passes the bridge's events to all connections.
    fn dispatch(&mut self) {
        let (removals, events, statuses) = {
            let tables = self.bridge.tables();
            (tables.take_removals(), tables.take_events(), tables.take_table_statuses())
        };
        for connection in &mut self.connections {
            connection.rule_events(&events, None);
        }
        for removal in &removals {
            for connection in &mut self.connections {
                connection.flow_removed(&removal.rule, removal.reason);
            }
        }
        for status in &statuses {
            self.connections.iter_mut().for_each(|connection| connection.table_status(status));
        }
        for event in self.bridge.take_events() {
            for connection in &mut self.connections {
                match &event {
                    BridgeEvent::PacketIn(packet) => connection.packet_in(packet),
                    BridgeEvent::Port { status, requester } => {
                        connection.port_status(status, *requester);
                    }
                    BridgeEvent::Expired(removal) => {
                        connection.flow_removed(&removal.rule, removal.reason);
                    }
                }
            }
        }
    }

    fn expire_bundles(&mut self) {
        let now_ms = self.bridge.clock.now_ms();
        self.connections.iter_mut().for_each(|connection| connection.expire_bundles(now_ms));
    }

    fn expire_rules(&mut self) {
        let now_ms = self.bridge.clock.now_ms();
        let is_due = self.bridge.tables().next_expiry_ms().is_some_and(|next| next <= now_ms);
        if !is_due && self.expires > Instant::now() {
            return;
        }
        self.expires = Instant::now() + EXPIRY;
        for removal in self.session.switch.expire(&self.bridge) {
            if removal.rule.flags.send_flow_removed {
                for connection in &mut self.connections {
                    connection.flow_removed(&removal.rule, removal.reason);
                }
            }
        }
        self.dispatch();
    }

    fn check(&mut self) {
        if self.checks > Instant::now() {
            return;
        }
        self.checks = Instant::now() + CHECK;
        let now_ms = self.bridge.clock.now_ms();
        let mut closed = Vec::new();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if let Some(controller) = connection.controller {
                let remote = self.controllers[controller].remote;
                connection.set_probe(self.bridge.times_of(remote).probe_ms);
            }
            if let Err(reason) = connection.check(now_ms) {
                closed.push((index, reason));
            }
        }
        self.close(closed);
        if !self.controllers.is_empty() {
            self.tell_controllers();
        }
    }

    fn close(&mut self, mut closed: Vec<(usize, Closed)>) {
        closed.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        for (index, reason) in closed {
            let mut connection = self.connections.swap_remove(index);
            let name = &self.bridge.name;
            match connection.controller {
                Some(number) => {
                    let controller = &mut self.controllers[number];
                    let remote = controller.remote;
                    self.snoop.copy(remote, &connection.take_copies());
                    let reason = foreign(reason.to_string());
                    tracing::warn!("bridge {name}: controller {remote}: closed: {reason}");
                    controller.rest(reason.to_string(), self.bridge.times_of(remote));
                }
                None if matches!(reason, Closed::End) => {}
                None => {
                    let reason = reason.to_string();
                    tracing::info!("bridge {name}: closed a connection: {}", visible(&reason));
                }
            }
        }
    }

    /// Tells the tables which events the connections want.
    fn look_at_interests(&self) {
        let is_watched = self.connections.iter().any(Connection::is_monitoring);
        let takes_misses = self.connections.iter().any(Connection::takes_misses);
        let (watched, misses) = {
            let tables = self.bridge.tables();
            (tables.is_watched, tables.is_miss_sent)
        };
        if (watched, misses) != (is_watched, takes_misses) {
            let mut tables = self.bridge.tables_mut();
            tables.is_watched = is_watched;
            tables.send_misses(takes_misses);
        }
    }

    fn connect_to_controllers(&mut self) {
        for index in 0..self.controllers.len() {
            let controller = &mut self.controllers[index];
            if controller.next.is_none_or(|next| next > Instant::now()) {
                continue;
            }
            let (remote, tls) = (controller.remote, &self.session.switch.tls);
            let stream = match remote.carrier {
                Carrier::Tcp => Stream::connect(remote.address).map_err(|error| error.to_string()),
                Carrier::Tls => {
                    tls.client().map_err(|error| error.to_string()).and_then(|config| {
                        Stream::connect_tls(remote.address, config)
                            .map_err(|error| error.to_string())
                    })
                }
            };
            match stream {
                Ok(stream) => {
                    controller.next = None;
                    let number = self.next_number();
                    let memory = self.memory[stream.origin() as usize].clone();
                    let now_ms = self.bridge.clock.now_ms();
                    let connection = Connection::connecting(
                        number,
                        stream,
                        index,
                        &self.identity.1,
                        memory,
                        now_ms,
                    );
                    self.connections.push(connection);
                }
                Err(error) => {
                    tracing::warn!("bridge {}: controller {remote}: {error}", self.bridge.name);
                    controller.rest(error, self.bridge.times_of(remote));
                }
            }
        }
    }
}

impl Controller {
    fn new(remote: Remote) -> Self {
        Self { remote, next: Some(Instant::now()), pause: FIRST_PAUSE, last_error: None }
    }

    /// Stores why there is no connection, and delays the next attempt.
    fn rest(&mut self, error: String, times: ControllerTimes) {
        self.last_error = Some(error);
        self.next = Some(Instant::now() + self.pause.min(times.longest_pause));
        self.pause = (self.pause * 2).min(times.longest_pause);
    }
}

/// Returns the index of the connection whose peer has not read anything for the longest time;
/// `None` if all peers have read something within `PATIENCE`.
fn slowest(backlogs: impl Iterator<Item = (usize, Duration)>) -> Option<usize> {
    let waiting = backlogs.enumerate().filter(|(_, (bytes, _))| *bytes > 0);
    let (index, (_, pause)) = waiting.max_by_key(|(_, (_, pause))| *pause)?;
    (pause >= PATIENCE).then_some(index)
}

const READ: usize = 256 << 10;
/// Maximum number of requests per connection and iteration.
const REQUESTS: usize = 4096;
/// Maximum number of accepted connections of each origin.
const MOST_CONNECTIONS: usize = 128;
/// Maximum time per iteration for all TCP peers together.
const TCP_TURN: Duration = Duration::from_millis(100);
/// Maximum queued output of an origin, in bytes. Above this number, peers that do not read lose
/// their connections.
const MOST_OUTPUT: usize = 512 << 20;
/// While `MOST_OUTPUT` is exceeded, a peer that reads nothing for this time is disconnected.
const PATIENCE: Duration = Duration::from_secs(2);
/// While an origin has its maximum number of connections, a peer must send its hello in this time.
const SHORTEST_GREETING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// A peer that waited for a reply usually sends its next request within this time.
const SOON: Duration = Duration::from_micros(50);
const EXPIRY: Duration = Duration::from_millis(500);
const CHECK: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "bridge_thread_tests.rs"]
mod tests;
