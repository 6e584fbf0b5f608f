//! TCP, UDP, SCTP, ICMP, ICMPv6 and IGMP.

use flow::{Key, word};

use super::{neighbor, u16_at, u32_at};
use crate::packet::{Layout, flag};

pub(super) fn parse(frame: &[u8], protocol: u8, key: &mut Key, layout: &mut Layout) {
    let segment = &frame[layout.transport as usize..layout.end as usize];
    let is_whole = match protocol {
        TCP => {
            let Some(header) = segment.first_chunk::<20>() else { return };
            let length = usize::from(header[12] >> 4) * 4;
            let is_whole = length >= 20 && segment.len() >= length;
            if is_whole {
                key.words[word::NW] |= u64::from(u16_at(header, 12) & 0x0fff);
            }
            is_whole
        }
        UDP => segment.len() >= 8,
        SCTP => segment.len() >= 12,
        ICMP | ICMPV6 | IGMP => {
            if segment.len() < 8 {
                return;
            }
            key.words[word::TP] = u64::from(segment[0]) << 48 | u64::from(segment[1]) << 32;
            layout.flags |= flag::TRANSPORT;
            if protocol == ICMPV6 {
                neighbor::parse(segment, key, layout);
            }
            return;
        }
        _ => return,
    };
    if is_whole {
        key.words[word::TP] = u64::from(u32_at(segment, 0)) << 32;
        layout.flags |= flag::TRANSPORT;
    }
}

pub(crate) const ICMP: u8 = 1;
pub(crate) const IGMP: u8 = 2;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;
