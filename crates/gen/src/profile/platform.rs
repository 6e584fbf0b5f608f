use super::Mistakes;
use super::fields::{Fields, list, scalar, whole};
use super::tree::{Node, Value};
use std::path::Path;

/// Reads the ports of TRex's platform file (`trex_cfg.yaml`), as texts for
/// [`PortSpec`](crate::run::PortSpec). The other keys of the file configure DPDK. `cards`: the
/// folder of the kernel's PCI devices, `/sys/bus/pci/devices`.
pub fn ports_of_platform(file: &str, text: &str, cards: &Path) -> Result<Vec<String>, Mistakes> {
    let mut mistakes = Mistakes::of(file);
    match read(text, cards, &mut mistakes) {
        Some(ports) if mistakes.is_empty() => Ok(ports),
        _ => {
            if mistakes.is_empty() {
                mistakes.add(1, "the file names no interfaces");
            }
            Err(mistakes.sorted())
        }
    }
}

fn read(text: &str, cards: &Path, mistakes: &mut Mistakes) -> Option<Vec<String>> {
    let root = Node::read(text, mistakes)?;
    let block = match &root.value {
        Value::List(list) => list.first()?,
        _ => &root,
    };
    let mut fields = Fields::of(block, "a platform file", mistakes)?;
    let node = fields.require("interfaces", mistakes)?;
    let mut ports = Vec::new();
    for node in list(node, "interfaces", mistakes)? {
        match port(scalar(node, "interfaces", mistakes)?, cards) {
            Ok(port) => ports.push(port),
            Err(reason) => mistakes.add(node.line, reason),
        }
    }
    if let Some(node) = fields.find("port_info") {
        for (port, info) in ports.iter_mut().zip(list(node, "port_info", mistakes)?) {
            let mut info = Fields::of(info, "`port_info`", mistakes)?;
            if port == DISCARDING {
                continue;
            }
            for (key, own) in [("ip", "ip"), ("default_gw", "gateway")] {
                if let Some(address) = info.address(key, mistakes) {
                    port.push_str(&format!(",{own}={address}"));
                }
            }
            for (key, own) in [("dest_mac", "dest-mac"), ("src_mac", "mac")] {
                if let Some(mac) = info.find(key).and_then(|node| mac(node, key, mistakes)) {
                    port.push_str(&format!(",{own}={mac}"));
                }
            }
            // A VLAN of 0 means no VLAN, as in TRex.
            if let Some(vlan @ 1..) = info.whole("vlan", 4094, mistakes) {
                port.push_str(&format!(",vlan={vlan}"));
            }
        }
    }
    Some(ports)
}

/// Returns the port that an entry of `interfaces` names. TRex names a card by its PCI address, an
/// interface of the kernel by DPDK's driver for packet sockets, and an unused port `dummy`.
fn port(entry: &str, cards: &Path) -> Result<String, String> {
    if entry == "dummy" {
        return Ok(DISCARDING.to_owned());
    }
    if let Some(words) = entry.strip_prefix("--vdev=net_af_packet") {
        let interface = words.split(',').find_map(|word| word.strip_prefix("iface="));
        return interface
            .map(str::to_owned)
            .ok_or_else(|| format!("`{entry}` names no interface: add `,iface=INTERFACE`"));
    }
    let Some((address, number)) = pci_address(entry) else {
        return Ok(entry.to_owned());
    };
    let entries =
        std::fs::read_dir(cards.join(&address).join("net")).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().nth(number).ok_or_else(|| {
        format!(
            "the card {address} has no interface of the kernel at port {number}: give the card back to \
             its kernel driver, for example with `dpdk-devbind.py --bind=DRIVER {address}`, or name \
             an interface in place of the card"
        )
    })
}

/// Reads a PCI address, with or without its domain, and the port of a card with several ports at
/// one address, as in `03:00.0/1`.
fn pci_address(entry: &str) -> Option<(String, usize)> {
    let (address, number) = entry.split_once('/').unwrap_or((entry, "0"));
    let (place, function) = address.rsplit_once('.')?;
    let mut parts: Vec<_> = place.split(':').collect();
    if parts.len() == 2 {
        parts.insert(0, "0000");
    }
    let [domain, bus, device] = parts[..] else {
        return None;
    };
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_address =
        is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1);
    let number = number.parse().ok()?;
    is_address.then(|| (format!("{domain}:{bus}:{device}.{function}").to_lowercase(), number))
}

/// Reads a MAC address, written as a text or as a list of bytes.
fn mac(node: &Node, key: &str, mistakes: &mut Mistakes) -> Option<String> {
    let Value::List(bytes) = &node.value else {
        return scalar(node, key, mistakes).map(str::to_owned);
    };
    let mut texts = Vec::new();
    for byte in bytes {
        texts.push(format!("{:02x}", whole(byte, key, 255, mistakes)?));
    }
    Some(texts.join(":"))
}

/// The port that discards its frames.
const DISCARDING: &str = "null";
