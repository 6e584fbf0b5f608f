//! The simulator against what is known from elsewhere, briefly.

use sim::validate::cases;

/// Everything must be met; `weir sim run validate` fails otherwise too.
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
    assert!(off.is_empty(), "{off:?}");
}
