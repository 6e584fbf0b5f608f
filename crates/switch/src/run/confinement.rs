//! Removes the rights that no port, bridge or socket needs from the process of a switch.
//!
//! Ports can be added later, so the process keeps the rights of every kind of port.

use std::path::{Path, PathBuf};

use host::{Calls, ConfinedPaths, Confinement, MetricsAddress, Policy};
use port::RingPort;
use rustix::thread::CapabilitySet;

use super::config::{BridgeConfig, Config, OvsdbAddress, PortConfig, Role};
use super::error::SwitchError;
use super::tls::TlsSettings;

/// Confines this thread, and threads that it starts later, permanently. Call this function before
/// other threads start.
pub(super) fn confine(config: &Config, rundir: &Path, settings: Option<&Path>) {
    let paths = paths(config, rundir, settings);
    if rustix::process::geteuid().is_root() {
        for directory in paths.too_wide() {
            tracing::warn!(
                "files of this switch lie in {}, so the switch may read all of root's files there: \
                 move them to a directory of their own",
                directory.display()
            );
        }
    }
    let confinement = host::confine(&POLICY, &paths);
    if confinement.has_files() {
        paths.remember();
    }
    report(&confinement);
}

/// Confines as [`confine`] does, but does not restrict access to files: ports that are added later
/// may name files anywhere.
pub(super) fn confine_calls() {
    report(&host::confine_calls(&POLICY));
}

fn report(confinement: &Confinement) {
    for warning in confinement.warnings() {
        tracing::warn!("{warning}");
    }
    tracing::debug!("{confinement}");
}

/// Refuses a port whose files lie outside the directories of this process.
pub(super) fn check_port(name: &str, port: &PortConfig) -> Result<(), SwitchError> {
    let mut paths = ConfinedPaths::default();
    add_port(port, &mut paths);
    check(&format!("port {name}"), &paths)
}

/// Refuses a bridge whose rules lie outside the directories of this process.
pub(super) fn check_bridge(name: &str, bridge: &BridgeConfig) -> Result<(), SwitchError> {
    let mut paths = ConfinedPaths::default();
    bridge.flows.iter().for_each(|file| paths.reads(file));
    check(&format!("bridge {name}"), &paths)
}

/// Returns the first directory of files for TLS that this process cannot open.
pub(super) fn tls_outside(tls: &TlsSettings) -> Option<PathBuf> {
    let mut paths = ConfinedPaths::default();
    add_tls(tls, &mut paths);
    paths.given_up().map(Path::to_owned)
}

fn check(what: &str, paths: &ConfinedPaths) -> Result<(), SwitchError> {
    match paths.given_up() {
        None => Ok(()),
        Some(path) => Err(SwitchError::Confined { what: what.to_owned(), path: path.to_owned() }),
    }
}

fn paths(config: &Config, rundir: &Path, settings: Option<&Path>) -> ConfinedPaths {
    let mut paths = ConfinedPaths::default();
    settings.into_iter().for_each(|file| paths.reads(file));
    paths.binds_in(rundir);
    // Ports that are added later may write captures here.
    paths.writes(&rundir.join("capture"));
    // Rings with a name instead of a path are in this directory.
    paths.binds_in(Path::new("/dev/shm"));
    paths.controls(Path::new("/dev/net/tun"));
    if let Some(MetricsAddress::Unix(socket)) = config.metrics_on.as_deref() {
        paths.binds(socket);
    }
    if let Some(OvsdbAddress(socket)) = &config.ovsdb {
        paths.connects(socket);
        // The database names the files for TLS later; users of the database keep these files here.
        paths.writes(Path::new("/etc/openvswitch/cacert.pem"));
        paths.reads(Path::new("/etc/openvswitch/cacert.pem"));
        paths.reads(Path::new("/var/lib/openvswitch/pki/switchca/cacert.pem"));
        paths.reads(Path::new("/var/lib/openvswitch/pki/controllerca/cacert.pem"));
    }
    config.tls.iter().for_each(|tls| add_tls(tls, &mut paths));
    if config.dummies {
        // Test cases of Open vSwitch name captures in the switch's directory.
        let capture = PathBuf::from("capture");
        paths.reads(&capture);
        paths.writes(&capture);
    }
    for bridge in config.bridge.values() {
        bridge.flows.iter().for_each(|file| paths.reads(file));
        bridge.port.values().for_each(|port| add_port(port, &mut paths));
    }
    paths
}

fn add_tls(tls: &TlsSettings, paths: &mut ConfinedPaths) {
    paths.reads(&tls.private_key);
    paths.reads(&tls.certificate);
    paths.reads(&tls.ca_certificate);
    if tls.bootstrap_ca_certificate {
        paths.writes(&tls.ca_certificate);
    }
}

fn add_port(port: &PortConfig, paths: &mut ConfinedPaths) {
    port.file.iter().for_each(|file| paths.reads(file));
    port.write.iter().for_each(|file| paths.writes(file));
    if let Some(path) = &port.path {
        let socket = match port.kind.as_str() {
            "ring" => RingPort::path_of(&path.to_string_lossy()),
            _ => path.clone(),
        };
        match port.role {
            Some(Role::Client) => paths.connects(&socket),
            Some(Role::Server) | None => paths.binds(&socket),
        }
    }
}

const POLICY: Policy = Policy {
    // CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF: ports at interfaces. CAP_IPC_LOCK: the memory of an
    // AF_XDP port exceeds RLIMIT_MEMLOCK. CAP_NET_BIND_SERVICE: OpenFlow may listen at a port below
    // 1024. CAP_DAC_OVERRIDE: a virtual machine's vhost-user socket may belong to another user.
    capabilities: CapabilitySet::NET_RAW
        .union(CapabilitySet::NET_ADMIN)
        .union(CapabilitySet::BPF)
        .union(CapabilitySet::IPC_LOCK)
        .union(CapabilitySet::NET_BIND_SERVICE)
        .union(CapabilitySet::DAC_OVERRIDE),
    // A backtrace opens libraries; the switch reads the properties of interfaces and of their PCI
    // devices.
    system: &[
        host::LIBRARIES,
        &[
            "/usr/share/zoneinfo",
            "/sys/bus/pci/devices",
            "/sys/class/net",
            "/sys/devices",
            "/sys/fs/cgroup",
            "/proc/self",
            "/dev/null",
        ],
    ],
    calls: &[Calls::Pin, Calls::Routes, Calls::Ports],
};

#[cfg(test)]
mod tests {
    use super::*;
    use host::PrivateDirectory;
    use testing::Need;

    #[test]
    fn a_switch_of_root_is_refused_every_forbidden_call_except_packet_sockets() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(Need::Root);
        }
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("file"), "text").unwrap();
        let rundir = own.path().join("run");
        let folder = PrivateDirectory::make_named(&rundir).unwrap();
        let config = Config::default();
        // Confine only this thread, which ends with the test.
        let enforced = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let confinement = host::confine(&POLICY, &paths(&config, &rundir, None));
                if !confinement.is_whole() {
                    return false;
                }
                assert_eq!(testing::permitted(other.path()), ["socket AF_PACKET: Ok(())"]);
                let (listener, file) = folder.socket("br0.mgmt").listen(None).unwrap();
                drop((listener, file));
                assert_eq!(std::fs::read_dir(&rundir).unwrap().count(), 0);
                true
            });
            thread.join().unwrap()
        });
        if !enforced {
            return testing::skip_part(Need::Confinement);
        }
        let refused = testing::forbidden_names().count() - 1;
        eprintln!("ATTACK confined-switch: {refused} calls refused");
    }

    #[test]
    fn each_file_and_socket_of_the_settings_is_within_the_confinement() {
        let text = "[bridge.br0]\nflows = \"/flows/br0\"\n[bridge.br0.port]\n\
                    p1 = { type = \"pcap\", file = \"/in/a.pcap\", write = \"/out/b.pcap\" }\n\
                    p2 = { type = \"ring\", path = \"/rings/r\" }\n\
                    p3 = { type = \"ring\", path = \"plain\" }\n\
                    p4 = { type = \"vhost-user\", path = \"/vm/socket\", role = \"client\" }\n\
                    [tls]\nprivate-key = \"/key/k\"\ncertificate = \"/key/c\"\n\
                    ca-certificate = \"/ca/c\"\nbootstrap-ca-certificate = true";
        let config: Config = settings::parse(text).unwrap();
        let file = Path::new("/settings/switch.toml");
        let mut expected = paths(&Config::default(), Path::new("/run/sw"), Some(file));
        expected.reads(Path::new("/flows/br0"));
        expected.reads(Path::new("/in/a.pcap"));
        expected.writes(Path::new("/out/b.pcap"));
        expected.binds(Path::new("/rings/r"));
        expected.connects(Path::new("/vm/socket"));
        expected.reads(Path::new("/key/k"));
        expected.reads(Path::new("/ca/c"));
        expected.writes(Path::new("/ca/c"));
        assert_eq!(paths(&config, Path::new("/run/sw"), Some(file)), expected);
    }
}
