//! Sockets of the kernel as a recording has them.

use crate::recording::{Connection, ConnectionState, Tcp, Unseen};
use probe::ProbeError;
use probe::tcp::{Queues, TcpInfo, TcpSocket, TcpState, Timer};
use std::collections::BTreeSet;
use units::Rate;

/// Converts a socket; `None` if the socket listens or has ended, so that it has no data.
pub(super) fn connection(socket: TcpSocket) -> Option<Connection> {
    let Queues::Data { receive, send } = socket.queues else { return None };
    let state = match socket.state {
        TcpState::Established => ConnectionState::Established,
        TcpState::SynSent => ConnectionState::SynSent,
        TcpState::SynReceived | TcpState::NewSynReceived => ConnectionState::SynReceived,
        state if !has_data(state) => return None,
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
        beside: false,
        congestion: socket.congestion_control,
        tcp: socket.info.as_ref().map(tcp).unwrap_or_default(),
    })
}

/// Whether a socket in this state may hold data of a connection.
pub(super) fn has_data(state: TcpState) -> bool {
    use TcpState::{BoundInactive, Close, Listen, TimeWait};
    !matches!(state, TimeWait | Close | BoundInactive | Listen)
}

/// Copies the fields that rules use.
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
        last_acknowledged: info.last_ack_received,
        back_queue: None,
    }
}

pub(super) fn add(unseen: &mut BTreeSet<Unseen>, what: &str, error: &ProbeError) {
    unseen.insert(Unseen { what: what.to_owned(), reason: error.reason() });
}

pub(super) fn state_name(state: TcpState) -> &'static str {
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
