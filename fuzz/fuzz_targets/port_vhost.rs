//! Parses messages of vhost-user, and chains of descriptors in arbitrary memory: parsing ends, and
//! a chain names memory within its limits only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use port::vhost::chain::{Table, walk};
use port::vhost::message::{HEADER, Header, LONGEST, MOST_REGIONS, Request};

fuzz_target!(|bytes: &[u8]| {
    if let Some((head, payload)) = bytes.split_first_chunk::<HEADER>()
        && let Ok(header) = Header::parse(*head)
    {
        assert!(header.size as usize <= LONGEST);
        if let Ok(request) = Request::parse(header.request, payload) {
            if let Request::SetMemoryTable(regions) = &request {
                assert!(regions.len() <= MOST_REGIONS);
            }
            let (number, encoded) = request.encode();
            assert_eq!(number, header.request);
            if let Ok(again) = Request::parse(number, &encoded) {
                assert_eq!(again, request);
            }
        }
    }
    let Some((&[size, head, address], memory)) = bytes.split_first_chunk::<3>() else { return };
    let read = |address: u64, out: &mut [u8]| {
        let Ok(start) = usize::try_from(address) else { return false };
        let end = start.checked_add(out.len());
        let Some(bytes) = end.and_then(|end| memory.get(start..end)) else { return false };
        out.copy_from_slice(bytes);
        true
    };
    let mut pieces = Vec::new();
    let table = Table { address: u64::from(address), size: u16::from(size) };
    if walk(table, u16::from(head), read, &mut pieces).is_ok() {
        assert!(!pieces.is_empty() && pieces.len() <= usize::from(size));
    }
});
