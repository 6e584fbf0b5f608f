//! OpenFlow messages of any content: each part, of each version, is decoded, and encoded again if
//! it is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| openflow::decode_any(bytes));
