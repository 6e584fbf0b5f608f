//! Tests which tags the programs accept for a connection (bpf/caqm_window.h), by the sequence and
//! acknowledgement numbers of the tagged segments.
#![allow(clippy::unwrap_used, unsafe_code)]

use proptest::prelude::*;

/// `struct caqm_window` of bpf/caqm_window.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Window {
    received: u32,
    offered: u32,
    overtaken: u32,
    acked: u32,
    written: u32,
    granted: u32,
}

unsafe extern "C" {
    fn weir_caqm_window_is_plausible(window: *const Window, sequence: u32, acked: u32) -> u32;
    fn weir_caqm_window_may_begin(window: *const Window, sequence: u32, acked: u32) -> u32;
}

impl Window {
    /// Builds the same connection with other initial sequence numbers.
    fn at(received: u32, acked: u32) -> Self {
        let written = acked.wrapping_add(UNACKED);
        Self { received, offered: OFFERED, overtaken: OVERTAKEN, acked, written, granted: GRANTED }
    }

    fn takes(&self, sequence: u32, acked: u32) -> bool {
        // SAFETY: the function reads the struct, whose layout is the same, and keeps no pointer.
        unsafe { weir_caqm_window_is_plausible(self, sequence, acked) != 0 }
    }

    fn begins(&self, sequence: u32, acked: u32) -> bool {
        // SAFETY: as in the function above.
        unsafe { weir_caqm_window_may_begin(self, sequence, acked) != 0 }
    }
}

const OFFERED: u32 = 65_535 << 3;
const OVERTAKEN: u32 = 65_535 << 4;
const GRANTED: u32 = 65_535 << 5;
const UNACKED: u32 = 200_000;
/// First sequence numbers on both sides of every point where unsigned and signed 32-bit numbers
/// wrap.
const STARTS: [u32; 7] = [0, 1, 70_000, 0x7fff_ffff, 0x8000_0000, 0xffff_0000, 0xffff_ffff];

#[test]
fn tag_windows_end_at_the_same_byte_when_sequence_numbers_wrap() {
    for received in STARTS {
        for acked in STARTS {
            let window = Window::at(received, acked);
            let near = |number: u32, offset: i64| number.wrapping_add(offset as u32);
            for (offset, taken) in [
                (0, true),
                (i64::from(OFFERED), true),
                (i64::from(OFFERED) + 1, false),
                // The peer may repeat old bytes: in a window probe, or a spurious retransmission.
                (-1, true),
                (-i64::from(OVERTAKEN) - 1, true),
                (-i64::from(OVERTAKEN) - 2, false),
                (1 << 31, false),
            ] {
                assert_eq!(
                    window.takes(near(received, offset), acked),
                    taken,
                    "{window:?} {offset}"
                );
            }
            for (offset, taken) in [
                (0, true),
                (i64::from(UNACKED), true),
                (i64::from(UNACKED) + 1, false),
                (-i64::from(GRANTED), true),
                (-i64::from(GRANTED) - 1, false),
                (1 << 31, false),
            ] {
                assert_eq!(
                    window.takes(received, near(acked, offset)),
                    taken,
                    "{window:?} {offset}"
                );
            }
        }
    }
}

#[test]
fn only_an_acknowledgement_of_the_syn_ack_may_end_a_handshake() {
    for received in STARTS {
        for acked in STARTS {
            let window = Window::at(received, acked);
            assert!(window.begins(received, acked));
            assert!(window.begins(received.wrapping_add(OFFERED), acked));
            assert!(!window.begins(received.wrapping_add(OFFERED + 1), acked));
            assert!(!window.begins(received.wrapping_sub(1), acked));
            assert!(!window.begins(received, acked.wrapping_add(1)));
            assert!(!window.begins(received, acked.wrapping_sub(1)));
        }
    }
}

#[test]
fn closed_and_largest_windows_accept_only_tags_within_the_window() {
    let closed = Window { offered: 0, overtaken: 0, granted: 0, ..Window::at(5, 7) };
    let closed = Window { written: 7, ..closed };
    assert!(closed.takes(5, 7) && closed.takes(4, 7));
    assert!(
        !closed.takes(6, 7) && !closed.takes(3, 7) && !closed.takes(5, 6) && !closed.takes(5, 8)
    );
    // A window that no socket can have counts as the largest window.
    let most = u32::MAX;
    let wide = Window { offered: most, overtaken: most, granted: most, ..Window::at(5, 7) };
    assert!(wide.takes(5 + (1 << 30), 7) && !wide.takes(6 + (1 << 30), 7));
    assert!(!wide.takes(5_u32.wrapping_add(1 << 31), 7));
    assert!(!wide.takes(5, 7_u32.wrapping_add(1 << 31)));
}

proptest! {
    #[test]
    fn wrapped_sequence_numbers_are_accepted_like_unwrapped_sequence_numbers(
        received in any::<u32>(),
        acked in any::<u32>(),
        sequence in -3_000_000_i64..3_000_000,
        acknowledgement in -3_000_000_i64..3_000_000,
    ) {
        let window = Window::at(received, acked);
        let sequenced = (-i64::from(OVERTAKEN) - 1..=i64::from(OFFERED)).contains(&sequence);
        let acknowledged = (-i64::from(GRANTED)..=i64::from(UNACKED)).contains(&acknowledgement);
        let taken = window.takes(
            received.wrapping_add(sequence as u32),
            acked.wrapping_add(acknowledgement as u32),
        );
        prop_assert_eq!(taken, sequenced && acknowledged);
    }
}
