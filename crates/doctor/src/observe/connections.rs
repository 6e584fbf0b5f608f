use super::focus::Focus;
use super::processes::Watched;
use crate::recording::{
    Connection, ConnectionState, Listener, RemotePorts, TCP_CONNECTIONS, Tcp, Unseen,
};
use probe::ProbeError;
use probe::tcp::{Filter, Queues, TcpInfo, TcpSocket, TcpState, Timer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use units::Rate;

pub(super) type Key = (SocketAddr, SocketAddr, u64);

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) connections: Vec<Connection>,
    pub(super) inodes: BTreeMap<Key, u32>,
    pub(super) listeners: Vec<Listener>,
    pub(super) states: BTreeMap<String, u64>,
    pub(super) busiest_remote: Option<RemotePorts>,
    pub(super) listener_inodes: BTreeMap<SocketAddr, u32>,
}

pub(super) fn key(connection: &Connection) -> Key {
    (connection.local, connection.remote, connection.cookie)
}

/// The TCP sockets of the calling thread's namespace.
pub(super) fn read(focus: &Focus, watched: &Watched, unseen: &mut BTreeSet<Unseen>) -> Found {
    let sockets = match probe::tcp::sockets(&Filter::all()) {
        Ok(sockets) => sockets,
        Err(error) => {
            add(unseen, TCP_CONNECTIONS, &error);
            return Found::default();
        }
    };
    let mut found = Found { busiest_remote: busiest_remote(&sockets), ..Found::default() };
    // The other end of a connection within this machine belongs to it.
    let chosen: BTreeSet<_> = sockets
        .iter()
        .filter(|socket| matches(focus, watched, socket))
        .flat_map(|socket| [(socket.local, socket.remote), (socket.remote, socket.local)])
        .collect();
    for socket in sockets {
        *found.states.entry(state_name(socket.state).to_owned()).or_default() += 1;
        if let (TcpState::Listen, Queues::Accept { waiting, limit }) = (socket.state, socket.queues)
        {
            let local = socket.local;
            found.listener_inodes.insert(local, socket.inode);
            found.listeners.push(Listener { local, holders: Vec::new(), waiting, limit });
            continue;
        }
        if !chosen.contains(&(socket.local, socket.remote)) {
            continue;
        }
        let inode = socket.inode;
        let Some(connection) = connection(socket) else { continue };
        found.inodes.insert(key(&connection), inode);
        found.connections.push(connection);
    }
    // Only full queues are of interest.
    found.listeners.sort_by_key(|listener| std::cmp::Reverse(listener.waiting));
    found.listeners.truncate(MOST_LISTENERS);
    found
}

/// The destination with the most local ports that this machine chose for its connections. Those
/// that others opened to a listener share its port.
fn busiest_remote(sockets: &[TcpSocket]) -> Option<RemotePorts> {
    let is_listener = |socket: &&TcpSocket| socket.state == TcpState::Listen;
    let listeners: BTreeSet<u16> =
        sockets.iter().filter(is_listener).map(|socket| socket.local.port()).collect();
    let mut used: BTreeMap<SocketAddr, (u64, u64)> = BTreeMap::new();
    for socket in sockets.iter().filter(|socket| !listeners.contains(&socket.local.port())) {
        let (ports, time_wait) = used.entry(socket.remote).or_default();
        *ports += 1;
        *time_wait += u64::from(socket.state == TcpState::TimeWait);
    }
    let (remote, (ports, time_wait)) = used.into_iter().max_by_key(|(_, (ports, _))| *ports)?;
    Some(RemotePorts { remote, ports, time_wait })
}

fn matches(focus: &Focus, watched: &Watched, socket: &TcpSocket) -> bool {
    match focus {
        Focus::All => true,
        Focus::Process(_) => watched.has_socket(socket.inode),
        Focus::Port(port) => socket.local.port() == *port || socket.remote.port() == *port,
        Focus::Address(address) => {
            let address = address.to_canonical();
            socket.remote.ip() == address || socket.local.ip() == address
        }
        Focus::Socket(end) => socket.local == *end || socket.remote == *end,
    }
}

fn connection(socket: TcpSocket) -> Option<Connection> {
    let Queues::Data { receive, send } = socket.queues else { return None };
    let state = match socket.state {
        TcpState::Established => ConnectionState::Established,
        TcpState::SynSent => ConnectionState::SynSent,
        TcpState::SynReceived | TcpState::NewSynReceived => ConnectionState::SynReceived,
        TcpState::TimeWait | TcpState::Close | TcpState::BoundInactive | TcpState::Listen => {
            return None;
        }
        _ => ConnectionState::Closing,
    };
    Some(Connection {
        local: socket.local,
        remote: socket.remote,
        state,
        cookie: socket.cookie,
        holders: Vec::new(),
        receive_queue: receive,
        send_queue: send,
        receive_limit: socket.memory.map(|memory| memory.receive_limit),
        send_limit: socket.memory.map(|memory| memory.send_limit),
        retransmits: match socket.timer {
            Some(Timer::Retransmit { retransmits, .. }) => retransmits.into(),
            _ => 0,
        },
        probing: matches!(socket.timer, Some(Timer::Probe { .. })),
        drops: socket.memory.map_or(0, |memory| memory.drops),
        congestion: socket.congestion_control,
        tcp: socket.info.as_ref().map(tcp).unwrap_or_default(),
    })
}

/// The fields that rules use.
fn tcp(info: &TcpInfo) -> Tcp {
    let real = |rate: Rate| (rate.bits_per_second() < u64::MAX / 2).then_some(rate);
    Tcp {
        rtt: info.rtt,
        min_rtt: info.min_rtt,
        rttvar: info.rttvar,
        rto: info.rto,
        backoff: info.backoff,
        mss: info.snd_mss,
        advmss: info.advmss,
        path_mtu: info.pmtu,
        cwnd: info.snd_cwnd,
        ssthresh: info.snd_ssthresh,
        unacked: info.unacked,
        sacked: info.sacked,
        lost: info.lost,
        window_scaling: info.window_scaling,
        snd_wscale: info.snd_wscale,
        rcv_wscale: info.rcv_wscale,
        sack: info.sack,
        ecn: info.ecn,
        peer_window: info.snd_wnd,
        own_window: info.rcv_wnd,
        receive_rtt: info.rcv_rtt,
        pacing_rate: info.pacing_rate.and_then(real),
        pacing_most: info.max_pacing_rate.and_then(real),
        delivery_rate: info.delivery_rate,
        application_limited: info.delivery_rate_app_limited,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        bytes_sent: info.bytes_sent,
        bytes_retransmitted: info.bytes_retrans,
        unsent: info.notsent,
        segments_out: info.segs_out,
        segments_in: info.segs_in,
        data_segments_out: info.data_segs_out,
        data_segments_in: info.data_segs_in,
        retransmitted: info.total_retrans,
        spurious: info.dsack_dups,
        reordered: info.reord_seen,
        out_of_order: info.rcv_ooopack,
        delivered: info.delivered,
        delivered_marked: info.delivered_ce,
        timeouts: info.total_rto,
        busy: info.busy_time,
        window_limited: info.rwnd_limited,
        buffer_limited: info.sndbuf_limited,
        last_sent: info.last_data_sent,
        last_received: info.last_data_received,
    }
}

pub(super) fn add(unseen: &mut BTreeSet<Unseen>, what: &str, error: &ProbeError) {
    unseen.insert(Unseen { what: what.to_owned(), reason: error.reason() });
}

fn state_name(state: TcpState) -> &'static str {
    match state {
        TcpState::Established => "established",
        TcpState::SynSent => "syn-sent",
        TcpState::SynReceived | TcpState::NewSynReceived => "syn-received",
        TcpState::TimeWait => "time-wait",
        TcpState::CloseWait => "close-wait",
        TcpState::Listen => "listen",
        TcpState::Close | TcpState::BoundInactive => "closed",
        _ => "closing",
    }
}

const MOST_LISTENERS: usize = 64;
