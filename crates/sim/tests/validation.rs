//! A short validation of the simulator against figures from elsewhere.

use sim::validate::cases;

/// Every case must pass; otherwise `weir sim run validate` fails too.
#[test]
fn worlds_have_their_known_outcomes() {
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
