//! Reads the versions that the Go linker writes into a program.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = lab::go_build::versions(bytes);
    // A fuzzer rarely finds the header by chance.
    let header = b"\xff Go buildinf:\x08\x02";
    let _ = lab::go_build::versions(&[&header[..], &[0; 16], bytes].concat());
});
