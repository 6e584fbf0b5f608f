#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::TcpInfo;
use crate::ProbeError;

/// Reads a socket's `TCP_INFO` by getsockopt(2).
pub fn of_socket(socket: impl AsFd) -> Result<TcpInfo, ProbeError> {
    let mut bytes = [0u8; ROOM];
    let mut length = ROOM as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call; `bytes` is writable for `length` bytes,
    // and the kernel writes at most that many and stores how many in `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(ProbeError::Kernel {
            what: "TCP_INFO of a socket",
            source: io::Error::last_os_error(),
        });
    }
    Ok(TcpInfo::from_bytes(&bytes[..ROOM.min(length as usize)]))
}

/// Larger than any kernel's tcp_info (280 bytes in 6.18), so that its length shows the kernel's
/// version.
const ROOM: usize = 1024;
