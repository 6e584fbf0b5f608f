//! Sends numbered datagrams and reads the kernel's timestamps in both hosts. The figures judge a
//! link independently of the emulator.

use crate::model::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use units::{Bytes, Rate, Span};

/// Size of the headers before a datagram's payload on the link: Ethernet, IPv4, UDP.
pub(super) const HEADERS: u64 = 14 + 20 + 8;

/// The receipt of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receipt {
    pub(super) number: u64,
    /// The kernel's receive time, in nanoseconds of the real-time clock.
    pub(super) at: u64,
}

/// Opens a socket that can read the time at which its datagrams left the network stack.
pub(super) fn sender(from: SocketAddr, to: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind(from).map_err(|e| Failure::io("binding a UDP socket", &e))?;
    socket.connect(to).map_err(|e| Failure::io("connecting a UDP socket", &e))?;
    Ok(socket)
}

pub(super) fn receiver(at: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind(at).map_err(|e| Failure::io("binding a UDP socket", &e))?;
    let option = |e: Errno| Failure::io("asking for time stamps", &e.into());
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(option)?;
    // Exceeding net.core.rmem_max needs privilege. Drops at the socket are detected later.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER).map_err(option)?;
    }
    Ok(socket)
}

/// Sends `count` datagrams of `payload` at `rate` on the link. The first `ahead` datagrams are sent
/// at once, and keep the queue from running empty while the sender waits for its CPU. The other
/// datagrams are sent a few per millisecond, which is even enough for a queue, and keeps no CPU
/// busy. Returns the kernel's departure time of the first datagram, in nanoseconds of the real-time
/// clock.
pub(super) fn send_paced(
    socket: &UdpSocket,
    count: u64,
    ahead: u64,
    payload: usize,
    rate: Rate,
    stop: &AtomicBool,
) -> Result<Option<u64>, Failure> {
    let mut datagram = vec![0_u8; payload];
    let each = rate.time_for(Bytes::new(payload as u64 + HEADERS));
    let begun = Instant::now();
    let mut sent = 0;
    // Stamp only the first datagram: the timestamps of all datagrams would fill the socket's
    // memory.
    stamp_departures(socket, true)?;
    while sent < count && !stop.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_nanos() as u64 / each.nanos().max(1) + ahead.max(1);
        while sent < due.min(count) {
            datagram[..8].copy_from_slice(&sent.to_be_bytes());
            send(socket, &datagram)?;
            if sent == 0 {
                stamp_departures(socket, false)?;
            }
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    departure(socket).map_err(|e| Failure::io("reading a transmit time stamp", &e.into()))
}

/// Sends one datagram. Returns the kernel's departure time, in nanoseconds of the real-time clock.
pub(super) fn send_stamped(
    socket: &UdpSocket,
    number: u64,
    payload: usize,
) -> Result<u64, Failure> {
    let mut datagram = vec![0_u8; payload];
    datagram[..8].copy_from_slice(&number.to_be_bytes());
    send(socket, &datagram)?;
    // veth stamps a datagram before the send returns. Wait for drivers that stamp a datagram later.
    let deadline = Instant::now() + Duration::from_millis(100);
    while Instant::now() < deadline {
        match departure(socket) {
            Ok(Some(at)) => return Ok(at),
            Ok(None) => {
                let mut wait = [PollFd::new(socket.as_fd(), PollFlags::empty())];
                let _ = poll(&mut wait, PollTimeout::from(1_u8));
            }
            Err(e) => return Err(Failure::io("reading a transmit time stamp", &e.into())),
        }
    }
    Err(Failure::Workload("the kernel gave no transmit time stamp".to_owned()))
}

/// Turns the timestamps that [`send_stamped`] reads on or off.
pub(super) fn stamp_departures(socket: &UdpSocket, wanted: bool) -> Result<(), Failure> {
    let stamps = match wanted {
        true => TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE,
        false => TimestampingFlag::empty(),
    };
    let flags = stamps | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    setsockopt(socket, sockopt::Timestamping, &flags)
        .map_err(|e| Failure::io("asking for transmit time stamps", &e.into()))
}

/// Returns the kernel's departure time of a stamped datagram, if it is already known.
fn departure(socket: &UdpSocket) -> Result<Option<u64>, Errno> {
    let mut buffer = [0_u8; 2048];
    let mut control = nix::cmsg_space!([TimeSpec; 3], [u8; 64]);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Err(Errno::EAGAIN) => return Ok(None),
        other => other?,
    };
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampsns(stamps) = part {
            return Ok(Some(nanos(&stamps.system)));
        }
    }
    Ok(None)
}

/// Receives everything until `done` is set and nothing has arrived for `silence`.
pub(super) fn receive_all(
    socket: &UdpSocket,
    done: &AtomicBool,
    silence: Span,
) -> Result<Vec<Receipt>, Failure> {
    let failed = |e: Errno| Failure::io("receiving datagrams", &e.into());
    let mut receipts = Vec::new();
    let mut buffer = [0_u8; 2048];
    let mut control = nix::cmsg_space!(TimeSpec);
    // The sum of the successive poll intervals without a datagram. A clock would also count a stall
    // of the machine, in which the link delivers nothing.
    let mut quiet = Span::ZERO;
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let taken = {
            let outcome = recvmsg::<()>(
                socket.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                MsgFlags::MSG_DONTWAIT,
            );
            match outcome {
                Ok(message) => {
                    let at = message.cmsgs().map_err(failed)?.find_map(|part| match part {
                        ControlMessageOwned::ScmTimestampns(at) => Some(nanos(&at)),
                        _ => None,
                    });
                    Some((message.bytes, at))
                }
                Err(Errno::EAGAIN | Errno::EINTR) => None,
                Err(errno) => return Err(failed(errno)),
            }
        };
        match taken {
            Some((bytes, Some(at))) if bytes >= 8 => {
                let mut number = [0; 8];
                number.copy_from_slice(&buffer[..8]);
                receipts.push(Receipt { number: u64::from_be_bytes(number), at });
                quiet = Span::ZERO;
            }
            Some(_) => {}
            None if done.load(Ordering::Acquire) && quiet > silence => {
                return Ok(receipts);
            }
            None => {
                let mut wait = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut wait, PollTimeout::from(LOOK_MS));
                quiet = quiet + Span::from_millis(LOOK_MS.into());
            }
        }
    }
}

fn send(socket: &UdpSocket, datagram: &[u8]) -> Result<(), Failure> {
    match socket.send(datagram) {
        // ECONNREFUSED belongs to an earlier datagram, sent before the receiver listened.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        Err(e) => Err(Failure::io("sending a datagram", &e)),
        Ok(_) => Ok(()),
    }
}

fn nanos(at: &TimeSpec) -> u64 {
    at.tv_sec().max(0) as u64 * 1_000_000_000 + at.tv_nsec().max(0) as u64
}

const RECEIVE_BUFFER: usize = 64 << 20;
const LOOK_MS: u8 = 5;
