//! Open vSwitch with its DPDK datapath, in a folder of its own: database, sockets and log. The
//! machine's own Open vSwitch, if it runs, is not touched.

use super::control::Control;
use super::running::{RunningSwitch, await_control, finish};
use super::{BRIDGE, INPUT, OUTPUT, Setup, Source};
use crate::bench::machine::{MachineStep, Started};
use crate::model::Failure;
use host::Namespace;
use std::path::Path;
use std::time::{Duration, Instant};

/// The programs, from Debian's packages openvswitch-switch and openvswitch-switch-dpdk.
pub(super) const PROGRAMS: &[&str] =
    &[VSWITCHD, OVSDB_SERVER, "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"];

/// The settings of Open vSwitch's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workloads) enum Tuning {
    /// The defaults: at most 200,000 cached flows, and an exact-match cache of 8,192 entries.
    Stock,
    /// The advice of Open vSwitch's documentation for many flows.
    ManyFlows,
}

pub(super) fn start(
    setup: &Setup<'_>,
    tuning: Tuning,
    inside: &Namespace,
    step: &MachineStep<'_>,
) -> Result<RunningSwitch, Failure> {
    let made = tempfile::Builder::new().prefix("ovs-").tempdir_in(step.programs);
    let folder = made.map_err(|error| Failure::io("making a folder for Open vSwitch", &error))?;
    let starter = Starter { folder: folder.path(), inside, step };
    let database = starter.file("conf.db");
    starter.finish(&["ovsdb-tool", "create", &database, SCHEMA])?;
    let socket = starter.file("db.sock");
    let remote = format!("--remote=punix:{socket}");
    let unixctl = format!("--unixctl={}", starter.file("ovsdb.ctl"));
    let mut server = starter.start(&[OVSDB_SERVER, &database, &remote, &unixctl, LOG])?;
    await_control(&Control::at(&folder.path().join("ovsdb.ctl")), &mut server, step)?;
    let memory = Memory::of_machine();
    starter.vsctl(&["--no-wait", "init"])?;
    // Open vSwitch's other threads use a CPU without packet threads, if the machine has a free CPU.
    let free = host::online_cpus().into_iter().find(|cpu| !setup.cpus.contains(cpu)).unwrap_or(0);
    let options = [
        "dpdk-init=true".to_owned(),
        "per-port-memory=true".to_owned(),
        format!("dpdk-lcore-mask={:#x}", 1_u128 << free),
        format!("pmd-cpu-mask={:#x}", setup.cpus.iter().fold(0_u128, |mask, cpu| mask | 1 << cpu)),
        format!("dpdk-extra=\"{}\"", memory.options()),
    ];
    let options: Vec<String> = options
        .iter()
        .map(String::as_str)
        .chain(tuning.options().iter().copied())
        .map(|option| format!("other_config:{option}"))
        .collect();
    let mut set = vec!["--no-wait", "set", "Open_vSwitch", "."];
    set.extend(options.iter().map(String::as_str));
    starter.vsctl(&set)?;
    let unixctl = format!("--unixctl={}", starter.file("vswitchd.ctl"));
    let database = format!("unix:{socket}");
    let mut vswitchd = starter.start(&[VSWITCHD, &database, &unixctl, LOG])?;
    let control = Control::at(&folder.path().join("vswitchd.ctl"));
    await_control(&control, &mut vswitchd, step)?;
    let bridge = [
        "add-br",
        BRIDGE,
        "--",
        "set",
        "bridge",
        BRIDGE,
        "datapath_type=netdev",
        "fail-mode=secure",
    ];
    starter.vsctl(&bridge)?;
    let (input, output) = ports(setup.source, setup.cpus.len());
    starter.add_port("out0", &output, OUTPUT)?;
    let begun = Instant::now();
    let management = format!("unix:{}", starter.file(&format!("{BRIDGE}.mgmt")));
    let rules = setup.rules.display().to_string();
    starter.finish(&["ovs-ofctl", "add-flows", &management, &rules])?;
    let loading = begun.elapsed();
    starter.add_port("in0", &input, INPUT)?;
    let remark = Some(tuning.remark(memory));
    let add_rule = ["ovs-ofctl", "add-flow", &management].map(str::to_owned).to_vec();
    Ok(RunningSwitch {
        add_rule,
        programs: vec![server, vswitchd],
        control,
        loading,
        remark,
        _folder: folder,
    })
}

impl Tuning {
    /// Returns the settings of `other_config` that differ from the defaults.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Stock => &[],
            Self::ManyFlows => MANY_FLOWS,
        }
    }

    fn remark(self, memory: Memory) -> String {
        let of_memory = memory.remark();
        match self {
            Self::Stock => of_memory,
            Self::ManyFlows => format!("{}; {of_memory}", self.options().join(", ")),
        }
    }
}

/// Starts Open vSwitch's programs, which keep their files in one folder of the step.
struct Starter<'a> {
    folder: &'a Path,
    inside: &'a Namespace,
    step: &'a MachineStep<'a>,
}

impl Starter<'_> {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start(&self, words: &[&str]) -> Result<Started, Failure> {
        let folder = self.folder.display();
        let mut argv = vec!["env".to_owned()];
        argv.extend(FOLDERS.iter().map(|name| format!("{name}={folder}")));
        argv.extend(words.iter().map(|word| (*word).to_owned()));
        Started::new(self.inside, argv, &[], self.step)
    }

    fn finish(&self, words: &[&str]) -> Result<String, Failure> {
        let name = words.first().copied().unwrap_or_default();
        finish(self.start(words)?, FINISHED_WITHIN, self.step).map_err(|failure| match failure {
            Failure::Workload(reason) => Failure::Workload(format!("{name}: {reason}")),
            other => other,
        })
    }

    fn vsctl(&self, words: &[&str]) -> Result<String, Failure> {
        let database = format!("--db=unix:{}", self.file("db.sock"));
        let own = ["ovs-vsctl", "--timeout=30", &database];
        self.finish(&[&own, words].concat())
    }

    fn add_port(&self, name: &str, options: &[String], number: u32) -> Result<(), Failure> {
        let number = format!("ofport_request={number}");
        let mut words = vec!["add-port", BRIDGE, name, "--", "set", "Interface", name];
        words.extend(options.iter().map(String::as_str));
        words.push(&number);
        self.vsctl(&words)?;
        let error = self.vsctl(&["get", "Interface", name, "error"])?;
        match error.trim() {
            "[]" => Ok(()),
            error => Err(Failure::Workload(format!(
                "Open vSwitch cannot open the port {name}: {}; are librte-mempool-ring23, \
                 librte-net-pcap23, librte-net-null23 and librte-net-af-packet23 installed, and \
                 librte-net-tap23 for TAP devices?",
                units::foreign(error)
            ))),
        }
    }
}

/// Returns the options of the receiving port, and of the sending port.
fn ports(source: &Source, threads: usize) -> (Vec<String>, Vec<String>) {
    let devargs =
        |text: String| vec!["type=dpdk".to_owned(), format!("options:dpdk-devargs=\"{text}\"")];
    match source {
        Source::Interfaces { input, output } => (
            devargs(format!("net_af_packet0,iface={input}")),
            devargs(format!("net_af_packet1,iface={output}")),
        ),
        Source::Taps { input, output } => {
            // Open vSwitch uses a transmit queue for each packet thread and one transmit queue
            // more. The driver requires the same number of receive queues.
            let queues = format!("options:n_rxq={}", threads + 1);
            let port = |text| [devargs(text), vec![queues.clone()]].concat();
            (port(format!("net_tap0,iface={input}")), port(format!("net_tap1,iface={output}")))
        }
        Source::VhostUser { input, output } => {
            let port = |path: &Path| {
                let path = path.display();
                let path = format!("options:vhost-server-path=\"{path}\"");
                vec!["type=dpdkvhostuserclient".to_owned(), path]
            };
            (port(input), port(output))
        }
        Source::Captures { parts, frames, .. } => {
            let captures: Vec<String> =
                parts.iter().map(|part| format!("rx_pcap={}", part.display())).collect();
            let input = devargs(format!("net_pcap0,{},infinite_rx=1", captures.join(",")));
            // The device keeps every frame in a buffer of the port's pool. The pool's size follows
            // the requested numbers of queues and descriptors.
            let queues = (frames / DESCRIPTORS + SPARE_QUEUES).max(parts.len());
            let room =
                [format!("options:n_rxq={queues}"), format!("options:n_rxq_desc={DESCRIPTORS}")];
            let input = input.into_iter().chain(room).collect();
            (input, devargs("net_null0,no-rx=1".to_owned()))
        }
    }
}

/// The kind of memory that DPDK uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Huge,
    Ordinary,
}

impl Memory {
    fn of_machine() -> Self {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let number = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        match number("HugePages_Free") * number("Hugepagesize") / 1024 >= MEGABYTES {
            true => Self::Huge,
            false => Self::Ordinary,
        }
    }

    fn options(self) -> String {
        match self {
            Self::Huge => format!("--no-pci --no-telemetry --in-memory -m {MEGABYTES}"),
            Self::Ordinary => {
                format!("--no-pci --no-telemetry --no-shconf --legacy-mem --no-huge -m {MEGABYTES}")
            }
        }
    }

    fn remark(self) -> String {
        match self {
            Self::Huge => "DPDK uses huge pages".to_owned(),
            Self::Ordinary => format!(
                "DPDK uses ordinary pages, because fewer than {MEGABYTES} MB of huge pages are free"
            ),
        }
    }
}

const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const OVSDB_SERVER: &str = "/usr/sbin/ovsdb-server";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Variables with Open vSwitch's folders. DPDK makes a folder of its own in the last folder.
const FOLDERS: [&str; 5] =
    ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];
/// Log only errors, to standard error: the last line explains an early exit.
const LOG: &str = "-vconsole:err";
/// Settings for many flows: room for two million flows, no exact-match cache (EMC), and the
/// signature-match cache (SMC), which indexes 65,536 flows.
const MANY_FLOWS: &[&str] = &["flow-limit=2000000", "emc-insert-inv-prob=0", "smc-enable=true"];
const FINISHED_WITHIN: Duration = Duration::from_secs(300);
const MEGABYTES: u64 = 1536;
/// Maximum number of descriptors that Open vSwitch accepts for a queue.
const DESCRIPTORS: usize = 4096;
const SPARE_QUEUES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_pcap_ports_pool_has_a_buffer_for_every_frame() {
        let source = |frames| Source::Captures {
            whole: PathBuf::from("/r/all.pcap"),
            parts: vec![PathBuf::from("/r/0.pcap"), PathBuf::from("/r/1.pcap")],
            frames,
        };
        let (input, _) = ports(&source(262_144), 1);
        let devargs = "net_pcap0,rx_pcap=/r/0.pcap,rx_pcap=/r/1.pcap,infinite_rx=1";
        assert_eq!(input[1], format!("options:dpdk-devargs=\"{devargs}\""));
        assert_eq!(input[2..], ["options:n_rxq=68", "options:n_rxq_desc=4096"]);
        assert_eq!(ports(&source(256), 1).0[2], "options:n_rxq=4");
    }

    #[test]
    fn the_remark_of_a_tuned_peer_names_its_settings_and_its_pages() {
        let stock = Tuning::Stock.remark(Memory::Huge);
        assert_eq!(stock, "DPDK uses huge pages");
        let tuned = Tuning::ManyFlows.remark(Memory::Ordinary);
        let settings =
            "flow-limit=2000000, emc-insert-inv-prob=0, smc-enable=true; DPDK uses ordin";
        assert!(tuned.starts_with(settings), "{tuned}");
    }

    #[test]
    fn a_tap_port_has_equal_receive_and_transmit_queue_counts() {
        let source = Source::Taps { input: "tap0".to_owned(), output: "tap1".to_owned() };
        let (input, output) = ports(&source, 2);
        assert_eq!(input[1..], ["options:dpdk-devargs=\"net_tap0,iface=tap0\"", "options:n_rxq=3"]);
        assert_eq!(output[1], "options:dpdk-devargs=\"net_tap1,iface=tap1\"");
    }
}
