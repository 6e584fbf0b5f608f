//! The local addresses of another process's network namespace: `/proc/PID/net/fib_trie` and
//! `/proc/PID/net/if_inet6`. Few lines tell whether the far end of a connection may be in the
//! namespace. To list the namespace's sockets, the kernel walks the table of all sockets of the
//! machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::tree::Tree;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalAddresses {
    /// Networks of which every address is local; usually single addresses.
    v4: Vec<(Ipv4Addr, u32)>,
    v6: Vec<Ipv6Addr>,
}

impl LocalAddresses {
    /// Reads the addresses of a process's namespace. `None` for a namespace that has ended, or that
    /// has too many routes to read them for this purpose.
    pub fn of(tree: &Tree, pid: u32) -> Option<Self> {
        let routes = tree.short_text(&format!("/proc/{pid}/net/fib_trie"), MOST).ok()??;
        // The kernel may lack IPv6.
        let path = format!("/proc/{pid}/net/if_inet6");
        let addresses = match tree.has(&path) {
            true => tree.short_text(&path, MOST).ok()??,
            false => String::new(),
        };
        Some(Self::parse(&routes, &addresses))
    }

    /// Parses both files; skips lines of another format.
    pub fn parse(fib_trie: &str, if_inet6: &str) -> Self {
        let (mut v4, mut leaf) = (Vec::new(), None);
        for line in fib_trie.lines().map(str::trim) {
            match line.strip_prefix("|-- ") {
                Some(address) => leaf = address.parse().ok(),
                None => v4.extend(leaf.zip(local_length(line))),
            }
        }
        v4.sort_unstable();
        v4.dedup();
        let address = |line: &str| {
            let digits = line.split_ascii_whitespace().next()?;
            (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())?
        };
        Self { v4, v6: if_inet6.lines().filter_map(address).map(Ipv6Addr::from).collect() }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.iter().any(|(network, length)| {
                let differ = address.to_bits() ^ network.to_bits();
                u64::from(differ) >> (32 - length) == 0
            }),
            IpAddr::V6(address) => self.v6.contains(&address),
        }
    }
}

/// Parses the length of a local network, from a line such as `/32 host LOCAL`.
fn local_length(line: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace();
    let length = words.next()?.strip_prefix('/')?.parse().ok()?;
    (words.nth(1) == Some("LOCAL") && length <= 32).then_some(length)
}

/// Maximum length of a file, in bytes: some hundred routes.
const MOST: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recorded_local_addresses_are_parsed() {
        let addresses = LocalAddresses::parse(FIB_TRIE, IF_INET6);
        let has = |text: &str| addresses.contains(text.parse().unwrap());
        for local in ["192.0.2.2", "127.0.0.1", "127.9.9.9", "::ffff:192.0.2.2", "2001:db8::2"] {
            assert!(has(local), "{local}");
        }
        for other in ["192.0.2.1", "192.0.2.0", "192.0.2.255", "10.0.0.1", "2001:db8::1", "::"] {
            assert!(!has(other), "{other}");
        }
        // A transparent proxy takes connections to every address.
        let any = "     |-- 0.0.0.0\n        /0 host LOCAL\n";
        assert!(LocalAddresses::parse(any, "").contains("198.51.100.7".parse().unwrap()));
    }

    #[test]
    fn the_loopback_address_of_this_namespace_is_local() {
        let (tree, pid) = (Tree::here(), std::process::id());
        match LocalAddresses::of(&tree, pid) {
            Some(own) => assert!(own.contains(Ipv4Addr::LOCALHOST.into()), "{own:?}"),
            // A router has too many routes.
            None => {
                let routes = tree.text(&format!("/proc/{pid}/net/fib_trie")).unwrap();
                assert!(routes.len() as u64 > MOST, "{routes}");
            }
        }
        assert_eq!(LocalAddresses::of(&Tree::at("/nowhere"), 1), None);
    }

    proptest! {
        #[test]
        fn the_parser_of_local_addresses_never_panics(
            routes in "( {0,3}(\\|-- |/)[0-9.]{0,15}( [a-z]{1,9}){0,2}( LOCAL)?\n){0,6}",
            addresses in "([0-9a-f]{30,33}( [0-9]{2}){0,3}\n){0,3}",
        ) {
            let _ = LocalAddresses::parse(&routes, &addresses).contains(Ipv4Addr::LOCALHOST.into());
        }
    }

    const FIB_TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     +-- 192.0.2.0/24 2 0 2
        +-- 192.0.2.0/30 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
";
    const IF_INET6: &str = "\
20010db8000000000000000000000002 04 40 00 82     eth0
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
";
}
