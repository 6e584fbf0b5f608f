//! The settings of VLANs and mirrors.

use pipeline::{PortVlans, VlanMode};
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
}

leaves! { VlanModeSetting }

impl From<ovsdb::topology::VlanMode> for VlanModeSetting {
    fn from(mode: ovsdb::topology::VlanMode) -> Self {
        match mode {
            ovsdb::topology::VlanMode::Trunk => Self::Trunk,
            ovsdb::topology::VlanMode::Access => Self::Access,
            ovsdb::topology::VlanMode::NativeTagged => Self::NativeTagged,
            ovsdb::topology::VlanMode::NativeUntagged => Self::NativeUntagged,
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
        /// The port that gets the copies, or the VLAN.
        pub output: Option<String>,
        pub output_vlan: Option<u16>,
        /// Maximum length of a copy, in bytes.
        pub snap_length: Option<u32>,
    }
}

impl PortConfig {
    /// Returns the VLANs of the port. As in Open vSwitch, a tag without a mode makes an access
    /// port.
    pub(super) fn vlans(&self) -> PortVlans {
        vlans_of(self.vlan_mode, self.tag, &self.trunks)
    }

    /// Returns the settings that cannot change while the port is open.
    pub(super) fn fixed(&self) -> Self {
        Self {
            rxq_affinity: None,
            policing: Policing::default(),
            egress_queue: EgressQueues::default(),
            vlan_mode: None,
            tag: None,
            trunks: Vec::new(),
            lacp: LacpPort::default(),
            mtu: None,
            qos: None,
            ..self.clone()
        }
    }

    pub(super) fn check_vlans(&self) -> Result<(), String> {
        check_vlans("tag", self.tag.as_slice())?;
        check_vlans("trunks", &self.trunks)
    }
}

impl MirrorSettings {
    /// Checks a mirror. `is_port` tells whether the bridge has a port with a given name.
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
) -> PortVlans {
    let mode = match (mode, tag) {
        (Some(VlanModeSetting::Access), _) | (None, Some(_)) => VlanMode::Access,
        (Some(VlanModeSetting::Trunk), _) | (None, None) => VlanMode::Trunk,
        (Some(VlanModeSetting::NativeTagged), _) => VlanMode::NativeTagged,
        (Some(VlanModeSetting::NativeUntagged), _) => VlanMode::NativeUntagged,
    };
    let mut trunks = trunks.to_vec();
    trunks.sort_unstable();
    PortVlans { mode, tag: tag.unwrap_or(0), trunks }
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
        port.trunks = vec![4096];
        assert!(port.check_vlans().unwrap_err().contains("4096 is no VLAN"));
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
