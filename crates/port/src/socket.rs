#![allow(unsafe_code)]
//! Safe Rust functions for the system calls of packet sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Opens a raw packet socket with protocol 0, which receives nothing until it is bound.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bind(socket: &OwnedFd, interface: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: a sockaddr_ll of zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = interface;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_ll of `len` bytes for the time of the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(())
}

/// # Safety
/// The option must take a `T`, and any bytes of a `T` must be valid for it.
unsafe fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` points to `len` readable bytes; the caller guarantees that they are valid for
    // the option.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })?;
    Ok(())
}

pub(crate) fn set_number(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the options used with this are all integers; the kernel checks length and value.
    unsafe { set(socket, level, option, &value) }
}

pub(crate) fn set_ring(socket: &OwnedFd, ring: &libc::tpacket_req) -> io::Result<()> {
    // SAFETY: PACKET_RX_RING takes a tpacket_req for version 2.
    unsafe { set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, ring) }
}

/// Returns the user of the process at the other end of a UNIX socket. Does not read the PID,
/// because the PID of a process in another namespace is 0, which rustix treats as an error.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&credentials) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let place = (&raw mut credentials).cast();
    // SAFETY: `place` points to `len` writable bytes of a ucred, for which any bytes are valid.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut len) })?;
    Ok(credentials.uid)
}

pub(crate) fn set_promiscuous(socket: &OwnedFd, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: PACKET_ADD_MEMBERSHIP takes a packet_mreq.
    unsafe { set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request) }
}

pub(crate) fn number(socket: &OwnedFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let out = (&raw mut value).cast();
    // SAFETY: `out` points to `len` writable bytes.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, out, &mut len) })?;
    Ok(value)
}

/// Returns the number of packets that were dropped for lack of space since the last call. Reading
/// the counter resets it to 0.
pub(crate) fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&stats) as libc::socklen_t;
    let out = (&raw mut stats).cast();
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: `out` points to `len` writable bytes, and any bytes are a valid tpacket_stats.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, out, &mut len) })?;
    Ok(stats.tp_drops)
}

/// Receives a packet. Returns the packet's length, which may exceed the length of the buffer.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: `buffer` is writable for its length.
    let received = unsafe { libc::recv(socket.as_raw_fd(), start, len, flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Receives a packet into several buffers. Returns the packet's length, which may exceed the length
/// of the buffers.
pub(crate) fn receive_pieces(
    socket: &OwnedFd,
    pieces: &mut [io::IoSliceMut<'_>],
) -> io::Result<usize> {
    // SAFETY: zeroes are a valid msghdr: null pointers with length 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSliceMut` has the layout of iovec.
    message.msg_iov = pieces.as_mut_ptr().cast();
    message.msg_iovlen = pieces.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: each piece is writable for its length.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Like [`send`], for packets whose header is in a separate buffer.
pub(crate) fn send_with_headers<'a, const HEADER: usize>(
    socket: &OwnedFd,
    packets: impl ExactSizeIterator<Item = ([u8; HEADER], &'a [u8])>,
) -> io::Result<usize> {
    let mut headers = [[0; HEADER]; BATCH];
    // SAFETY: zeroes are valid iovecs and mmsghdrs: null pointers with length 0.
    let mut pieces: [[libc::iovec; 2]; BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    let places = headers.iter_mut().zip(&mut pieces).zip(&mut messages);
    for ((header, packet), ((place, pieces), message)) in packets.zip(places) {
        *place = header;
        pieces[0].iov_base = place.as_mut_ptr().cast();
        pieces[0].iov_len = HEADER;
        pieces[1].iov_base = packet.as_ptr().cast_mut().cast();
        pieces[1].iov_len = packet.len();
        message.msg_hdr.msg_iov = pieces.as_mut_ptr();
        message.msg_hdr.msg_iovlen = pieces.len() as _;
        count += 1;
    }
    // SAFETY: the first `count` messages point to pieces and headers on this stack frame, and to
    // packets borrowed for 'a; sending only reads them.
    let sent = check(unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
    })?;
    Ok(sent as usize)
}

/// Sends packets in order. Returns the number of sent packets. An error is about the first packet.
pub(crate) fn send<'a>(
    socket: &OwnedFd,
    packets: impl ExactSizeIterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    if packets.len() == 1 {
        return packets.map(|packet| send_one(socket, packet)).sum();
    }
    // SAFETY: zeroes are valid iovecs and mmsghdrs: null pointers with length 0.
    let mut pieces: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for ((packet, piece), message) in packets.zip(&mut pieces).zip(&mut messages) {
        piece.iov_base = packet.as_ptr().cast_mut().cast();
        piece.iov_len = packet.len();
        message.msg_hdr.msg_iov = piece;
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the first `count` messages point to pieces on this stack frame, and the pieces point
    // to packets borrowed for 'a; sending only reads the packets.
    let sent = check(unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
    })?;
    Ok(sent as usize)
}

/// Sends a packet without iovecs: the usual case on a link below 1 Gbit/s, where every frame has
/// its own departure time.
fn send_one(socket: &OwnedFd, packet: &[u8]) -> io::Result<usize> {
    let (start, len) = (packet.as_ptr().cast(), packet.len());
    // SAFETY: `packet` is readable for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), start, len, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
}

/// Maximum number of packets per call of [`send`].
pub(crate) const BATCH: usize = 32;

pub(crate) fn check(result: i32) -> io::Result<RawFd> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
