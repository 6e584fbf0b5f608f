//! The simulator against what is known from elsewhere, briefly.

use sim::validate::{Layer, cases};

/// The kernel's figures are single runs of a few seconds on a machine that adds to the round trip: most
/// of them must be met, everything else always.
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
            off.push((case.layer, case.name));
        }
    }
    assert!(off.iter().all(|(layer, _)| *layer == Layer::Kernel), "{off:?}");
    assert!(off.len() <= 11, "{off:?}");
}
