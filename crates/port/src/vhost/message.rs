//! The messages on the socket, in the machine's byte order.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemoryTable(Vec<Region>),
    SetRingSize(RingState),
    SetRingAddresses(RingAddresses),
    SetRingBase(RingState),
    GetRingBase(RingState),
    SetRingKick(RingFile),
    SetRingCall(RingFile),
    SetRingError(RingFile),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    EnableRing(RingState),
    /// A message that has no effect on this device.
    Ignored(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub request: u32,
    pub flags: u32,
    pub size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The region's start in the addresses that descriptors use.
    pub guest_address: u64,
    pub size: u64,
    /// The region's start in the addresses that messages use.
    pub user_address: u64,
    pub file_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    pub ring: u32,
    pub value: u32,
}

/// The user addresses of a ring's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    pub ring: u32,
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
}

/// The number of a ring, and whether the message carries a descriptor for this ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingFile {
    pub ring: u32,
    pub has_file: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    #[error("a message of version {0}, and only 1 is known")]
    Version(u32),
    #[error("a message of {0} bytes is too long")]
    TooLong(u32),
    #[error("message {request} has {size} bytes, which does not fit")]
    Size { request: u32, size: usize },
    #[error("{0} memory regions are too many")]
    Regions(u32),
    #[error("message {0} is not known")]
    Unknown(u32),
}

impl Header {
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, MessageError> {
        let header =
            Self { request: number(&bytes, 0), flags: number(&bytes, 4), size: number(&bytes, 8) };
        if header.flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version(header.flags & VERSION_MASK));
        }
        if header.size as usize > LONGEST {
            return Err(MessageError::TooLong(header.size));
        }
        Ok(header)
    }

    #[must_use]
    pub fn wants_reply(self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Whether the message is a reply. A reply has the type of its request.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.flags & REPLY != 0
    }
}

impl Request {
    pub fn parse(request: u32, payload: &[u8]) -> Result<Self, MessageError> {
        let wrong = MessageError::Size { request, size: payload.len() };
        let word = || payload.try_into().map(u64::from_ne_bytes).map_err(|_| wrong);
        let state = || match payload.len() {
            8 => Ok(RingState { ring: number(payload, 0), value: number(payload, 4) }),
            _ => Err(wrong),
        };
        let file = || {
            let word = word()?;
            Ok(RingFile { ring: (word & 0xff) as u32, has_file: word & NO_FILE == 0 })
        };
        let empty = |request| if payload.is_empty() { Ok(request) } else { Err(wrong) };
        Ok(match request {
            GET_FEATURES => empty(Self::GetFeatures)?,
            SET_FEATURES => Self::SetFeatures(word()?),
            SET_OWNER => empty(Self::SetOwner)?,
            RESET_OWNER => empty(Self::ResetOwner)?,
            SET_MEM_TABLE => {
                Self::SetMemoryTable(regions(payload).map_err(|e| e.unwrap_or(wrong))?)
            }
            SET_VRING_NUM => Self::SetRingSize(state()?),
            SET_VRING_ADDR => Self::SetRingAddresses(addresses(payload).ok_or(wrong)?),
            SET_VRING_BASE => Self::SetRingBase(state()?),
            GET_VRING_BASE => Self::GetRingBase(state()?),
            SET_VRING_KICK => Self::SetRingKick(file()?),
            SET_VRING_CALL => Self::SetRingCall(file()?),
            SET_VRING_ERR => Self::SetRingError(file()?),
            GET_PROTOCOL_FEATURES => empty(Self::GetProtocolFeatures)?,
            SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(word()?),
            GET_QUEUE_NUM => empty(Self::GetQueueCount)?,
            SET_VRING_ENABLE => Self::EnableRing(state()?),
            SEND_RARP | NET_SET_MTU | SET_STATUS => Self::Ignored(request),
            _ => return Err(MessageError::Unknown(request)),
        })
    }

    #[must_use]
    pub fn encode(&self) -> (u32, Vec<u8>) {
        let state = |state: &RingState| words32(&[state.ring, state.value]);
        let file = |file: &RingFile| {
            let none = if file.has_file { 0 } else { NO_FILE };
            (u64::from(file.ring) | none).to_ne_bytes().to_vec()
        };
        match self {
            Self::GetFeatures => (GET_FEATURES, Vec::new()),
            Self::SetFeatures(word) => (SET_FEATURES, word.to_ne_bytes().to_vec()),
            Self::SetOwner => (SET_OWNER, Vec::new()),
            Self::ResetOwner => (RESET_OWNER, Vec::new()),
            Self::SetMemoryTable(regions) => {
                let mut bytes = words32(&[regions.len() as u32, 0]);
                for region in regions {
                    for word in
                        [region.guest_address, region.size, region.user_address, region.file_offset]
                    {
                        bytes.extend(word.to_ne_bytes());
                    }
                }
                (SET_MEM_TABLE, bytes)
            }
            Self::SetRingSize(of) => (SET_VRING_NUM, state(of)),
            Self::SetRingAddresses(of) => {
                let mut bytes = words32(&[of.ring, 0]);
                for word in [of.descriptors, of.used, of.available, 0] {
                    bytes.extend(word.to_ne_bytes());
                }
                (SET_VRING_ADDR, bytes)
            }
            Self::SetRingBase(of) => (SET_VRING_BASE, state(of)),
            Self::GetRingBase(of) => (GET_VRING_BASE, state(of)),
            Self::SetRingKick(of) => (SET_VRING_KICK, file(of)),
            Self::SetRingCall(of) => (SET_VRING_CALL, file(of)),
            Self::SetRingError(of) => (SET_VRING_ERR, file(of)),
            Self::GetProtocolFeatures => (GET_PROTOCOL_FEATURES, Vec::new()),
            Self::SetProtocolFeatures(word) => (SET_PROTOCOL_FEATURES, word.to_ne_bytes().to_vec()),
            Self::GetQueueCount => (GET_QUEUE_NUM, Vec::new()),
            Self::EnableRing(of) => (SET_VRING_ENABLE, state(of)),
            Self::Ignored(request) => (*request, Vec::new()),
        }
    }
}

/// Builds the bytes of a whole message.
#[must_use]
pub fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = words32(&[request, VERSION | flags, payload.len() as u32]);
    bytes.extend_from_slice(payload);
    bytes
}

/// Parses memory regions. Returns `Err(None)` for a wrong length.
fn regions(payload: &[u8]) -> Result<Vec<Region>, Option<MessageError>> {
    let (head, rest) = payload.split_at_checked(8).ok_or(None)?;
    let count = number(head, 0);
    if count as usize > MOST_REGIONS {
        return Err(Some(MessageError::Regions(count)));
    }
    // Some front ends send the whole table, even if it has fewer regions than places.
    let used = rest.get(..count as usize * REGION).ok_or(None)?;
    let word =
        |bytes: &[u8], at| u64::from(number(bytes, at)) | u64::from(number(bytes, at + 4)) << 32;
    let region = |bytes: &[u8]| Region {
        guest_address: word(bytes, 0),
        size: word(bytes, 8),
        user_address: word(bytes, 16),
        file_offset: word(bytes, 24),
    };
    Ok(used.chunks_exact(REGION).map(region).collect())
}

fn addresses(payload: &[u8]) -> Option<RingAddresses> {
    let word = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    (payload.len() == 40).then_some(())?;
    Some(RingAddresses {
        ring: number(payload, 0),
        descriptors: word(8)?,
        used: word(16)?,
        available: word(24)?,
    })
}

/// Reads the four bytes at an offset; 0 if some of the bytes are outside `bytes`.
fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_ne_bytes)
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub const HEADER: usize = 12;
/// Maximum length of a message, in bytes. All known messages are shorter.
pub const LONGEST: usize = 4096;
pub const NEED_REPLY: u32 = 8;
pub const REPLY: u32 = 4;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
pub const MOST_REGIONS: usize = 8;
const REGION: usize = 32;
const NO_FILE: u64 = 1 << 8;
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
const NET_SET_MTU: u32 = 20;
const SET_STATUS: u32 = 39;

/// The features of virtio and of vhost-user that both the device and the driver offer.
pub mod features {
    /// The device completes partial checksums (`VIRTIO_NET_F_CSUM`).
    pub const CHECKSUM: u64 = 1;
    /// The driver accepts partial checksums and super-packets (`VIRTIO_NET_F_GUEST_…`).
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    /// The device accepts super-packets (`VIRTIO_NET_F_HOST_…`).
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;
    pub const HOST_USO: u64 = 1 << 56;
    pub const MERGEABLE_BUFFERS: u64 = 1 << 15;
    pub const MULTIQUEUE: u64 = 1 << 22;
    pub const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const PROTOCOL_MULTIQUEUE: u64 = 1;
    pub const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encoded_vhost_user_messages_parse_to_the_same_messages() {
        let state = RingState { ring: 1, value: 256 };
        let file = RingFile { ring: 3, has_file: true };
        let region = Region { guest_address: 1, size: 2, user_address: 3, file_offset: 4 };
        for request in [
            Request::GetFeatures,
            Request::SetFeatures(1 << 32 | 5),
            Request::SetOwner,
            Request::SetMemoryTable(vec![region; 8]),
            Request::SetMemoryTable(Vec::new()),
            Request::SetRingSize(state),
            Request::SetRingAddresses(RingAddresses {
                ring: 1,
                descriptors: 2,
                used: 3,
                available: 4,
            }),
            Request::GetRingBase(state),
            Request::SetRingKick(file),
            Request::SetRingCall(RingFile { has_file: false, ..file }),
            Request::EnableRing(state),
        ] {
            let (number, payload) = request.encode();
            assert_eq!(Request::parse(number, &payload).unwrap(), request);
            let bytes = message(number, NEED_REPLY, &payload);
            let header = Header::parse(bytes[..HEADER].try_into().unwrap()).unwrap();
            assert!(header.wants_reply() && header.size as usize == payload.len());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_to_a_vhost_user_message_or_an_error(
            request in 0..45_u32,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(Request::SetMemoryTable(regions)) = Request::parse(request, &payload) {
                prop_assert!(regions.len() <= MOST_REGIONS);
            }
        }
    }
}
