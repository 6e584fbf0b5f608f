//! Features of the machine that tests need, and how to detect them without the product's code.

use crate::perf_events;
use std::fmt::{self, Display};
use std::net::{Ipv6Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

/// A feature of the machine that some tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The tests run as root.
    Root,
    /// A process may create a network namespace.
    NetworkNamespaces,
    /// A user without privileges may create a user namespace.
    UserNamespaces,
    /// The tests may use at least two CPUs.
    TwoCpus,
    Ipv6,
    Veth,
    /// Interfaces for VLAN tags (CONFIG_VLAN_8021Q).
    Vlan,
    /// TUN and TAP devices.
    Tun,
    /// Packet sockets accept UDP super-packets (Linux 6.2).
    UdpSuperPackets,
    /// The queueing discipline tbf.
    Tbf,
    /// The nftables actions drop and reject, in a chain of the family inet.
    Nftables,
    /// Congestion control algorithms in BPF, with all features that the tests of `accel` use (Linux
    /// 6.15).
    StructOps,
    CgroupV2,
    /// A control group, of version 1 or 2, with a limit of CPU time.
    CpuLimit,
    /// Real-time scheduling.
    RealTime,
    /// A process may sample the stacks of every CPU, in the kernel and in all programs.
    PerfEvents,
    /// An ICMP socket, either unprivileged or raw.
    Icmp,
    /// The kernel's own threads are visible in /proc.
    KernelThreads,
    /// The directory for temporary files allows direct I/O, which bypasses the page cache.
    DirectReads,
    /// A process may choose the ID of the next process (CONFIG_CHECKPOINT_RESTORE).
    ProcessNumbers,
    /// A systemd-analyze that checks the security of a unit file (systemd 250).
    UnitAnalysis,
    /// Landlock and seccomp.
    Confinement,
    /// The limit of open files is at least this number.
    OpenFiles(u64),
    /// The kernel offers this congestion control.
    Congestion(&'static str),
    /// No other program has registered this congestion control.
    FreeCongestion(&'static str),
    /// /etc/hosts gives 127.0.0.0/8 a name besides localhost.
    LoopbackName,
    /// A program in PATH, or at this path.
    Program(&'static str),
    /// A module of Python 3.
    PythonModule(&'static str),
    /// An environment variable that names something outside this project.
    Variable(&'static str),
}

/// Reports that the test, which returns next, is skipped because the machine has no `need`.
///
/// # Panics
///
/// If the machine has `need`: the test could have run.
pub fn skip(need: Need) {
    skip_because(need, "");
}

/// Like [`skip`], and also prints the error that the test got.
pub fn skip_because(need: Need, error: impl Display) {
    say("SKIPPED", need, &error.to_string());
}

/// Reports that a part of the test is skipped because the machine has no `need`.
///
/// # Panics
///
/// If the machine has `need`.
pub fn skip_part(need: Need) {
    say("SKIPPED in part", need, "");
}

/// Whether a program is in PATH, or at this path.
pub fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl Need {
    /// All needs that have no parameter.
    pub const ALL: [Self; 24] = [
        Self::Root,
        Self::NetworkNamespaces,
        Self::UserNamespaces,
        Self::TwoCpus,
        Self::Ipv6,
        Self::Veth,
        Self::Vlan,
        Self::Tun,
        Self::UdpSuperPackets,
        Self::Tbf,
        Self::Nftables,
        Self::StructOps,
        Self::CgroupV2,
        Self::CpuLimit,
        Self::RealTime,
        Self::PerfEvents,
        Self::Icmp,
        Self::Confinement,
        Self::KernelThreads,
        Self::DirectReads,
        Self::ProcessNumbers,
        Self::UnitAnalysis,
        Self::LoopbackName,
        Self::Congestion("reno"),
    ];

    /// Whether the machine has this feature.
    pub fn is_met(self) -> bool {
        match self {
            Self::Root => is_root(),
            Self::NetworkNamespaces => succeeds("unshare --net true"),
            Self::UserNamespaces => {
                let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --";
                succeeds(&format!("{user} unshare --user --net true"))
            }
            Self::TwoCpus => std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
            Self::Ipv6 => UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok(),
            Self::Veth => in_a_namespace("ip link add near type veth peer name far"),
            Self::Vlan => in_a_namespace(
                "ip link add near type veth && ip link add link near name near.5 type vlan id 5",
            ),
            Self::Tun => in_a_namespace("ip tuntap add tap0 mode tap"),
            Self::UdpSuperPackets => linux() >= (Some(6), Some(2)),
            Self::Tbf => {
                in_a_namespace("tc qdisc add dev lo root tbf rate 1mbit burst 9kb limit 9kb")
            }
            Self::Nftables => in_a_namespace(
                "nft \"add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                 add rule inet t c udp dport 7500 drop; \
                 add rule inet t c tcp dport 7500 reject with icmpx type admin-prohibited\"",
            ),
            Self::StructOps => {
                is_root()
                    && std::fs::read("/sys/kernel/btf/vmlinux").is_ok_and(|types| {
                        let newest: &[&[u8]] =
                            &[b"bpf_struct_ops_tcp_congestion_ops", b"tcx_link", b"icsk_rto_max"];
                        newest.iter().all(|name| holds(&types, name))
                    })
            }
            Self::CgroupV2 => reads("/proc/mounts", |line| line.contains(" cgroup2 ")),
            Self::CpuLimit => {
                let version_2 = Path::new("/sys/fs/cgroup/cpu.max").exists()
                    || reads("/sys/fs/cgroup/cgroup.subtree_control", |line| line.contains("cpu"));
                is_root()
                    && (version_2 || Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists())
            }
            Self::RealTime => succeeds("chrt --fifo 1 true"),
            Self::PerfEvents => perf_events::are_allowed(),
            Self::Icmp => is_root() || may_ping(),
            Self::Confinement => {
                // landlock_create_ruleset(2) returns the version of the interface.
                let call = "ctypes.CDLL(None).syscall(444, None, 0, 1) < 1";
                succeeds(&format!("python3 -c 'import ctypes, sys; sys.exit({call})'"))
                    && reads("/proc/self/status", |line| line.starts_with("Seccomp:"))
            }
            Self::KernelThreads => reads("/proc/2/comm", |name| name == "kthreadd"),
            Self::DirectReads => succeeds(
                "file=$(mktemp) && dd if=/dev/zero of=\"$file\" bs=4096 count=1 oflag=direct; \
                 status=$?; rm -f \"$file\"; exit $status",
            ),
            Self::ProcessNumbers => is_root() && Path::new("/proc/sys/kernel/ns_last_pid").exists(),
            Self::UnitAnalysis => succeeds(
                "systemd-analyze --version | awk 'NR == 1 { exit $2 < 250 }' && \
                 systemd-analyze --help | grep -q -e --offline",
            ),
            Self::OpenFiles(count) => is_root() || most_files().is_some_and(|most| most >= count),
            Self::Congestion(name) => offers(name),
            Self::FreeCongestion(name) => !offers(name),
            Self::LoopbackName => reads("/etc/hosts", |line| {
                let mut words = line.split_whitespace();
                words.next().is_some_and(|address| address.starts_with("127."))
                    && words.any(|name| !name.starts_with("localhost"))
            }),
            Self::Program(name) => is_installed(name),
            Self::PythonModule(name) => succeeds(&format!("python3 -c 'import {name}'")),
            Self::Variable(name) => std::env::var_os(name).is_some(),
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::NetworkNamespaces => f.write_str("network namespaces"),
            Self::UserNamespaces => f.write_str("user namespaces for every user"),
            Self::TwoCpus => f.write_str("two CPUs"),
            Self::Ipv6 => f.write_str("IPv6"),
            Self::Veth => f.write_str("veth"),
            Self::Vlan => f.write_str("VLAN interfaces"),
            Self::Tun => f.write_str("TUN and TAP"),
            Self::UdpSuperPackets => f.write_str("UDP super-packets of packet sockets"),
            Self::Tbf => f.write_str("tbf"),
            Self::Nftables => f.write_str("nftables"),
            Self::StructOps => f.write_str("struct_ops"),
            Self::CgroupV2 => f.write_str("control groups of version 2"),
            Self::CpuLimit => f.write_str("CPU limits of control groups"),
            Self::RealTime => f.write_str("real-time scheduling"),
            Self::PerfEvents => f.write_str("perf events of every CPU"),
            Self::Icmp => f.write_str("ICMP sockets"),
            Self::Confinement => f.write_str("landlock and seccomp"),
            Self::KernelThreads => f.write_str("kernel threads in /proc"),
            Self::DirectReads => f.write_str("direct reads of temporary files"),
            Self::ProcessNumbers => f.write_str("process numbers that a program chooses"),
            Self::UnitAnalysis => f.write_str("systemd-analyze of units by file"),
            Self::OpenFiles(count) => write!(f, "{count} open files"),
            Self::Congestion(name) => write!(f, "congestion control {name}"),
            Self::FreeCongestion(name) => write!(f, "{name} unused by other programs"),
            Self::LoopbackName => f.write_str("a name of 127.0.0.0/8 in /etc/hosts"),
            Self::Program(name) => write!(f, "program {name}"),
            Self::PythonModule(name) => write!(f, "Python module {name}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}

fn say(how: &str, need: Need, error: &str) {
    assert!(
        !need.is_met(),
        "this machine has the need of a test that was to be skipped ({need}): {error}"
    );
    let colon = if error.is_empty() { "" } else { ": " };
    eprintln!("{how}: no {need}{colon}{error}");
}

/// Whether a shell command exits with status 0.
fn succeeds(line: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn in_a_namespace(line: &str) -> bool {
    succeeds(&format!("unshare --net sh -c '{line}'"))
}

fn reads(path: &str, mut holds: impl FnMut(&str) -> bool) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(&mut holds))
}

fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|part| part == word)
}

fn is_root() -> bool {
    reads("/proc/self/status", |line| {
        line.strip_prefix("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
    })
}

/// Whether this process's group is in the range of net.ipv4.ping_group_range.
fn may_ping() -> bool {
    let mut group = None;
    reads("/proc/self/status", |line| {
        group =
            line.strip_prefix("Gid:").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
        group.is_some()
    });
    reads("/proc/sys/net/ipv4/ping_group_range", |line| {
        let ends: Vec<u64> = line.split_whitespace().filter_map(|end| end.parse().ok()).collect();
        matches!((&ends[..], group), ([least, most], Some(group)) if (*least..=*most).contains(&group))
    })
}

/// Returns the major and minor number of the kernel's version.
fn linux() -> (Option<u32>, Option<u32>) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
}

fn most_files() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

fn offers(congestion: &str) -> bool {
    reads("/proc/sys/net/ipv4/tcp_available_congestion_control", |line| {
        line.split_whitespace().any(|name| name == congestion)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scripts/test` shows the two printed lines at its end.
    #[test]
    fn needs_that_this_machine_has_and_lacks_are_printed() {
        let (has, lacks): (Vec<_>, Vec<_>) = Need::ALL.into_iter().partition(|need| need.is_met());
        let list =
            |needs: Vec<Need>| needs.iter().map(Need::to_string).collect::<Vec<_>>().join(", ");
        println!("MACHINE has: {}", list(has));
        println!("MACHINE lacks: {}", list(lacks));
    }

    #[test]
    #[should_panic(expected = "this machine has the need")]
    fn skipping_a_test_that_could_run_panics() {
        skip_because(Need::Program("sh"), "the product says that there is no sh");
    }

    #[test]
    fn an_absent_program_or_variable_is_an_unmet_need() {
        // Does not call `skip`: scripts/test would count this test as skipped.
        assert!(!Need::Program("no-such-program-here").is_met());
        assert!(!Need::Program("/proc/no-such-program").is_met());
        assert!(!Need::Variable("NO_SUCH_VARIABLE_HERE").is_met());
        assert!(!Need::OpenFiles(u64::MAX).is_met() || is_root());
    }
}
