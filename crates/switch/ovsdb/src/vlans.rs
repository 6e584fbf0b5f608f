//! The VLAN columns of rows.

use units::foreign;

use crate::database::Row;

/// The VLAN columns of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vlans {
    pub mode: Option<VlanMode>,
    pub tag: Option<u16>,
    pub trunks: Vec<u16>,
    pub cvlans: Vec<u16>,
    pub qinq_ethtype: Option<QinqEthtype>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VlanMode {
    Trunk,
    Access,
    NativeTagged,
    NativeUntagged,
    Dot1qTunnel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QinqEthtype {
    Dot1ad,
    Dot1q,
}

pub(crate) fn vlans(row: &Row, ignored: &mut Vec<String>) -> Vlans {
    let mode = match row.text("vlan_mode") {
        None => None,
        Some("trunk") => Some(VlanMode::Trunk),
        Some("access") => Some(VlanMode::Access),
        Some("native-tagged") => Some(VlanMode::NativeTagged),
        Some("native-untagged") => Some(VlanMode::NativeUntagged),
        Some("dot1q-tunnel") => Some(VlanMode::Dot1qTunnel),
        Some(mode) => {
            let port = foreign(row.text("name").unwrap_or_default());
            ignored.push(format!("port {port}: vlan_mode {}", foreign(mode)));
            None
        }
    };
    let qinq_ethtype = match row.entry("other_config", "qinq-ethtype") {
        None => None,
        Some("802.1ad") => Some(QinqEthtype::Dot1ad),
        Some("802.1q") => Some(QinqEthtype::Dot1q),
        Some(ethtype) => {
            let port = foreign(row.text("name").unwrap_or_default());
            ignored.push(format!("port {port}: qinq-ethtype {}", foreign(ethtype)));
            None
        }
    };
    Vlans {
        mode,
        tag: vlan(row, "tag"),
        trunks: vlan_set(row, "trunks"),
        cvlans: vlan_set(row, "cvlans"),
        qinq_ethtype,
    }
}

pub(crate) fn vlan(row: &Row, column: &str) -> Option<u16> {
    row.integer(column).and_then(|vlan| u16::try_from(vlan).ok()).filter(|vlan| *vlan < 4096)
}

pub(crate) fn vlan_set(row: &Row, column: &str) -> Vec<u16> {
    let vlans = row.integers(column).filter_map(|vlan| u16::try_from(vlan).ok());
    vlans.filter(|vlan| *vlan < 4096).collect()
}
