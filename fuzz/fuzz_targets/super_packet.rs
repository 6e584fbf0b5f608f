//! Cuts an arbitrary super-packet, with an arbitrary description by the kernel, into segments: the
//! segmentation loses no payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Segmenter, VirtioHeader};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, frame)) = bytes.split_at_checked(VirtioHeader::LEN) else { return };
    let Some(virtio) = VirtioHeader::parse(head) else { return };
    let Ok(mut segmenter) = Segmenter::new(frame, &virtio) else { return };
    let count = segmenter.count();
    let mut made = 0;
    while let Some(length) = segmenter.next_len() {
        let mut segment = vec![0; length];
        segmenter.write_next(&mut segment);
        made += 1;
        assert!(made <= count, "more segments than announced");
    }
    assert_eq!(made, count);
});
