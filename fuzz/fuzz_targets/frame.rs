//! Parses any frame that may arrive at a port.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let _ = wire::Layout::parse(frame).map(|layout| layout.payload_offset());
    let _ = wire::flow::hash(frame, 7);
    let mut changed = frame.to_vec();
    let marked = wire::ecn::mark(&mut changed);
    assert!(!marked || wire::Ecn::read(&changed).is_some_and(wire::Ecn::is_capable));
    let _ = wire::corrupt::flip_bit(&mut changed, frame.len() as u64);
    let _ = wire::vlan::remove(&mut changed);
    assert_eq!(changed.len(), frame.len());
});
