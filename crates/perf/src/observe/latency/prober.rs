use super::icmp::{Icmp, behind_ip_header};
use super::timestamps::{self, Receipt};
use crate::event::LatencySource;
use crate::observe::LatencyPlan;
use crate::observe::echo::{Echo, Token};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use units::Time;

#[derive(Debug)]
pub(super) struct Prober {
    socket: Socket,
    plan: LatencyPlan,
    token: Token,
    method: Method,
    /// True if the kernel timestamps received datagrams.
    stamped: bool,
}

#[derive(Debug)]
pub(super) struct Closed {
    plan: LatencyPlan,
    token: Token,
    method: Method,
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Echo {
        port: u16,
    },
    /// `raw`: true if the system refused an unprivileged ICMP socket.
    Ping {
        icmp: Icmp,
        raw: bool,
    },
}

impl Prober {
    pub(super) fn echo(plan: &LatencyPlan, port: u16, token: Token) -> io::Result<Self> {
        let socket = Socket::new(domain(plan), Type::DGRAM, Some(Protocol::UDP))?;
        connect(&socket, plan, port)?;
        Ok(Self {
            socket,
            plan: plan.clone(),
            token,
            method: Method::Echo { port },
            stamped: false,
        })
    }

    pub(super) fn ping(plan: &LatencyPlan) -> io::Result<Self> {
        let (icmp, protocol) = match plan.peer {
            IpAddr::V4(_) => (Icmp::V4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Icmp::V6, Protocol::ICMPV6),
        };
        let open = |kind| Socket::new(domain(plan), kind, Some(protocol));
        // Even root's group may be outside net.ipv4.ping_group_range; root can use a raw socket.
        let (socket, raw) = match open(Type::DGRAM) {
            Ok(socket) => (socket, false),
            Err(_) => (open(Type::RAW)?, true),
        };
        connect(&socket, plan, 0)?;
        let (token, method) = (Token::random(), Method::Ping { icmp, raw });
        Ok(Self { socket, plan: plan.clone(), token, method, stamped: false })
    }

    /// Opens a new socket for `prober`. A prober must close its socket to stop the kernel's
    /// timestamps: clearing the option does not stop them.
    pub(super) fn reopened(prober: &Closed) -> io::Result<Self> {
        match prober.method {
            Method::Echo { port } => Self::echo(&prober.plan, port, prober.token),
            Method::Ping { .. } => Self::ping(&prober.plan),
        }
    }

    /// Asks the kernel to timestamp received replies, if the kernel can. While any socket has this
    /// option, the kernel stamps every packet of the host (`netstamp_needed_key`, net/core/dev.c).
    pub(super) fn want_stamps(&mut self) {
        self.stamped = timestamps::ask_for_stamps(&self.socket);
    }

    pub(super) fn close(self) -> Closed {
        Closed { plan: self.plan, token: self.token, method: self.method }
    }

    pub(super) fn is_stamped(&self) -> bool {
        self.stamped
    }

    pub(super) fn source(&self) -> LatencySource {
        match self.method {
            Method::Echo { .. } => LatencySource::Echo,
            Method::Ping { .. } => LatencySource::Ping,
        }
    }

    pub(super) fn ask(&self, sequence: u64, sent_at: Time) -> io::Result<()> {
        let echo = Echo { token: self.token, sequence, sent_at }.encode();
        match self.method {
            Method::Echo { .. } => self.socket.send(&echo)?,
            Method::Ping { icmp, .. } => {
                let identifier = std::process::id() as u16;
                self.socket.send(&icmp.request(identifier, sequence as u16, &echo))?
            }
        };
        Ok(())
    }

    /// Returns the next reply that has arrived; discards other datagrams.
    pub(super) fn answer(&self) -> Option<(Echo, Receipt)> {
        let mut buffer = [0; LONGEST];
        // Reads a bounded number of foreign datagrams; the rest stay in the socket until the next
        // poll.
        for _ in 0..MOST_FOREIGN {
            let receipt = match timestamps::receive(&self.socket, &mut buffer) {
                Ok(Some(receipt)) => receipt,
                Ok(None) => return None,
                // ICMP error about an earlier probe; the next read goes on.
                Err(_) => continue,
            };
            if let Some(echo) = self.read(&buffer[..receipt.length.min(LONGEST)]) {
                return Some((echo, receipt));
            }
        }
        None
    }

    fn read(&self, datagram: &[u8]) -> Option<Echo> {
        let payload = match self.method {
            Method::Echo { .. } => Some(datagram),
            Method::Ping { icmp: Icmp::V4, raw: true } => {
                behind_ip_header(datagram).and_then(|message| Icmp::V4.reply(message))
            }
            Method::Ping { icmp, .. } => icmp.reply(datagram),
        };
        Echo::parse(payload?).filter(|echo| echo.token == self.token)
    }
}

impl AsFd for Prober {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects the socket with the addresses and the traffic class of the streams.
fn connect(socket: &Socket, plan: &LatencyPlan, port: u16) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if let Some(device) = &plan.bind_device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(bind) = plan.bind.map(|bind| bind.to_canonical()) {
        socket.bind(&address(bind, plan.scope, 0))?;
    }
    let class = u32::from(plan.type_of_service);
    if class != 0 {
        match plan.peer {
            IpAddr::V4(_) => socket.set_tos_v4(class)?,
            IpAddr::V6(_) => socket.set_tclass_v6(class)?,
        }
    }
    socket.connect(&address(plan.peer, plan.scope, port))
}

fn address(ip: IpAddr, scope: u32, port: u16) -> SockAddr {
    match ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

fn domain(plan: &LatencyPlan) -> Domain {
    match plan.peer {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    }
}

/// Size of the receive buffer: an IPv4 header with all options, an ICMP header, an echo, and
/// another byte to detect a longer datagram.
const LONGEST: usize = 60 + 8 + Echo::LENGTH + 1;
const MOST_FOREIGN: usize = 64;
