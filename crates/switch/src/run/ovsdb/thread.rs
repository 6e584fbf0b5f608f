use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowMod};
use host::SocketFile;
use ovsdb::report::Written;
use ovsdb::session::{Event, Lost, Session};
use ovsdb::topology::Topology;
use ovsdb::value::Uuid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use units::foreign;

use super::machine::ThisMachine;
use super::settings::Wanted;
use super::status::Status;
use crate::run::config::{BridgeConfig, Config};
use crate::run::connection::is_transient;
use crate::run::progress::{Part, Progress};
use crate::run::switch::Switch;
use crate::run::waker::Waker;

/// The thread that configures the switch from a database.
pub(in crate::run) struct OvsdbThread {
    switch: Arc<Switch>,
    socket: PathBuf,
    /// The settings that do not come from the database.
    base: Config,
    machine: ThisMachine,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
    began: Instant,
    /// The topology that was applied last.
    topology: Topology,
    /// The settings after the last change, if all parts of the topology were applied; otherwise
    /// `None`.
    in_force: Option<Config>,
    failures: HashMap<Part, String>,
    controllers: HashMap<Uuid, String>,
    /// The problems of the last change that are already in the log.
    said: HashSet<String>,
}

/// The reason for which a connection to the database ended.
#[derive(Debug, Error)]
enum Ended {
    #[error("{0}")]
    Connect(io::Error),
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Lost(#[from] Lost),
}

/// A connection to the database, and its pending work.
struct Link {
    stream: UnixStream,
    session: Session,
    written: Written,
    /// Operations for the next transaction.
    pending: Vec<String>,
    /// Whether the rows have changed since the switch last applied them.
    is_stale: bool,
    /// Whether the switch has applied the rows at least once.
    has_followed: bool,
    next_status: Instant,
    next_statistics: Instant,
}

impl OvsdbThread {
    pub(in crate::run) fn new(
        switch: Arc<Switch>,
        socket: PathBuf,
        base: Config,
        rundir: PathBuf,
        waker: Arc<Waker>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            switch,
            socket,
            machine: ThisMachine { rundir, has_dummies_alone: base.dummies },
            base,
            waker,
            stop,
            began: Instant::now(),
            topology: Topology::default(),
            in_force: None,
            failures: HashMap::new(),
            controllers: HashMap::new(),
            said: HashSet::new(),
        }
    }

    /// Follows the database until the switch is stopped. While there is no connection, the switch
    /// keeps its settings.
    pub(in crate::run) fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut last = String::new();
        while !self.stop.load(Ordering::Acquire) {
            let (ended, has_followed) = self.follow();
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            if has_followed {
                pause = FIRST_PAUSE;
                last.clear();
            }
            let words = ended.to_string();
            let socket = self.socket.display();
            if words != last {
                tracing::warn!(
                    "ovsdb unix:{socket}: {}; the switch goes on and tries again",
                    foreign(&words)
                );
                last = words;
            }
            self.rest(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Waits for `pause`, but ends early if the switch is stopped.
    fn rest(&self, pause: Duration) {
        let pause =
            Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        // A signal may interrupt the wait; the function then returns early, which does no harm.
        let _ = poll(&mut fds, Some(&pause));
    }

    /// Connects and follows the database until the connection ends. Also returns whether the switch
    /// has applied the rows.
    fn follow(&mut self) -> (Ended, bool) {
        let connect = || {
            let stream = SocketFile::at(&self.socket)?.connect(CONNECT_PATIENCE)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let stream = match connect() {
            Ok(stream) => stream,
            Err(error) => return (Ended::Connect(error), false),
        };
        let now = Instant::now();
        let mut link = Link {
            stream,
            session: Session::begin(self.now_ms()),
            written: Written::default(),
            pending: Vec::new(),
            is_stale: false,
            has_followed: false,
            next_status: now,
            next_statistics: now,
        };
        let mut scratch = vec![0; READ];
        while !self.stop.load(Ordering::Acquire) {
            if let Err(ended) = self.turn(&mut link, &mut scratch) {
                return (ended, link.has_followed);
            }
        }
        (Ended::Closed, link.has_followed)
    }

    fn turn(&mut self, link: &mut Link, scratch: &mut [u8]) -> Result<(), Ended> {
        link.write()?;
        self.wait(link);
        self.waker.clear();
        // The number of reads is bounded, so that a server that keeps sending does not block the
        // switch's other work.
        for _ in 0..MOST_READS {
            match link.stream.read(scratch) {
                Ok(0) => return Err(Ended::Closed),
                Ok(read) => {
                    let events = link.session.receive(&scratch[..read], self.now_ms())?;
                    events.into_iter().for_each(|event| self.event(link, event));
                }
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        link.session.tick(self.now_ms())?;
        if link.session.may_act() {
            if link.is_stale {
                link.is_stale = false;
                self.reconfigure(link);
            }
            self.report(link);
            self.transact(link);
        }
        Ok(())
    }

    fn wait(&self, link: &mut Link) {
        let mut flags = PollFlags::IN;
        if !link.session.output().is_empty() {
            flags |= PollFlags::OUT;
        }
        let mut fds = [
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(link.stream.as_fd(), flags),
        ];
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
        let _ = poll(&mut fds, Some(&pause));
    }

    fn event(&mut self, link: &mut Link, event: Event) {
        match event {
            Event::Changed => link.is_stale = true,
            Event::Lock if link.session.is_locked() => {
                tracing::info!("ovsdb: this process has the lock ovs_vswitchd");
                link.is_stale = true;
                // Meanwhile another process had the lock, and may have written the columns.
                link.written = Written::default();
                link.pending.clear();
            }
            Event::Lock => tracing::warn!(
                "ovsdb: another process has the lock ovs_vswitchd: the switch waits for the lock; \
                 stop ovs-vswitchd"
            ),
            Event::NewerSchema => tracing::warn!(
                "ovsdb: the schema {} is newer than those that this switch knows (7 and 8): \
                 columns that it does not know are ignored",
                link.session.schema().version
            ),
            Event::Committed => {}
            Event::Refused(reason) => {
                tracing::warn!("ovsdb: the server refused to write the status: {reason}");
                // The next report writes all columns again.
                link.written = Written::default();
                link.pending.clear();
                link.next_status = Instant::now() + STATISTICS;
            }
        }
    }

    /// Applies the rows to the switch.
    fn reconfigure(&mut self, link: &mut Link) {
        let topology = Topology::of(link.session.database(), &self.machine);
        if topology.root.is_none() {
            self.say(vec![
                "ovsdb: the database has no row in Open_vSwitch, and the switch stays as it is: \
                 run ovs-vsctl --no-wait init"
                    .to_owned(),
            ]);
            return;
        }
        if link.has_followed && self.is_in_force(&topology) {
            self.topology = topology;
            link.next_status = Instant::now();
            return;
        }
        let mut wanted = Wanted::of(&topology, &self.base);
        if self.base.dummies {
            wanted.number_dummies(&self.switch.settings());
        }
        let way = |bridge: &BridgeConfig| (bridge.begins_open(), bridge.controller.is_empty());
        let bridges = |settings: &Config| -> HashMap<_, _> {
            settings.bridge.iter().map(|(name, bridge)| (name.clone(), way(bridge))).collect()
        };
        let former = bridges(&self.switch.settings());
        let mut failures = wanted.failures;
        let mut note = |line: String| tracing::info!("{}", foreign(&line));
        let mut progress =
            Progress { note: &mut note, failures: Some(&mut failures), numbers: &wanted.numbers };
        let mut lines = Vec::new();
        let changed = self.switch.change(&wanted.config, &mut progress);
        if let Err(error) = &changed {
            lines.push(format!("ovsdb: the switch cannot follow the database: {error}"));
        }
        for (name, settings) in &wanted.config.bridge {
            let before = former.get(name);
            // Delete the rules only if the new settings were applied. Otherwise each later change
            // would delete the rules again.
            if changed.is_ok() && before.is_some_and(|before| *before != way(settings)) {
                self.begin_again(name, settings.begins_open());
            }
        }
        lines.extend(failures.iter().map(|(part, words)| match part {
            Part::Bridge(name) => format!("bridge {}: {}", foreign(name), foreign(words)),
            Part::Port(name) => format!("port {}: {}", foreign(name), foreign(words)),
            Part::Remote(remote) => format!("listener {remote}: {}", foreign(words)),
            Part::Tls => format!("TLS: {}", foreign(words)),
        }));
        let ports = topology.bridges.iter().flat_map(|bridge| &bridge.ports);
        let absent = ports.filter_map(|port| port.device.as_ref().ok()?.absence.clone());
        lines.extend(absent);
        lines.extend(wanted.controllers.values().map(|words| format!("controller {words}")));
        let unknown = wanted.ignored.iter();
        lines
            .extend(unknown.map(|line| format!("{line}: the switch does not follow this setting")));
        self.say(lines);
        let is_whole = changed.is_ok() && failures.is_empty();
        self.in_force = is_whole.then(|| self.switch.settings().clone());
        (self.topology, self.failures, self.controllers) = (topology, failures, wanted.controllers);
        link.has_followed = true;
        link.next_status = Instant::now();
    }

    /// Whether the switch already has the state that the topology describes. An example is a change
    /// of a column that the switch ignores.
    fn is_in_force(&self, topology: &Topology) -> bool {
        topology.is_same_switch(&self.topology)
            && self.in_force.as_ref().is_some_and(|settings| *settings == *self.switch.settings())
    }

    /// Removes the rules of a bridge that got its first controller or lost its last controller, as
    /// Open vSwitch does.
    fn begin_again(&self, bridge: &str, is_open: bool) {
        let Some(bridge) = self.switch.bridge(bridge) else { return };
        let now_ms = self.switch.clock.now_ms();
        let mut tables = bridge.tables_mut();
        // Deleting all rules never fails, and adding a rule without a match never fails.
        let _ = tables.flow_mod(FlowMod::new(FlowCommand::Delete), now_ms);
        if is_open {
            let mut normal = FlowMod::new(FlowCommand::Add);
            normal.priority = 0;
            normal.actions = vec![Action::Output { port: PortNumber::NORMAL, max_len: 0 }];
            let _ = tables.flow_mod(normal, now_ms);
        }
        drop(tables);
        bridge.waker.wake();
    }

    /// Logs the lines that the last call did not log.
    fn say(&mut self, lines: Vec<String>) {
        for line in lines.iter().filter(|line| !self.said.contains(*line)).take(MOST_LINES) {
            tracing::warn!("{line}");
        }
        if lines.len() > MOST_LINES {
            tracing::warn!("ovsdb: {} further problems", lines.len() - MOST_LINES);
        }
        self.said = lines.into_iter().collect();
    }

    /// Queues operations for the columns whose values differ from the values last written.
    fn report(&mut self, link: &mut Link) {
        let now = Instant::now();
        let is_due = link.has_followed && now >= link.next_status;
        if !is_due || link.session.is_busy() || !link.pending.is_empty() {
            return;
        }
        let has_statistics = now >= link.next_statistics;
        if has_statistics {
            link.next_statistics = now + STATISTICS;
        }
        let status = Status {
            switch: &self.switch,
            topology: &self.topology,
            failures: &self.failures,
            controllers: &self.controllers,
            has_statistics,
        };
        let schema = link.session.schema();
        let operations =
            link.written.operations(status.report(), |table, column| schema.has(table, column));
        link.pending.extend(operations);
        // Collecting the status of many ports takes time. A longer interval limits the share of
        // time that the status takes.
        link.next_status = Instant::now() + STATUS.max(now.elapsed() * 10);
    }

    /// Sends all operations as one transaction. ovs-vsctl waits for `cur_cfg`, and then expects
    /// that the other columns are written.
    fn transact(&self, link: &mut Link) {
        if link.pending.is_empty() || link.session.is_busy() {
            return;
        }
        let operations = std::mem::take(&mut link.pending);
        link.session.transact(&operations, self.now_ms());
    }
}

impl Link {
    fn write(&mut self) -> io::Result<()> {
        let output = self.session.output();
        while !output.is_empty() {
            match self.stream.write(output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(output.drain(..written)),
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

const READ: usize = 256 << 10;
const MOST_READS: usize = 64;
const PAUSE: Duration = Duration::from_millis(250);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Interval of the checks of links, port numbers and controllers.
const STATUS: Duration = Duration::from_millis(500);
/// Interval of statistics, as Open vSwitch's `stats-update-interval`.
const STATISTICS: Duration = Duration::from_secs(5);
/// Maximum number of log lines about one change.
const MOST_LINES: usize = 20;
