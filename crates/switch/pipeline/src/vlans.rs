//! The VLANs of a port. NORMAL and mirrors forward by these VLANs (802.1Q and 802.1ad).

/// The VLANs whose frames a port receives and sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortVlans {
    pub mode: VlanMode,
    /// The VLAN of untagged frames, and of all frames of a dot1q-tunnel port. A trunk ignores this
    /// value.
    pub tag: u16,
    /// The VLANs of a trunk, sorted; an empty list means all VLANs.
    pub trunks: Vec<u16>,
    /// The customer's VLANs of a dot1q-tunnel port, sorted; an empty list means all VLANs.
    pub cvlans: Vec<u16>,
    /// The tag that other ports give to frames from a dot1q-tunnel port.
    pub service: ServiceTag,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VlanMode {
    /// Frames have tags. A frame without a tag belongs to VLAN 0.
    #[default]
    Trunk,
    /// Frames have no tags and belong to one VLAN.
    Access,
    /// A trunk whose frames without a tag belong to `tag`; frames of `tag` leave with a tag.
    NativeTagged,
    /// A trunk whose frames without a tag belong to `tag`; frames of `tag` leave without a tag.
    NativeUntagged,
    /// Frames belong to the service VLAN `tag`, but carry no tag for this VLAN. All tags in these
    /// frames are the customer's tags.
    Dot1qTunnel,
}

/// The type of a service VLAN's tag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServiceTag {
    #[default]
    Dot1ad,
    Dot1q,
}

impl ServiceTag {
    pub(crate) fn ether_type(self) -> u16 {
        match self {
            Self::Dot1ad => 0x88a8,
            Self::Dot1q => 0x8100,
        }
    }
}

/// The VLAN to which a packet belongs in the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketVlan {
    pub(crate) id: u16,
    /// For a packet of a dot1q-tunnel port, the tag that the packet lacks: all its tags are the
    /// customer's.
    pub(crate) service: Option<ServiceTag>,
}

impl PortVlans {
    /// Whether the port receives and sends all frames unchanged.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.mode == VlanMode::Trunk && self.trunks.is_empty()
    }

    /// Returns the VLAN of a received frame; `None` if the port drops the frame. A tag of VLAN 0
    /// carries only a priority.
    #[must_use]
    pub fn of_received(&self, tag: Option<u16>) -> Option<u16> {
        let tag = tag.unwrap_or(0);
        let vlan = match (self.mode, tag) {
            (VlanMode::Trunk, tag) => tag,
            (VlanMode::Dot1qTunnel, tag) => return self.admits_customer(tag).then_some(self.tag),
            (VlanMode::Access, 0) => self.tag,
            (VlanMode::Access, _) => return None,
            (_, 0) => self.tag,
            (_, tag) => tag,
        };
        self.carries(vlan).then_some(vlan)
    }

    /// Whether the port receives and sends frames of the VLAN.
    #[must_use]
    pub fn carries(&self, vlan: u16) -> bool {
        let is_trunk = || self.trunks.is_empty() || self.trunks.binary_search(&vlan).is_ok();
        match self.mode {
            VlanMode::Access | VlanMode::Dot1qTunnel => vlan == self.tag,
            VlanMode::Trunk => is_trunk(),
            // As in Open vSwitch, untagged frames belong only to the native VLAN.
            VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                vlan == self.tag || (vlan != 0 && is_trunk())
            }
        }
    }

    /// Whether a dot1q-tunnel port receives and sends frames of the customer's VLAN. VLAN 0 means
    /// frames without a customer's tag.
    pub(crate) fn admits_customer(&self, vlan: u16) -> bool {
        self.cvlans.is_empty() || self.cvlans.binary_search(&vlan).is_ok()
    }

    /// Returns the tag that received frames lack: the service tag, if the port is a dot1q-tunnel
    /// port.
    pub(crate) fn missing_tag(&self) -> Option<ServiceTag> {
        (self.mode == VlanMode::Dot1qTunnel).then_some(self.service)
    }

    /// Returns the tag with which a frame of the VLAN leaves; `None` if the frame leaves without a
    /// tag.
    #[must_use]
    pub fn tag_of_sent(&self, vlan: u16) -> Option<u16> {
        let is_untagged = match self.mode {
            VlanMode::Access | VlanMode::Dot1qTunnel => true,
            VlanMode::NativeUntagged => vlan == self.tag,
            VlanMode::Trunk | VlanMode::NativeTagged => false,
        };
        (!is_untagged && vlan != 0).then_some(vlan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(mode: VlanMode, trunks: &[u16]) -> PortVlans {
        PortVlans { mode, tag: 10, trunks: trunks.to_vec(), ..PortVlans::default() }
    }

    #[test]
    fn frames_belong_to_the_vlan_of_their_tag_or_port() {
        use VlanMode::{Access, NativeTagged, NativeUntagged, Trunk};
        for (mode, trunks, tag, vlan) in [
            (Access, &[][..], None, Some(10)),
            (Access, &[], Some(0), Some(10)),
            (Access, &[], Some(10), None),
            (Trunk, &[], None, Some(0)),
            (Trunk, &[], Some(7), Some(7)),
            (Trunk, &[7, 9], Some(8), None),
            (Trunk, &[7, 9], None, None),
            (NativeTagged, &[7], None, Some(10)),
            (NativeUntagged, &[7], Some(10), Some(10)),
            (NativeUntagged, &[7], Some(7), Some(7)),
            (NativeUntagged, &[7], Some(8), None),
        ] {
            assert_eq!(port(mode, trunks).of_received(tag), vlan, "{mode:?} {trunks:?} {tag:?}");
        }
        let tunnel = PortVlans { cvlans: vec![0, 20], ..port(VlanMode::Dot1qTunnel, &[]) };
        for (tag, vlan) in [(None, Some(10)), (Some(20), Some(10)), (Some(10), None)] {
            assert_eq!(tunnel.of_received(tag), vlan, "{tag:?}");
        }
        assert!(tunnel.carries(10) && !tunnel.carries(20) && tunnel.tag_of_sent(10).is_none());
    }

    #[test]
    fn sent_frames_have_the_tag_that_the_mode_requires() {
        use VlanMode::{Access, NativeTagged, NativeUntagged, Trunk};
        for (mode, vlan, tag) in [
            (Access, 10, None),
            (Trunk, 10, Some(10)),
            (Trunk, 0, None),
            (NativeTagged, 10, Some(10)),
            (NativeUntagged, 10, None),
            (NativeUntagged, 7, Some(7)),
        ] {
            assert_eq!(port(mode, &[]).tag_of_sent(vlan), tag, "{mode:?} {vlan}");
        }
        assert!(!port(Access, &[]).carries(7) && port(NativeTagged, &[7]).carries(10));
        assert!(port(NativeTagged, &[]).carries(7) && !port(NativeTagged, &[]).carries(0));
    }
}
