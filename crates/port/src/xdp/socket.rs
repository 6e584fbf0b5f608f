#![allow(unsafe_code)]
//! The system calls of AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::shared_memory::SharedMemory;
use crate::socket::check;

/// The offsets of a ring's words in its mapping.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct AllOffsets {
    pub(super) receive: Offsets,
    pub(super) transmit: Offsets,
    pub(super) fill: Offsets,
    pub(super) completion: Offsets,
}

/// Counters of packets that the kernel lost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// Packets for which no buffer was free, or for which the receive ring had no space.
    pub(super) no_room: u64,
    /// Packets that were longer than a buffer, or that the kernel did not deliver for another
    /// reason.
    pub(super) other: u64,
}

pub(super) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the memory of the buffers, which must outlive the socket.
pub(super) fn register(socket: &OwnedFd, memory: &SharedMemory, chunk: u32) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.address(),
        len: memory.len() as u64,
        chunk_size: chunk,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // SAFETY: XDP_UMEM_REG takes an xdp_umem_reg; the kernel pins the memory's pages itself.
    unsafe { set(socket, libc::XDP_UMEM_REG, &registration) }
}

/// Sets an option of [`libc::SOL_XDP`] whose value is a number.
pub(super) fn set_number(socket: &OwnedFd, option: i32, value: u32) -> io::Result<()> {
    // SAFETY: the options used with this are all integers.
    unsafe { set(socket, option, &value) }
}

pub(super) fn offsets(socket: &OwnedFd) -> io::Result<AllOffsets> {
    // SAFETY: zeroes are valid offsets.
    let mut all: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    // SAFETY: XDP_MMAP_OFFSETS fills an xdp_mmap_offsets.
    let len = unsafe { read(socket, libc::XDP_MMAP_OFFSETS, &mut all) }?;
    if len < size_of_val(&all) {
        // Linux before 5.4 has no flags in its rings.
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let of = |ring: &libc::xdp_ring_offset| Offsets {
        producer: ring.producer as usize,
        consumer: ring.consumer as usize,
        flags: ring.flags as usize,
        entries: ring.desc as usize,
    };
    Ok(AllOffsets {
        receive: of(&all.rx),
        transmit: of(&all.tx),
        fill: of(&all.fr),
        completion: of(&all.cr),
    })
}

pub(super) fn bind(socket: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_xdp of `len` bytes for the time of the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Whether the driver itself reads and writes the buffers.
pub(super) fn is_zero_copy(socket: &OwnedFd) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    // SAFETY: XDP_OPTIONS fills an xdp_options.
    let read = unsafe { read(socket, libc::XDP_OPTIONS, &mut options) };
    read.is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

pub(super) fn losses(socket: BorrowedFd<'_>) -> Losses {
    // SAFETY: zeroes are valid statistics.
    let mut all: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    // SAFETY: XDP_STATISTICS fills an xdp_statistics.
    match unsafe { read(socket, libc::XDP_STATISTICS, &mut all) } {
        Ok(_) => Losses {
            no_room: all.rx_ring_full + all.rx_fill_ring_empty_descs,
            other: all.rx_dropped,
        },
        Err(_) => Losses::default(),
    }
}

/// Makes the kernel send the packets in the transmit ring.
pub(super) fn kick_transmit(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: the call takes only numbers and null pointers of length 0.
    let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the driver check the fill ring. Returns an error if the interface is down or no longer
/// exists.
pub(super) fn kick_receive(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the buffer is a null pointer of length 0, so nothing is written.
    let received = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, flags) };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn receive_queues(name: &str) -> Option<u32> {
    let entries = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    u32::try_from(names.filter(|name| name.starts_with("rx-")).count()).ok()
}

/// # Safety
/// The option must take a `T`.
unsafe fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` points to `len` readable bytes; the caller guarantees that the option takes a
    // `T`.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, len) })
        .map(drop)
}

/// Reads an option. Returns the number of bytes that the kernel has filled.
///
/// # Safety
/// The option must fill a `T`, for which any bytes are valid.
unsafe fn read<T>(socket: impl AsFd, option: i32, value: &mut T) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let out = std::ptr::from_mut(value).cast();
    // SAFETY: `out` points to `len` writable bytes.
    check(unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_XDP, option, out, &mut len)
    })?;
    Ok(len as usize)
}
