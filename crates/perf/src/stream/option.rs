//! Socket options that the crates in use do not cover.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes `connect` take the flow label from the address. Since Linux 5.3 a label needs a lease only
/// while another process holds an exclusive lease (net/ipv6/ip6_flowlabel.c, fl6_sock_lookup).
pub(crate) fn set_flow_info_send(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &1i32.to_ne_bytes())
}

/// Sets the kernel's pacing rate as eight bytes, which Linux accepts since 4.20 (sock_setsockopt):
/// four bytes hold no more than 34 Gbit/s.
pub(crate) fn set_max_pacing_rate(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes.to_ne_bytes())
}

/// Makes the kernel cut each send into datagrams of this many bytes (udp(7)); zero disables the
/// segmentation.
pub(crate) fn set_segment(socket: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &i32::from(bytes).to_ne_bytes())
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call, and the kernel reads `value.len()` bytes of
    // `value`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The option's number in linux/in6.h.
const IPV6_FLOWINFO_SEND: i32 = 33;
