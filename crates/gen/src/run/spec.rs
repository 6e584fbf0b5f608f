use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use port::{CopyMode, XdpOptions};

use crate::GenError;

/// A port as a user writes it: `veth0,ip=192.168.10.2,gateway=192.168.10.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    pub kind: PortKind,
    pub source_mac: Option<[u8; 6]>,
    pub destination_mac: Option<[u8; 6]>,
    pub ip: Option<IpAddr>,
    pub gateway: Option<IpAddr>,
    pub vlan: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortKind {
    /// An interface in this namespace, or in the namespace `namespace`.
    Interface { namespace: Option<String>, name: String },
    /// A TAP device that exists during the run.
    Tap(String),
    /// A port of another process, through shared memory.
    Ring { place: String, listens: bool },
    /// A queue of an interface, through AF_XDP, in this namespace or in the namespace `namespace`.
    Xdp { namespace: Option<String>, name: String, options: XdpOptions },
    /// A virtio device of another process.
    Vhost { path: PathBuf, listens: bool },
    /// Writes frames to a capture file; receives nothing.
    Capture(PathBuf),
    /// Discards frames, to measure the generator itself.
    Null,
}

impl PortSpec {
    /// True if both ports write the same file, and the file exists.
    pub(super) fn writes_file_of(&self, other: &Self) -> bool {
        let (PortKind::Capture(own), PortKind::Capture(other)) = (&self.kind, &other.kind) else {
            return false;
        };
        let place = |file: &PathBuf| file.canonicalize().ok().filter(|file| file.is_file());
        place(own).is_some_and(|own| place(other) == Some(own))
    }

    #[must_use]
    pub fn is_virtio(&self) -> bool {
        matches!(self.kind, PortKind::Vhost { .. })
    }
}

impl FromStr for PortSpec {
    type Err = GenError;

    fn from_str(text: &str) -> Result<Self, GenError> {
        let wrong = |problem: String| {
            GenError::Usage(format!("port `{}`: {problem}", units::foreign(text)))
        };
        let mut parts = text.split(',');
        let place = parts.next().unwrap_or_default().trim();
        let kind = match place.split_once(':') {
            _ if place.is_empty() => return Err(wrong("name an interface".to_owned())),
            _ if is_pci(place) => {
                return Err(wrong(
                    "this is the address of a PCI device, as in TRex's platform file: name the \
                     kernel's interface instead, such as eth0 (`ip link` lists them)"
                        .to_owned(),
                ));
            }
            Some((kind, "")) => {
                let what = match kind {
                    "ring" | "vhost-user" => "a socket",
                    "pcap" => "a file",
                    _ => "an interface",
                };
                return Err(wrong(format!("name {what}: {kind}:NAME")));
            }
            Some(("", _)) => {
                return Err(wrong("name a namespace: NAMESPACE:INTERFACE".to_owned()));
            }
            None if place == "null" => PortKind::Null,
            None => PortKind::Interface { namespace: None, name: place.to_owned() },
            Some(("tap", name)) => PortKind::Tap(name.to_owned()),
            Some(("pcap", file)) => PortKind::Capture(PathBuf::from(file)),
            Some(("ring", place)) => PortKind::Ring { place: place.to_owned(), listens: false },
            Some(("vhost-user", path)) => {
                PortKind::Vhost { path: PathBuf::from(path), listens: false }
            }
            Some(("xdp", place)) => {
                let (namespace, name) = match place.split_once(':') {
                    Some((namespace, name)) => (Some(namespace.to_owned()), name),
                    None => (None, place),
                };
                PortKind::Xdp { namespace, name: name.to_owned(), options: XdpOptions::default() }
            }
            Some((namespace, name)) => {
                PortKind::Interface { namespace: Some(namespace.to_owned()), name: name.to_owned() }
            }
        };
        let mut spec = Self {
            kind,
            source_mac: None,
            destination_mac: None,
            ip: None,
            gateway: None,
            vlan: None,
        };
        for part in parts {
            if spec.kind.set(part.trim()).map_err(&wrong)? {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                let part = units::foreign(part);
                return Err(wrong(format!("`{part}` is no KEY=VALUE, such as ip=192.168.10.2")));
            };
            let (key, value) = (key.trim(), value.trim());
            let bad =
                |example: &str| wrong(format!("`{}` is not {example}", units::foreign(value)));
            match key {
                "ip" => spec.ip = Some(value.parse().map_err(|_| bad(ADDRESS))?),
                "gateway" | "gw" => {
                    spec.gateway = Some(value.parse().map_err(|_| bad(ADDRESS))?);
                }
                "mac" => {
                    let mac = mac(value).ok_or_else(|| bad(MAC))?;
                    spec.source_mac = Some(mac);
                }
                "dest-mac" => {
                    let mac = mac(value).ok_or_else(|| bad(MAC))?;
                    spec.destination_mac = Some(mac);
                }
                "vlan" => {
                    let vlan = value.parse().ok().filter(|vlan| *vlan < 4095);
                    spec.vlan = Some(vlan.ok_or_else(|| bad("a VLAN from 0 to 4094"))?);
                }
                _ => {
                    let known = ["ip", "gateway", "mac", "dest-mac", "vlan"];
                    return Err(wrong(format!(
                        "unknown key `{}`{}: the keys are {}",
                        units::foreign(key),
                        units::did_you_mean(key, known),
                        known.join(", ")
                    )));
                }
            }
        }
        if spec.gateway.is_some() && spec.ip.is_none() {
            return Err(wrong("`gateway` needs `ip`, the address that asks for it".to_owned()));
        }
        if let (Some(ip), Some(gateway)) = (spec.ip, spec.gateway)
            && ip.is_ipv4() != gateway.is_ipv4()
        {
            return Err(wrong("`ip` and `gateway` differ in family: give two of one".to_owned()));
        }
        Ok(spec)
    }
}

impl PortKind {
    /// Sets an option of this kind of port. Returns false if the kind has no such option.
    fn set(&mut self, option: &str) -> Result<bool, String> {
        match (self, option) {
            (Self::Ring { listens, .. } | Self::Vhost { listens, .. }, "server") => *listens = true,
            (Self::Ring { listens, .. } | Self::Vhost { listens, .. }, "client") => {
                *listens = false;
            }
            (Self::Xdp { options, .. }, "zerocopy") => options.copy_mode = CopyMode::ZeroCopy,
            (Self::Xdp { options, .. }, "copy") => options.copy_mode = CopyMode::Copy,
            (Self::Xdp { options, .. }, "busy-poll") => options.busy_poll = true,
            (Self::Xdp { options, .. }, option) => match option.strip_prefix("queue=") {
                Some(number) => {
                    let shown = units::foreign(number);
                    let bad = |_| format!("`{shown}` is not a queue's number, such as queue=0");
                    options.queue = number.parse().map_err(bad)?;
                }
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            PortKind::Interface { namespace: Some(namespace), name } => {
                write!(f, "{namespace}:{name}")
            }
            PortKind::Interface { namespace: None, name } => f.write_str(name),
            PortKind::Tap(name) => write!(f, "tap:{name}"),
            PortKind::Ring { place, .. } => write!(f, "ring:{place}"),
            PortKind::Vhost { path, .. } => write!(f, "vhost-user:{}", path.display()),
            PortKind::Xdp { namespace: Some(namespace), name, .. } => {
                write!(f, "xdp:{namespace}:{name}")
            }
            PortKind::Xdp { namespace: None, name, .. } => write!(f, "xdp:{name}"),
            PortKind::Capture(file) => write!(f, "pcap:{}", file.display()),
            PortKind::Null => f.write_str("null"),
        }
    }
}

/// Whether the text is a PCI address, `03:00.0` or `0000:03:00.0`, with or without a slash and a
/// port number.
fn is_pci(place: &str) -> bool {
    let place = place.split('/').next().unwrap_or_default();
    let Some((device, function)) = place.rsplit_once('.') else { return false };
    let mut parts = device.rsplit(':');
    let hex = |text: Option<&str>, len: usize| {
        text.is_some_and(|text| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let is_short = hex(parts.next(), 2) && hex(parts.next(), 2);
    let domain = parts.next();
    is_short && (domain.is_none() || hex(domain, 4)) && hex(Some(function), 1)
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

const ADDRESS: &str = "an IP address, such as 192.168.10.2";
const MAC: &str = "a MAC address, such as 02:00:00:00:00:01";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_texts_name_sockets_and_queues_of_interfaces() {
        let spec: PortSpec = "ring:/tmp/a,server,ip=10.0.0.2".parse().unwrap();
        assert_eq!(spec.kind, PortKind::Ring { place: "/tmp/a".to_owned(), listens: true });
        assert!(spec.ip.is_some());
        let spec: PortSpec = "xdp:ns1:eth0,queue=3,copy,busy-poll".parse().unwrap();
        assert_eq!(spec.to_string(), "xdp:ns1:eth0");
        let PortKind::Xdp { options, .. } = spec.kind else { panic!() };
        assert_eq!((options.queue, options.copy_mode), (3, CopyMode::Copy));
        let spec: PortSpec = "vhost-user:/tmp/v".parse().unwrap();
        assert_eq!(spec.kind, PortKind::Vhost { path: "/tmp/v".into(), listens: false });
    }

    #[test]
    fn a_port_is_written_with_its_gateway() {
        let spec: PortSpec =
            "vdpa1,ip=192.168.10.2,gateway=192.168.10.1,dest-mac=02:ac:10:ff:01:01,vlan=7"
                .parse()
                .unwrap();
        assert_eq!(spec.to_string(), "vdpa1");
        assert_eq!(spec.destination_mac, Some([2, 0xac, 0x10, 0xff, 1, 1]));
        assert_eq!(spec.vlan, Some(7));
        for (text, message) in [
            ("", "name an interface"),
            ("eth0,gateway=10.0.0.1", "needs `ip`"),
            ("eth0,ip=10.0.0.2,gatway=10.0.0.1", "did you mean `gateway`?"),
            ("eth0,mac=02:00", "not a MAC address"),
            ("ring:", "name a socket"),
            ("pcap:", "name a file"),
            ("ns1:", "name an interface"),
            (":eth0", "name a namespace"),
            ("03:00.0", "address of a PCI device"),
            ("0000:03:00.1", "address of a PCI device"),
            ("xdp:eth0,queue=x", "not a queue's number"),
            ("tap:t0,copy", "no KEY=VALUE, such as ip="),
            ("eth0,ip=10.0.0", "not an IP address, such as"),
            ("eth0,ip=10.0.0.2,gateway=fd00::1", "give two of one"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
