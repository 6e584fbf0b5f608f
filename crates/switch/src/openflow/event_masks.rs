use super::Version;
use super::octets::{Put, Reader};
use crate::request::Refusal;

/// The kinds of events, in the order of their masks in OpenFlow 1.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    PacketIn,
    PortStatus,
    FlowRemoved,
    RequestForward = 5,
}

/// The events that the peer takes, by reason: as master or equal, and as slave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks([[u32; 2]; KINDS]);

impl Masks {
    /// The masks of a new connection: the reasons that its version has, but for those that
    /// controllers must ask for.
    pub(super) fn usual(version: Version) -> Self {
        let (packet_in, flow_removed) = match version {
            Version::V10 | Version::V11 | Version::V12 | Version::V13 => (0x03, 0x0f),
            _ => (0x3b, 0x3f),
        };
        Self([[packet_in, 0], [7, 7], [flow_removed, 0], [0; 2], [0; 2], [0; 2]])
    }

    pub(super) fn takes(&self, event: Event, is_slave: bool, reason: u8) -> bool {
        self.0[event as usize][usize::from(is_slave)] >> reason & 1 != 0
    }

    /// Changes whether a master or equal takes packets for a reason.
    pub(super) fn set_packet_in(&mut self, reason: u8, is_taken: bool) {
        let mask = &mut self.0[Event::PacketIn as usize][0];
        *mask = if is_taken { *mask | 1 << reason } else { *mask & !(1 << reason) };
    }

    /// Reads OpenFlow 1.3's masks.
    pub(super) fn decode(&mut self, mut body: Reader<'_>) -> Result<(), Refusal> {
        let mut masks = *self;
        for pair in &mut masks.0[..KINDS_OF_V13] {
            *pair = [body.u32()?, body.u32()?];
        }
        *self = masks;
        Ok(())
    }

    /// Reads OpenFlow 1.4's properties: the slave's mask of each event has the even number.
    pub(super) fn decode_properties(&mut self, mut body: Reader<'_>) -> Result<(), Refusal> {
        let mut masks = *self;
        while !body.is_empty() {
            let (kind, length) = (body.u16()?, body.u16()?);
            let mut value =
                Reader::new(body.take(usize::from(length).saturating_sub(4))?, Refusal::BadLength);
            let pair = masks.0.get_mut(usize::from(kind / 2)).ok_or(Refusal::BadFlags)?;
            pair[usize::from(kind % 2 == 0)] = value.u32()?;
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
            out.put_u16(8);
            out.put_u32(*mask);
        }
    }
}

/// Packets, ports, rules, roles, tables, and requests of others.
const KINDS: usize = 6;
const KINDS_OF_V13: usize = 3;
