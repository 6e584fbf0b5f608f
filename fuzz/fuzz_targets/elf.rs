//! Reads the symbol tables of programs, which may be files of any user.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probe::profile::Symbols;

fuzz_target!(|bytes: &[u8]| {
    let Some(symbols) = Symbols::parse(bytes) else { return };
    for offset in [0, 64, 4_096, bytes.len() as u64, u64::MAX] {
        let _ = symbols.name(offset);
    }
});
