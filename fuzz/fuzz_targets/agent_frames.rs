//! Parses frames between the controller of a lab and the agent on a host, in both directions:
//! lengths, JSON, and the texts of a hostile host.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (lab::hosts::read_answers(bytes), lab::hosts::read_asks(bytes));
    // Parse the same input behind a valid length, so that the parser reads the frame's content.
    let Ok(length) = u32::try_from(bytes.len()) else { return };
    let framed = [&length.to_be_bytes()[..], bytes].concat();
    let _ = (lab::hosts::read_answers(&framed), lab::hosts::read_asks(&framed));
});
