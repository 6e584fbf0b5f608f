use std::net::{IpAddr, SocketAddr};

use units::{Bytes, Span};

use super::diag::{self, Diag, Ends, RawSocket};
use super::{CongestionInfo, TcpInfo, TcpState};
use crate::ProbeError;

/// Returns all TCP sockets of the calling thread's network namespace that match `filter`, over IPv4
/// and IPv6.
pub fn sockets(filter: &Filter) -> Result<Vec<TcpSocket>, ProbeError> {
    let mut found = Vec::new();
    Diag::with_algorithm().each(filter, |socket| found.extend(TcpSocket::of(socket)))?;
    Ok(found)
}

/// Whether a TCP socket of the calling thread's network namespace has this local or remote port.
pub fn has_port(port: u16) -> Result<bool, ProbeError> {
    let mut diag = Diag::of_addresses();
    Ok(diag.has(&Filter::all().local_port(port))? || diag.has(&Filter::all().remote_port(port))?)
}

/// Looks a connection up by its addresses and ports; returns `None` if there is no such connection.
/// Far cheaper than [`sockets`], for which the kernel walks its whole table of connections.
pub fn connection(local: SocketAddr, remote: SocketAddr) -> Result<Option<TcpSocket>, ProbeError> {
    let mut found = None;
    let ends = Ends { local, remote, interface: 0, cookie: 0 };
    Diag::with_algorithm().one(ends, |socket| found = TcpSocket::of(socket))?;
    Ok(found)
}

/// The sockets to return. By default the filter selects all sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    states: Vec<TcpState>,
    pub(super) local_port: Option<u16>,
    pub(super) remote_port: Option<u16>,
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

    /// Adds a state; a filter without states matches all states.
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

    /// Returns the states as bits; all states of RFC 9293 if none was added.
    pub(super) fn state_bits(&self) -> u32 {
        match self.states.as_slice() {
            [] => ALL_STATES,
            states => states.iter().fold(0, |bits, state| bits | 1 << *state as u32),
        }
    }

    pub(super) fn passes(&self, socket: &RawSocket<'_>) -> bool {
        let is = |wanted: Option<IpAddr>, found: IpAddr| {
            wanted.is_none_or(|wanted| wanted.to_canonical() == found)
        };
        let passes = |state: TcpState| self.states.is_empty() || self.states.contains(&state);
        if !socket.state().is_some_and(passes) {
            return false;
        }
        let ports = self.local_port.is_none() && self.remote_port.is_none();
        if ports && self.local.is_none() && self.remote.is_none() {
            return true;
        }
        let (local, remote) = (socket.local(), socket.remote());
        is(self.local, local.ip())
            && is(self.remote, remote.ip())
            && self.local_port.is_none_or(|port| port == local.port())
            && self.remote_port.is_none_or(|port| port == remote.port())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TcpSocket {
    /// The local address; an IPv4-mapped address is shown as IPv4.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub state: TcpState,
    /// Distinguishes this socket from all others since boot.
    pub cookie: u64,
    /// The inode, as in `/proc/PID/fd`; 0 if no process holds the socket any more.
    pub inode: u32,
    pub uid: u32,
    pub queues: Queues,
    pub timer: Option<Timer>,
    pub congestion_control: Option<String>,
    pub congestion: Option<CongestionInfo>,
    pub memory: Option<Memory>,
    /// `None` for a closing connection without a full socket (TIME-WAIT).
    pub info: Option<TcpInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    /// Connections not yet accepted, and the limit of their number.
    Accept { waiting: u32, limit: u32 },
    /// Bytes received and not yet read; bytes written and not yet acknowledged.
    Data { receive: Bytes, send: Bytes },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    Retransmit { expires: Span, retransmits: u8 },
    KeepAlive { expires: Span },
    TimeWait,
    Probe { expires: Span },
}

/// The memory that a socket holds (`SK_MEMINFO_*`, include/uapi/linux/sock_diag.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub receive: Bytes,
    pub receive_limit: Bytes,
    /// Memory of sent packets that are still in the queues below the socket.
    pub transmit: Bytes,
    pub send_limit: Bytes,
    /// Memory of written data that is not acknowledged yet.
    pub send: Bytes,
    /// Memory of packets that arrived while the application held the socket lock.
    pub backlog: Bytes,
    pub drops: u32,
}

impl TcpSocket {
    /// Parses the sockets in one datagram of the kernel's reply.
    pub fn parse(datagram: &[u8]) -> Result<Vec<Self>, ProbeError> {
        let mut found = Vec::new();
        diag::read(datagram, diag::SOCKETS, &mut |socket: RawSocket<'_>| {
            found.extend(Self::of(socket));
        })?;
        Ok(found)
    }

    /// Converts a socket of a reply; returns `None` for a state that this program does not know.
    pub fn of(raw: RawSocket<'_>) -> Option<Self> {
        Some(Self {
            local: raw.local(),
            remote: raw.remote(),
            state: raw.state()?,
            cookie: raw.cookie(),
            inode: raw.inode(),
            uid: raw.uid(),
            queues: raw.queues(),
            timer: raw.timer(),
            congestion_control: raw.congestion_control().map(str::to_owned),
            congestion: raw
                .attributes()
                .filter_map(|(kind, value)| CongestionInfo::parse(kind, value))
                .last(),
            memory: raw.memory(),
            info: raw.info().map(TcpInfo::from_bytes),
        })
    }
}

/// The states from ESTABLISHED to CLOSING.
const ALL_STATES: u32 = 0xffe;
