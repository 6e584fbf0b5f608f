#![allow(unsafe_code)]
//! The BPF program that redirects packets to the socket, and the program's map
//! (include/uapi/linux/bpf.h).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Creates a map from queue numbers to sockets.
pub(super) fn create_map(queues: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct MapCreate {
        kind: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attributes = MapCreate { kind: XSKMAP, key_size: 4, value_size: 4, max_entries: queues };
    // SAFETY: BPF_MAP_CREATE reads these fields and treats all others as 0.
    unsafe { descriptor(MAP_CREATE, &attributes) }
}

pub(super) fn insert(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Update {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = socket.as_raw_fd() as u32;
    let attributes = Update {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: key and value point to four bytes each, the map's sizes, which are valid during the
    // call.
    unsafe { call(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Loads `return bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS)`: packets of queues without a
/// socket continue into the kernel.
pub(super) fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let program = [
        // r2 = *(u32 *)(r1 + 16), which is rx_queue_index of struct xdp_md
        instruction(0x61, 2, 1, 16, 0),
        // r1 = the map, by its descriptor (BPF_PSEUDO_MAP_FD); two slots
        instruction(0x18, 1, 1, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = XDP_PASS
        instruction(0xb7, 3, 0, 0, 2),
        // call bpf_redirect_map
        instruction(0x85, 0, 0, 0, 51),
        // exit
        instruction(0x95, 0, 0, 0, 0),
    ];
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"weir_xdp");
    let attributes = Load {
        kind: PROGRAM_XDP,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: the pointers are to `count` instructions and to a text that ends in zero, both alive
    // for the time of the call; the kernel verifies the program.
    unsafe { descriptor(PROG_LOAD, &attributes) }
}

/// Attaches a program to an interface of the calling thread's network namespace, as long as the
/// returned descriptor is open. Fails (`EBUSY`, `EEXIST`) if another program is attached.
pub(super) fn attach(program: &OwnedFd, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct LinkCreate {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: ATTACH_XDP,
        flags: mode,
    };
    // SAFETY: BPF_LINK_CREATE reads these fields and treats all others as 0.
    unsafe { descriptor(LINK_CREATE, &attributes) }
}

fn instruction(code: u8, destination: u8, source: u8, offset: i16, value: i32) -> u64 {
    let registers = destination | source << 4;
    u64::from(code)
        | u64::from(registers) << 8
        | u64::from(offset as u16) << 16
        | u64::from(value as u32) << 32
}

/// # Safety
/// The command must read a `T`, and return a descriptor.
unsafe fn descriptor<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// The command must read a `T`, with pointers that are valid for the time of the call.
unsafe fn call<T>(command: i32, attributes: &T) -> io::Result<i32> {
    let start: *const T = attributes;
    // SAFETY: `start` is readable for the length of a `T`; the caller guarantees that the command
    // reads a `T`.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, start, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Modes of `attach`: XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE.
pub(super) const NATIVE: u32 = 1 << 2;
pub(super) const GENERIC: u32 = 1 << 1;
const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const XSKMAP: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
