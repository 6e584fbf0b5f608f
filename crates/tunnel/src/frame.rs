//! Frames at the beginning of a stream, before the bytes that the stream carries. This module
//! never waits, and never allocates by a length that the peer claims.
//!
//! ```text
//! opening:  version u8 = 1 | kind u8 | address length u16 | properties length u16
//!           | address | properties
//! answer:   version u8 = 1 | status u8 | message length u16 | message
//! datagram: flow (QUIC varint) | payload
//! ```
//!
//! The opener sends the application's first bytes right after the opening, without waiting for the
//! answer. Properties are `key u8 | length u8 | value`. The receiver skips unknown keys, so later
//! versions can add keys. Numbers are big-endian.

use crate::quic_tun::token;
use crate::target::{Target, TargetError};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use units::foreign;

/// The request of the end that opens a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    pub request: Request,
    pub properties: Properties,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Connect to this target. For datagrams, the flow lives as long as the stream, and a property
    /// carries the flow number.
    Forward(Target),
    /// Listen on this address on behalf of the sender. The listener lives as long as the stream.
    Listen(Target),
    /// A connection arrived at the listener with this number.
    Arrived(u32),
    /// Connect to the target that the receiver derives from this text (`quic_tun::token`).
    Token(String),
    /// Make another connection, and use it for new tunnels. A server sends this request to its
    /// clients once its key has changed.
    Renew,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forward(target) => write!(f, "{target}"),
            Self::Listen(target) => write!(f, "listen on {target}"),
            Self::Arrived(number) => write!(f, "connection of listener {number}"),
            Self::Token(_) => f.write_str("token"),
            Self::Renew => f.write_str("new connection"),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// The flow number of this stream's datagrams.
    pub flow: Option<u32>,
    /// The listener's number, which [`Request::Arrived`] will carry.
    pub listener: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    Open = 0,
    /// No rule of this identity allows the request.
    Denied = 1,
    /// The target refused the connection or is unreachable.
    Unreachable = 2,
    TimedOut = 3,
    /// A limit of this identity or of the server is reached.
    Busy = 4,
    NotUnderstood = 5,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error(
        "the other end speaks version {0} of the tunnel's frames, this one version 1: update the older"
    )]
    Version(u8),
    #[error("{what} of {length} bytes: at most {most} are allowed")]
    TooLong { what: &'static str, length: usize, most: usize },
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// Number of bytes of an opening or an answer from which the length of the whole message is known.
pub const OPENING_HEAD: usize = 6;
pub const ANSWER_HEAD: usize = 4;
/// Maximum length of an opening, including its head.
pub const OPENING_LIMIT: usize = OPENING_HEAD + token::LONGEST + PROPERTIES_LIMIT;

impl Opening {
    pub fn forward(target: Target) -> Self {
        Self { request: Request::Forward(target), properties: Properties::default() }
    }

    pub fn encode(&self) -> Bytes {
        let (kind, address) = match &self.request {
            Request::Forward(target) => (FORWARD, target.to_string()),
            Request::Listen(target) => (LISTEN, target.to_string()),
            Request::Arrived(listener) => (ARRIVED, listener.to_string()),
            Request::Token(token) => (TOKEN, token.clone()),
            Request::Renew => (RENEW, String::new()),
        };
        let mut properties = BytesMut::new();
        for (key, value) in [(FLOW, self.properties.flow), (LISTENER, self.properties.listener)] {
            if let Some(value) = value {
                properties.put_slice(&[key, 4]);
                properties.put_u32(value);
            }
        }
        let mut out = BytesMut::with_capacity(OPENING_HEAD + address.len() + properties.len());
        out.put_slice(&[VERSION, kind]);
        out.put_u16(address.len() as u16);
        out.put_u16(properties.len() as u16);
        out.put_slice(address.as_bytes());
        out.put_slice(&properties);
        out.freeze()
    }

    /// Returns `None` if the opening is incomplete, otherwise the opening and its length.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        version(bytes)?;
        let Some((mut head, rest)) = bytes.split_at_checked(OPENING_HEAD) else { return Ok(None) };
        head.advance(1);
        let kind = head.get_u8();
        let limit = if kind == TOKEN { token::LONGEST } else { ADDRESS_LIMIT };
        let address = bounded("an address", head.get_u16(), limit)?;
        let properties = bounded("properties", head.get_u16(), PROPERTIES_LIMIT)?;
        let Some(body) = rest.get(..address + properties) else { return Ok(None) };
        let (address_text, properties_bytes) = body.split_at(address);
        let text = std::str::from_utf8(address_text)
            .map_err(|_| FrameError::Malformed("the address is not UTF-8"))?;
        let request = match kind {
            FORWARD => Request::Forward(text.parse()?),
            LISTEN => Request::Listen(text.parse()?),
            ARRIVED => Request::Arrived(
                text.parse().map_err(|_| FrameError::Malformed("the listener is not a number"))?,
            ),
            TOKEN if token::is_fit(text) => Request::Token(text.to_owned()),
            RENEW if text.is_empty() => Request::Renew,
            TOKEN => return Err(FrameError::Malformed("the token is empty or unprintable")),
            _ => return Err(FrameError::Malformed("unknown kind of request")),
        };
        let opening = Self { request, properties: Properties::decode(properties_bytes)? };
        Ok(Some((opening, OPENING_HEAD + address + properties)))
    }
}

impl Properties {
    fn decode(mut bytes: &[u8]) -> Result<Self, FrameError> {
        let cut = FrameError::Malformed("truncated properties");
        let mut properties = Self::default();
        while let Some((head, rest)) = bytes.split_at_checked(2) {
            let (value, next) = rest.split_at_checked(head[1].into()).ok_or(cut.clone())?;
            let number = || {
                let number: [u8; 4] = value.try_into().map_err(|_| {
                    FrameError::Malformed("a property with a length other than four")
                })?;
                Ok::<_, FrameError>(Some(u32::from_be_bytes(number)))
            };
            match head[0] {
                FLOW => properties.flow = number()?,
                LISTENER => properties.listener = number()?,
                _ => {}
            }
            bytes = next;
        }
        if bytes.is_empty() { Ok(properties) } else { Err(cut) }
    }
}

impl Answer {
    pub fn open() -> Self {
        Self { status: Status::Open, message: String::new() }
    }

    pub fn encode(&self) -> Bytes {
        let mut most = self.message.len().min(MESSAGE_LIMIT);
        while !self.message.is_char_boundary(most) {
            most -= 1;
        }
        let mut out = BytesMut::with_capacity(ANSWER_HEAD + most);
        out.put_slice(&[VERSION, self.status as u8]);
        out.put_u16(most as u16);
        out.put_slice(&self.message.as_bytes()[..most]);
        out.freeze()
    }

    /// Returns `None` if the answer is incomplete, otherwise the answer and its length.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        version(bytes)?;
        let Some((mut head, rest)) = bytes.split_at_checked(ANSWER_HEAD) else { return Ok(None) };
        head.advance(1);
        let status = Status::of(head.get_u8())?;
        let length = bounded("a message", head.get_u16(), MESSAGE_LIMIT)?;
        let Some(message) = rest.get(..length) else { return Ok(None) };
        // Escape the message here, because every receiver logs it.
        let message = foreign(String::from_utf8_lossy(message)).to_string();
        Ok(Some((Self { status, message }, ANSWER_HEAD + length)))
    }
}

impl Status {
    fn of(code: u8) -> Result<Self, FrameError> {
        let all = [
            Self::Open,
            Self::Denied,
            Self::Unreachable,
            Self::TimedOut,
            Self::Busy,
            Self::NotUnderstood,
        ];
        let known = all.into_iter().find(|status| *status as u8 == code);
        known.ok_or(FrameError::Malformed("unknown status"))
    }
}

/// Encodes a datagram of `flow`: the flow number, then `payload`.
pub fn datagram(flow: u32, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(datagram_head(flow) + payload.len());
    // A flow number is a QUIC varint (RFC 9000, 16).
    match flow {
        0..0x40 => out.put_u8(flow as u8),
        0x40..0x4000 => out.put_u16(0x4000 | flow as u16),
        _ => out.put_u32(0x8000_0000 | (flow & 0x3fff_ffff)),
    }
    out.put_slice(payload);
    out.freeze()
}

pub fn datagram_head(flow: u32) -> usize {
    match flow {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        _ => 4,
    }
}

/// Decodes a datagram into its flow and its payload.
pub fn flow_of(mut datagram: Bytes) -> Option<(u32, Bytes)> {
    let first = *datagram.first()?;
    let length = 1 << (first >> 6);
    if length > 4 || datagram.len() < length {
        return None;
    }
    let head = datagram.split_to(length);
    let rest =
        head[1..].iter().fold(u32::from(first & 0x3f), |sum, byte| sum << 8 | u32::from(*byte));
    Some((rest, datagram))
}

/// Flow numbers are smaller than this.
pub const FLOWS: u32 = 0x4000_0000;

fn version(bytes: &[u8]) -> Result<(), FrameError> {
    match bytes.first() {
        Some(&version) if version != VERSION => Err(FrameError::Version(version)),
        _ => Ok(()),
    }
}

fn bounded(what: &'static str, length: u16, most: usize) -> Result<usize, FrameError> {
    let length = usize::from(length);
    if length > most { Err(FrameError::TooLong { what, length, most }) } else { Ok(length) }
}

const VERSION: u8 = 1;
const FORWARD: u8 = 1;
const LISTEN: u8 = 2;
const ARRIVED: u8 = 3;
const TOKEN: u8 = 4;
const RENEW: u8 = 5;
const FLOW: u8 = 1;
const LISTENER: u8 = 2;
/// Maximum length of an address: a name of 255 bytes with its type and port. A UNIX path is
/// shorter.
const ADDRESS_LIMIT: usize = 300;
const PROPERTIES_LIMIT: usize = 4096;
const MESSAGE_LIMIT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn openings() -> impl Strategy<Value = Opening> {
        let target = prop_oneof![
            ("[a-z0-9.-]{1,255}", any::<u16>())
                .prop_map(|(host, port)| format!("tcp:{host}:{port}")),
            any::<(std::net::Ipv6Addr, u16)>()
                .prop_map(|(host, port)| format!("udp:[{host}]:{port}")),
            "unix:/[a-z/]{0,106}".prop_map(|path| path),
        ];
        let request = (target, any::<u32>(), 0..5).prop_map(|(target, number, kind)| match kind {
            0 => Request::Forward(target.parse().unwrap()),
            3 => Request::Token(target),
            1 => Request::Listen(target.parse().unwrap()),
            4 => Request::Renew,
            _ => Request::Arrived(number),
        });
        (request, any::<Option<u32>>(), any::<Option<u32>>()).prop_map(
            |(request, flow, listener)| Opening {
                request,
                properties: Properties { flow, listener },
            },
        )
    }

    proptest! {
        #[test]
        fn an_encoded_opening_decodes_to_the_same_opening_once_complete(
            opening in openings(), after in proptest::collection::vec(any::<u8>(), 0..20)
        ) {
            let mut bytes = opening.encode().to_vec();
            let whole = bytes.len();
            prop_assert!(whole <= OPENING_LIMIT);
            for cut in 0..whole {
                prop_assert_eq!(Opening::decode(&bytes[..cut]), Ok(None));
            }
            bytes.extend(after);
            prop_assert_eq!(Opening::decode(&bytes), Ok(Some((opening, whole))));
        }

        #[test]
        fn an_encoded_answer_decodes_to_the_same_answer(code in 0u8..6, message in "[ -~ä–語]{0,200}") {
            let answer = Answer { status: Status::of(code).unwrap(), message };
            let bytes = answer.encode();
            for cut in 0..bytes.len() {
                prop_assert_eq!(Answer::decode(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(Answer::decode(&bytes), Ok(Some((answer, bytes.len()))));
        }

        #[test]
        fn an_encoded_datagram_decodes_to_the_same_flow_and_payload(flow in 0..FLOWS, payload: Vec<u8>) {
            let bytes = datagram(flow, &payload);
            prop_assert_eq!(bytes.len(), datagram_head(flow) + payload.len());
            prop_assert_eq!(flow_of(bytes), Some((flow, Bytes::from(payload))));
        }

        #[test]
        fn decoding_arbitrary_bytes_causes_no_panic(mut bytes: Vec<u8>, start: bool) {
            if start && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            let _ = Opening::decode(&bytes);
            let _ = Answer::decode(&bytes);
            let _ = flow_of(bytes.into());
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_head() {
        assert!(matches!(
            Opening::decode(&[1, 1, 255, 255, 0, 0]),
            Err(FrameError::TooLong { .. })
        ));
        assert!(matches!(
            Opening::decode(&[1, 1, 0, 0, 255, 255]),
            Err(FrameError::TooLong { .. })
        ));
        assert!(matches!(Answer::decode(&[1, 0, 255, 255]), Err(FrameError::TooLong { .. })));
        assert_eq!(Opening::decode(&[7]), Err(FrameError::Version(7)));
    }

    #[test]
    fn an_unknown_property_of_an_opening_is_skipped() {
        let mut bytes = Opening::forward("tcp:a:1".parse().unwrap()).encode().to_vec();
        bytes[5] = 9;
        bytes.extend([77, 1, 0, FLOW, 4, 0, 0, 0, 5]);
        let (opening, _) = Opening::decode(&bytes).unwrap().unwrap();
        assert_eq!(opening.properties.flow, Some(5));
    }
}
