//! The packets that the kernel drops in the calling thread's network namespace, by the kernel's own
//! reasons, and by interface, function and connection.

use crate::AccelError;
use crate::kernel::VMLINUX;
use crate::object::{Loaded, Spec, with_libbpf_log};
use crate::types::{Kind, Types};
use libbpf_rs::{Link, MapCore, MapFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A BPF program that counts dropped packets. Dropping this value unloads the program.
#[derive(Debug)]
pub struct DropCounter {
    loaded: Loaded,
    /// The kernel's names of its reasons.
    names: BTreeMap<u32, String>,
    functions: Mutex<BTreeMap<u64, Option<String>>>,
    _link: Link,
}

/// The dropped packets by reason and by drop location since the counter began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drops {
    /// Exact counts of packets, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Counts by drop location; estimates for a reason with more than some hundred packets.
    pub places: BTreeMap<Place, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub reason: String,
    /// The index of the interface that had or received the packet; 0: none.
    pub interface: u32,
    /// The address in the kernel's function that dropped the packet, for
    /// [`DropCounter::functions`].
    pub address: u64,
    /// The number of the IP protocol, and both ends. Protocols without ports have port 0.
    pub connection: Option<(u8, SocketAddr, SocketAddr)>,
}

impl DropCounter {
    pub fn begin() -> Result<Self, AccelError> {
        let missing = |feature| AccelError::NotSupported {
            feature,
            doing: DOING,
            advice: "use a kernel of Linux 5.17 or later with CONFIG_DEBUG_INFO_BTF",
        };
        let types = Types::read(Path::new(VMLINUX));
        let types = types.ok_or_else(|| missing("description of its types (BTF)"))?;
        let kernel = Kernel::of(&types).ok_or_else(|| missing("reasons of dropped packets"))?;
        let (wanted, other) = match kernel.names_sockets {
            false => (WITHOUT_SOCKETS, WITH_SOCKETS),
            true => (WITH_SOCKETS, WITHOUT_SOCKETS),
        };
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o"));
        let mut spec = Spec::open(DOING, elf)?;
        spec.leave_out(other)?;
        let loaded = spec.load()?;
        let settings = [own_namespace()?, u32::from(is_first_namespace())];
        // The program finds the namespace's address itself, in the last two words.
        let settings = settings.iter().chain(&kernel.offsets).chain(&[0; 2]);
        let settings: Vec<u8> = settings.flat_map(|word| word.to_ne_bytes()).collect();
        let map = loaded.map("settings")?;
        with_libbpf_log(DOING, || map.update(&0_u32.to_ne_bytes(), &settings, MapFlags::ANY))?;
        let program = loaded.program(wanted)?;
        let link = with_libbpf_log(DOING, || program.attach())?;
        Ok(Self { loaded, names: kernel.reasons, functions: Mutex::default(), _link: link })
    }

    /// Reads the exact counts by reason, without drop locations. The kernel's list bounds the
    /// number of reasons.
    pub fn reasons(&self) -> Result<BTreeMap<String, u64>, AccelError> {
        let mut found = BTreeMap::new();
        let reasons = self.loaded.map("reasons")?;
        let known = self.names.keys().copied().filter(|reason| *reason < REASONS - 1);
        for slot in known.chain([REASONS - 1]) {
            let key = slot.to_ne_bytes();
            let cpus = with_libbpf_log(DOING, || reasons.lookup_percpu(&key, MapFlags::ANY))?;
            let count: u64 = cpus.unwrap_or_default().iter().map(|bytes| word(bytes)).sum();
            if count > 0 {
                found.insert(self.name(slot), count);
            }
        }
        Ok(found)
    }

    pub fn read(&self) -> Result<Drops, AccelError> {
        let mut drops = Drops { reasons: self.reasons()?, places: BTreeMap::new() };
        if drops.reasons.is_empty() {
            return Ok(drops);
        }
        let mut found: Vec<(Vec<u8>, u64)> = Vec::new();
        for (name, most) in [("places", MOST_PLACES), ("bare", MOST_BARE)] {
            let map = self.loaded.map(name)?;
            for key in map.keys().take(most) {
                let value = with_libbpf_log(DOING, || map.lookup(&key, MapFlags::ANY))?;
                found.extend(value.map(|bytes| (key, word(&bytes))));
            }
        }
        for (key, count) in found {
            if let Some(place) = self.place(&key) {
                *drops.places.entry(place).or_default() += count;
            }
        }
        Ok(drops)
    }

    /// Returns the kernel's functions at these addresses, as far as their names are known. Reads
    /// /proc/kallsyms, which takes tens of milliseconds, unless an earlier call has had all these
    /// addresses.
    pub fn functions(&self, addresses: &[u64]) -> BTreeMap<u64, String> {
        let mut known = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        name_functions(&mut known, addresses);
        let named = |at: &u64| Some((*at, known.get(at)?.clone()?));
        addresses.iter().filter_map(named).collect()
    }

    fn name(&self, reason: u32) -> String {
        name_of(&self.names, reason)
    }

    /// Parses `struct place` of bpf/drops.bpf.c.
    fn place(&self, key: &[u8]) -> Option<Place> {
        let half = |at: usize| Some(u32::from_ne_bytes(*key.get(at..)?.first_chunk()?));
        let port = |at: usize| Some(u16::from_be_bytes(*key.get(at..)?.first_chunk()?));
        let address = |at: usize, family: u16| {
            let bytes: &[u8; 16] = key.get(at..)?.first_chunk()?;
            Some(match family {
                4 => IpAddr::from(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
                _ => IpAddr::from(Ipv6Addr::from(*bytes)),
            })
        };
        let family = u16::from_ne_bytes(*key.get(16..)?.first_chunk()?);
        let ends = || {
            let from = SocketAddr::new(address(24, family)?, port(20)?);
            let to = SocketAddr::new(address(40, family)?, port(22)?);
            Some((*key.get(18)?, from, to))
        };
        Some(Place {
            reason: self.name(half(8)?),
            interface: half(12)?,
            address: word(key),
            connection: (family != 0).then(ends).flatten(),
        })
    }
}

/// The facts about the running kernel that the program needs.
struct Kernel {
    /// The kernel's names of its reasons.
    reasons: BTreeMap<u32, String>,
    /// Whether the tracepoint has the receiving socket as an argument.
    names_sockets: bool,
    /// The offsets of `struct settings` in bpf/drops.bpf.c.
    offsets: [u32; 10],
}

impl Kernel {
    /// Reads the facts from the kernel's types. Returns `None` if the kernel has no drop reasons,
    /// or lacks a member that the program reads.
    fn of(types: &Types) -> Option<Self> {
        let [reasons, call, skb, sock, device, net] = types.named([
            (Kind::Enum, "skb_drop_reason"),
            (Kind::Typedef, "btf_trace_kfree_skb"),
            (Kind::Struct, "sk_buff"),
            (Kind::Struct, "sock"),
            (Kind::Struct, "net_device"),
            (Kind::Struct, "net"),
        ]);
        let reasons = reasons?.constants().map(|(name, value)| {
            (value, name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name).to_owned())
        });
        // The first argument belongs to the tracepoint and not to the function.
        let names_sockets = match call?.arguments(None)? {
            0..4 => return None,
            arguments => arguments > 4,
        };
        let (skb, sock, device, net) = (skb?, sock?, device?, net?);
        let offsets = [
            skb.offset_of("dev")?,
            skb.offset_of("sk")?,
            skb.offset_of("skb_iif")?,
            skb.offset_of("protocol")?,
            skb.offset_of("network_header")?,
            skb.offset_of("head")?,
            sock.offset_of("__sk_common.skc_net.net")?,
            device.offset_of("ifindex")?,
            device.offset_of("nd_net.net")?,
            net.offset_of("ns.inum")?,
        ];
        Some(Self { reasons: reasons.collect(), names_sockets, offsets })
    }
}

impl Drops {
    pub fn since(&self, earlier: &Self) -> Self {
        let reasons = since(&self.reasons, &earlier.reasons);
        Self { reasons, places: since(&self.places, &earlier.places) }
    }
}

fn since<K: Ord + Clone>(now: &BTreeMap<K, u64>, earlier: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let counts = now.iter().map(|(key, count)| {
        (key.clone(), count.saturating_sub(earlier.get(key).copied().unwrap_or(0)))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Returns the name of a reason. A subsystem's own reasons have the subsystem's number in their
/// upper 16 bits, and no name in the kernel's list. All such reasons share the last slot.
fn name_of(names: &BTreeMap<u32, String>, reason: u32) -> String {
    if reason >= REASONS - 1 {
        return OTHER_SUBSYSTEM.to_owned();
    }
    names.get(&reason).cloned().unwrap_or_else(|| format!("{reason}"))
}

/// Adds to `known` the functions of the addresses that `known` lacks. Reads /proc/kallsyms, which
/// is long, only if `known` lacks an address.
fn name_functions(known: &mut BTreeMap<u64, Option<String>>, addresses: &[u64]) {
    let mut new: Vec<u64> =
        addresses.iter().copied().filter(|at| !known.contains_key(at)).collect();
    new.sort_unstable();
    new.dedup();
    let room = MOST_FUNCTIONS.saturating_sub(known.len());
    new.truncate(room);
    if new.is_empty() {
        return;
    }
    let found = match File::open("/proc/kallsyms") {
        Ok(file) => nearest(BufReader::with_capacity(1 << 16, file), &new),
        Err(_) => BTreeMap::new(),
    };
    known.extend(new.iter().map(|at| (*at, found.get(at).map(|(_, name)| name.clone()))));
}

/// Finds the last symbol at or before each address, with the symbol's address. Addresses that the
/// kernel hides are zero. The kernel lists its own symbols in the order of their addresses, and
/// then the symbols of modules in any order: the search stops behind the last address if all
/// addresses have a symbol of the kernel itself.
fn nearest(mut symbols: impl BufRead, addresses: &[u64]) -> BTreeMap<u64, (u64, String)> {
    let mut found: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    let last = addresses.last().copied().unwrap_or(0);
    let mut line = String::new();
    loop {
        line.clear();
        if !symbols.read_line(&mut line).is_ok_and(|length| length > 0) {
            break;
        }
        let mut words = line.split_ascii_whitespace();
        let at = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (Some(at), Some(kind), Some(name)) = (at, words.next(), words.next()) else { continue };
        if at == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
            continue;
        }
        let is_of_module = words.next().is_some();
        if !is_of_module && at > last && found.len() == addresses.len() {
            break;
        }
        let first = addresses.partition_point(|address| *address < at);
        for address in &addresses[first..] {
            if address - at > LONGEST_FUNCTION {
                break;
            }
            if found.get(address).is_none_or(|(best, _)| *best < at) {
                found.insert(*address, (at, name.to_owned()));
            }
        }
    }
    found
}

fn own_namespace() -> Result<u32, AccelError> {
    inode("/proc/thread-self/ns/net", "net").ok_or(AccelError::NotSupported {
        feature: "/proc with network namespaces",
        doing: DOING,
        advice: "mount /proc",
    })
}

/// Whether this thread is in the first network namespace, which is the namespace of the first
/// process of the first PID namespace. In a container, process 1 has the container's namespace.
fn is_first_namespace() -> bool {
    let own = inode("/proc/thread-self/ns/net", "net");
    is_first(inode("/proc/self/ns/pid", "pid"), inode("/proc/1/ns/net", "net"), own)
}

fn is_first(
    processes: Option<u32>,
    network_of_first: Option<u32>,
    own_network: Option<u32>,
) -> bool {
    let is_shared = network_of_first.is_some() && network_of_first == own_network;
    processes == Some(FIRST_PID_NAMESPACE) && is_shared
}

fn inode(link: &str, kind: &str) -> Option<u32> {
    number(std::fs::read_link(link).ok()?.to_str()?, kind)
}

/// Parses the target of a namespace's link, such as `net:[4026531840]`.
fn number(target: &str, kind: &str) -> Option<u32> {
    target.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// The common name of all reasons outside the kernel's own list. Linux 6.4 and later have such
/// reasons, for example those of Wi-Fi and of Open vSwitch.
pub const OTHER_SUBSYSTEM: &str = "OTHER_SUBSYSTEM";
const DOING: &str = "counting dropped packets";
const WITHOUT_SOCKETS: &str = "drops";
const WITH_SOCKETS: &str = "drops_of_sockets";
/// The number of counted reasons, as in bpf/drops.bpf.c.
const REASONS: u32 = 512;
const MOST_PLACES: usize = 4096;
/// Maximum number of drop locations without a connection.
const MOST_BARE: usize = 1024;
/// Maximum number of functions whose names a counter keeps.
const MOST_FUNCTIONS: usize = 512;
const LONGEST_FUNCTION: u64 = 1 << 17;
/// PROC_PID_INIT_INO of include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: u32 = 0xefff_fffc;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_last_function_at_or_before_the_address() {
        let symbols = "0000000000000000 T hidden\nffffffff81000000 T first\nffffffff81000100 t second\n\
                       ffffffff81000180 d data\nffffffffc0000000 t drop_it\t[module]\nbad line\n";
        let addresses = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_01f0, 0xffff_ffff_c000_0001, 1];
        let mut sorted = addresses;
        sorted.sort_unstable();
        let found = nearest(symbols.as_bytes(), &sorted);
        let name = |at: u64| found.get(&at).map(|(_, name)| name.as_str());
        assert_eq!(addresses.map(name), [Some("first"), Some("second"), Some("drop_it"), None]);
    }

    #[test]
    fn the_list_of_functions_is_read_only_as_far_as_addresses_need() {
        let symbols = "ffffffff81000000 T first\nffffffff81000100 t second\n\
                       ffffffff81000200 t third\nffffffff81000008 t unread\n";
        let name = |addresses: &[u64]| {
            let found = nearest(symbols.as_bytes(), addresses);
            found.into_values().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(name(&[0xffff_ffff_8100_0010]), ["first"]);
        assert_eq!(name(&[0xffff_ffff_8100_0010, 0xffff_ffff_8100_0110]), ["first", "second"]);
        // The symbols contain no function of the first address, so the search reads all symbols.
        assert_eq!(name(&[1, 0xffff_ffff_8100_0010]), ["unread"]);
    }

    #[test]
    fn the_symbols_of_modules_may_have_any_order() {
        let symbols = "ffffffff81000000 T of_kernel\nffffffffc0000000 t far\t[module]\n\
                       ffffffffc0000200 t behind\t[module]\nffffffffc0000100 t near\t[module]\n";
        let found = nearest(symbols.as_bytes(), &[0xffff_ffff_c000_0110]);
        let names: Vec<_> = found.into_values().map(|(_, name)| name).collect();
        assert_eq!(names, ["near"]);
    }

    #[test]
    fn all_drop_reasons_of_subsystems_have_the_same_name() {
        let names = BTreeMap::from([(3, "NO_SOCKET".to_owned()), (0xffff_0000, "MASK".to_owned())]);
        let subsystem = [REASONS - 1, (1 << 16) | 3, (2 << 16) | 1, 0xffff_0000];
        assert_eq!(subsystem.map(|reason| name_of(&names, reason)), [OTHER_SUBSYSTEM; 4]);
        assert_eq!([3, 77].map(|reason| name_of(&names, reason)), ["NO_SOCKET", "77"]);
    }

    #[test]
    fn the_first_process_of_a_container_does_not_have_the_first_namespace() {
        let first = number("pid:[4026531836]", "pid");
        let network = number("net:[4026531840]", "net");
        assert!(is_first(first, network, network));
        assert!(!is_first(number("pid:[4026532201]", "pid"), network, network));
        assert!(!is_first(first, network, number("net:[4026532300]", "net")));
        assert!(!is_first(first, None, None));
        assert_eq!(number("net:[4026531840]", "pid"), None);
    }

    #[test]
    fn drops_at_a_closed_port_are_counted_with_the_connection_until_the_map_is_full() {
        let counter = match DropCounter::begin() {
            Ok(counter) => counter,
            Err(error @ (AccelError::NotSupported { .. } | AccelError::NotPermitted { .. })) => {
                return testing::skip_because(testing::Need::StructOps, error);
            }
            Err(error) => panic!("{error}"),
        };
        let before = counter.read().unwrap();
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let sent_to_closed = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..1000 {
                socket.send_to(b"nobody", closed).unwrap();
            }
            socket
        };
        let socket = sent_to_closed();
        let drops = counter.read().unwrap().since(&before);
        assert!(drops.reasons["NO_SOCKET"] >= 1000, "{drops:?}");
        let ends = Some((17, socket.local_addr().unwrap(), closed));
        let found: Vec<_> = drops.places.iter().filter(|(one, _)| one.connection == ends).collect();
        let [(place, count)] = found[..] else { panic!("{drops:?}") };
        assert_eq!(place.reason, "NO_SOCKET");
        let function = counter.functions(&[place.address]).remove(&place.address);
        assert!(function.is_none_or(|name| name.contains("udp")), "{place:?}");
        // Beyond 256 packets on a CPU, every 64th packet counts for 64 at its drop location.
        assert!((500..=1500).contains(count), "{count}");
        let map = counter.loaded.map("places").unwrap();
        let is_full = (0..=MOST_PLACES as u64).any(|place| {
            // The field `from` ends at offset 40, where the field `to` begins.
            let mut key = [0_u8; 56];
            key[32..40].copy_from_slice(&place.to_ne_bytes());
            key[16] = 6;
            map.update(&key, &1_u64.to_ne_bytes(), MapFlags::ANY).is_err()
        });
        assert!(is_full);
        let before = counter.read().unwrap();
        let _other = sent_to_closed();
        let drops = counter.read().unwrap().since(&before);
        let without = |one: &Place| one.reason == "NO_SOCKET" && one.connection.is_none();
        let found = drops.places.iter().filter(|(one, _)| without(one)).map(|(_, count)| count);
        assert!(found.sum::<u64>() >= 500, "{drops:?}");
    }
}
