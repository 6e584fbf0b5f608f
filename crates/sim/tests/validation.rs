//! The simulator against what is known from elsewhere, briefly.

use sim::validate::cases;

/// Everything must be met but what is known to be off; `weir sim run validate` fails for that too.
#[test]
fn worlds_with_a_known_outcome_come_to_it() {
    let mut off = Vec::new();
    for case in cases() {
        let checked = case.run(true, 1);
        println!(
            "{:15} {:45} {:9.3} {:9.3} {}",
            case.layer,
            case.name,
            checked.expected,
            checked.measured,
            if checked.within { "" } else { "off" }
        );
        assert!(checked.measured.is_finite(), "{} was not measured", case.name);
        if !checked.within {
            off.push(case.name);
        }
    }
    off.retain(|name| !KNOWN_OFF.contains(name));
    assert!(off.is_empty(), "{off:?}");
}

/// Slow start overflows a buffer of a fifth of a bandwidth-delay product at another window than Linux's
/// (at 50 ms 416 segments, there 340), which CUBIC remembers for as long as the cell lasts; and on a machine
/// that is not idle hosts send in lumps that overflow it again: the kernel's own runs differ by half.
const KNOWN_OFF: [&str; 3] = [
    "cubic 100 Mbit/s 20 ms shallow",
    "reno 100 Mbit/s 20 ms shallow",
    "cubic 100 Mbit/s 50 ms shallow",
];
