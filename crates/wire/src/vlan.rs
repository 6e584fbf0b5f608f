//! VLAN tags (IEEE 802.1Q). Linux keeps the outermost tag in the packet's metadata; on a wire, the
//! tag is in the frame.

use crate::headers::{TAG, is_tag, word};

/// A tag: its EtherType (TPID) and its control information (priority, drop bit, VLAN ID).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// EtherType of the tag: 0x8100 for a customer tag, 0x88a8 for a service tag, or 0x9100, the
    /// older number for service tags.
    pub tpid: u16,
    /// Priority (3 bits), drop eligibility (1 bit) and VLAN ID (12 bits).
    pub tci: u16,
}

impl Tag {
    /// Encodes the tag as it appears between the source address and the EtherType.
    pub fn to_bytes(self) -> [u8; TAG] {
        let [tpid_0, tpid_1] = self.tpid.to_be_bytes();
        let [tci_0, tci_1] = self.tci.to_be_bytes();
        [tpid_0, tpid_1, tci_0, tci_1]
    }
}

/// Inserts the tag after the MAC addresses. The frame is in `buffer[4..]` before the call, and
/// fills `buffer` afterwards. Returns false and changes nothing if the frame has no addresses.
pub fn insert(buffer: &mut [u8], tag: Tag) -> bool {
    if buffer.len() < TAG + ADDRESSES {
        return false;
    }
    buffer.copy_within(TAG..TAG + ADDRESSES, 0);
    buffer[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag.to_bytes());
    true
}

/// Removes the outermost tag and returns the tag. Afterwards, the frame is in `frame[4..]`.
pub fn remove(frame: &mut [u8]) -> Option<Tag> {
    let tag = outermost(frame)?;
    frame.copy_within(0..ADDRESSES, TAG);
    Some(tag)
}

/// Returns the outermost tag, if the frame has a tag and a header follows the tag.
pub fn outermost(frame: &[u8]) -> Option<Tag> {
    let tpid = word(frame, ADDRESSES)?;
    let tci = word(frame, ADDRESSES + 2)?;
    word(frame, ADDRESSES + TAG)?;
    is_tag(tpid).then_some(Tag { tpid, tci })
}

/// Length of the destination and source addresses, in bytes.
pub const ADDRESSES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inserted_vlan_tag_can_be_removed() {
        let frame: Vec<u8> = (0..60).collect();
        for tpid in [0x8100, 0x88a8] {
            let tag = Tag { tpid, tci: 0x2005 };
            let mut tagged = vec![0; 4];
            tagged.extend(&frame);
            assert!(insert(&mut tagged, tag));
            assert_eq!(tagged[..12], frame[..12]);
            assert_eq!(tagged[16..], frame[12..]);
            assert_eq!(remove(&mut tagged), Some(tag));
            assert_eq!(tagged[4..], frame);
        }
        assert!(!insert(&mut [0; 15], Tag { tpid: 0x8100, tci: 1 }));
        assert_eq!(remove(&mut [0x81; 15]), None);
    }
}
