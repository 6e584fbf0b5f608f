//! Removes the rights that the ports of a generator do not need from the generator's process.

use std::path::{Path, PathBuf};

use host::{Calls, ConfinedPaths, Policy};
use port::RingPort;
use rustix::thread::CapabilitySet;

use crate::run::{PortKind, PortSpec};

/// Confines this thread, and threads that it starts later, permanently. `report`: a file that the
/// program writes later. Call this function before the ports are open.
pub fn confine(ports: &[PortSpec], report: Option<&Path>) {
    let (policy, paths) = rights(ports, report);
    let confinement = match ports.iter().any(names_process) {
        true => host::confine_calls(&policy),
        false => host::confine(&policy, &paths),
    };
    for warning in confinement.warnings() {
        tracing::warn!("{warning}");
    }
    tracing::debug!("{confinement}");
}

/// Whether the port's namespace is the namespace of a process, possibly through a link. A thread
/// under Landlock cannot open such a namespace.
fn names_process(port: &PortSpec) -> bool {
    match &port.kind {
        PortKind::Interface { namespace: Some(name), .. }
        | PortKind::Xdp { namespace: Some(name), .. } => {
            let path = match name.contains('/') {
                true => PathBuf::from(name),
                false => Path::new("/run/netns").join(name),
            };
            let target = std::fs::read_link(&path).unwrap_or_default();
            path.starts_with("/proc") || target.starts_with("/proc")
        }
        _ => false,
    }
}

fn rights(ports: &[PortSpec], report: Option<&Path>) -> (Policy, ConfinedPaths) {
    let (mut policy, mut paths) = (POLICY, ConfinedPaths::default());
    report.into_iter().for_each(|file| paths.writes(file));
    let mut enters_networks = false;
    for port in ports {
        match &port.kind {
            PortKind::Interface { namespace, .. } | PortKind::Xdp { namespace, .. } => {
                enters_networks |= namespace.is_some();
                if let Some(path) = namespace.as_deref().filter(|name| name.contains('/')) {
                    paths.reads(Path::new(path));
                }
            }
            PortKind::Tap(_) => {
                // To bring the device up, the generator enters its own namespace.
                enters_networks = true;
                paths.controls(Path::new("/dev/net/tun"));
            }
            PortKind::Ring { place, listens } => {
                let path = RingPort::path_of(place);
                if *listens { paths.binds(&path) } else { paths.connects(&path) }
            }
            PortKind::Vhost { path, listens } => {
                if *listens {
                    paths.binds(path)
                } else {
                    paths.connects(path)
                }
            }
            PortKind::Capture(file) => paths.writes(file),
            PortKind::Null => {}
        }
    }
    if enters_networks {
        policy.capabilities |= CapabilitySet::SYS_ADMIN;
        policy.calls = &[Calls::Routes, Calls::Ports, Calls::RealTime, Calls::Networks];
    }
    if paths.has_foreign() {
        policy.capabilities |= CapabilitySet::DAC_OVERRIDE;
    }
    (policy, paths)
}

const POLICY: Policy = Policy {
    // CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF: ports at interfaces. CAP_IPC_LOCK: the memory of an
    // AF_XDP port exceeds RLIMIT_MEMLOCK. CAP_SYS_NICE: the sending threads are real-time threads.
    capabilities: CapabilitySet::NET_RAW
        .union(CapabilitySet::NET_ADMIN)
        .union(CapabilitySet::BPF)
        .union(CapabilitySet::IPC_LOCK)
        .union(CapabilitySet::SYS_NICE),
    // /proc shows how long other programs wait for a CPU, and /run/netns has the namespaces of `ip
    // netns`.
    system: &[
        host::LIBRARIES,
        &[
            "/usr/share/zoneinfo",
            "/sys/class/net",
            "/sys/devices",
            "/sys/fs/cgroup",
            "/proc",
            "/run/netns",
            "/dev/null",
        ],
    ],
    calls: &[Calls::Routes, Calls::Ports, Calls::RealTime],
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testing::Need;

    #[test]
    fn the_namespace_of_a_process_is_noticed_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("container");
        std::os::unix::fs::symlink("/proc/1/ns/net", &link).unwrap();
        let is_noticed = |text: &str| names_process(&text.parse().unwrap());
        assert!(is_noticed("/proc/1/ns/net:eth0") && is_noticed("xdp:/proc/1/ns/net:eth0"));
        assert!(is_noticed(&format!("{}:eth0", link.display())));
        assert!(!is_noticed("near:eth0") && !is_noticed("eth0") && !is_noticed("tap:t0"));
    }

    #[test]
    fn a_generator_of_root_is_refused_every_forbidden_call_except_packet_sockets() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(Need::Root);
        }
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("file"), "text").unwrap();
        let capture = own.path().join("sent.pcap");
        let has_real_time = Need::RealTime.is_met();
        let ports = [
            format!("pcap:{}", capture.display()).parse().unwrap(),
            "tap:t0".parse().unwrap(),
            "near:eth0".parse().unwrap(),
        ];
        // Each call of `under` confines only its own thread, so the calls are independent.
        let under = |ports: &[PortSpec]| {
            let (policy, paths) = rights(ports, None);
            if !host::confine(&policy, &paths).is_whole() {
                return false;
            }
            assert_eq!(testing::permitted(other.path()), ["socket AF_PACKET: Ok(())"]);
            if has_real_time {
                host::real_time().unwrap();
            }
            true
        };
        let enforced = std::thread::scope(|scope| {
            let few = scope.spawn(|| under(&["eth0".parse().unwrap()]));
            let all = scope.spawn(|| {
                let enforced = under(&ports);
                if enforced {
                    fs::write(&capture, "frames").unwrap();
                }
                enforced
            });
            few.join().unwrap() && all.join().unwrap()
        });
        if !enforced {
            return testing::skip_part(Need::Confinement);
        }
        let refused = testing::forbidden_names().count() - 1;
        eprintln!("ATTACK confined-gen: {refused} calls refused");
    }
}
