//! System calls for the interfaces of the calling thread's namespace, and for programs attached to
//! them.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// The direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    In,
    Out,
}

/// Lists the interfaces whose frames begin with two MAC addresses, by number and name.
pub(super) fn ethernet_interfaces() -> io::Result<Vec<(u32, String)>> {
    let socket = any_socket()?;
    // SAFETY: the call takes no argument; the code below reads the list up to its entry of zeroes
    // and then frees the list.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    loop {
        // SAFETY: `at` is within the list, which ends with an entry of zeroes.
        let entry = unsafe { at.read() };
        if entry.if_index == 0 || entry.if_name.is_null() {
            break;
        }
        // SAFETY: an entry's name is a string that ends with a zero and lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        if is_ethernet(&socket, name) {
            found.push((entry.if_index, name.to_string_lossy().into_owned()));
        }
        // SAFETY: the entry at `at` was not the last entry of the list.
        at = unsafe { at.add(1) };
    }
    // SAFETY: if_nameindex returned the list, and no code uses the list afterwards.
    unsafe { libc::if_freenameindex(list) };
    Ok(found)
}

pub(super) fn namespace_cookie() -> io::Result<u64> {
    let socket = any_socket()?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` has room for `length` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

/// Attaches the program to the interface until the link is closed or the interface goes.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, side: Side) -> io::Result<OwnedFd> {
    let kind = match side {
        Side::In => libbpf_sys::BPF_TCX_INGRESS,
        Side::Out => libbpf_sys::BPF_TCX_EGRESS,
    };
    let index = i32::try_from(interface).unwrap_or(0);
    // SAFETY: the descriptor is open for the call; without options the call takes no pointer.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, kind, std::ptr::null()) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

pub(super) fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the path ends with a zero and lives for the call.
    let status = unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(()) }
}

fn any_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn is_ethernet(socket: &OwnedFd, name: &CStr) -> bool {
    // SAFETY: zeroes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        *slot = *byte as libc::c_char;
    }
    // SAFETY: SIOCGIFHWADDR takes an ifreq with a name and fills in the address.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &mut request) };
    // SAFETY: the successful ioctl filled in the field `ifru_hwaddr` of the union.
    status == 0 && unsafe { request.ifr_ifru.ifru_hwaddr.sa_family } == libc::ARPHRD_ETHER
}

/// The socket option of the same name in include/uapi/asm-generic/socket.h.
const SO_NETNS_COOKIE: i32 = 71;
