//! Decodes OpenFlow messages of any content: each part, in each version. Encodes a valid part
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| openflow::decode_any(bytes));
