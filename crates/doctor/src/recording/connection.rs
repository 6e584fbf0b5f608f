use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use units::{Bytes, Rate, Span};

/// One TCP connection of this machine, at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    #[serde(default)]
    pub state: ConnectionState,
    /// Distinguishes the connection from a later connection between the same ends.
    #[serde(default)]
    pub cookie: u64,
    /// The processes that hold the socket.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Bytes that the program has not read yet.
    #[serde(default)]
    pub receive_queue: Bytes,
    /// Bytes that the peer has not acknowledged yet.
    #[serde(default)]
    pub send_queue: Bytes,
    #[serde(default)]
    pub receive_limit: Option<Bytes>,
    #[serde(default)]
    pub send_limit: Option<Bytes>,
    /// The number of times that the timer has sent the oldest segment again.
    #[serde(default)]
    pub retransmits: u32,
    /// Whether the timer of window probes runs. In a capture: whether the receive window is closed.
    #[serde(default)]
    pub probing: bool,
    /// Packets dropped at the socket.
    #[serde(default)]
    pub drops: u32,
    #[serde(default)]
    pub congestion: Option<String>,
    /// Whether the connection is outside the focus, but ends at the same host as a connection in
    /// focus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    #[serde(default)]
    pub tcp: Tcp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionState {
    #[default]
    Established,
    SynSent,
    SynReceived,
    /// One end has closed.
    Closing,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
    /// Open descriptors, and their limit.
    pub descriptors: Option<u64>,
    pub descriptors_most: Option<u64>,
    /// The path of the program's control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The part of `struct tcp_info` that the rules use. `None`: the kernel does not provide the value.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    pub rtt: Option<Span>,
    pub min_rtt: Option<Span>,
    pub rttvar: Option<Span>,
    pub rto: Option<Span>,
    pub backoff: Option<u8>,
    pub mss: Option<Bytes>,
    pub advmss: Option<Bytes>,
    pub path_mtu: Option<Bytes>,
    /// The congestion window in segments.
    pub cwnd: Option<u32>,
    pub ssthresh: Option<u32>,
    pub unacked: Option<u32>,
    pub sacked: Option<u32>,
    pub lost: Option<u32>,
    pub window_scaling: Option<bool>,
    pub snd_wscale: Option<u8>,
    pub rcv_wscale: Option<u8>,
    pub sack: Option<bool>,
    pub ecn: Option<bool>,
    /// The window that the peer offers.
    pub peer_window: Option<Bytes>,
    /// The window offered to the peer.
    pub own_window: Option<Bytes>,
    pub receive_rtt: Option<Span>,
    pub pacing_rate: Option<Rate>,
    pub pacing_most: Option<Rate>,
    pub delivery_rate: Option<Rate>,
    pub application_limited: Option<bool>,
    pub bytes_acked: Option<Bytes>,
    pub bytes_received: Option<Bytes>,
    pub bytes_sent: Option<Bytes>,
    pub bytes_retransmitted: Option<Bytes>,
    pub unsent: Option<Bytes>,
    pub segments_out: Option<u32>,
    pub segments_in: Option<u32>,
    pub data_segments_out: Option<u32>,
    pub data_segments_in: Option<u32>,
    pub retransmitted: Option<u32>,
    pub spurious: Option<u32>,
    pub reordered: Option<u32>,
    /// Packets received out of order.
    pub out_of_order: Option<u32>,
    pub delivered: Option<u32>,
    pub delivered_marked: Option<u32>,
    pub timeouts: Option<u16>,
    pub busy: Option<Span>,
    pub window_limited: Option<Span>,
    pub buffer_limited: Option<Span>,
    pub last_sent: Option<Span>,
    pub last_received: Option<Span>,
    /// The time since the last acknowledgement arrived, with data or without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_acknowledged: Option<Span>,
    /// The time that acknowledgements wait in queues on the return path. Only a capture shows this
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_queue: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    pub local: SocketAddr,
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Connections not yet accepted, and the limit of their number.
    #[serde(default)]
    pub waiting: u32,
    #[serde(default)]
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSocket {
    pub local: SocketAddr,
    /// The peer of a connected socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    #[serde(default)]
    pub inode: u32,
    #[serde(default)]
    pub holders: Vec<Holder>,
    #[serde(default)]
    pub receive_queue: Bytes,
    #[serde(default)]
    pub drops: u64,
}

impl Connection {
    /// Whether the kernel holds a segment that it could not send yet; `None` if the kernel does not
    /// report this. Less than a segment does not count: the kernel waits for more data (Nagle, RFC
    /// 1122 section 4.2.3.4).
    pub fn has_unsent(&self) -> Option<bool> {
        let least = self.tcp.mss.filter(|mss| *mss > Bytes::ZERO).unwrap_or(Bytes::new(1));
        Some(self.tcp.unsent? >= least)
    }

    /// Returns the time since this end sent its last data, if all data has arrived and no data came
    /// back since. Within one tick of the kernel's clock the order of sent and received data is
    /// unknown. Sent data then counts as the last with `ties`, or if an acknowledgement came later.
    pub fn waits_for_answer(&self, ties: bool) -> Option<Span> {
        let (sent, received) = self.tcp.last_sent.zip(self.tcp.last_received)?;
        // The kernel counts the SYN of the end that opened the connection.
        let has_sent = self.tcp.bytes_acked.is_some_and(|acked| acked > Bytes::new(1));
        let is_done = self.state == ConnectionState::Established
            && self.send_queue == Bytes::ZERO
            && self.receive_queue == Bytes::ZERO;
        let is_acked_later = self.tcp.last_acknowledged.is_some_and(|acked| acked < received);
        let is_last = received > sent || received == sent && (ties || is_acked_later);
        (has_sent && is_done && is_last).then_some(sent)
    }

    /// Returns the fields that distinguish the connection from the others of all samples.
    pub fn identity(&self) -> (SocketAddr, SocketAddr, u64) {
        (self.local, self.remote, self.cookie)
    }
}

impl UdpSocket {
    /// Whether the socket's peer is a name server (RFC 1035 section 4.2).
    pub fn asks_for_names(&self) -> bool {
        self.remote.is_some_and(|remote| remote.port() == 53)
    }
}
