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

/// With a buffer of a fifth of a bandwidth-delay product the kernel's figures are those of its hosts: on a
/// machine that is not idle they send in lumps that overflow it, and no two runs agree within 30 %.
const KNOWN_OFF: [&str; 4] = [
    "cubic 100 Mbit/s 20 ms shallow",
    "reno 100 Mbit/s 20 ms shallow",
    "cubic 100 Mbit/s 50 ms shallow",
    "reno 100 Mbit/s 50 ms shallow",
];
