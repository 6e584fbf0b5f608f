//! Decodes the frames of a tunnel over TLS, from any admitted peer. Decoded frames can be encoded
//! again.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use tunnel::transport::tcp::Frame;

fuzz_target!(|bytes: &[u8]| {
    let mut left = BytesMut::from(bytes);
    while let Ok(Some(frame)) = Frame::decode(&mut left) {
        let mut again = BytesMut::new();
        frame.encode(&mut again);
        if !matches!(frame, Frame::Close(_)) {
            assert_eq!(Frame::decode(&mut again), Ok(Some(frame)));
        }
    }
});
