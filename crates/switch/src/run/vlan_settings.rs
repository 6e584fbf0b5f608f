//! The settings of VLANs and mirrors.

use pipeline::{PortVlans, ServiceTag, VlanMode};
use serde::Deserialize;
use settings::{leaves, table};

use super::bonds::LacpPort;
use super::config::PortConfig;
use super::egress_queues::EgressQueues;
use super::policing::Policing;

/// How a port handles VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VlanModeSetting {
    Trunk,
    Access,
    NativeTagged,
    NativeUntagged,
    Dot1qTunnel,
}

/// The type of the service VLAN's tag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum QinqEthtype {
    #[default]
    #[serde(rename = "802.1ad")]
    Dot1ad,
    #[serde(rename = "802.1q")]
    Dot1q,
}

leaves! { QinqEthtype, VlanModeSetting }

impl From<ovsdb::topology::VlanMode> for VlanModeSetting {
    fn from(mode: ovsdb::topology::VlanMode) -> Self {
        match mode {
            ovsdb::topology::VlanMode::Trunk => Self::Trunk,
            ovsdb::topology::VlanMode::Access => Self::Access,
            ovsdb::topology::VlanMode::NativeTagged => Self::NativeTagged,
            ovsdb::topology::VlanMode::NativeUntagged => Self::NativeUntagged,
            ovsdb::topology::VlanMode::Dot1qTunnel => Self::Dot1qTunnel,
        }
    }
}

impl From<ovsdb::topology::QinqEthtype> for QinqEthtype {
    fn from(ethtype: ovsdb::topology::QinqEthtype) -> Self {
        match ethtype {
            ovsdb::topology::QinqEthtype::Dot1ad => Self::Dot1ad,
            ovsdb::topology::QinqEthtype::Dot1q => Self::Dot1q,
        }
    }
}

table! {
    /// A mirror of a bridge.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct MirrorSettings in kebab {
        /// Whether packets of all ports are copied.
        pub all: bool = false,
        /// Ports whose received packets are copied.
        pub source: Vec<String> = vec![],
        /// Ports whose sent packets are copied.
        pub destination: Vec<String> = vec![],
        /// VLANs whose packets are copied; all VLANs if the list is empty.
        pub vlans: Vec<u16> = vec![],
        /// The port or the VLAN that gets the copies.
        pub output: Option<String>,
        pub output_vlan: Option<u16>,
        /// Maximum length of a copy, in bytes.
        pub snap_length: Option<u32>,
    }
}

impl PortConfig {
    /// Returns the VLANs of the port. As in Open vSwitch, a port with a tag but without a mode is
    /// an access port.
    pub(super) fn vlans(&self) -> PortVlans {
        vlans_of(self.vlan_mode, self.tag, &self.trunks, &self.cvlans, self.qinq_ethtype)
    }

    /// Returns the settings that cannot change while the port is open.
    pub(super) fn fixed(&self) -> Self {
        Self {
            // A TAP device takes another address while the port is open.
            hardware_address: self.hardware_address.filter(|_| self.kind != "tap"),
            rxq_affinity: None,
            policing: Policing::default(),
            egress_queue: EgressQueues::default(),
            vlan_mode: None,
            tag: None,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            qinq_ethtype: None,
            lacp: LacpPort::default(),
            mtu: None,
            qos: None,
            ..self.clone()
        }
    }

    pub(super) fn check_vlans(&self) -> Result<(), String> {
        check_vlans("tag", self.tag.as_slice())?;
        check_vlans("trunks", &self.trunks)?;
        check_vlans("cvlans", &self.cvlans)
    }
}

impl MirrorSettings {
    /// Checks a mirror. `is_port` tells whether the bridge has a port with the given name.
    pub(super) fn check(&self, is_port: impl Fn(&str) -> bool) -> Result<(), String> {
        match (&self.output, self.output_vlan) {
            (Some(_), Some(_)) => {
                return Err("output and output-vlan exclude each other: name one".to_owned());
            }
            (None, None) => {
                return Err("copies need a port (output) or a VLAN (output-vlan)".to_owned());
            }
            _ => {}
        }
        let mut names = self.source.iter().chain(&self.destination).chain(&self.output);
        if let Some(unknown) = names.find(|name| !is_port(name)) {
            return Err(format!("there is no port {unknown:?}: name ports of the bridge"));
        }
        if self.snap_length.is_some_and(|length| !(14..=65_535).contains(&length)) {
            return Err("snap-length: use 14 to 65535".to_owned());
        }
        check_vlans("output-vlan", self.output_vlan.as_slice())?;
        check_vlans("vlans", &self.vlans)
    }
}

pub(super) fn vlans_of(
    mode: Option<VlanModeSetting>,
    tag: Option<u16>,
    trunks: &[u16],
    cvlans: &[u16],
    qinq_ethtype: Option<QinqEthtype>,
) -> PortVlans {
    let mode = match (mode, tag) {
        (Some(VlanModeSetting::Access), _) | (None, Some(_)) => VlanMode::Access,
        (Some(VlanModeSetting::Trunk), _) | (None, None) => VlanMode::Trunk,
        (Some(VlanModeSetting::NativeTagged), _) => VlanMode::NativeTagged,
        (Some(VlanModeSetting::NativeUntagged), _) => VlanMode::NativeUntagged,
        (Some(VlanModeSetting::Dot1qTunnel), _) => VlanMode::Dot1qTunnel,
    };
    let sorted = |vlans: &[u16]| {
        let mut vlans = vlans.to_vec();
        vlans.sort_unstable();
        vlans
    };
    let service = match qinq_ethtype.unwrap_or_default() {
        QinqEthtype::Dot1ad => ServiceTag::Dot1ad,
        QinqEthtype::Dot1q => ServiceTag::Dot1q,
    };
    let (trunks, cvlans) = (sorted(trunks), sorted(cvlans));
    PortVlans { mode, tag: tag.unwrap_or(0), trunks, cvlans, service }
}

pub(super) fn check_vlans(what: &str, vlans: &[u16]) -> Result<(), String> {
    match vlans.iter().find(|vlan| **vlan > LAST_VLAN) {
        Some(vlan) => Err(format!("{what}: {vlan} is no VLAN: use 0 to {LAST_VLAN}")),
        None => Ok(()),
    }
}

const LAST_VLAN: u16 = 4095;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::config::HardwareAddress;

    #[test]
    fn a_port_with_a_tag_and_no_vlan_mode_is_an_access_port() {
        let mut port = PortConfig::of_kind("null");
        assert!(port.vlans().is_plain());
        port.tag = Some(10);
        assert_eq!(port.vlans().mode, VlanMode::Access);
        port.vlan_mode = Some(VlanModeSetting::NativeUntagged);
        port.trunks = vec![7, 3];
        assert_eq!(port.vlans().trunks, [3, 7]);
        assert_eq!(port.fixed(), PortConfig::of_kind("null"));
        let keys = "type = \"null\"\nvlan-mode = \"dot1q-tunnel\"\ntag = 7\ncvlans = [30, 20]\n\
                    qinq-ethtype = \"802.1q\"";
        let tunnel: PortConfig = settings::parse(keys).unwrap();
        let expected = PortVlans {
            mode: VlanMode::Dot1qTunnel,
            tag: 7,
            cvlans: vec![20, 30],
            service: ServiceTag::Dot1q,
            ..PortVlans::default()
        };
        assert_eq!((tunnel.vlans(), tunnel.fixed()), (expected, PortConfig::of_kind("null")));
        port.trunks = vec![4096];
        assert!(port.check_vlans().unwrap_err().contains("4096 is no VLAN"));
    }

    #[test]
    fn only_a_tap_port_takes_another_address_while_it_is_open() {
        let hardware_address = Some(HardwareAddress([2, 0, 0, 0, 0, 1]));
        for (kind, is_fixed) in [("tap", false), ("packet", true)] {
            let port = PortConfig { hardware_address, ..PortConfig::of_kind(kind) };
            assert_eq!(port.fixed() != PortConfig::of_kind(kind), is_fixed, "{kind}");
        }
    }

    #[test]
    fn a_mirror_needs_one_output_and_ports_that_exist() {
        let check = |mirror: &MirrorSettings| mirror.check(|name| name == "p1").unwrap_err();
        let mut mirror = MirrorSettings { source: vec!["p1".to_owned()], ..Default::default() };
        assert!(check(&mirror).contains("need a port"));
        mirror.output = Some("p9".to_owned());
        assert!(check(&mirror).contains("no port \"p9\""));
        mirror.output = Some("p1".to_owned());
        assert_eq!(mirror.check(|_| true), Ok(()));
        mirror.output_vlan = Some(1);
        assert!(check(&mirror).contains("exclude each other"));
    }
}
