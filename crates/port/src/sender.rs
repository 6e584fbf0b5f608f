use std::os::fd::OwnedFd;

use units::Bytes;
use wire::headers::{MAC_HEADER, TAG};

use crate::interface::Interface;
use crate::{PortError, socket};

/// The sending half of a packet socket, for a thread that does not receive. Several senders may use
/// the same interface.
///
/// Frames bypass the queueing discipline, as with [`PacketPort`](crate::PacketPort). The sender
/// neither repeats nor drops frames: the caller learns that the kernel has no space, and decides
/// what to do.
#[derive(Debug)]
pub struct PacketSender {
    interface: Interface,
    socket: OwnedFd,
}

/// The result of a call: the number of sent frames, and the reason for which the next frame was
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub sent: usize,
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The transmit queue or the backlog of a veth peer is full. The caller may try the frame
    /// again.
    Full,
    /// The frame is longer than the interface's MTU allows.
    TooLong,
    /// The kernel refused the frame for another reason.
    Refused,
    /// The port has no connected peer.
    NoPeer,
}

impl PacketSender {
    /// Opens an interface of the calling thread's network namespace. The sender may be moved to any
    /// other thread afterwards.
    pub fn open(name: &str) -> Result<Self, PortError> {
        let socket = socket::open().map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => PortError::NotSupported { feature: "packet sockets" },
            _ => PortError::from_io("opening a packet socket", error),
        })?;
        let interface = Interface::query(&socket, name)?;
        socket::set_number(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(|error| PortError::from_io("setting PACKET_QDISC_BYPASS", error))?;
        if socket::set_number(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER).is_err() {
            let _ = socket::set_number(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
        }
        let this = Self { interface, socket };
        socket::bind(&this.socket, this.interface.index as i32, 0)
            .map_err(|error| this.failed(error))?;
        Ok(this)
    }

    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the maximum length of a frame's payload, like [`Port::mtu`](crate::Port::mtu).
    pub fn mtu(&self) -> Bytes {
        self.interface.mtu
    }

    /// Returns the maximum length of a frame, including a VLAN tag.
    pub fn longest(&self) -> usize {
        self.interface.mtu.count() as usize + MAC_HEADER + TAG
    }

    /// Sends frames in order until the kernel refuses a frame. A call sends at most 32 frames.
    pub fn send<'a>(
        &self,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Accepted, PortError> {
        if frames.len() == 0 {
            return Ok(Accepted { sent: 0, refusal: None });
        }
        match socket::send(&self.socket, frames.take(socket::BATCH)) {
            Ok(sent) => Ok(Accepted { sent, refusal: None }),
            Err(error) => {
                let refusal = match error.raw_os_error() {
                    Some(libc::EINTR) => return Ok(Accepted { sent: 0, refusal: None }),
                    Some(libc::ENOBUFS | libc::EAGAIN) => Refusal::Full,
                    Some(libc::EMSGSIZE) => Refusal::TooLong,
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        return Err(self.failed(error));
                    }
                    _ => Refusal::Refused,
                };
                Ok(Accepted { sent: 0, refusal: Some(refusal) })
            }
        }
    }

    fn failed(&self, error: std::io::Error) -> PortError {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                PortError::InterfaceDown { name: self.interface.name.clone() }
            }
            _ => PortError::from_io(format!("sending at {:?}", self.interface.name), error),
        }
    }
}

const BUFFER: i32 = 16 << 20;
