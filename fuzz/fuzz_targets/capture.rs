//! Reads CAQM's tags in captures of other users, and in frames from an interface.
#![no_main]

use libfuzzer_sys::fuzz_target;
use units::Time;

fuzz_target!(|bytes: &[u8]| {
    let tpid = 0x88a8;
    let units = (1024, 8);
    let _ = emu::tags::line(Time::ZERO, bytes, tpid, units);
    let _ = emu::tags::dump(bytes);
    let Ok(frames) = emu::tags::of_capture(bytes) else { return };
    let most = frames.iter().map(|(_, frame)| frame.len()).sum::<usize>();
    assert!(most <= bytes.len());
    for (when, frame) in frames {
        if let Some(line) = emu::tags::line(when, &frame, tpid, units) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
});
