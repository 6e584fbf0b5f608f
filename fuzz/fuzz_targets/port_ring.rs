//! Checks a peer's indexes and lengths in a ring of shared memory: values that pass the checks stay
//! within the memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use port::shared_ring::layout::{
    Descriptor, Direction, Geometry, LONGEST, returned, waiting,
};

fuzz_target!(|input: (u32, u32, Vec<(u64, u32, u32, u32)>)| {
    let (descriptors, area, words) = input;
    // Check sizes of any value, and nearly valid sizes.
    let _ = Geometry { descriptors, area }.check();
    let nearly = Geometry { descriptors: 1 << (descriptors % 20), area: area >> 4 & !63 };
    let Ok(geometry) = nearly.check() else { return };
    let places = [Direction::FromCreator, Direction::ToCreator].map(|way| geometry.places(way));
    for (word, produced, consumed, in_flight) in words {
        if let Ok(descriptor) = Descriptor::check(word, geometry) {
            assert!(descriptor.len as usize <= LONGEST);
            let end = u64::from(descriptor.offset) + u64::from(descriptor.len);
            for place in places {
                assert!(place.area as u64 + end <= geometry.memory_len() as u64);
            }
        }
        if let Ok(count) = waiting(produced, consumed, geometry) {
            assert!(count <= geometry.descriptors);
        }
        if let Ok(count) = returned(consumed, produced, in_flight) {
            assert!(count <= in_flight);
        }
    }
});
