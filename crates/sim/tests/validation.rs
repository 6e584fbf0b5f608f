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

/// Of the kernel's cells under random loss: CUBIC is too slow at 1 ms, Reno too fast, and why is not known.
const KNOWN_OFF: [&str; 10] = [
    "cubic 1 ms 0.1 %",
    "cubic 1 ms 0.5 %",
    "cubic 1 ms 1 %",
    "cubic 1 ms 5 %",
    "reno 1 ms 0.1 %",
    "reno 1 ms 1 %",
    "reno 1 ms 5 %",
    "reno 20 ms 5 %",
    "cubic 100 ms 5 %",
    "reno 100 ms 5 %",
];
