#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use units::Bytes;

use crate::PortError;
use crate::socket::check;

/// The properties of an interface when its port was opened, or when it was queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub address: [u8; 6],
    pub mtu: Bytes,
    /// Whether the interface is enabled (IFF_UP).
    pub up: bool,
    /// Whether the interface is enabled and has a carrier.
    pub running: bool,
}

impl Interface {
    /// Reads the present properties of an interface in the calling thread's namespace.
    pub fn find(name: &str) -> Result<Self, PortError> {
        Self::query(&any_socket()?, name)
    }

    /// Enables or disables an interface in the calling thread's namespace, as `ip link set … up`
    /// and `down` do.
    pub fn enable(name: &str, is_enabled: bool) -> Result<(), PortError> {
        let socket = any_socket()?;
        let state = if is_enabled { "up" } else { "down" };
        let doing = format!("setting {name:?} {state}");
        let failed = |error| not_set(name, &doing, error);
        let found = ioctl(&socket, name, libc::SIOCGIFFLAGS).map_err(failed)?;
        // SAFETY: the ioctl has filled the union's member that belongs to it.
        let flags = unsafe { found.ifru_flags };
        let up = libc::IFF_UP as i16;
        let wanted = if is_enabled { flags | up } else { flags & !up };
        set(&socket, name, libc::SIOCSIFFLAGS, |value| value.ifru_flags = wanted).map_err(failed)
    }

    /// Sets the MTU of an interface in the calling thread's namespace.
    pub fn set_mtu(name: &str, mtu: u32) -> Result<(), PortError> {
        let wanted = i32::try_from(mtu).unwrap_or(i32::MAX);
        let done = set(&any_socket()?, name, libc::SIOCSIFMTU, |value| value.ifru_mtu = wanted);
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => PortError::Refused {
                place: name.to_owned(),
                problem: format!(
                    "the kernel refuses an MTU of {mtu}: use a value from minmtu to maxmtu of \
                     `ip -d link show {name}`"
                ),
            },
            _ => not_set(name, &format!("setting the MTU of {name:?} to {mtu}"), error),
        })
    }

    /// Sets the Ethernet address of an interface in the calling thread's namespace.
    pub fn set_address(name: &str, address: [u8; 6]) -> Result<(), PortError> {
        let mut wanted = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
        for (to, from) in wanted.sa_data.iter_mut().zip(address) {
            *to = from as libc::c_char;
        }
        let done = set(&any_socket()?, name, libc::SIOCSIFHWADDR, |it| it.ifru_hwaddr = wanted);
        done.map_err(|error| not_set(name, &format!("setting the address of {name:?}"), error))
    }

    /// Queries an interface of the namespace in which `socket` was created.
    pub(crate) fn query(socket: &OwnedFd, name: &str) -> Result<Self, PortError> {
        let ask = |request, what: &str| {
            ioctl(socket, name, request).map_err(|error| match error.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => no_such(name),
                _ => PortError::from_io(format!("asking for the {what} of {name:?}"), error),
            })
        };
        let index = ask(libc::SIOCGIFINDEX, "index")?;
        let mtu = ask(libc::SIOCGIFMTU, "MTU")?;
        let address = ask(libc::SIOCGIFHWADDR, "address")?;
        let flags = ask(libc::SIOCGIFFLAGS, "state")?;
        // SAFETY: each ioctl has filled the union's member that belongs to it, and all of them are
        // plain numbers, for which any bytes are valid.
        let (index, mtu, address, flags) = unsafe {
            (index.ifru_ifindex, mtu.ifru_mtu, address.ifru_hwaddr.sa_data, flags.ifru_flags)
        };
        let up = libc::IFF_UP as i16;
        let running = up | libc::IFF_RUNNING as i16;
        Ok(Self {
            name: name.to_owned(),
            index: index as u32,
            address: std::array::from_fn(|n| address[n] as u8),
            mtu: Bytes::new(mtu as u64),
            up: flags & up != 0,
            running: flags & running == running,
        })
    }
}

impl Interface {
    /// Raises the interface's MTU by `bytes`. The MTU stored in `self` stays the same.
    pub(crate) fn widen(&self, socket: &OwnedFd, bytes: u64) -> Result<(), PortError> {
        let wanted = (self.mtu.count() + bytes) as i32;
        set(socket, &self.name, libc::SIOCSIFMTU, |value| value.ifru_mtu = wanted).map_err(
            |error| PortError::from_io(format!("making room for tags at {:?}", self.name), error),
        )
    }
}

/// Opens a socket for queries about interfaces of the calling thread's namespace.
fn any_socket() -> Result<OwnedFd, PortError> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let socket = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) });
    let socket = socket.map_err(|error| PortError::from_io("opening a socket", error))?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn ioctl(
    socket: &OwnedFd,
    name: &str,
    request: libc::c_ulong,
) -> io::Result<libc::__c_anonymous_ifr_ifru> {
    // SAFETY: zeroes are a valid ifreq.
    let mut query: libc::ifreq = unsafe { std::mem::zeroed() };
    write_name(&mut query, name)?;
    // SAFETY: `query` is a valid ifreq with a name that ends in zero, which these requests read and
    // fill in place.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &mut query) })?;
    Ok(query.ifr_ifru)
}

/// Changes a property of an interface to the value that `fill` writes.
fn set(
    socket: &OwnedFd,
    name: &str,
    request: libc::c_ulong,
    fill: impl FnOnce(&mut libc::__c_anonymous_ifr_ifru),
) -> io::Result<()> {
    // SAFETY: zeroes are a valid ifreq.
    let mut change: libc::ifreq = unsafe { std::mem::zeroed() };
    write_name(&mut change, name)?;
    fill(&mut change.ifr_ifru);
    // SAFETY: `change` is a valid ifreq with a name that ends in zero and the value that the
    // request reads.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &mut change) }).map(drop)
}

/// Converts the system error of a failed change of an interface.
fn not_set(name: &str, doing: &str, error: io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => no_such(name),
        _ => PortError::from_io(doing, error),
    }
}

/// Writes a name into a request. Returns `ENODEV` for a name that no interface can have.
pub(crate) fn write_name(query: &mut libc::ifreq, name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() >= query.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in query.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(())
}

fn no_such(name: &str) -> PortError {
    let names = names();
    let nearest = units::nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
    PortError::NoSuchInterface { name: name.to_owned(), nearest }
}

/// Returns the interfaces of the calling thread's namespace.
fn names() -> Vec<String> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the call takes no arguments. The call returns null or an array whose last element has
    // index 0.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Vec::new();
    }
    let mut entry = list;
    // SAFETY: `entry` stays within the array, whose last element has index 0 and a null name;
    // names end in zero.
    unsafe {
        while (*entry).if_index != 0 {
            names.push(CString::from(CStr::from_ptr((*entry).if_name)));
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}
