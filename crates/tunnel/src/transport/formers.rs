//! Forwards packets of connections that a former process carries.
//!
//! After a hand-over ([`crate::hand_over`]) the new process reads the sockets. The second byte of a
//! connection ID gives the generation of the process that made the ID. The new process forwards the
//! packets of a former generation, each with its addresses and the time of its arrival, over a pair
//! of UNIX sockets.

use super::steering::LENGTH;
use quinn_udp::{EcnCodepoint, RecvMeta};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The former processes of one socket.
#[derive(Debug, Default)]
pub(super) struct Formers {
    all: Vec<Former>,
    message: Vec<u8>,
}

#[derive(Debug)]
struct Former {
    generation: u8,
    socket: UnixDatagram,
}

impl Formers {
    pub(super) fn new(all: Vec<(u8, UnixDatagram)>) -> io::Result<Self> {
        let former = |(generation, socket): (u8, UnixDatagram)| {
            socket.set_nonblocking(true)?;
            Ok(Former { generation, socket })
        };
        let all = all.into_iter().map(former).collect::<io::Result<_>>()?;
        Ok(Self { all, message: Vec::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the generation of the former process that carries this packet's connection.
    pub(super) fn owner(&self, packet: &[u8]) -> Option<u8> {
        let generation = generation(packet)?;
        self.all.iter().any(|former| former.generation == generation).then_some(generation)
    }

    /// Sends the packets of one read to their process. A process that reads too slowly loses
    /// packets, as a socket with a full buffer does. Forgets a process that has ended.
    pub(super) fn forward(&mut self, generation: u8, meta: &RecvMeta, packets: &[u8]) {
        let Some(place) = self.all.iter().position(|former| former.generation == generation) else {
            return;
        };
        self.message.clear();
        self.message.extend_from_slice(&header(meta));
        self.message.extend_from_slice(packets);
        match self.all[place].socket.send(&self.message) {
            Err(error) if has_ended(&error) => {
                tracing::info!(generation, "the former process has ended");
                self.all.remove(place);
            }
            Err(error) => tracing::debug!(%error, "packets of a former process were dropped"),
            Ok(_) => {}
        }
    }
}

/// Tests whether the process at the other end of this socket still runs, by sending an empty
/// message, which the process ignores.
pub(super) fn lives(former: &UnixDatagram) -> bool {
    !matches!(former.send(&[]), Err(error) if has_ended(&error))
}

fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected)
}

/// Returns the generation in the packet's destination connection ID, if a server may have made the
/// ID. The random ID in a client's first packets has another length ([`super::steering::drawn`]).
fn generation(packet: &[u8]) -> Option<u8> {
    let first = *packet.first()?;
    if first & LONG_HEADER == 0 {
        return packet.get(2).copied();
    }
    let is_of_server = packet.get(5).is_some_and(|length| usize::from(*length) == LENGTH);
    packet.get(7).copied().filter(|_| is_of_server)
}

/// Splits the packets of one read into runs with the same owner.
pub(super) fn runs(
    packets: &[u8],
    stride: usize,
    owner: impl Fn(&[u8]) -> Option<u8>,
) -> Vec<(Option<u8>, &[u8])> {
    let mut all: Vec<(Option<u8>, usize, usize)> = Vec::new();
    let mut at = 0;
    for packet in packets.chunks(stride.max(1)) {
        let (owner, end) = (owner(packet), at + packet.len());
        match all.last_mut() {
            Some((before, _, until)) if *before == owner => *until = end,
            _ => all.push((owner, at, end)),
        }
        at = end;
    }
    all.into_iter().map(|(owner, begin, end)| (owner, &packets[begin..end])).collect()
}

fn header(meta: &RecvMeta) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    let mut flags = 0;
    let mut put_ip = |at: usize, ip: IpAddr, is_v4: u8| match ip {
        IpAddr::V4(ip) => {
            out[at..at + 4].copy_from_slice(&ip.octets());
            is_v4
        }
        IpAddr::V6(ip) => {
            out[at..at + 16].copy_from_slice(&ip.octets());
            0
        }
    };
    flags |= put_ip(8, meta.addr.ip(), SOURCE_IS_V4);
    if let Some(ip) = meta.dst_ip {
        flags |= HAS_DESTINATION | put_ip(24, ip, DESTINATION_IS_V4);
    }
    if let Some(stamp) = meta.timestamp {
        flags |= HAS_STAMP;
        out[40..48].copy_from_slice(&(stamp.as_nanos() as u64).to_le_bytes());
    }
    if let SocketAddr::V6(address) = meta.addr {
        out[4..8].copy_from_slice(&address.scope_id().to_le_bytes());
    }
    out[0] = flags;
    out[1] = meta.ecn.map_or(0, |ecn| ecn as u8);
    out[2..4].copy_from_slice(&meta.addr.port().to_le_bytes());
    out[48..52].copy_from_slice(&(meta.stride as u32).to_le_bytes());
    out
}

/// Parses a message of [`Formers::forward`] into the metadata and the bytes of its packets.
pub(super) fn parsed(message: &[u8]) -> Option<(RecvMeta, &[u8])> {
    let (header, packets) = message.split_first_chunk::<HEADER>()?;
    let flags = header[0];
    let ip = |at: usize, is_v4: bool| -> Option<IpAddr> {
        if is_v4 {
            let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
            return Some(Ipv4Addr::from(octets).into());
        }
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    let number = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let port = u16::from_le_bytes([header[2], header[3]]);
    let mut meta = RecvMeta::default();
    meta.addr = match ip(8, flags & SOURCE_IS_V4 != 0)? {
        IpAddr::V4(ip) => (ip, port).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, number(4)?).into(),
    };
    if flags & HAS_DESTINATION != 0 {
        meta.dst_ip = ip(24, flags & DESTINATION_IS_V4 != 0);
    }
    if flags & HAS_STAMP != 0 {
        let nanos = u64::from_le_bytes(header.get(40..48)?.try_into().ok()?);
        meta.timestamp = Some(Duration::from_nanos(nanos));
    }
    meta.ecn = EcnCodepoint::from_bits(header[1]);
    (meta.stride, meta.len) = (usize::try_from(number(48)?).ok()?, packets.len());
    Some((meta, packets))
}

/// Length of the header before a message's packets, in bytes.
pub(super) const HEADER: usize = 52;
/// The bit that marks a long header (RFC 9000, 17.2).
const LONG_HEADER: u8 = 0x80;
const SOURCE_IS_V4: u8 = 1;
const HAS_DESTINATION: u8 = 2;
const DESTINATION_IS_V4: u8 = 4;
const HAS_STAMP: u8 = 8;

#[cfg(test)]
mod tests {
    use super::super::steering::{MarkedIds, drawn};
    use super::*;
    use quic::ConnectionIdGenerator;

    fn packet(is_long: bool, id: &[u8]) -> Vec<u8> {
        let head = if is_long { vec![0xc0, 0, 0, 0, 1, id.len() as u8] } else { vec![0x40] };
        [head, id.to_vec(), vec![0; 20]].concat()
    }

    #[test]
    fn a_former_process_gets_the_packets_of_its_own_connections_only() {
        let (here, there) = UnixDatagram::pair().unwrap();
        let copy = here.try_clone().unwrap();
        let mut formers = Formers::new(vec![(4, here)]).unwrap();
        let id =
            |generation| MarkedIds { socket: 1, sockets: 2, generation }.generate_cid().to_vec();
        let ids = [id(4), id(5), id(4)];
        for is_long in [false, true] {
            assert_eq!(formers.owner(&packet(is_long, &ids[0])), Some(4));
            assert_eq!(formers.owner(&packet(is_long, &ids[1])), None);
        }
        // An ID of another server, or a random ID of a client.
        assert_eq!(formers.owner(&packet(true, &drawn(4))), None);
        assert_eq!(formers.owner(&[0x40, 0]), None);
        let all: Vec<u8> = ids.iter().flat_map(|id| packet(false, id)).collect();
        let parts = runs(&all, 29, |packet| formers.owner(packet));
        let shown: Vec<_> = parts.iter().map(|(owner, part)| (*owner, part.len())).collect();
        assert_eq!(shown, [(Some(4), 29), (None, 29), (Some(4), 29)]);
        assert_eq!(runs(&all, 29, |_| None), [(None, &all[..])]);
        for (source, destination) in [
            ("192.0.2.1:4433", Some("192.0.2.2")),
            ("[fe80::1%3]:1", Some("2001:db8::1")),
            ("[::ffff:192.0.2.1]:9", None),
        ] {
            let mut meta = RecvMeta::default();
            meta.addr = source.parse().unwrap();
            meta.dst_ip = destination.map(|ip| ip.parse().unwrap());
            meta.ecn = Some(EcnCodepoint::Ce);
            meta.timestamp = Some(Duration::new(1_700_000_000, 7));
            (meta.stride, meta.len) = (29, all.len());
            formers.forward(4, &meta, &all);
            let mut message = [0; 200];
            let length = there.recv(&mut message).unwrap();
            let (got, packets) = parsed(&message[..length]).unwrap();
            assert_eq!(packets, all);
            assert_eq!(format!("{got:?}"), format!("{meta:?}"));
        }
        assert!(parsed(&[0; HEADER - 1]).is_none());
        assert!(lives(&copy));
        drop(there);
        assert!(!lives(&copy));
        formers.forward(4, &RecvMeta::default(), &all);
        assert!(formers.is_empty());
    }
}
