//! UDP sockets with their drops: `/proc/net/udp` and `udp6` (net/ipv4/udp.c, udp4_format_sock).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use units::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpSocket {
    pub local: SocketAddr,
    /// The remote address of a connected socket.
    pub remote: Option<SocketAddr>,
    /// The inode, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Bytes received and not yet read.
    pub receive_queue: Bytes,
    pub drops: u64,
}

/// Parses the table; skips lines of another format.
pub fn parse(text: &str) -> Vec<UdpSocket> {
    text.lines().skip(1).take(MOST).filter_map(socket).collect()
}

fn socket(line: &str) -> Option<UdpSocket> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let (_, receive) = words.get(4)?.split_once(':')?;
    Some(UdpSocket {
        local: end(words.get(1)?)?,
        remote: end(words.get(2)?).filter(|remote| remote.port() != 0),
        inode: words.get(9)?.parse().ok()?,
        receive_queue: Bytes::new(u64::from_str_radix(receive, 16).ok()?),
        drops: words.get(12).and_then(|word| word.parse().ok()).unwrap_or(0),
    })
}

/// Parses an address and a port in the format of the kernel's UDP tables.
pub(crate) fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    Some(SocketAddr::new(ip(address)?, u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address: words of 32 bits in the host's byte order.
fn ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    Some(match text.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    })
}

const MOST: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn recorded_lines_of_the_udp_table_are_parsed() {
        let sockets = parse(RECORDED);
        assert_eq!(sockets.len(), 2);
        assert_eq!(sockets[0].local, "127.0.0.1:5201".parse().unwrap());
        assert_eq!((sockets[0].inode, sockets[0].drops), (4711, 17));
        assert_eq!(sockets[0].remote, None);
        assert_eq!(sockets[0].receive_queue, Bytes::new(0x340));
        assert_eq!(sockets[1].local, "[::1]:53".parse().unwrap());
    }

    #[test]
    fn a_udp_socket_of_this_process_is_listed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let local = socket.local_addr().unwrap();
        assert!(parse(&text).iter().any(|one| one.local == local));
    }

    #[test]
    fn a_connected_udp_socket_has_a_remote_address() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = "127.0.0.1:53".parse().unwrap();
        socket.connect(peer).unwrap();
        let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let local = socket.local_addr().unwrap();
        let found = parse(&text).into_iter().find(|one| one.local == local).unwrap();
        assert_eq!(found.remote, Some(peer));
    }

    proptest! {
        #[test]
        fn the_parser_of_udp_tables_never_panics(text in "(.{0,20}\n)([ 0-9A-F:]{0,90}\n){0,3}") {
            let _ = parse(&text);
        }
    }

    const RECORDED: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  411: 0100007F:1451 00000000:0000 07 00000000:00000340 00:00000000 00000000     0        0 4711 2 0000000000000000 17
 2011: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2 0000000000000000 0
";
}
