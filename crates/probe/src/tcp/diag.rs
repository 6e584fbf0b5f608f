//! The kernel's replies about TCP sockets (inet_diag), read without copying: an observer of
//! thousands of connections reads only the fields that it needs.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};
use units::{Bytes, Span};

use super::{Filter, Memory, Queues, TcpState, Timer};
use crate::ProbeError;

/// A netlink socket of the network namespace in which it was first used.
#[derive(Debug)]
pub struct Diag {
    socket: Option<Socket>,
    buffer: Vec<u8>,
    sequence: u32,
    /// The attributes to request, as bits.
    extensions: u8,
    protocol: i32,
}

impl Diag {
    /// Requests every attribute that [`super::TcpSocket`] has.
    pub fn with_algorithm() -> Self {
        // The attribute of Vegas requests the data of any congestion control algorithm.
        Self::with([INFO, VEGAS, CONGESTION, MEMORY])
    }

    /// Requests no data of the congestion control algorithm.
    pub fn without_algorithm() -> Self {
        Self::with([INFO, INFO, CONGESTION, MEMORY])
    }

    /// Requests no attribute that costs time: only states, addresses and ports.
    pub(crate) fn of_addresses() -> Self {
        Self::new(0, libc::IPPROTO_TCP)
    }

    /// Lists UDP sockets. The kernel gives an unconnected UDP socket the state `TCP_CLOSE`.
    pub(crate) fn of_udp_addresses() -> Self {
        Self::new(0, libc::IPPROTO_UDP)
    }

    fn with(attributes: [u16; 4]) -> Self {
        let extensions = attributes.iter().fold(0, |bits, one| bits | 1 << (one - 1));
        Self::new(extensions, libc::IPPROTO_TCP)
    }

    fn new(extensions: u8, protocol: i32) -> Self {
        Self { socket: None, buffer: Vec::new(), sequence: 0, extensions, protocol }
    }

    /// Passes each socket that matches to `each`, over IPv4 and IPv6.
    pub fn each(
        &mut self,
        filter: &Filter,
        mut each: impl FnMut(RawSocket<'_>),
    ) -> Result<(), ProbeError> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = Request::listing(filter, family as u8);
            let answered = self.exchange(&request, SOCKETS, &mut |socket: RawSocket<'_>| {
                if filter.passes(&socket) {
                    each(socket);
                }
            });
            match answered {
                // IPv6 may be compiled out or disabled.
                Err(error) if family == libc::AF_INET6 && error.is_not_supported() => {}
                answered => answered?,
            }
        }
        Ok(())
    }

    /// Passes each socket as [`Self::each`] does, without attributes, which the kernel then does
    /// not fill. States, addresses, queues and inodes are no attributes.
    pub fn each_bare(
        &mut self,
        filter: &Filter,
        each: impl FnMut(RawSocket<'_>),
    ) -> Result<(), ProbeError> {
        let extensions = std::mem::take(&mut self.extensions);
        let read = self.each(filter, each);
        self.extensions = extensions;
        read
    }

    /// Whether a socket matches, over IPv4 or IPv6. Stops at the first match, so the kernel does
    /// not walk its whole table.
    pub(super) fn has(&mut self, filter: &Filter) -> Result<bool, ProbeError> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = Request::listing(filter, family as u8);
            let found = Cell::new(false);
            let answered = self.try_exchange(
                &request,
                SOCKETS,
                &mut |socket: RawSocket<'_>| found.set(found.get() || filter.passes(&socket)),
                &|| found.get(),
            );
            // The netlink socket may still hold the rest of the reply.
            self.socket = None;
            match answered {
                Err(error) if family == libc::AF_INET6 && error.is_not_supported() => {}
                answered => answered?,
            }
            if found.get() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Passes this connection to `each`, if the connection exists. The kernel looks the connection
    /// up, and does not walk its table of connections.
    pub fn one(
        &mut self,
        connection: Ends,
        mut each: impl FnMut(RawSocket<'_>),
    ) -> Result<(), ProbeError> {
        let local = canonical(connection.local);
        let remote = canonical(connection.remote);
        let request = Request::connection(Ends { local, remote, ..connection });
        let answered = self.exchange(&request, CONNECTION, &mut |socket: RawSocket<'_>| {
            // If the connection does not exist, the kernel returns a listening socket that would
            // accept it.
            if (socket.local(), socket.remote()) == (local, remote) {
                each(socket);
            }
        });
        match answered {
            // The kernel returns ENOENT for a connection that does not exist.
            Err(error) if error.is_not_supported() => Ok(()),
            answered => answered,
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        what: &'static str,
        each: &mut dyn FnMut(RawSocket<'_>),
    ) -> Result<(), ProbeError> {
        let answered = self.try_exchange(request, what, each, &|| false);
        if answered.is_err() {
            // The netlink socket may still hold the rest of a reply.
            self.socket = None;
        }
        answered
    }

    fn try_exchange(
        &mut self,
        request: &Request,
        what: &'static str,
        each: &mut dyn FnMut(RawSocket<'_>),
        is_enough: &dyn Fn() -> bool,
    ) -> Result<(), ProbeError> {
        let failed = |source| ProbeError::Kernel { what, source };
        self.sequence = self.sequence.wrapping_add(1);
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed)?;
                socket.connect(&NetlinkAddress::new(0, 0)).map_err(failed)?;
                none.insert(socket)
            }
        };
        socket
            .send(&request.encode(self.sequence, self.extensions, self.protocol), 0)
            .map_err(failed)?;
        self.buffer.clear();
        self.buffer.reserve(DATAGRAM_MAX);
        loop {
            self.buffer.clear();
            match socket.recv(&mut self.buffer, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received.map_err(failed)?,
            };
            match read(&self.buffer, what, each)? {
                Left::Nothing => return Ok(()),
                // Only the reply to a dump has an explicit end.
                Left::Unknown if !request.is_dump || is_enough() => return Ok(()),
                Left::Unknown => {}
            }
        }
    }
}

/// The endpoints of a connection to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The index of the interface to which the socket is bound, as a socket with a link-local
    /// address is; 0 for an unbound socket.
    pub interface: u32,
    /// The socket's cookie; 0 stands for any.
    pub cookie: u64,
}

/// Whether more datagrams of the reply follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Unknown,
}

pub(super) fn read(
    datagram: &[u8],
    what: &'static str,
    each: &mut dyn FnMut(RawSocket<'_>),
) -> Result<Left, ProbeError> {
    let mut rest = datagram;
    while rest.len() >= HEADER {
        let length = word(rest, 0).map_or(0, |length| length as usize);
        let (Some(kind), Some(message)) = (half(rest, 4), rest.get(HEADER..length)) else {
            return Err(ProbeError::malformed(what, "a message with a wrong length"));
        };
        match kind {
            DONE => return Ok(Left::Nothing),
            ERROR => match word(message, 0).map_or(0, |code| code as i32) {
                0 => return Ok(Left::Nothing),
                code => return Err(refused(what, code.saturating_neg())),
            },
            SOCK_DIAG_BY_FAMILY => match RawSocket::new(message) {
                Some(socket) => each(socket),
                None => return Err(ProbeError::malformed(what, "a socket that is cut off")),
            },
            _ => {}
        }
        // Messages are aligned to four bytes (NLMSG_ALIGN); the last may lack its padding.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Left::Unknown)
}

fn refused(what: &'static str, code: i32) -> ProbeError {
    match code {
        libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT => ProbeError::NotSupported {
            feature: what,
            hint: "the kernel module that answers is not there",
        },
        code => ProbeError::Kernel { what, source: io::Error::from_raw_os_error(code) },
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
#[derive(Debug)]
struct Request {
    is_dump: bool,
    family: u8,
    states: u32,
    local: (Option<IpAddr>, u16),
    remote: (Option<IpAddr>, u16),
    interface: u32,
    cookie: u64,
}

impl Request {
    fn listing(filter: &Filter, family: u8) -> Self {
        Self {
            is_dump: true,
            family,
            states: filter.state_bits(),
            // The kernel compares states and ports (net/ipv4/inet_diag.c, inet_diag_dump_icsk);
            // addresses are compared here.
            local: (None, filter.local_port.unwrap_or(0)),
            remote: (None, filter.remote_port.unwrap_or(0)),
            interface: 0,
            cookie: ANY_COOKIE,
        }
    }

    fn connection(ends: Ends) -> Self {
        let Ends { local, remote, interface, cookie } = ends;
        Self {
            is_dump: false,
            family: if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8,
            states: u32::MAX,
            local: (Some(local.ip()), local.port()),
            remote: (Some(remote.ip()), remote.port()),
            interface,
            cookie: if cookie == 0 { ANY_COOKIE } else { cookie },
        }
    }

    fn encode(&self, sequence: u32, extensions: u8, protocol: i32) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let flags = libc::NLM_F_REQUEST | if self.is_dump { libc::NLM_F_DUMP } else { 0 };
        put(0, &(REQUEST as u32).to_ne_bytes());
        put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        put(6, &(flags as u16).to_ne_bytes());
        put(8, &sequence.to_ne_bytes());
        put(16, &[self.family, protocol as u8, extensions, 0]);
        put(20, &self.states.to_ne_bytes());
        put(24, &self.local.1.to_be_bytes());
        put(26, &self.remote.1.to_be_bytes());
        for (at, address) in [(28, self.local.0), (44, self.remote.0)] {
            match address {
                Some(IpAddr::V4(address)) => put(at, &address.octets()),
                Some(IpAddr::V6(address)) => put(at, &address.octets()),
                None => {}
            }
        }
        put(60, &self.interface.to_ne_bytes());
        // The kernel expects two 32-bit words, the lower first.
        put(64, &(self.cookie as u32).to_ne_bytes());
        put(68, &((self.cookie >> 32) as u32).to_ne_bytes());
        bytes
    }
}

/// `struct inet_diag_msg` and its attributes (include/uapi/linux/inet_diag.h).
#[derive(Debug, Clone, Copy)]
pub struct RawSocket<'a> {
    message: &'a [u8],
}

impl<'a> RawSocket<'a> {
    /// Wraps a message; returns `None` for a message that is too short. [`Self::message`] returns
    /// the same bytes.
    pub fn new(message: &'a [u8]) -> Option<Self> {
        (message.len() >= SOCKET).then_some(Self { message })
    }

    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Returns the state; `None` for a state that this program does not know.
    pub fn state(&self) -> Option<TcpState> {
        TcpState::from_number(self.message[1])
    }

    /// Returns the local address; an IPv4-mapped address is returned as IPv4.
    pub fn local(&self) -> SocketAddr {
        self.address(8, 4)
    }

    pub fn remote(&self) -> SocketAddr {
        self.address(24, 6)
    }

    /// Returns a number that distinguishes this socket from all others since boot.
    pub fn cookie(&self) -> u64 {
        u64::from(self.word(48)) << 32 | u64::from(self.word(44))
    }

    /// Returns the endpoints, to look the connection up.
    pub fn ends(&self) -> Ends {
        let (local, remote) = (self.local(), self.remote());
        Ends { local, remote, interface: self.word(40), cookie: self.cookie() }
    }

    pub fn queues(&self) -> Queues {
        let (receive, send) = (self.word(56), self.word(60));
        match self.state() {
            Some(TcpState::Listen) => Queues::Accept { waiting: receive, limit: send },
            _ => {
                Queues::Data { receive: Bytes::new(receive.into()), send: Bytes::new(send.into()) }
            }
        }
    }

    pub fn uid(&self) -> u32 {
        self.word(64)
    }

    /// Returns the inode, as in `/proc/PID/fd`; 0 if no process holds the socket any more.
    pub fn inode(&self) -> u32 {
        self.word(68)
    }

    pub fn timer(&self) -> Option<Timer> {
        let expires = Span::from_millis(self.word(52).into());
        match self.message[2] {
            1 => Some(Timer::Retransmit { expires, retransmits: self.message[3] }),
            2 => Some(Timer::KeepAlive { expires }),
            3 => Some(Timer::TimeWait),
            4 => Some(Timer::Probe { expires }),
            _ => None,
        }
    }

    /// Returns the `struct tcp_info`, for [`super::TcpInfo::from_bytes`].
    pub fn info(&self) -> Option<&'a [u8]> {
        self.attributes().find_map(|(kind, value)| (kind == INFO).then_some(value))
    }

    pub fn congestion_control(&self) -> Option<&'a str> {
        let (_, name) = self.attributes().find(|(kind, _)| *kind == CONGESTION)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        std::str::from_utf8(&name[..end]).ok()
    }

    pub fn memory(&self) -> Option<Memory> {
        let (_, words) = self.attributes().find(|(kind, _)| *kind == MEMORY)?;
        let count = |index: usize| word(words, 4 * index);
        let bytes = |index: usize| Some(Bytes::new(count(index)?.into()));
        Some(Memory {
            receive: bytes(0)?,
            receive_limit: bytes(1)?,
            transmit: bytes(2)?,
            send_limit: bytes(3)?,
            send: bytes(5)?,
            backlog: bytes(7)?,
            // Kernels before 4.7 lack this field.
            drops: count(8).unwrap_or(0),
        })
    }

    pub fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = &self.message[SOCKET..];
        std::iter::from_fn(move || {
            let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
            let value = rest.get(4..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    fn address(&self, at: usize, port: usize) -> SocketAddr {
        let bytes = &self.message[at..at + 16];
        let ip: IpAddr = match i32::from(self.message[0]) {
            libc::AF_INET6 => {
                let mut all = [0; 16];
                all.copy_from_slice(bytes);
                Ipv6Addr::from(all).to_canonical()
            }
            _ => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        };
        SocketAddr::new(ip, u16::from_be_bytes([self.message[port], self.message[port + 1]]))
    }

    fn word(&self, at: usize) -> u32 {
        word(self.message, at).unwrap_or(0)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// INET_DIAG_NOCOOKIE.
const ANY_COOKIE: u64 = u64::MAX;
pub(super) const SOCKETS: &str = "TCP sockets (inet_diag)";
const CONNECTION: &str = "a TCP connection (inet_diag)";
/// Message types of netlink, and the request and reply of sock_diag.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Attribute types of a socket.
const INFO: u16 = 2;
const VEGAS: u16 = 3;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;
/// Sizes of structures, in bytes.
const HEADER: usize = 16;
const REQUEST: usize = 72;
const SOCKET: usize = 72;
/// The kernel fills datagrams of at most 32 KiB (net/netlink/af_netlink.c, netlink_dump).
const DATAGRAM_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a message of the kernel: an established connection with two attributes.
    fn message() -> Vec<u8> {
        let mut bytes = vec![0; SOCKET];
        bytes[0] = libc::AF_INET as u8;
        (bytes[1], bytes[2], bytes[3]) = (1, 1, 5);
        bytes[4..6].copy_from_slice(&5000u16.to_be_bytes());
        bytes[6..8].copy_from_slice(&443u16.to_be_bytes());
        bytes[8..12].copy_from_slice(&[10, 0, 0, 1]);
        bytes[24..28].copy_from_slice(&[10, 0, 0, 2]);
        bytes[44..48].copy_from_slice(&7u32.to_ne_bytes());
        bytes[48..52].copy_from_slice(&1u32.to_ne_bytes());
        bytes[52..56].copy_from_slice(&200u32.to_ne_bytes());
        bytes[56..60].copy_from_slice(&11u32.to_ne_bytes());
        bytes[60..64].copy_from_slice(&12u32.to_ne_bytes());
        bytes[68..72].copy_from_slice(&99u32.to_ne_bytes());
        for (kind, value) in [(CONGESTION, &b"bbr\0"[..]), (INFO, &[1; 9][..])] {
            bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn datagram(kind: u16, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[0..4].copy_from_slice(&((HEADER + message.len()) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(message);
        bytes
    }

    #[test]
    fn the_fields_and_attributes_of_an_inet_diag_message_are_read() {
        let bytes = message();
        let socket = RawSocket::new(&bytes).unwrap();
        assert_eq!(socket.state(), Some(TcpState::Established));
        assert_eq!(socket.local(), "10.0.0.1:5000".parse().unwrap());
        assert_eq!(socket.remote(), "10.0.0.2:443".parse().unwrap());
        assert_eq!((socket.cookie(), socket.inode()), (1 << 32 | 7, 99));
        let (receive, send) = (Bytes::new(11), Bytes::new(12));
        assert_eq!(socket.queues(), Queues::Data { receive, send });
        let expires = Span::from_millis(200);
        assert_eq!(socket.timer(), Some(Timer::Retransmit { expires, retransmits: 5 }));
        assert_eq!(socket.congestion_control(), Some("bbr"));
        assert_eq!(socket.info(), Some(&[1; 9][..]));
        assert_eq!(socket.memory(), None);
    }

    #[test]
    fn an_inet_diag_reply_ends_fails_or_continues() {
        let mut seen = 0;
        let mut count = |bytes: &[u8]| read(bytes, SOCKETS, &mut |_: RawSocket<'_>| seen += 1);
        let two = [datagram(SOCK_DIAG_BY_FAMILY, &message()), datagram(DONE, &[0; 4])].concat();
        assert_eq!(count(&two).unwrap(), Left::Nothing);
        assert_eq!(count(&datagram(SOCK_DIAG_BY_FAMILY, &message())).unwrap(), Left::Unknown);
        let missing = datagram(ERROR, &(-libc::ENOENT).to_ne_bytes());
        assert!(count(&missing).unwrap_err().is_not_supported());
        assert!(count(&datagram(SOCK_DIAG_BY_FAMILY, &[0; 8])).is_err());
        let mut endless = datagram(SOCK_DIAG_BY_FAMILY, &message());
        endless[0..4].fill(0);
        assert!(count(&endless).is_err());
        assert_eq!(seen, 2);
    }

    proptest! {
        #[test]
        fn the_parser_of_inet_diag_datagrams_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0usize..120,
        ) {
            let whole = [datagram(SOCK_DIAG_BY_FAMILY, &message()), bytes].concat();
            let _ = read(&whole[..whole.len().saturating_sub(cut)], SOCKETS, &mut |socket: RawSocket<'_>| {
                let _ = (socket.local(), socket.remote(), socket.queues(), socket.timer());
                let _ = (socket.memory(), socket.congestion_control(), socket.info());
            });
        }
    }
}
