#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use units::Rate;

use super::modes::fastest;
use super::{Driver, Link};
use crate::ProbeError;

/// A request whose reply has a fixed length (include/uapi/linux/ethtool.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Coalescing = 0x0e,
    Rings = 0x10,
    ReceiveChecksum = 0x14,
    TransmitChecksum = 0x16,
    ScatterGather = 0x18,
    Segmentation = 0x1e,
    GenericSegmentation = 0x23,
    GenericReceive = 0x2b,
    Channels = 0x3c,
}

/// Sends a request whose reply consists of numbers. `N`: the length of the request's structure in
/// 32-bit words, the command included.
pub(super) fn words<const N: usize>(interface: &str, ask: Ask) -> Result<[u32; N], ProbeError> {
    let needed = match ask {
        Ask::Coalescing => 23,
        Ask::Rings | Ask::Channels => 9,
        _ => 2,
    };
    debug_assert_eq!(N, needed);
    let mut buffer = Buffer::of(needed.max(N) * 4);
    buffer.put(0, ask as u32);
    buffer.exchange(interface)?;
    Ok(std::array::from_fn(|at| buffer.word(at * 4)))
}

pub(super) fn driver(interface: &str) -> Result<Driver, ProbeError> {
    let buffer = driver_facts(interface)?;
    Ok(Driver {
        name: buffer.text(4, 32),
        version: buffer.text(36, 32),
        firmware: buffer.text(68, 32),
        bus_address: buffer.text(100, 32),
    })
}

fn driver_facts(interface: &str) -> Result<Buffer, ProbeError> {
    let mut buffer = Buffer::of(196);
    buffer.put(0, GDRVINFO);
    buffer.exchange(interface)?;
    Ok(buffer)
}

pub(super) fn statistics(interface: &str) -> Result<BTreeMap<String, u64>, ProbeError> {
    let count = driver_facts(interface)?.word(180) as usize;
    if count == 0 {
        return Ok(BTreeMap::new());
    }
    if count > MOST_STATISTICS {
        return Err(ProbeError::malformed("ETHTOOL_GDRVINFO", format!("{count} statistics")));
    }
    // The kernel writes all statistics that the driver has at that time, whatever the buffer's
    // length. The number of statistics changes with the number of queues, so the buffer has space
    // for many more.
    let room = count + MOST_STATISTICS;
    let mut names = Buffer::of(12 + room * NAME);
    names.put(0, GSTRINGS);
    names.put(4, STRINGS_OF_STATISTICS);
    names.put(8, count as u32);
    names.exchange(interface)?;
    let mut values = Buffer::of(8 + room * 8);
    values.put(0, GSTATS);
    values.put(4, count as u32);
    values.exchange(interface)?;
    if names.word(8) as usize != count || values.word(4) as usize != count {
        return Err(ProbeError::Kernel {
            what: "a driver's statistics, whose number changed meanwhile",
            source: io::ErrorKind::Interrupted.into(),
        });
    }
    Ok((0..count).map(|at| (names.text(12 + at * NAME, NAME), values.long(8 + at * 8))).collect())
}

pub(super) fn link(interface: &str) -> Result<Link, ProbeError> {
    let mut header = Buffer::of(LINK_HEADER);
    header.put(0, GLINKSETTINGS);
    header.exchange(interface)?;
    // The first reply contains the number of words of each mask, negated.
    let words = i32::from(header.bytes()[MASK_WORDS] as i8).unsigned_abs() as usize;
    let mut buffer = Buffer::of(LINK_HEADER + 3 * words * 4);
    buffer.put(0, GLINKSETTINGS);
    buffer.bytes_mut()[MASK_WORDS] = words as u8;
    buffer.exchange(interface)?;
    let mask = |number: usize| -> Vec<u32> {
        (0..words).map(|at| buffer.word(LINK_HEADER + (number * words + at) * 4)).collect()
    };
    let speed = buffer.word(4);
    let [duplex, _, _, negotiates] = buffer.word(8).to_ne_bytes();
    let supported_most = fastest(&mask(0));
    Ok(Link {
        speed: (speed != 0 && speed != u32::MAX).then(|| Rate::from_mbit(speed.into())),
        full_duplex: match duplex {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        negotiates: supported_most.is_some().then_some(negotiates == 1),
        supported_most,
        advertised_most: fastest(&mask(1)),
        peer_most: fastest(&mask(2)),
    })
}

/// A request buffer in the host's byte order: the kernel reads the command from it, and writes the
/// reply to it.
struct Buffer(Vec<u64>, usize);

impl Buffer {
    fn of(length: usize) -> Self {
        Self(vec![0; length.div_ceil(8)], length)
    }

    /// Calls SIOCETHTOOL with this buffer. The caller's buffer must have space for all that the
    /// kernel writes for the command.
    fn exchange(&mut self, interface: &str) -> Result<(), ProbeError> {
        const WHAT: &str = "a property of a network device (SIOCETHTOOL)";
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY) => ProbeError::NotSupported {
                feature: "this property of the network device",
                hint: "its driver does not report it",
            },
            Some(libc::ENODEV) => ProbeError::NotFound {
                what: format!("interface {interface:?}"),
                hint: "see `ip link` in the same network namespace",
            },
            _ => ProbeError::Kernel { what: WHAT, source },
        };
        let name = interface.as_bytes();
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
            return Err(failed(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        let flags = SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        // SAFETY: `ifreq` is plain data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = self.0.as_mut_ptr().cast();
        // SAFETY: the descriptor is open. `request` lives for the call, and its data points to
        // memory that this buffer owns. The callers made the buffer as long as the reply to the
        // command in the buffer (the structures of linux/ethtool.h; statistics have space for
        // more).
        let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if status < 0 { Err(failed(io::Error::last_os_error())) } else { Ok(()) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: any bytes are valid, and the vector has this many bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 8) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the vector is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) }
    }

    fn put(&mut self, at: usize, word: u32) {
        self.bytes_mut()[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    fn word(&self, at: usize) -> u32 {
        self.take(at).map_or(0, u32::from_ne_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        self.take(at).map_or(0, u64::from_ne_bytes)
    }

    fn take<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes()[..self.1.min(self.0.len() * 8)].get(at..at + N)?.try_into().ok()
    }

    /// Returns the text up to the first zero byte.
    fn text(&self, at: usize, length: usize) -> String {
        let bytes = self.bytes().get(at..at + length).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
    }
}

const SIOCETHTOOL: u32 = 0x8946;
const GDRVINFO: u32 = 0x03;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GLINKSETTINGS: u32 = 0x4c;
/// ETH_SS_STATS.
const STRINGS_OF_STATISTICS: u32 = 1;
/// ETH_GSTRING_LEN.
const NAME: usize = 32;
/// The size of `struct ethtool_link_settings` without the masks, and the offset of the masks'
/// length.
const LINK_HEADER: usize = 48;
const MASK_WORDS: usize = 15;
const MOST_STATISTICS: usize = 65_536;
