//! Parses the answers of a kernel of any version over netlink.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probe::interface::InterfaceSnapshot;
use probe::qdisc::QdiscSnapshot;
use probe::tcp::TcpSocket;

fuzz_target!(|bytes: &[u8]| {
    let _ = InterfaceSnapshot::parse(bytes);
    let _ = QdiscSnapshot::parse(bytes);
    let _ = TcpSocket::parse(bytes);
});
