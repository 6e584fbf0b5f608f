use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::GenError;
use crate::profile::nearest;

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
    /// An interface, in another namespace if one is named.
    Interface { namespace: Option<String>, name: String },
    /// A TAP device that lives as long as the run.
    Tap(String),
    /// Frames are written to a capture; none arrives.
    Capture(PathBuf),
    /// Frames are discarded: measures the generator itself.
    Null,
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
            None if place == "null" => PortKind::Null,
            None => PortKind::Interface { namespace: None, name: place.to_owned() },
            Some(("tap", name)) => PortKind::Tap(name.to_owned()),
            Some(("pcap", file)) => PortKind::Capture(PathBuf::from(file)),
            Some((kind @ ("ring" | "xdp" | "vhost-user"), _)) => {
                return Err(wrong(format!(
                    "`{kind}` ports are not supported: use an interface, tap:, pcap: or null"
                )));
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
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(format!("`{}` is no KEY=VALUE", units::foreign(part))));
            };
            let (key, value) = (key.trim(), value.trim());
            let bad =
                |example: &str| wrong(format!("`{}` is not {example}", units::foreign(value)));
            match key {
                "ip" => spec.ip = Some(value.parse().map_err(|_| bad("an IP address"))?),
                "gateway" | "gw" => {
                    spec.gateway = Some(value.parse().map_err(|_| bad("an IP address"))?);
                }
                "mac" => {
                    let mac = mac(value).ok_or_else(|| bad("a MAC address"))?;
                    spec.source_mac = Some(mac);
                }
                "dest-mac" => {
                    let mac = mac(value).ok_or_else(|| bad("a MAC address"))?;
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
                        nearest(key, known),
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
            return Err(wrong("`ip` and `gateway` are of different families".to_owned()));
        }
        Ok(spec)
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
            PortKind::Capture(file) => write!(f, "pcap:{}", file.display()),
            PortKind::Null => f.write_str("null"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            ("ring:/x", "not supported"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
