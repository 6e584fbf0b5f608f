#![allow(unsafe_code)]
//! Creating TUN and TAP devices (Documentation/networking/tuntap.rst).

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::PortError;
use crate::interface::write_name;
use crate::socket::check;

/// Creates a device and returns its name. The packets of the device carry a `virtio_net_hdr`, and
/// the kernel may leave checksums and segmentation to the port.
pub(crate) fn create(name: &str, tap: bool) -> Result<(OwnedFd, String), PortError> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                PortError::NotSupported { feature: "TUN/TAP (/dev/net/tun)" }
            }
            _ => PortError::from_io("opening /dev/net/tun", error),
        })?;
    let device = OwnedFd::from(device);
    let failed = |error| PortError::from_io(format!("making the device {name:?}"), error);

    // SAFETY: zeroes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    write_name(&mut request, name).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    let kind = if tap { libc::IFF_TAP } else { libc::IFF_TUN };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
    // SAFETY: `request` is a valid ifreq with a name that ends in zero; the kernel reads it and
    // writes the device's name back.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
        .map_err(failed)?;
    // SAFETY: the kernel ends the name it wrote with a zero within the array.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    let name = name.to_string_lossy().into_owned();

    // Kernels before 6.2 do not support UDP segmentation. Any accepted set of offloads works: the
    // kernel itself does the other offloads.
    for offloads in [TCP_OFFLOADS | UDP_OFFLOADS, TCP_OFFLOADS] {
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: TUNSETOFFLOAD takes a number.
        let set = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) };
        if set == 0 {
            break;
        }
    }
    Ok((device, name))
}

const TCP_OFFLOADS: u32 =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOADS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;
