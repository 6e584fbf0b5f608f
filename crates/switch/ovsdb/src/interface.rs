//! The devices that rows of `Interface` describe.

use std::path::{Path, PathBuf};

use units::foreign;

use crate::database::Row;

/// The facts about this machine on which the types of interfaces depend.
pub trait Machine {
    /// Returns the kernel's interface of a PCI function, or the interface of the function's
    /// `representor`.
    fn interface_of_pci(&self, address: &str, representor: Option<u32>) -> Option<String>;

    /// Whether kernel interfaces and TAP devices become dummy ports, for tests.
    fn has_dummies_alone(&self) -> bool;

    /// Returns the directory for sockets of interfaces whose row names no path.
    fn rundir(&self) -> &Path;
}

/// The device of a port, by the port types of the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The kernel interface with this name; without a name here, the interface with the port's
    /// name.
    Packet {
        interface: Option<String>,
    },
    Tap {
        interface: Option<String>,
    },
    Xdp {
        interface: String,
        queue: u32,
        copy: Option<CopyMode>,
    },
    VhostUser {
        path: PathBuf,
        is_server: bool,
        queues: usize,
    },
    Pcap {
        file: Option<PathBuf>,
        write: Option<PathBuf>,
        repeats: bool,
        queues: usize,
    },
    Null,
    /// A port that is connected to a port of another bridge.
    Patch {
        peer: String,
    },
    /// A port for tests, which receives frames through `netdev-dummy/receive`.
    Dummy {
        write: Option<PathBuf>,
    },
    /// A dummy port that is connected to a dummy port of another process.
    Ring {
        path: PathBuf,
        is_server: bool,
    },
}

impl Device {
    /// Whether the device has one receive queue, whatever number an interface asks for.
    pub(crate) fn has_one_queue(&self) -> bool {
        matches!(self, Self::Packet { .. } | Self::Tap { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    Zerocopy,
    Copy,
}

/// The device that a row describes. `absence`: the reason if the device does not exist on this
/// machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub device: Device,
    pub absence: Option<String>,
}

impl From<Device> for Found {
    fn from(device: Device) -> Self {
        Self { device, absence: None }
    }
}

/// The values of the column `type` of `Interface` that the switch supports, for
/// `Open_vSwitch.iface_types`.
pub const TYPES: [&str; 10] = [
    "afxdp",
    "afxdp-nonpmd",
    "dpdk",
    "dpdkvdpa",
    "dpdkvhostuser",
    "dpdkvhostuserclient",
    "internal",
    "patch",
    "system",
    "tap",
];
const TUNNELS: [&str; 10] =
    ["bareudp", "erspan", "geneve", "gre", "gtpu", "ip6erspan", "ip6gre", "lisp", "stt", "vxlan"];

/// Finds the device that a row of `Interface` describes. The error is the text for the row's column
/// `error`.
pub fn device(row: &Row, machine: &dyn Machine) -> Result<Found, String> {
    let name = row.text("name").unwrap_or_default();
    let option = |key: &str| row.entry("options", key);
    match row.text("type").unwrap_or_default() {
        "" | "system" | "internal" | "tap" if machine.has_dummies_alone() => {
            Ok(dummy(row, machine).into())
        }
        "" | "system" => Ok(Device::Packet { interface: None }.into()),
        "internal" | "tap" => Ok(Device::Tap { interface: None }.into()),
        "afxdp" | "afxdp-nonpmd" => {
            let copy = match option("xdp-mode") {
                None | Some("best-effort") => None,
                Some("native-with-zerocopy") => Some(CopyMode::Zerocopy),
                Some("native" | "generic") => Some(CopyMode::Copy),
                Some(mode) => {
                    return Err(format!(
                        "options:xdp-mode `{}`: use best-effort, native-with-zerocopy, native or \
                         generic",
                        foreign(mode)
                    ));
                }
            };
            one_queue(row, "an AF_XDP port")?;
            Ok(Device::Xdp { interface: name.to_owned(), queue: 0, copy }.into())
        }
        "dpdk" => {
            let arguments = option("dpdk-devargs").ok_or_else(|| {
                "'dpdk' needs options:dpdk-devargs: name a PCI address such as 0000:65:00.0, or a \
                 virtual device such as net_af_packet0,iface=eth1"
                    .to_owned()
            })?;
            dpdk(row, arguments, machine)
        }
        "dpdkvdpa" => {
            let path = option("vdpa-socket-path").ok_or_else(|| {
                "'dpdkvdpa' needs options:vdpa-socket-path: the vhost-user socket of the virtual \
                 machine"
                    .to_owned()
            })?;
            let queues = number(option("vdpa-max-queues"), "options:vdpa-max-queues")?;
            Ok(Device::VhostUser {
                path: path.into(),
                is_server: false,
                queues: queues.unwrap_or(1),
            }
            .into())
        }
        "dpdkvhostuser" => {
            let path = machine.rundir().join(name);
            Ok(Device::VhostUser { path, is_server: true, queues: receive_queues(row)? }.into())
        }
        "dpdkvhostuserclient" => {
            let path = option("vhost-server-path").ok_or_else(|| {
                "'dpdkvhostuserclient' needs options:vhost-server-path: the socket at which QEMU \
                 listens"
                    .to_owned()
            })?;
            let queues = receive_queues(row)?;
            Ok(Device::VhostUser { path: path.into(), is_server: false, queues }.into())
        }
        "dummy" | "dummy-pmd" => Ok(dummy(row, machine).into()),
        "patch" => {
            let own_name = row.text("name").unwrap_or_default();
            match row.entry("options", "peer") {
                None | Some("") => Err(format!(
                    "{}: patch type requires valid 'peer' argument: set options:peer to the patch \
                     port of another bridge",
                    foreign(own_name)
                )),
                Some(peer) if peer == own_name => {
                    Err(format!("{}: patch peer must not be self", foreign(own_name)))
                }
                Some(peer) => Ok(Device::Patch { peer: peer.to_owned() }.into()),
            }
        }
        kind if TUNNELS.contains(&kind) => Err(format!(
            "type `{kind}`: tunnels are not supported: let the kernel end the tunnel (ip link add \
             type {kind}), and add its interface"
        )),
        kind => Err(format!(
            "type `{}` is not supported: the types are {}",
            foreign(kind),
            TYPES.join(", ")
        )),
    }
}

/// Finds a DPDK device: a PCI function that a kernel driver uses on this machine, or a virtual
/// device.
fn dpdk(row: &Row, arguments: &str, machine: &dyn Machine) -> Result<Found, String> {
    let own_name = row.text("name").unwrap_or_default();
    let mut parts = split(arguments);
    let name = parts.next().unwrap_or_default();
    let parts: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
    let value = |key: &str| parts.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    let interface = || {
        value("iface").map(str::to_owned).ok_or_else(|| {
            format!("dpdk-devargs `{}`: name the interface by iface=", foreign(arguments))
        })
    };
    let is = |driver: &str| {
        let kind = name.strip_prefix("net_").or(name.strip_prefix("eth_"));
        kind.and_then(|kind| kind.strip_prefix(driver))
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if is_pci(name) {
        let representor = value("representor").map(|text| {
            representor(text)
                .ok_or_else(|| format!("representor={}: name one number", foreign(text)))
        });
        let representor = representor.transpose()?;
        if let Some(interface) = machine.interface_of_pci(name, representor) {
            return Ok(Device::Packet { interface: Some(interface) }.into());
        }
        let of = representor.map(|number| format!("representor {number} of ")).unwrap_or_default();
        return Ok(Found {
            // No interface is named like a PCI address, so the port stays down until a driver
            // creates the interface of this device.
            device: Device::Packet { interface: Some(name.to_owned()) },
            absence: Some(format!(
                "could not open network device {}: the kernel has no interface of {of}PCI device \
                 {name}; bind the device to its kernel driver",
                foreign(own_name)
            )),
        });
    }
    if is("af_packet") {
        return Ok(Device::Packet { interface: Some(interface()?) }.into());
    }
    if is("af_xdp") {
        let queue = number(value("start_queue"), "start_queue")?.unwrap_or(0);
        one_queue(row, "an AF_XDP port")?;
        return Ok(Device::Xdp { interface: interface()?, queue: queue as u32, copy: None }.into());
    }
    if is("tap") {
        return Ok(Device::Tap { interface: value("iface").map(str::to_owned) }.into());
    }
    if is("pcap") {
        if let Some(interface) = value("iface") {
            return Ok(Device::Packet { interface: Some(interface.to_owned()) }.into());
        }
        return Ok(Device::Pcap {
            file: value("rx_pcap").map(PathBuf::from),
            write: value("tx_pcap").map(PathBuf::from),
            repeats: value("infinite_rx") == Some("1"),
            queues: receive_queues(row)?,
        }
        .into());
    }
    if is("null") {
        return Ok(Device::Null.into());
    }
    if is("vhost") {
        let queues = number(value("queues"), "queues")?.unwrap_or(1);
        let is_server = value("client") != Some("1");
        return Ok(Device::VhostUser { path: interface()?.into(), is_server, queues }.into());
    }
    Err(format!(
        "dpdk-devargs `{}`: no device here has that name; use a PCI address, or net_af_packet0, \
         net_af_xdp0, net_tap0, net_pcap0, net_null0 or net_vhost0 with their arguments",
        foreign(arguments)
    ))
}

fn dummy(row: &Row, machine: &dyn Machine) -> Device {
    let option = |key: &str| row.entry("options", key);
    for (key, is_server) in [("pstream", true), ("stream", false)] {
        if let Some(path) = option(key).and_then(|place| place.split_once(':')) {
            let path = machine.rundir().join(format!("{}.ring", path.1));
            return Device::Ring { path, is_server };
        }
    }
    match (option("pcap"), option("tx_pcap")) {
        // The file that the option `pcap` writes also gets the frames that the port receives.
        (Some(write), _) => Device::Dummy { write: Some(write.into()) },
        (None, Some(write)) => {
            Device::Pcap { file: None, write: Some(write.into()), repeats: false, queues: 1 }
        }
        (None, None) => Device::Dummy { write: None },
    }
}

/// Splits devargs at commas that are not within brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Whether a text is a PCI address such as `0000:65:00.0`, with or without the domain.
fn is_pci(text: &str) -> bool {
    let (bus, function) = text.rsplit_once('.').unwrap_or_default();
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<_> = bus.split(':').collect();
    matches!(parts.len(), 2 | 3)
        && parts.iter().all(|part| is_hex(part) && part.len() <= 8)
        && is_hex(function)
        && function.len() == 1
}

/// Reads the virtual function's number from `[1]`, `1`, `vf1` or `pf0vf1`.
fn representor(text: &str) -> Option<u32> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let digits = text.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    let is_one = !text.contains([',', '-']);
    is_one.then(|| digits.parse().ok()).flatten()
}

fn receive_queues(row: &Row) -> Result<usize, String> {
    Ok(number(row.entry("options", "n_rxq"), "options:n_rxq")?.unwrap_or(1).max(1))
}

fn one_queue(row: &Row, what: &str) -> Result<(), String> {
    match receive_queues(row)? {
        1 => Ok(()),
        queues => Err(format!("options:n_rxq={queues}: {what} has one queue: use 1")),
    }
}

fn number(text: Option<&str>, what: &str) -> Result<Option<usize>, String> {
    let parsed = text.map(|text| {
        text.parse::<u16>()
            .map(usize::from)
            .map_err(|_| format!("{what}={}: write a number", foreign(text)))
    });
    parsed.transpose()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::database::Database;
    use serde_json::json;

    pub(crate) struct TestMachine;

    impl Machine for TestMachine {
        fn interface_of_pci(&self, address: &str, representor: Option<u32>) -> Option<String> {
            match (address, representor) {
                ("0000:01:00.0", None) => Some("eth7".to_owned()),
                ("0000:01:00.0", Some(1)) => Some("eth7_1".to_owned()),
                _ => None,
            }
        }

        fn has_dummies_alone(&self) -> bool {
            false
        }

        fn rundir(&self) -> &Path {
            Path::new("/run/ovs")
        }
    }

    fn found(kind: &str, options: &[(&str, &str)]) -> Result<Found, String> {
        let id = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba";
        let mut database = Database::default();
        let row = json!({ "name": "p0", "type": kind, "options": ["map", options] });
        database.apply(&json!({ "Interface": { id: { "new": row } } })).unwrap();
        device(database.single("Interface").unwrap().1, &TestMachine)
    }

    #[test]
    fn interfaces_of_the_reference_report_become_ports() {
        let absent = found("dpdk", &[("dpdk-devargs", "0000:65:00.0")]).unwrap();
        let words = absent.absence.unwrap();
        assert!(words.contains("no interface of PCI device 0000:65:00.0"), "{words}");
        let vdpa = [
            ("dpdk-devargs", "0000:65:00.0,representor=[1]"),
            ("vdpa-accelerator-devargs", "0000:65:00.3"),
            ("vdpa-max-queues", "8"),
            ("vdpa-socket-path", "/var/run/virtio-forwarder/sock1"),
        ];
        let path = PathBuf::from("/var/run/virtio-forwarder/sock1");
        let expected = Device::VhostUser { path, is_server: false, queues: 8 };
        assert_eq!(found("dpdkvdpa", &vdpa), Ok(expected.into()));
        let words = found("dpdkvdpa", &[]).unwrap_err();
        assert!(words.contains("needs options:vdpa-socket-path"), "{words}");
    }

    #[test]
    fn dpdk_devices_become_equivalent_ports() {
        let packet =
            |interface: &str| Ok(Device::Packet { interface: Some(interface.to_owned()) }.into());
        let vhost = Device::VhostUser { path: "/tmp/v".into(), is_server: true, queues: 2 };
        let xdp = Device::Xdp { interface: "eth1".to_owned(), queue: 3, copy: None };
        let pcap =
            Device::Pcap { file: Some("/a.pcap".into()), write: None, repeats: true, queues: 1 };
        for (arguments, expected) in [
            ("0000:01:00.0", packet("eth7")),
            ("0000:01:00.0,representor=[1]", packet("eth7_1")),
            ("0000:01:00.0,representor=pf0vf1", packet("eth7_1")),
            ("net_af_packet0,iface=eth1", packet("eth1")),
            ("eth_af_packet0,iface=eth1", packet("eth1")),
            ("net_af_xdp1,iface=eth1,start_queue=3", Ok(xdp.into())),
            ("net_pcap0,rx_pcap=/a.pcap,infinite_rx=1", Ok(pcap.into())),
            ("net_null0", Ok(Device::Null.into())),
            ("net_vhost0,iface=/tmp/v,queues=2", Ok(vhost.into())),
        ] {
            assert_eq!(found("dpdk", &[("dpdk-devargs", arguments)]), expected, "{arguments}");
        }
        for (arguments, words) in [
            ("net_af_packet0", "name the interface by iface="),
            ("net_ring0", "no device here has that name"),
            ("class=eth,mac=00:11:22:33:44:55", "no device here has that name"),
            ("0000:01:00.0,representor=[0-3]", "name one number"),
        ] {
            let said = found("dpdk", &[("dpdk-devargs", arguments)]).unwrap_err();
            assert!(said.contains(words), "{arguments}: {said}");
        }
    }

    #[test]
    fn interface_types_are_supported_or_refused_with_advice() {
        let vhost = Device::VhostUser { path: "/run/ovs/p0".into(), is_server: true, queues: 1 };
        assert_eq!(found("dpdkvhostuser", &[]), Ok(vhost.into()));
        assert_eq!(found("internal", &[]), Ok(Device::Tap { interface: None }.into()));
        let patch = Device::Patch { peer: "p1".to_owned() };
        assert_eq!(found("patch", &[("peer", "p1")]), Ok(patch.into()));
        let words = found("patch", &[("peer", "p0")]).unwrap_err();
        assert!(words.contains("must not be self"), "{words}");
        let zerocopy = found("afxdp", &[("xdp-mode", "native-with-zerocopy")]).unwrap().device;
        assert!(matches!(zerocopy, Device::Xdp { copy: Some(CopyMode::Zerocopy), .. }));
        for (kind, words) in [
            ("vxlan", "tunnels are not supported"),
            ("nonsense\n", "type `nonsense\\n` is not supported"),
            ("dpdk", "needs options:dpdk-devargs"),
            ("patch", "patch type requires valid 'peer' argument"),
        ] {
            let said = found(kind, &[]).unwrap_err();
            assert!(said.contains(words), "{kind}: {said}");
        }
        let said = found("afxdp", &[("n_rxq", "4")]).unwrap_err();
        assert!(said.contains("has one queue"), "{said}");
    }
}
