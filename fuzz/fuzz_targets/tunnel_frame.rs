//! Decodes the headers of a tunnel's streams and datagrams, from any admitted peer. Decoded headers
//! can be encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel::frame::{ANSWER_HEAD, Answer, OPENING_LIMIT, Opening, flow_of};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((opening, taken))) = Opening::decode(bytes) {
        assert!(taken <= bytes.len() && taken <= OPENING_LIMIT);
        let again = opening.encode();
        assert_eq!(Opening::decode(&again), Ok(Some((opening, again.len()))));
    }
    if let Ok(Some((answer, taken))) = Answer::decode(bytes) {
        assert!(taken <= bytes.len() && taken >= ANSWER_HEAD);
        assert!(matches!(Answer::decode(&answer.encode()), Ok(Some(_))));
    }
    if let Some((_, payload)) = flow_of(bytes.to_vec().into()) {
        assert!(payload.len() < bytes.len());
    }
});
