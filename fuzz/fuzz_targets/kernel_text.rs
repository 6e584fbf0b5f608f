//! Parses the text files and results of a kernel of any version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use units::Span;

fuzz_target!(|bytes: &[u8]| {
    let _ = probe::tcp::TcpInfo::from_bytes(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let tick = Span::from_millis(10);
    let _ = probe::cpu::CpuSnapshot::parse(text, tick);
    let _ = probe::process::Process::parse(text, tick);
    let _ = probe::snmp::SnmpSnapshot::parse(text, text, text);
    let _ = probe::local_addresses::LocalAddresses::parse(text, text);
});
