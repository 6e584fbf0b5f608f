//! ICMP messages that say that no process has the peer's port, from the error queue of a socket.
//!
//! ICMP is not authenticated. A message quotes the packet that caused the message, and only the
//! peers and the hosts on their path know the connection ID in the quoted packet (RFC 9000, 5.1): a
//! message with another ID does not count. A message that counts is still only a hint.

use super::steering::LENGTH;
use nix::errno::Errno;
use nix::libc::{SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Counts how often the network has reported that no process has the port at an address of a
/// server. All connections of a client to the address share the count: the server's kernel limits
/// the rate of its reports.
pub(super) type Reports = Arc<watch::Sender<u64>>;

/// The counts by address: a report about one address of a server says nothing about another
/// address.
#[derive(Debug, Default)]
pub(super) struct AllReports(Mutex<HashMap<SocketAddr, Reports>>);

/// The beginnings of the connection IDs to which a socket has sent packets lately.
#[derive(Debug, Default)]
pub(super) struct SentIds([Option<[u8; LENGTH]>; 2]);

/// The messages that were in a socket's error queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) is_any: bool,
    /// Whether a packet of this socket has found no process at the peer's port.
    pub(super) is_port_closed: bool,
}

impl AllReports {
    /// Returns the count for this address. Forgets other addresses without a connection.
    pub(super) fn about(&self, server: SocketAddr) -> Reports {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|address, reports| *address == server || Arc::strong_count(reports) > 1);
        Arc::clone(all.entry(server).or_default())
    }
}

impl SentIds {
    /// Notes the connection ID of a packet that the socket sends.
    pub(super) fn note(&mut self, packet: &[u8]) {
        let id = id_of(packet);
        if id.is_some() && id != self.0[0] {
            self.0 = [id, self.0[0]];
        }
    }

    /// Whether these bytes begin a packet that the socket may have sent.
    fn may_have_sent(&self, quoted: &[u8]) -> bool {
        let id = id_of(quoted);
        id.is_some() && self.0.contains(&id)
    }
}

/// Returns the beginning of a packet's destination connection ID. A long header has the ID after
/// its version and length, a short header after its first byte (RFC 9000, 17.2 and 17.3).
fn id_of(packet: &[u8]) -> Option<[u8; LENGTH]> {
    let at = if packet.first()? & 0x80 == 0 { 1 } else { 6 };
    packet.get(at..at + LENGTH)?.try_into().ok()
}

/// Empties the error queue of a socket.
pub(super) fn take(socket: &impl AsRawFd, sent: &SentIds) -> Reported {
    let mut reported = Reported::default();
    for _ in 0..MOST {
        let (mut quoted, mut control) = ([0_u8; QUOTED], vec![0; CONTROL]);
        let mut parts = [IoSliceMut::new(&mut quoted)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let read = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let Ok(message) = read else { break };
        let length = message.bytes;
        let about = message.cmsgs().into_iter().flatten().find_map(|one| port_closed(&one));
        let Some(is_port_closed) = about else { continue };
        reported.is_any = true;
        reported.is_port_closed |= is_port_closed && sent.may_have_sent(&quoted[..length]);
    }
    reported
}

/// Returns whether an ICMP message says that no process has the port; `None` if this is no ICMP
/// message.
fn port_closed(message: &ControlMessageOwned) -> Option<bool> {
    let (ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)) =
        message
    else {
        return None;
    };
    let is_icmp = [SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin);
    // The kernel uses this error only for ICMP's "port unreachable".
    is_icmp.then_some(error.ee_errno == Errno::ECONNREFUSED as u32)
}

/// Maximum number of messages that one call reads.
const MOST: usize = 64;
/// Bytes of a quoted packet that this module reads: the longest header up to the ID.
const QUOTED: usize = 32;
/// Size of the buffer for control messages: the error, and the time and address of its arrival.
const CONTROL: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_udp::UdpSocketState;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    #[test]
    fn a_report_counts_for_all_connections_to_its_address_and_for_no_other_address() {
        let all = AllReports::default();
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let (first, second, third) = (all.about(one), all.about(one), all.about(other));
        first.send_modify(|count| *count += 1);
        assert_eq!((*second.borrow(), *third.borrow()), (1, 0));
        // The count ends with the last connection to the address.
        drop((first, second));
        drop(all.about(other));
        let again = all.about(one);
        assert_eq!(*again.borrow(), 0);
    }

    #[test]
    fn a_message_counts_only_if_it_quotes_a_packet_of_the_socket() {
        let short = |id: u8| [&[0x40][..], &[id; 30]].concat();
        let long = |id: u8| [&[0xc0, 0, 0, 0, 1, 8][..], &[id; 30]].concat();
        let mut sent = SentIds::default();
        assert!(!sent.may_have_sent(&short(0)) && !sent.may_have_sent(&[]));
        sent.note(&long(1));
        sent.note(&short(2));
        sent.note(&short(2));
        for quoted in [long(1), short(2), long(2)] {
            assert!(sent.may_have_sent(&quoted), "{quoted:?}");
        }
        for forged in [short(3), long(3), short(2)[..5].to_vec(), Vec::new()] {
            assert!(!sent.may_have_sent(&forged), "{forged:?}");
        }
        sent.note(&short(3));
        assert!(sent.may_have_sent(&short(2)) && !sent.may_have_sent(&long(1)));
    }

    #[test]
    fn the_kernel_reports_a_port_without_a_process() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(local) else { continue };
            let state = UdpSocketState::new((&socket).into()).unwrap();
            state.enable_transport_errors((&socket).into()).unwrap();
            let closed = UdpSocket::bind(local).unwrap().local_addr().unwrap();
            let packet = [&[0x40][..], &[7; 40]].concat();
            for is_own in [false, true] {
                let mut sent = SentIds::default();
                sent.note(if is_own { &packet } else { &[0x40; 40] });
                assert_eq!(take(&socket, &sent), Reported::default());
                socket.send_to(&packet, closed).unwrap();
                let until = Instant::now() + Duration::from_secs(60);
                let reported = loop {
                    let reported = take(&socket, &sent);
                    if reported.is_any || Instant::now() > until {
                        break reported;
                    }
                };
                let expected = Reported { is_any: true, is_port_closed: is_own };
                assert_eq!(reported, expected, "{local}");
            }
        }
    }
}
