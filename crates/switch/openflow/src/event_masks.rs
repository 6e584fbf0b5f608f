use flow::request::Refusal;

use super::Version;
use super::octets::{Put, Reader};

/// The types of events, in the order of their masks in OpenFlow 1.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    PacketIn,
    PortStatus,
    FlowRemoved,
    TableStatus = 4,
    RequestForward,
}

/// The reasons for which the peer gets each type of event: first as master or equal, then as slave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks([[u32; 2]; KINDS]);

impl Masks {
    /// Returns the masks of a new connection: all reasons of its version, without the reasons that
    /// controllers must request.
    pub(super) fn usual(version: Version) -> Self {
        let (packet_in, flow_removed) = match version {
            // OpenFlow 1.0 has no groups, and no reason for a rule whose group was removed.
            Version::V10 => (0x03, 0x07),
            Version::V11 | Version::V12 | Version::V13 => (0x03, 0x0f),
            _ => (0x3b, 0x3f),
        };
        Self([[packet_in, 0], [7, 7], [flow_removed, 0], [0; 2], [0; 2], [0; 2]])
    }

    pub(super) fn takes(&self, event: Event, is_slave: bool, reason: u8) -> bool {
        self.0[event as usize][usize::from(is_slave)] >> reason & 1 != 0
    }

    /// Sets whether a master or equal gets packet-ins with a reason.
    pub(super) fn set_packet_in(&mut self, reason: u8, is_taken: bool) {
        let mask = &mut self.0[Event::PacketIn as usize][0];
        *mask = if is_taken { *mask | 1 << reason } else { *mask & !(1 << reason) };
    }

    /// Reads OpenFlow 1.3's masks. Reasons that the version does not have are ignored.
    pub(super) fn decode(&mut self, mut body: Reader<'_>, version: Version) -> Result<(), Refusal> {
        let mut masks = *self;
        for (pair, known) in masks.0[..KINDS_OF_V13].iter_mut().zip(known_reasons(version)) {
            *pair = [body.u32()? & known, body.u32()? & known];
        }
        *self = masks;
        Ok(())
    }

    /// Reads the properties of an OpenFlow 1.4 asynchronous configuration. The even property type
    /// of an event sets the mask for slaves, the odd property type the mask for masters and equals.
    /// Refuses unknown events and reasons.
    pub(super) fn decode_properties(
        &mut self,
        mut body: Reader<'_>,
        version: Version,
    ) -> Result<(), Refusal> {
        let known = known_reasons(version);
        let mut masks = *self;
        while !body.is_empty() {
            let (kind, length) = (body.u16()?, body.u16()?);
            let event = usize::from(kind / 2);
            let pair = masks.0.get_mut(event).ok_or(Refusal::UnknownEvent)?;
            if length != PROPERTY {
                return Err(Refusal::BadPropertyLength);
            }
            let mask = body.u32()?;
            if mask & !known[event] != 0 {
                return Err(Refusal::BadEventMask);
            }
            pair[usize::from(kind % 2 == 0)] = mask;
        }
        *self = masks;
        Ok(())
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        if version <= Version::V13 {
            self.0[..KINDS_OF_V13].iter().flatten().for_each(|mask| out.put_u32(*mask));
            return;
        }
        for (kind, mask) in self.0.iter().flatten().enumerate() {
            out.put_u16(kind as u16 ^ 1);
            out.put_u16(PROPERTY);
            out.put_u32(*mask);
        }
    }
}

/// Returns the reasons that a version has for each type of event.
fn known_reasons(version: Version) -> [u32; KINDS] {
    let packet_in = if version < Version::V14 { 0x07 } else { 0x3f };
    [packet_in, 0x07, 0x3f, 0x07, 0x18, 0x03]
}

/// The number of event types: packet-ins, ports, rules, roles, tables, and forwarded requests.
const KINDS: usize = 6;
const KINDS_OF_V13: usize = 3;
/// The length of a property in bytes.
const PROPERTY: u16 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: Version, kind: u16, length: u16, mask: u32) -> Result<Masks, Refusal> {
        let mut bytes = Vec::new();
        bytes.put_u16(kind);
        bytes.put_u16(length);
        bytes.put_u32(mask);
        let mut masks = Masks::usual(version);
        masks.decode_properties(Reader::new(&bytes, Refusal::BadLength), version)?;
        Ok(masks)
    }

    #[test]
    fn an_async_config_property_sets_the_reasons_of_its_version() {
        // The property sets the slave's mask for flow_removed.
        let masks = read(Version::V14, 4, 8, 0x1c).unwrap();
        assert!(masks.takes(Event::FlowRemoved, true, 4));
        assert!(!masks.takes(Event::FlowRemoved, true, 0));
        assert!(masks.takes(Event::FlowRemoved, false, 0), "the other masks stay");
        let error = |version, kind, length, mask| read(version, kind, length, mask).err();
        assert_eq!(error(Version::V14, 1, 8, 0x3f), None);
        assert_eq!(error(Version::V13, 1, 8, 0x3f), Some(Refusal::BadEventMask));
        assert_eq!(error(Version::V14, 3, 8, 0x08), Some(Refusal::BadEventMask));
        assert_eq!(error(Version::V14, 12, 8, 0), Some(Refusal::UnknownEvent));
        assert_eq!(error(Version::V14, 1, 12, 0), Some(Refusal::BadPropertyLength));
    }

    #[test]
    fn unknown_reasons_in_openflow_1_3_async_masks_are_ignored() {
        let bytes = [0xff; 24];
        let mut masks = Masks::usual(Version::V13);
        let body = Reader::new(&bytes, Refusal::BadLength);
        masks.decode(body, Version::V13).unwrap();
        let mut out = Vec::new();
        masks.encode(Version::V13, &mut out);
        let words: Vec<_> = out.chunks(4).map(|word| word[3]).collect();
        assert_eq!(words, [0x07, 0x07, 0x07, 0x07, 0x3f, 0x3f]);
        assert!(out.chunks(4).all(|word| word[..3] == [0; 3]));
    }

    #[test]
    fn openflow_1_0_has_no_reason_for_rules_removed_with_their_group() {
        let takes = |version| Masks::usual(version).takes(Event::FlowRemoved, false, 3);
        assert_eq!((takes(Version::V10), takes(Version::V11)), (false, true));
    }
}
