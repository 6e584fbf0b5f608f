use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::Nla as _;
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    self, ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use units::{Bytes, Span};

use super::{CongestionInfo, TcpInfo, TcpState};
use crate::{ProbeError, netlink};

/// All TCP sockets of the calling thread's network namespace that match `filter`, over IPv4 and
/// IPv6.
pub fn sockets(filter: &Filter) -> Result<Vec<TcpSocket>, ProbeError> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let request = SockDiagMessage::InetRequest(filter.request(family));
        let answered = netlink::dump(NETLINK_SOCK_DIAG, ASKED, request, |answer| {
            if let SockDiagMessage::InetResponse(answer) = answer {
                found.extend(TcpSocket::of(*answer).filter(|socket| filter.passes(socket)));
            }
        });
        match answered {
            // IPv6 may be compiled out or disabled.
            Err(error) if family == AF_INET6 && error.is_not_supported() => {}
            answered => answered?,
        }
    }
    Ok(found)
}

/// One connection by its ends. This is far cheaper than [`sockets`], for which the kernel walks its
/// whole table of connections. `None` if there is no such connection.
pub fn connection(local: SocketAddr, remote: SocketAddr) -> Result<Option<TcpSocket>, ProbeError> {
    let (local, remote) = (canonical(local), canonical(remote));
    let filter = Filter::all().local(local).remote(remote);
    let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut request = filter.request(family);
    request.socket_id.source_address = local.ip();
    request.socket_id.destination_address = remote.ip();
    request.socket_id.cookie = ANY_COOKIE;
    let request = SockDiagMessage::InetRequest(request);
    let answer = netlink::ask(NETLINK_SOCK_DIAG, "a TCP connection (inet_diag)", request)?;
    Ok(match answer {
        // Without a connection the kernel returns a listening socket that would accept it.
        Some(SockDiagMessage::InetResponse(answer)) => {
            TcpSocket::of(*answer).filter(|socket| filter.passes(socket))
        }
        _ => None,
    })
}

/// The sockets to return. The default is all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    states: Vec<TcpState>,
    local_port: Option<u16>,
    remote_port: Option<u16>,
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
}

impl Filter {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn established() -> Self {
        Self::all().state(TcpState::Established)
    }

    pub fn listening() -> Self {
        Self::all().state(TcpState::Listen)
    }

    /// Adds a state; without any, all match.
    pub fn state(mut self, state: TcpState) -> Self {
        self.states.push(state);
        self
    }

    pub fn local_port(mut self, port: u16) -> Self {
        self.local_port = Some(port);
        self
    }

    pub fn remote_port(mut self, port: u16) -> Self {
        self.remote_port = Some(port);
        self
    }

    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.local = Some(address);
        self
    }

    pub fn remote_address(mut self, address: IpAddr) -> Self {
        self.remote = Some(address);
        self
    }

    pub fn local(self, address: SocketAddr) -> Self {
        self.local_address(address.ip()).local_port(address.port())
    }

    pub fn remote(self, address: SocketAddr) -> Self {
        self.remote_address(address.ip()).remote_port(address.port())
    }

    fn request(&self, family: u8) -> InetRequest {
        // The kernel compares states and ports (net/ipv4/inet_diag.c, inet_diag_dump_icsk);
        // addresses are compared here.
        let socket_id = SocketId {
            source_port: self.local_port.unwrap_or(0),
            destination_port: self.remote_port.unwrap_or(0),
            ..if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() }
        };
        let states = match self.states.as_slice() {
            [] => StateFlags::all().bits(),
            states => states.iter().fold(0, |bits, state| bits | 1 << *state as u32),
        };
        InetRequest {
            family,
            protocol: IPPROTO_TCP,
            // VEGASINFO requests the data of any algorithm.
            extensions: ExtensionFlags::INFO
                | ExtensionFlags::CONG
                | ExtensionFlags::SKMEMINFO
                | ExtensionFlags::VEGASINFO,
            states: StateFlags::from_bits_retain(states),
            socket_id,
        }
    }

    fn passes(&self, socket: &TcpSocket) -> bool {
        let is = |wanted: Option<IpAddr>, found: IpAddr| {
            wanted.is_none_or(|wanted| wanted.to_canonical() == found)
        };
        is(self.local, socket.local.ip())
            && is(self.remote, socket.remote.ip())
            && self.local_port.is_none_or(|port| port == socket.local.port())
            && self.remote_port.is_none_or(|port| port == socket.remote.port())
            && (self.states.is_empty() || self.states.contains(&socket.state))
    }
}

/// One TCP socket of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpSocket {
    /// IPv4 carried by an IPv6 socket is shown as IPv4.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub state: TcpState,
    /// Distinguishes this socket from all others since boot.
    pub cookie: u64,
    /// As in `/proc/PID/fd`; 0 if no process holds the socket any more.
    pub inode: u32,
    pub uid: u32,
    pub queues: Queues,
    pub timer: Option<Timer>,
    pub congestion_control: Option<String>,
    pub congestion: Option<CongestionInfo>,
    pub memory: Option<Memory>,
    /// A closing connection without a full socket (TIME-WAIT) has none.
    pub info: Option<TcpInfo>,
}

/// The queue of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    /// Connections not yet accepted, and the limit of their number.
    Accept { waiting: u32, limit: u32 },
    /// Received and not yet read; written and not yet acknowledged.
    Data { receive: Bytes, send: Bytes },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    Retransmit { expires: Span, retransmits: u8 },
    KeepAlive { expires: Span },
    TimeWait,
    Probe { expires: Span },
}

/// The memory a socket holds (`SK_MEMINFO_*`, include/uapi/linux/sock_diag.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub receive: Bytes,
    pub receive_limit: Bytes,
    /// Handed to the queues below the socket.
    pub transmit: Bytes,
    pub send_limit: Bytes,
    /// Written, and not yet freed by an acknowledgement.
    pub send: Bytes,
    /// Arrived while the application held the socket.
    pub backlog: Bytes,
    /// Packets dropped at the socket.
    pub drops: u32,
}

impl TcpSocket {
    /// The sockets in one datagram of the kernel's answer.
    pub fn parse(datagram: &[u8]) -> Result<Vec<Self>, ProbeError> {
        let mut found = Vec::new();
        netlink::parse(datagram, ASKED, |answer| {
            if let SockDiagMessage::InetResponse(answer) = answer {
                found.extend(Self::of(*answer));
            }
        })?;
        Ok(found)
    }

    fn of(answer: InetResponse) -> Option<Self> {
        let header = answer.header;
        let state = TcpState::from_number(header.state)?;
        let address = |ip, port| canonical(SocketAddr::new(ip, port));
        let id = &header.socket_id;
        let mut socket = Self {
            local: address(id.source_address, id.source_port),
            remote: address(id.destination_address, id.destination_port),
            state,
            cookie: cookie(id.cookie),
            inode: header.inode,
            uid: header.uid,
            queues: match state {
                TcpState::Listen => {
                    Queues::Accept { waiting: header.recv_queue, limit: header.send_queue }
                }
                _ => Queues::Data {
                    receive: Bytes::new(header.recv_queue.into()),
                    send: Bytes::new(header.send_queue.into()),
                },
            },
            timer: header.timer.map(Timer::of),
            congestion_control: None,
            congestion: None,
            memory: None,
            info: None,
        };
        for attribute in answer.nlas {
            match attribute {
                Nla::TcpInfo(bytes) => socket.info = Some(TcpInfo::from_bytes(&bytes)),
                Nla::Congestion(name) => socket.congestion_control = Some(name),
                Nla::MemInfo(memory) => socket.memory = Some(Memory::of(&memory)),
                Nla::Other(other) => {
                    let mut bytes = vec![0; other.value_len()];
                    other.emit_value(&mut bytes);
                    let info = CongestionInfo::parse(other.kind(), &bytes);
                    socket.congestion = info.or(socket.congestion);
                }
                _ => {}
            }
        }
        Some(socket)
    }
}

impl Timer {
    fn of(timer: inet::Timer) -> Self {
        match timer {
            inet::Timer::Retransmit(expires, retransmits) => {
                Self::Retransmit { expires: expires.into(), retransmits }
            }
            inet::Timer::KeepAlive(expires) => Self::KeepAlive { expires: expires.into() },
            inet::Timer::TimeWait => Self::TimeWait,
            inet::Timer::Probe(expires) => Self::Probe { expires: expires.into() },
        }
    }
}

impl Memory {
    fn of(memory: &inet::nlas::MemInfo) -> Self {
        let bytes = |count: u32| Bytes::new(count.into());
        Self {
            receive: bytes(memory.receive_queue),
            receive_limit: bytes(memory.receive_queue_max),
            transmit: bytes(memory.bottom_send_queues),
            send_limit: bytes(memory.send_queue_max),
            send: bytes(memory.send_queue),
            backlog: bytes(memory.backlog_queue_length),
            drops: memory.drops,
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The kernel returns it as two words, the lower first (net/core/sock_diag.c).
fn cookie([a, b, c, d, e, f, g, h]: [u8; 8]) -> u64 {
    let low = u32::from_ne_bytes([a, b, c, d]);
    let high = u32::from_ne_bytes([e, f, g, h]);
    u64::from(high) << 32 | u64::from(low)
}

/// INET_DIAG_NOCOOKIE, include/uapi/linux/inet_diag.h.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
const ASKED: &str = "TCP sockets (inet_diag)";
