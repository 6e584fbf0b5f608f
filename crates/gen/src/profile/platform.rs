use super::Mistakes;
use super::fields::{Fields, list, scalar, whole};
use super::tree::{Node, Value};

/// Reads the ports of TRex's platform file (`trex_cfg.yaml`), as texts for
/// [`PortSpec`](crate::run::PortSpec). The other keys of the file configure DPDK.
pub fn ports_of_platform(file: &str, text: &str) -> Result<Vec<String>, Mistakes> {
    let mut mistakes = Mistakes::of(file);
    match read(text, &mut mistakes) {
        Some(ports) if mistakes.is_empty() => Ok(ports),
        _ => {
            if mistakes.is_empty() {
                mistakes.add(1, "the file names no interfaces");
            }
            Err(mistakes.sorted())
        }
    }
}

fn read(text: &str, mistakes: &mut Mistakes) -> Option<Vec<String>> {
    let root = Node::read(text, mistakes)?;
    let block = match &root.value {
        Value::List(list) => list.first()?,
        _ => &root,
    };
    let mut fields = Fields::of(block, "a platform file", mistakes)?;
    let node = fields.require("interfaces", mistakes)?;
    let mut ports = Vec::new();
    for name in list(node, "interfaces", mistakes)? {
        ports.push(scalar(name, "interfaces", mistakes)?.to_owned());
    }
    if let Some(node) = fields.find("port_info") {
        for (port, info) in ports.iter_mut().zip(list(node, "port_info", mistakes)?) {
            let mut info = Fields::of(info, "`port_info`", mistakes)?;
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
