use std::collections::{BTreeSet, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use flow::request::{Bridge as _, FlowFilter, MeterCommand, MeterMod};
use flow::step::PortIndex;
use tempfile::TempDir;
use text::{PortNames, parse_flow};
use units::Time;

use super::*;
use crate::run::bridge::Remotes;
use crate::run::ports::SwitchPort;
use crate::run::{Config, Confinement, Process};

#[path = "tls/tests.rs"]
mod tls;

#[test]
fn the_peer_that_has_not_read_for_longest_is_disconnected() {
    let seconds = Duration::from_secs;
    let backlogs = [(9, seconds(3)), (1, seconds(40)), (0, seconds(50)), (99, seconds(0))];
    assert_eq!(slowest(backlogs.into_iter()), Some(1));
    // A peer that reads is not disconnected.
    assert_eq!(slowest([(1 << 30, seconds(1))].into_iter()), None);
    assert_eq!(slowest(std::iter::empty()), None);
}

/// The connection thread of a bridge. The test runs the iterations of this thread.
struct Rig {
    thread: BridgeThread,
    folder: TempDir,
}

impl Rig {
    /// Creates a bridge with rules whose cookies are 0, 1 and so on.
    fn with_rules(count: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let process = Process {
            file: None,
            confinement: Confinement::Nothing,
            settings: Box::new(|| Ok(Config::default())),
            set_log_level: Box::new(|_| {}),
        };
        let place = host::PrivateDirectory::make_named(folder.path()).unwrap();
        let switch = Arc::new(Switch::new(place, stop.clone(), process));
        let clock = switch.clock.clone();
        let bridge = BridgeState::new("br0", 0, None, clock, Arc::default()).unwrap();
        let bridge = Arc::new(bridge);
        let (unix, file) = switch.listen(SOCKET).unwrap();
        let snoop = switch.listen(SNOOP_SOCKET).unwrap();
        let doors = Doors { unix, file, snoop, tcp: Vec::new(), controllers: Vec::new() };
        let rig = Self { thread: BridgeThread::new(switch, bridge, doors, stop), folder };
        (0..count).for_each(|number| rig.change(number, FlowCommand::Add));
        rig
    }

    fn change(&self, number: u32, command: FlowCommand) {
        self.change_with(number, command, "");
    }

    fn change_with(&self, number: u32, command: FlowCommand, timeout: &str) {
        let address = std::net::Ipv4Addr::from(number);
        let action = if command == FlowCommand::Add { " actions=drop" } else { "" };
        let text = format!("{timeout}ip,nw_dst={address}{action}");
        let change = parse_flow(&text, command, &PortNames::none()).unwrap();
        let change = FlowMod { cookie: Some(number.into()), ..change };
        let now_ms = self.thread.bridge.clock.now_ms();
        self.thread.bridge.tables_mut().flow_mod(change, now_ms).unwrap();
    }

    /// Connects a peer that sends its hello and the given messages, and reads nothing.
    fn peer(&self, messages: &[&[u8]]) -> UnixStream {
        let mut peer = UnixStream::connect(self.folder.path().join(SOCKET)).unwrap();
        peer.set_nonblocking(true).unwrap();
        peer.write_all(&HELLO).unwrap();
        messages.iter().for_each(|message| peer.write_all(message).unwrap());
        peer
    }

    /// Advances the clock, checks the connections, and writes their output.
    fn later(&mut self, time: Duration) {
        self.thread.bridge.clock.warp(time);
        self.thread.checks = Instant::now();
        self.thread.turn();
        self.thread.turn();
    }

    fn waiting(&self) -> Vec<usize> {
        self.thread.connections.iter().map(|connection| connection.backlog().0).collect()
    }

    fn has_work(&self) -> bool {
        self.thread.connections.iter().any(Connection::has_work)
    }
}

/// Reads at most `most` of the bytes that have arrived. Returns the number of bytes read.
fn read(peer: &mut UnixStream, most: usize, to: &mut Vec<u8>) -> usize {
    let former = to.len();
    match peer.take(most as u64).read_to_end(to) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
        _ => to.len() - former,
    }
}

/// Returns the complete messages after the hello.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while bytes.len() >= 8 {
        let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let Some((message, behind)) = bytes.split_at_checked(length) else { break };
        messages.push(message);
        bytes = behind;
    }
    messages.into_iter().skip(1).collect()
}

/// Returns the cookies of the rules in a multipart reply, which must end with its last part.
fn cookies(parts: &[&[u8]]) -> Vec<u64> {
    let mut cookies = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        assert_eq!((part[1], &part[4..8]), (19, &DUMP[4..8]));
        assert_eq!(part[8..12], [0, 1, 0, u8::from(!is_last)], "part {index}");
        let mut entries = &part[16..];
        while !entries.is_empty() {
            cookies.push(u64::from_be_bytes(entries[24..32].try_into().unwrap()));
            let length = u16::from_be_bytes([entries[0], entries[1]]);
            entries = &entries[usize::from(length)..];
        }
    }
    cookies
}

/// Runs iterations of the thread until a slowly reading peer has received its barrier reply.
/// `bytes`: the bytes that the peer has already read.
fn read_slowly(rig: &mut Rig, peer: &mut UnixStream, mut bytes: Vec<u8>) -> Vec<u8> {
    while messages(&bytes).last().is_none_or(|last| *last != BARRIER_REPLY) {
        rig.thread.turn();
        while !rig.has_work() && read(peer, 5000, &mut bytes) > 0 {}
    }
    bytes
}

#[test]
fn an_unread_flow_dump_delays_other_peers_by_at_most_three_iterations() {
    let mut rig = Rig::with_rules(20_000);
    let mut silent: Vec<_> = (0..8).map(|_| rig.peer(&[&DUMP, &DUMP])).collect();
    let mut other = rig.peer(&[&BARRIER]);
    let mut turns = 0;
    let mut answer = Vec::new();
    while messages(&answer) != [BARRIER_REPLY] {
        rig.thread.turn();
        turns += 1;
        assert!(turns <= 3, "no answer in {turns} turns");
        read(&mut other, 100, &mut answer);
    }
    let waiting = rig.waiting();
    for (index, peer) in silent.iter_mut().enumerate() {
        let mut arrived = Vec::new();
        read(peer, usize::MAX, &mut arrived);
        let made = waiting[index] + arrived.len();
        assert!(made <= turns * 2 * PIECE, "{made} bytes in {turns} turns");
    }
    // The peers that do not read then receive only what fits in their socket buffers.
    for turn in 0.. {
        if !rig.has_work() {
            break;
        }
        assert!(turn < 10_000, "the output for peers that do not read must be bounded");
        rig.thread.turn();
        assert!(rig.waiting().iter().all(|waiting| *waiting < 4 * PIECE), "{:?}", rig.waiting());
    }
    assert_eq!(rig.thread.connections.len(), 9);
}

#[test]
fn a_slow_reader_gets_each_rule_once_and_then_later_replies() {
    let mut rig = Rig::with_rules(5000);
    let mut peer = rig.peer(&[&DUMP, &BARRIER]);
    let bytes = read_slowly(&mut rig, &mut peer, Vec::new());
    let answers = messages(&bytes);
    let (last, parts) = answers.split_last().unwrap();
    assert_eq!(*last, BARRIER_REPLY);
    let mut listed = cookies(parts);
    listed.sort_unstable();
    assert!(listed.into_iter().eq(0..5000));
}

#[test]
fn a_flow_dump_lists_the_rules_at_the_time_of_the_request() {
    let mut rig = Rig::with_rules(20_000);
    let mut peer = rig.peer(&[&DUMP, &BARRIER]);
    while rig.waiting().iter().sum::<usize>() == 0 {
        rig.thread.turn();
    }
    (0..20_000).for_each(|number| rig.change(number, FlowCommand::DeleteStrict));
    rig.change(77_777, FlowCommand::Add);
    let bytes = read_slowly(&mut rig, &mut peer, Vec::new());
    let answers = messages(&bytes);
    let listed: BTreeSet<_> = cookies(&answers[..answers.len() - 1]).into_iter().collect();
    assert!(listed.into_iter().eq(0..20_000));
    // A later request lists the rules at the time of the later request.
    peer.write_all(&DUMP).unwrap();
    peer.write_all(&BARRIER).unwrap();
    let bytes = read_slowly(&mut rig, &mut peer, HELLO.to_vec());
    let answers = messages(&bytes);
    assert_eq!(cookies(&answers[..answers.len() - 1]), [77_777]);
}

#[test]
fn a_filtered_flow_request_searches_the_rules_over_several_iterations() {
    let mut rig = Rig::with_rules(20_000);
    let mut select = DUMP;
    select[32..40].copy_from_slice(&7777_u64.to_be_bytes());
    select[40..48].fill(0xff);
    let mut sum = select;
    sum[9] = SUM;
    for (request, kind) in [(select, LIST), (sum, SUM)] {
        let mut peer = rig.peer(&[&request, &BARRIER]);
        let (mut turns, mut bytes) = (0, Vec::new());
        while messages(&bytes).last().is_none_or(|last| *last != BARRIER_REPLY) {
            rig.thread.turn();
            turns += 1;
            read(&mut peer, usize::MAX, &mut bytes);
        }
        assert!(turns > 8, "{turns} turns");
        let answers = messages(&bytes);
        let parts = &answers[..answers.len() - 1];
        if kind == LIST {
            assert_eq!(cookies(parts), [7777]);
        } else {
            assert_eq!((parts.len(), &parts[0][8..12]), (1, &[0, SUM, 0, 0][..]));
            // The number of rules follows the packet and byte counts.
            assert_eq!(parts[0][32..36], [0, 0, 0, 1]);
        }
    }
}

#[test]
fn a_meter_mod_updates_the_meters_of_the_datapath() {
    let mut rig = Rig::with_rules(0);
    let mut meters = |command, meter| {
        let change = MeterMod {
            command,
            meter,
            is_in_packets: false,
            has_burst: false,
            has_statistics: true,
            bands: Vec::new(),
        };
        rig.thread.session.meter_mod(change).unwrap();
        let meters = rig.thread.bridge.meters.of_bridge(0);
        let mut numbers: Vec<_> = meters.iter().map(|id| id.meter).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(meters(MeterCommand::Add, 1), [1]);
    assert_eq!(meters(MeterCommand::Add, 2), [1, 2]);
    assert_eq!(meters(MeterCommand::Modify, 1), [1, 2]);
    assert_eq!(meters(MeterCommand::Delete, 1), [2]);
    assert_eq!(meters(MeterCommand::Delete, MeterMod::ALL), [] as [u32; 0]);
}

#[test]
fn rules_expire_before_later_requests_are_served() {
    let mut rig = Rig::with_rules(1);
    let clock = rig.thread.bridge.clock.clone();
    clock.stop();
    rig.change_with(1, FlowCommand::Add, "hard_timeout=10,");
    rig.change_with(2, FlowCommand::Add, "idle_timeout=10,");
    rig.change_with(3, FlowCommand::Add, "hard_timeout=11,");
    let mut peer = rig.peer(&[&DUMP, &BARRIER]);
    let bytes = read_slowly(&mut rig, &mut peer, Vec::new());
    let answers = messages(&bytes);
    assert_eq!(cookies(&answers[..answers.len() - 1]).len(), 4);
    clock.warp(Duration::from_millis(10_001));
    peer.write_all(&[&DUMP[..], &BARRIER[..]].concat()).unwrap();
    let bytes = read_slowly(&mut rig, &mut peer, HELLO.to_vec());
    let answers = messages(&bytes);
    let mut listed = cookies(&answers[..answers.len() - 1]);
    listed.sort_unstable();
    assert_eq!(listed, [0, 3]);
}

#[test]
fn a_monitor_gets_full_updates_for_changes_that_packets_make() {
    let mut rig = Rig::with_rules(0);
    let mut peer = rig.peer(&[&MONITOR, &BARRIER]);
    read_slowly(&mut rig, &mut peer, Vec::new());
    rig.change(1, FlowCommand::Add);
    // A packet, which the test simulates, changes a rule while the switch answers a request of this
    // peer.
    let events = rig.thread.bridge.tables().take_events();
    rig.thread.connections[0].rule_events(&events, Some(3));
    peer.write_all(&BARRIER).unwrap();
    let bytes = read_slowly(&mut rig, &mut peer, HELLO.to_vec());
    let answers = messages(&bytes);
    let [update, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(*last, BARRIER_REPLY);
    // A full update has an event "added", not an abbreviated entry. Transaction ID 3 is the ID of
    // the peer's own request.
    assert_eq!((update[1], &update[26..28]), (19, &[0, 0][..]));
}

#[test]
fn a_new_monitor_gets_an_earlier_rule_once() {
    let mut rig = Rig::with_rules(0);
    let mut first = rig.peer(&[&MONITOR, &BARRIER]);
    read_slowly(&mut rig, &mut first, Vec::new());
    let mut second = rig.peer(&[&BARRIER]);
    read_slowly(&mut rig, &mut second, Vec::new());
    // Without rule expiry, only the serving of a connection dispatches the change.
    rig.thread.expires = Instant::now() + Duration::from_secs(600);
    rig.change(1, FlowCommand::Add);
    let mut request = MONITOR;
    // Also request the existing rules, by the monitor's flag.
    request[29] |= 1;
    second.write_all(&[&request[..], &BARRIER[..]].concat()).unwrap();
    let bytes = read_slowly(&mut rig, &mut second, HELLO.to_vec());
    let answers = messages(&bytes);
    let [told, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(*last, BARRIER_REPLY);
    let length = usize::from(u16::from_be_bytes([told[24], told[25]]));
    assert_eq!((told[1], told.len()), (19, 24 + length));
    // The other peer gets a full update for the change.
    first.write_all(&BARRIER).unwrap();
    let bytes = read_slowly(&mut rig, &mut first, HELLO.to_vec());
    assert_eq!(messages(&bytes).len(), 2);
}

#[test]
fn a_silent_tool_gets_an_echo_request_and_is_then_disconnected() {
    let minute = Duration::from_secs(60);
    let mut rig = Rig::with_rules(0);
    rig.thread.bridge.clock.stop();
    let (mut silent, mut answering) = (rig.peer(&[]), rig.peer(&[]));
    rig.later(Duration::ZERO);
    for peer in [&mut silent, &mut answering] {
        read(peer, usize::MAX, &mut Vec::new());
    }
    rig.later(minute);
    let mut request = Vec::new();
    for peer in [&mut silent, &mut answering] {
        request.clear();
        read(peer, usize::MAX, &mut request);
        assert_eq!(request, ECHO_REQUEST);
    }
    request[1] = ECHO_REPLY;
    answering.write_all(&request).unwrap();
    rig.thread.turn();
    rig.later(minute - Duration::from_millis(1));
    assert_eq!(rig.thread.connections.len(), 2);
    rig.later(Duration::from_millis(1));
    assert_eq!(rig.thread.connections.len(), 1);
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_port_mod_gives_its_sender_only_the_port_status_of_the_link() {
    let mut rig = Rig::with_rules(0);
    let local = SwitchPort::local("br0", 0, PortIndex(100), Time::from_nanos(0));
    let address = local.hardware_address();
    rig.thread.bridge.add_port(Arc::new(local));
    let mut other = rig.peer(&[&TAKE_EVENTS, &BARRIER]);
    read_slowly(&mut rig, &mut other, Vec::new());
    let mut down = vec![4, 16, 0, 40, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0];
    down.extend(address);
    down.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut own = rig.peer(&[&TAKE_EVENTS, &down, &BARRIER]);
    read_slowly(&mut rig, &mut own, Vec::new());
    for (peer, expected) in [(&mut other, &[(1, 0), (1, 1)][..]), (&mut own, &[(1, 1)][..])] {
        peer.write_all(&BARRIER).unwrap();
        let bytes = read_slowly(&mut rig, peer, HELLO.to_vec());
        let answers = messages(&bytes);
        let statuses = &answers[..answers.len() - 1];
        assert!(statuses.iter().all(|status| (status[1], status[8]) == (12, 2)), "{answers:?}");
        // Compare the port's configuration and state in each message.
        let told: Vec<_> = statuses.iter().map(|status| (status[51], status[55])).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_standalone_bridge_learns_and_forwards_while_it_has_no_controller_for_15_s() {
    let mut rig = Rig::with_rules(1);
    let clock = rig.thread.bridge.clock.clone();
    clock.stop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let remote = Remote { carrier: Carrier::Tcp, address };
    let state = |rig: &Rig| {
        let tables = rig.thread.bridge.tables();
        let rules = tables.flows(&FlowFilter::all(), clock.now_ms()).unwrap().len();
        (tables.is_standalone(), rules)
    };
    rig.later(Duration::from_secs(60));
    rig.thread.controllers = vec![Controller::new(remote)];
    rig.later(Duration::from_secs(60));
    assert_eq!(state(&rig), (false, 1), "a secure bridge keeps its rules");
    rig.thread.bridge.set_standalone(true);
    rig.thread.controlled_ms = clock.now_ms();
    rig.later(Duration::from_millis(14_999));
    assert_eq!(state(&rig), (false, 1));
    rig.later(Duration::from_millis(1));
    assert_eq!(state(&rig), (true, 0));
    // The earlier connections are closed, because the test never replies on them.
    while rig.thread.connections.iter().any(|c| c.controller.is_some()) {
        rig.later(Duration::from_secs(5));
    }
    rig.thread.controllers[0].next = Some(Instant::now());
    listener.set_nonblocking(true).unwrap();
    let mut peers = Vec::new();
    while rig.thread.bridge.tables().is_standalone() {
        if let Ok((mut peer, _)) = listener.accept() {
            // The write fails on a connection that was closed.
            let _ = peer.write_all(&HELLO);
            peers.push(peer);
        }
        rig.thread.turn();
    }
    assert_eq!(state(&rig), (false, 0));
}

#[test]
fn a_snooper_gets_the_messages_that_the_bridge_exchanges_with_its_controller() {
    let mut rig = Rig::with_rules(0);
    let folder = rig.folder.path().to_owned();
    let snoop = || {
        let peer = UnixStream::connect(folder.join(SNOOP_SOCKET)).unwrap();
        peer.set_nonblocking(true).unwrap();
        peer
    };
    let mut early = snoop();
    rig.thread.turn();
    assert_eq!(early.read(&mut [0; 8]).unwrap(), 0, "the bridge has no controller");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    rig.thread.controllers = vec![Controller::new(Remote { carrier: Carrier::Tcp, address })];
    rig.thread.turn();
    let (mut controller, _) = listener.accept().unwrap();
    let mut snooper = snoop();
    let mut bytes = Vec::new();
    let mut exchange = |rig: &mut Rig, request: &[u8], count: usize| {
        controller.write_all(request).unwrap();
        while messages(&bytes).len() < count {
            rig.thread.turn();
            read(&mut snooper, usize::MAX, &mut bytes);
        }
        messages(&bytes).concat()
    };
    let told = exchange(&mut rig, &[HELLO, BARRIER].concat(), 2);
    assert_eq!(told, [BARRIER, BARRIER_REPLY].concat());
    // If the connection ends in the same iteration, the snooper still gets all its messages.
    let short = [4, 20, 0, 7, 0, 0, 0, 3];
    let told = exchange(&mut rig, &[BARRIER, short].concat(), 4);
    assert_eq!(told[16..], [BARRIER, BARRIER_REPLY].concat());
    let none = Remotes { listen: Vec::new(), added: Vec::new(), controllers: Vec::new() };
    rig.thread.bridge.change_remotes(none);
    rig.thread.turn();
    assert_eq!(snooper.read(&mut [0; 8]).unwrap(), 0, "the controller is gone");
}

/// Makes the bridge connect to a controller, and returns the controller's end after its hello.
fn connected(rig: &mut Rig, listener: &TcpListener) -> TcpStream {
    rig.thread.turn();
    let (mut controller, _) = listener.accept().unwrap();
    controller.write_all(&HELLO).unwrap();
    let is_open = |c: &Connection| c.controller.is_some() && c.is_established();
    turn_until(rig, "the hello", |rig| rig.thread.connections.iter().any(is_open));
    controller
}

fn turn_until(rig: &mut Rig, what: &str, is_met: impl Fn(&Rig) -> bool) {
    let begin = Instant::now();
    while !is_met(rig) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {:?}", rig.thread.controllers);
        rig.thread.turn();
    }
}

/// Makes a rig with one controller, to which the bridge has not connected yet.
fn rig_with_controller() -> (Rig, TcpListener, Remote) {
    let mut rig = Rig::with_rules(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = Remote { carrier: Carrier::Tcp, address: listener.local_addr().unwrap() };
    rig.thread.controllers = vec![Controller::new(remote)];
    (rig, listener, remote)
}

#[test]
fn a_bridge_reports_the_role_that_a_controller_has_asked_for() {
    let (mut rig, listener, _) = rig_with_controller();
    let mut controller = connected(&mut rig, &listener);
    for (role, name) in [(1, "other"), (2, "master"), (3, "slave")] {
        let mut request = [0_u8; 24];
        request[..12].copy_from_slice(&[4, 24, 0, 24, 0, 0, 0, 5, 0, 0, 0, role]);
        controller.write_all(&request).unwrap();
        turn_until(&mut rig, name, |rig| {
            let states = rig.thread.bridge.controllers();
            states.iter().any(|state| state.is_connected && state.role == name)
        });
    }
}

#[test]
fn bridge_reconnect_makes_a_new_connection_to_the_controller() {
    let (mut rig, listener, _) = rig_with_controller();
    let _first = connected(&mut rig, &listener);
    rig.thread.bridge.reconnect();
    let _second = connected(&mut rig, &listener);
    let numbers: Vec<_> = rig.thread.connections.iter().map(|c| c.number).collect();
    assert_eq!(numbers, [2]);
    let error = rig.thread.controllers[0].last_error.as_deref();
    assert_eq!(error, Some("bridge/reconnect asked for a new connection"));
}

#[test]
fn a_probe_interval_of_30_s_delays_the_loss_of_a_controller_and_the_standalone_bridge() {
    let (mut rig, listener, remote) = rig_with_controller();
    rig.thread.bridge.clock.stop();
    let times = ControllerTimes { probe_ms: Some(30_000), ..ControllerTimes::default() };
    rig.thread.bridge.set_controller_times(&HashMap::from([(remote, times)]));
    rig.thread.bridge.set_standalone(true);
    let _silent = connected(&mut rig, &listener);
    let error = |rig: &Rig| rig.thread.controllers[0].last_error.clone();
    // The silence before the echo request, and the time for the reply.
    for _ in ["request", "reply"] {
        rig.later(Duration::from_millis(29_999));
        assert_eq!(error(&rig), None);
        rig.later(Duration::from_millis(1));
    }
    assert_eq!(error(&rig).as_deref(), Some("the peer does not answer"));
    rig.later(Duration::from_millis(89_999));
    assert!(!rig.thread.bridge.tables().is_standalone());
    rig.later(Duration::from_millis(1));
    assert!(rig.thread.bridge.tables().is_standalone());
}

const SOCKET: &str = "br0.mgmt";
const SNOOP_SOCKET: &str = "br0.snoop";
/// Slightly more than the number of bytes of rules that one iteration writes.
const PIECE: usize = 64 << 10;

/// Messages of OpenFlow 1.3.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
const BARRIER: [u8; 8] = [4, 20, 0, 8, 0, 0, 0, 3];
const BARRIER_REPLY: [u8; 8] = [4, 21, 0, 8, 0, 0, 0, 3];
const ECHO_REQUEST: [u8; 8] = [4, 2, 0, 8, 0, 0, 0, 0];
const ECHO_REPLY: u8 = 3;
/// Sets the length of packet-ins, and thereby subscribes to events.
const TAKE_EVENTS: [u8; 12] = [4, 9, 0, 12, 0, 0, 0, 2, 0, 0, 0, 128];
/// Monitors changes of all rules.
const MONITOR: [u8; 48] = [
    4, 18, 0, 48, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x4f, 0x4e, 0x46, 0, 0, 0, 7, 0x4e, 0,
    0, 0, 7, 0, 0x0e, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0,
];
/// OpenFlow's multipart types for flow statistics and aggregate flow statistics.
const LIST: u8 = 1;
const SUM: u8 = 2;
/// Requests all rules.
const DUMP: [u8; 56] = {
    let mut bytes = [0; 56];
    let head = [4, 18, 0, 56, 0, 0, 0, 2, 0, 1];
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    bytes[16] = 0xff;
    at = 20;
    while at < 28 {
        bytes[at] = 0xff;
        at += 1;
    }
    bytes[49] = 1;
    bytes[51] = 4;
    bytes
};
