//! The connections of another process's network namespace: `/proc/PID/net/tcp` and `tcp6`.
//! inet_diag reports only the namespace of its own socket.

use std::net::SocketAddr;

use crate::udp::end;

/// Returns the inodes, local and remote addresses of the sockets whose addresses `is_wanted`
/// accepts. Skips lines of another format.
pub fn sockets(
    text: &str,
    is_wanted: impl Fn(SocketAddr, SocketAddr) -> bool,
) -> Vec<(SocketAddr, SocketAddr, u32)> {
    let socket = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (end(words.next()?)?, end(words.next()?)?);
        let inode: u32 = words.nth(6)?.parse().ok()?;
        (inode != 0 && is_wanted(local, remote)).then_some((local, remote, inode))
    };
    text.lines().skip(1).take(MOST).filter_map(socket).collect()
}

const MOST: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_tcp_connection_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let text = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let found = sockets(&text, |local, remote| (local, remote) == ends);
        assert_eq!((found.len(), (found[0].0, found[0].1)), (1, ends));
        assert!(sockets(&text, |_, _| false).is_empty());
    }

    proptest! {
        #[test]
        fn the_parser_of_tcp_tables_never_panics(text in "(.{0,20}\n)([ 0-9A-F:]{0,90}\n){0,3}") {
            let _ = sockets(&text, |_, _| true);
        }
    }
}
