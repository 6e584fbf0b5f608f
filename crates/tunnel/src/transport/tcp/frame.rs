//! The frames of a tunnel over TLS, as docs/reference/tunnel-wire.md describes the frames. Pure: no
//! I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Data(u32, Bytes),
    /// The sender has sent all bytes of the stream.
    Finish(u32),
    /// The receiver has all bytes up to the end of the stream.
    Received(u32),
    /// The sender aborts its half of the stream, with this code.
    Reset(u32, u32),
    /// The receiver asks the sender to abort the stream, with this code.
    Stop(u32, u32),
    /// The peer may send up to this offset of the stream.
    StreamCredit(u32, u64),
    /// The peer may send this many bytes on all streams together.
    Credit(u64),
    /// The peer may open this many streams in all.
    Streams(u32),
    Datagram(Bytes),
    Ping(u64),
    Pong(u64),
    /// The sender closes the connection, for this reason.
    Close(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of an unknown kind")]
    Kind,
    #[error("a frame with a wrong length")]
    Length,
}

/// Length of a frame's header: type u8, payload length u24, stream u32.
pub(super) const HEAD: usize = 8;
/// Maximum payload of a frame: the frame must fit in one TLS record.
pub(super) const PAYLOAD_LIMIT: usize = 16_384 - HEAD;

impl Frame {
    pub fn encode(&self, out: &mut BytesMut) {
        let mut put = |kind: u8, stream: u32, payload: &[u8]| {
            out.put_u32(u32::from(kind) << 24 | payload.len() as u32);
            out.put_u32(stream);
            out.put_slice(payload);
        };
        match self {
            Self::Data(stream, bytes) => put(DATA, *stream, bytes),
            Self::Finish(stream) => put(FINISH, *stream, &[]),
            Self::Received(stream) => put(RECEIVED, *stream, &[]),
            Self::Reset(stream, code) => put(RESET, *stream, &code.to_be_bytes()),
            Self::Stop(stream, code) => put(STOP, *stream, &code.to_be_bytes()),
            Self::StreamCredit(stream, limit) => put(STREAM_CREDIT, *stream, &limit.to_be_bytes()),
            Self::Credit(limit) => put(CREDIT, 0, &limit.to_be_bytes()),
            Self::Streams(count) => put(STREAMS, 0, &count.to_be_bytes()),
            Self::Datagram(bytes) => put(DATAGRAM, 0, bytes),
            Self::Ping(mark) => put(PING, 0, &mark.to_be_bytes()),
            Self::Pong(mark) => put(PONG, 0, &mark.to_be_bytes()),
            Self::Close(why) => {
                let mut most = why.len().min(REASON_LIMIT);
                while !why.is_char_boundary(most) {
                    most -= 1;
                }
                put(CLOSE, 0, &why.as_bytes()[..most]);
            }
        }
    }

    /// Takes the first frame out of `bytes`; `None` if the frame is incomplete.
    pub fn decode(bytes: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some((mut head, _)) = bytes.split_at_checked(HEAD) else { return Ok(None) };
        let word = head.get_u32();
        let stream = head.get_u32();
        let (kind, length) = ((word >> 24) as u8, (word & 0xff_ffff) as usize);
        let fits = match kind {
            DATA | DATAGRAM => (1..=PAYLOAD_LIMIT).contains(&length),
            FINISH | RECEIVED => length == 0,
            RESET | STOP | STREAMS => length == 4,
            STREAM_CREDIT | CREDIT | PING | PONG => length == 8,
            CLOSE => length <= REASON_LIMIT,
            _ => return Err(FrameError::Kind),
        };
        if !fits {
            return Err(FrameError::Length);
        }
        if bytes.len() < HEAD + length {
            return Ok(None);
        }
        bytes.advance(HEAD);
        let mut payload = bytes.split_to(length);
        Ok(Some(match kind {
            DATA => Self::Data(stream, payload.freeze()),
            FINISH => Self::Finish(stream),
            RECEIVED => Self::Received(stream),
            RESET => Self::Reset(stream, payload.get_u32()),
            STOP => Self::Stop(stream, payload.get_u32()),
            STREAM_CREDIT => Self::StreamCredit(stream, payload.get_u64()),
            CREDIT => Self::Credit(payload.get_u64()),
            STREAMS => Self::Streams(payload.get_u32()),
            DATAGRAM => Self::Datagram(payload.freeze()),
            PING => Self::Ping(payload.get_u64()),
            PONG => Self::Pong(payload.get_u64()),
            _ => Self::Close(String::from_utf8_lossy(&payload).into_owned()),
        }))
    }
}

const DATA: u8 = 0;
const FINISH: u8 = 1;
const RECEIVED: u8 = 2;
const RESET: u8 = 3;
const STOP: u8 = 4;
const STREAM_CREDIT: u8 = 5;
const CREDIT: u8 = 6;
const STREAMS: u8 = 7;
const DATAGRAM: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const CLOSE: u8 = 11;
const REASON_LIMIT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 1..200).prop_map(Bytes::from);
        let stream = any::<u32>;
        prop_oneof![
            (stream(), bytes()).prop_map(|(stream, bytes)| Frame::Data(stream, bytes)),
            stream().prop_map(Frame::Finish),
            stream().prop_map(Frame::Received),
            (stream(), any::<u32>()).prop_map(|(stream, code)| Frame::Reset(stream, code)),
            (stream(), any::<u32>()).prop_map(|(stream, code)| Frame::Stop(stream, code)),
            (stream(), any::<u64>()).prop_map(|(stream, limit)| Frame::StreamCredit(stream, limit)),
            any::<u64>().prop_map(Frame::Credit),
            any::<u32>().prop_map(Frame::Streams),
            bytes().prop_map(Frame::Datagram),
            any::<u64>().prop_map(Frame::Ping),
            any::<u64>().prop_map(Frame::Pong),
            "[ -~ä]{0,200}".prop_map(Frame::Close),
        ]
    }

    proptest! {
        #[test]
        fn an_encoded_frame_decodes_to_the_same_frame_once_complete(frame in frames(), after: Vec<u8>) {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Frame::decode(&mut BytesMut::from(&bytes[..cut])), Ok(None));
            }
            bytes.extend_from_slice(&after);
            prop_assert_eq!(Frame::decode(&mut bytes), Ok(Some(frame)));
            prop_assert_eq!(&bytes[..], &after[..]);
        }

        #[test]
        fn decoding_arbitrary_bytes_as_a_frame_causes_no_panic(bytes: Vec<u8>) {
            let mut bytes = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = Frame::decode(&mut bytes) {}
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_head() {
        for head in [[0, 0, 0x40, 0], [1, 0, 0, 1], [3, 0, 0, 5], [11, 0, 8, 0], [0, 0, 0, 0]] {
            let mut bytes = BytesMut::from(&head[..]);
            bytes.put_u32(0);
            assert_eq!(Frame::decode(&mut bytes), Err(FrameError::Length), "{head:?}");
        }
        assert_eq!(Frame::decode(&mut BytesMut::from(&[12; 8][..])), Err(FrameError::Kind));
    }
}
