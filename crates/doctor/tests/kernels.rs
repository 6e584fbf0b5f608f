//! `/proc` and `/sys` of other kernels and machines. All trees are synthetic, with the formats of
//! those kernels, and the values of machines on which nothing is wrong.
#![allow(clippy::unwrap_used)]

use doctor::observe::{Observer, Plan};
use doctor::recording::Machine;
use doctor::{Diagnosis, Question, Recording, VerdictKind, diagnose};
use probe::tree::Tree;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The file formats of a kernel release, from its source.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    release: &'static str,
    /// Columns of softnet_stat: 11 before 5.10, 13 from then on, 15 since 6.4.
    softnet: usize,
    stalls: Stalls,
    netstat: &'static [&'static str],
    cores: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stalls {
    /// The kernel has no pressure information, or a container hides it.
    None,
    /// The kernel is older than 5.13: `cpu` has no `full` line.
    Some,
    Full,
}

const OLD: &[&str] = &["ListenOverflows", "ListenDrops", "TCPTimeouts", "TCPSpuriousRTOs"];
const NEW: &[&str] = &[
    "ListenOverflows",
    "ListenDrops",
    "TCPTimeouts",
    "TCPSpuriousRTOs",
    "TCPSynRetrans",
    "TCPMemoryPressures",
    "TCPAbortOnMemory",
    "TCPZeroWindowDrop",
    "TCPPLBRehash",
    "TCPAOBad",
];
const KERNELS: &[Kernel] = &[
    Kernel {
        release: "4.19.0-27-amd64",
        softnet: 11,
        stalls: Stalls::None,
        netstat: OLD,
        cores: 2,
    },
    Kernel {
        release: "5.10.0-30-amd64",
        softnet: 13,
        stalls: Stalls::Some,
        netstat: OLD,
        cores: 1,
    },
    Kernel {
        release: "6.1.0-28-cloud-amd64",
        softnet: 13,
        stalls: Stalls::None,
        netstat: NEW,
        cores: 4,
    },
    Kernel { release: "6.12.9-arm64", softnet: 15, stalls: Stalls::Full, netstat: NEW, cores: 512 },
];

type Files = BTreeMap<String, String>;

/// Builds the files at the time `at`. Every counter grows with `at`.
fn files(kernel: Kernel, at: u64) -> Files {
    let mut files = Files::new();
    let mut add = |path: &str, text: String| files.insert(path.to_owned(), text);
    add("proc/sys/kernel/osrelease", format!("{}\n", kernel.release));
    let times = format!("{} 3 {} {} 7 0 {} 0 0 0", 100 + at, 50 + at, 90_000 + 1000 * at, 9 + at);
    let mut stat = format!("cpu  {times}\n");
    let mut softnet = String::new();
    let mut softirqs = String::from("     ");
    for core in 0..kernel.cores {
        writeln!(stat, "cpu{core} {times}").unwrap();
        let mut columns = vec![0u64; kernel.softnet];
        columns[0] = (u64::from(u32::MAX) - 100 + at * 300) & u64::from(u32::MAX);
        if kernel.softnet > 12 {
            columns[12] = core as u64;
        }
        let columns: Vec<_> = columns.iter().map(|value| format!("{value:08x}")).collect();
        writeln!(softnet, "{}", columns.join(" ")).unwrap();
        write!(softirqs, " CPU{core}").unwrap();
    }
    stat += "intr 123 0 0\nctxt 99\nbtime 1700000000\nprocesses 5\nprocs_running 1\n";
    add("proc/stat", stat);
    add("proc/net/softnet_stat", softnet);
    let counts = vec![(40 + at).to_string(); kernel.cores].join(" ");
    add("proc/softirqs", format!("{softirqs}\n NET_TX: {counts}\n NET_RX: {counts}\n"));
    let row = |name: &str, fields: &[&str], value: u64| {
        let values = vec![value.to_string(); fields.len()].join(" ");
        format!("{name}: {}\n{name}: {values}\n", fields.join(" "))
    };
    let ip = row("Ip", &["InHdrErrors", "InDiscards", "OutDiscards", "OutNoRoutes"], 2);
    let icmp = row("Icmp", &["InMsgs", "InDestUnreachs"], 5);
    let tcp = ["ActiveOpens", "PassiveOpens", "AttemptFails", "OutSegs", "RetransSegs"];
    let tcp = row("Tcp", &tcp, 10);
    let udp = row("Udp", &["InDatagrams", "RcvbufErrors"], 4);
    add("proc/net/snmp", ip + &icmp + &tcp + &udp);
    add("proc/net/netstat", row("TcpExt", kernel.netstat, 3) + &row("IpExt", &["InOctets"], at));
    let sockets = "sockets: used 9\nTCP: inuse 1 orphan 0 tw 0 alloc 2 mem 1\nUDP: inuse 0 mem 0\n";
    add("proc/net/sockstat", sockets.to_owned());
    add("proc/sys/net/ipv4/tcp_mem", "100 200 300\n".to_owned());
    add("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n".to_owned());
    let some = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", 100 + at);
    let full = some.replace("some", "full");
    for resource in ["cpu", "io", "memory"] {
        let path = format!("proc/pressure/{resource}");
        match (kernel.stalls, resource) {
            (Stalls::None, _) => continue,
            (Stalls::Some, "cpu") => add(&path, some.clone()),
            _ => add(&path, some.clone() + &full),
        };
    }
    let header =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid";
    let header = format!("{header}  timeout inode ref pointer drops\n");
    add("proc/net/udp", header);
    add("proc/cpuinfo", "flags\t\t: fpu hypervisor\n".to_owned());
    let name = "a b) R (\u{1b}]0;x\u{7}";
    let numbers = "0 ".repeat(9);
    let stat =
        format!("1 ({name}) S 0 1 1 {numbers} {at} {at} 0 0 20 0 1 0 5 1 1 {numbers}{numbers}");
    add("proc/1/stat", format!("{stat}\n"));
    add("proc/1/comm", format!("{name}\n"));
    add("sys/class/net/eth0/speed", "1000\n".to_owned());
    add("sys/class/net/eth0/duplex", "full\n".to_owned());
    add("sys/class/net/eth0/ifindex", "2\n".to_owned());
    files
}

fn write(root: &Path, files: &Files) {
    for (name, text) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Diagnoses two samples of one tree, whose files change in between.
fn judged(first: &Files, last: &Files) -> Diagnosis {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), first);
    let tree = Tree::at(folder.path().to_str().unwrap());
    let mut observer = Observer::begin(tree, Plan::default());
    for name in first.keys().filter(|name| !last.contains_key(*name)) {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    write(folder.path(), last);
    observer.sample();
    let mut recording = Recording::new(Machine::default());
    observer.finish("a tree", &mut recording);
    // Reads the recording back, as a user of another machine does.
    let text = serde_json::to_string(&recording).unwrap();
    let recording = Recording::parse(&text).unwrap();
    diagnose(&recording, Question::of(&recording))
}

fn assert_no_fault(diagnosis: &Diagnosis, what: &str) {
    let verdict = &diagnosis.verdict;
    assert_ne!(verdict.kind, VerdictKind::Limited, "{what}: {verdict:?}");
    let text = doctor::output::text(diagnosis, 100, true) + &doctor::output::json(diagnosis);
    let is_dirty = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(is_dirty), "{what}: {text:?}");
}

#[test]
fn each_kernel_is_read_and_has_no_fault() {
    for kernel in KERNELS {
        let diagnosis = judged(&files(*kernel, 0), &files(*kernel, 1));
        assert_no_fault(&diagnosis, kernel.release);
        assert_eq!(diagnosis.kernel, kernel.release);
        // A wrapped counter of packets is no reset, and each format of the counter is read.
        let seen =
            |cause: &str| diagnosis.periods[0].ruled_out.iter().any(|one| one.cause == cause);
        for cause in ["receive-backlog", "accept-queue", "udp-buffer"] {
            assert!(seen(cause), "{} {cause}: {:?}", kernel.release, diagnosis.periods[0]);
        }
        let text = doctor::output::text(&diagnosis, 100, true);
        let hidden = kernel.stalls == Stalls::None;
        assert_eq!(text.contains("pressure stall information"), hidden, "{text}");
    }
}

#[test]
fn a_file_that_is_missing_or_vanishes_is_no_fault() {
    for kernel in &KERNELS[..3] {
        let (first, last) = (files(*kernel, 0), files(*kernel, 1));
        for name in first.keys() {
            let without = |files: &Files| {
                let mut files = files.clone();
                files.remove(name);
                files
            };
            assert_no_fault(&judged(&without(&first), &without(&last)), name);
            assert_no_fault(&judged(&first, &without(&last)), name);
            assert_no_fault(&judged(&without(&first), &last), name);
        }
    }
    assert_no_fault(&judged(&Files::new(), &Files::new()), "an empty tree");
}

#[test]
fn a_truncated_or_corrupt_file_is_no_fault() {
    let kernel = KERNELS[1];
    let (first, last) = (files(kernel, 0), files(kernel, 1));
    for name in first.keys() {
        for text in
            ["", "\n", "\u{1b}[31m\u{0}\n", "cpu", "-1 99999999999999999999 x\n", "a: b\na: -3\n"]
        {
            let mut changed = last.clone();
            changed.insert(name.clone(), text.to_owned());
            assert_no_fault(&judged(&first, &changed), name);
            assert_no_fault(&judged(&changed, &last), name);
        }
        let mut cut = last.clone();
        let half = cut[name].len() / 2;
        cut.get_mut(name)
            .unwrap()
            .truncate((0..=half).rev().find(|at| last[name].is_char_boundary(*at)).unwrap());
        assert_no_fault(&judged(&first, &cut), name);
    }
}

#[test]
fn reset_counters_and_cores_that_go_offline_are_no_fault() {
    for kernel in KERNELS {
        // A guest reboots between the samples, or a driver resets its counters.
        assert_no_fault(&judged(&files(*kernel, 9), &files(*kernel, 0)), kernel.release);
        let fewer = Kernel { cores: kernel.cores.div_ceil(2), ..*kernel };
        assert_no_fault(&judged(&files(*kernel, 0), &files(fewer, 1)), kernel.release);
        assert_no_fault(&judged(&files(fewer, 0), &files(*kernel, 1)), kernel.release);
    }
}

/// A container shows its own network, and hides or masks most of the machine.
#[test]
fn a_container_hides_most_of_the_machine() {
    for kernel in KERNELS {
        let inside = |at: u64| {
            let mut files = files(*kernel, at);
            files.retain(|name, _| {
                let is_masked = name.starts_with("proc/pressure") || name.starts_with("sys/");
                !is_masked && name != "proc/softirqs" && name != "proc/net/softnet_stat"
            });
            // The file belongs to another user's process.
            files.remove("proc/1/comm");
            files
        };
        let diagnosis = judged(&inside(0), &inside(1));
        assert_no_fault(&diagnosis, kernel.release);
        let text = doctor::output::text(&diagnosis, 100, true);
        for hidden in
            ["the receive backlog of cores", "soft interrupts", "pressure stall information"]
        {
            assert!(text.contains(hidden), "{} {hidden}: {text}", kernel.release);
        }
    }
}

/// 32-bit counters of an old kernel wrap while they grow, and the clocks of all cores jump.
#[test]
fn wrapped_counters_and_clock_jumps_are_no_fault() {
    for kernel in KERNELS {
        let near_end = |at: u64| {
            let mut files = files(*kernel, at);
            let snmp = files.get_mut("proc/net/snmp").unwrap();
            let value = (u64::from(u32::MAX) + at) & u64::from(u32::MAX);
            *snmp = snmp.replace(" 10", &format!(" {value}"));
            let stat = files.get_mut("proc/stat").unwrap();
            *stat = stat
                .replace(" 7 0 ", &format!(" 7 {} ", if at == 0 { "99999999999" } else { "3" }));
            files
        };
        assert_no_fault(&judged(&near_end(0), &near_end(1)), kernel.release);
    }
}
