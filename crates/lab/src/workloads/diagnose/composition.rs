//! Compositions that a number draws. A composition is a fault or a healthy case, the place of the
//! fault, the traffic, background traffic, and the path. The right verdict follows from the
//! construction of the case. [`Proof`] has the counts that show the fault at work.

mod cases;
mod draft;
mod proof;

use crate::bench::LabFile;
use cases::{FAULTS, HEALTHY, Kind};
use draft::{Dice, Draft};
pub(super) use proof::Proof;

/// A composition, with the lab file that describes the composition as a case.
#[derive(Debug, Clone)]
pub(super) struct Composition {
    pub(super) drawn: Drawn,
    /// The text of the lab file that describes the case.
    pub(super) text: String,
}

/// The description and the proof of a drawn case.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    pub(super) case: &'static str,
    /// The description: `receiver, bulk beside requests, 42 Mbit/s, 31 ms: a buffer of 40 KiB`.
    pub(super) words: String,
    pub(super) proof: Proof,
    /// The proof about a sender that does not slow down when packets are lost.
    pub(super) paced: Option<Proof>,
}

impl Composition {
    /// Draws the composition of a number. The same number gives the same composition.
    pub(super) fn draw(number: u64) -> Self {
        let mut dice = Dice::new(number);
        let kinds = if dice.chance(HEALTHY_SHARE) { HEALTHY } else { FAULTS };
        Self::of(dice.pick(kinds), &mut dice)
    }

    fn of(kind: &Kind, dice: &mut Dice) -> Self {
        let mut draft = (kind.draw)(dice);
        let beside = draft.add_background(dice);
        let Draft { traffic, details, .. } = &draft;
        let mut words = format!("{}, {traffic}", kind.place);
        if let Some(beside) = beside {
            words += &format!(" beside {beside}");
        }
        words += &draft.path.words();
        if !details.is_empty() {
            words += &format!(": {details}");
        }
        let proof = draft.truth.proof.clone();
        let paced = draft.paced.as_ref().map(|truth| truth.proof.clone());
        let text = draft.lab_file();
        Self { drawn: Drawn { case: kind.name, words, proof, paced }, text }
    }

    pub(super) fn open(&self) -> Result<LabFile, String> {
        LabFile::parse("the composition", &self.text).map_err(|error| error.to_string())
    }
}

/// The share of compositions that are healthy cases.
const HEALTHY_SHARE: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::diagnose::case::Case;
    use results::Axes;

    #[test]
    fn every_composition_is_a_valid_case() {
        for kind in FAULTS.iter().chain(HEALTHY) {
            for number in 0..40 {
                let drawn = Composition::of(kind, &mut Dice::new(number));
                assert!(!drawn.text.contains("'''\nexec"), "{}", drawn.text);
                let lab = drawn.open().unwrap_or_else(|error| panic!("{error}\n{}", drawn.text));
                let axes = Axes::new();
                Case::own(&lab, &axes).unwrap_or_else(|error| panic!("{error}\n{}", drawn.text));
                lab.links_at(&axes).unwrap_or_else(|error| panic!("{error}\n{}", drawn.text));
            }
        }
    }

    #[test]
    fn equal_numbers_draw_equal_compositions_and_many_numbers_draw_all_cases() {
        let drawn: Vec<Composition> = (0..1500).map(Composition::draw).collect();
        assert_eq!(drawn[7].text, Composition::draw(7).text);
        let count = |kinds: &[Kind]| {
            let of = |kind: &Kind| drawn.iter().filter(|one| one.drawn.case == kind.name).count();
            let counts: Vec<usize> = kinds.iter().map(of).collect();
            assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
            counts.iter().sum::<usize>()
        };
        let (faults, healthy) = (count(FAULTS), count(HEALTHY));
        assert_eq!(faults + healthy, 1500);
        assert!((300..450).contains(&healthy), "{healthy}");
    }
}
