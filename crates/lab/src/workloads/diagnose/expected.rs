//! The verdicts that are right about a case: `shaper`, `loss|path`, `nothing`, `quota + loss`,
//! `not loss`.

use super::verdict::Told;

/// The label of a verdict that names no limit.
pub(super) const NOTHING: &str = "nothing";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Causes that the verdicts must all name, each cause with the names that are right for this
    /// cause.
    Causes(Vec<Vec<String>>),
    /// Every verdict is right except the listed verdicts.
    Not(Vec<String>),
}

impl Expected {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let names = |text: &str| -> Result<Vec<String>, String> {
            let names: Vec<String> = text.split('|').map(|name| name.trim().to_owned()).collect();
            match names.iter().any(String::is_empty) {
                true => Err(format!("`{text}`: write a cause of weir doctor, or `{NOTHING}`")),
                false => Ok(names),
            }
        };
        match text.strip_prefix("not ") {
            Some(rest) => Ok(Self::Not(names(rest)?)),
            None => Ok(Self::Causes(text.split('+').map(names).collect::<Result<_, _>>()?)),
        }
    }

    /// Returns the names of the causes.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        let none: &[Vec<String>] = &[];
        let causes = if let Self::Causes(causes) = self { causes } else { none };
        causes.iter().flatten()
    }

    /// Whether the doctor's first verdict is right.
    pub(super) fn is_first_right(&self, told: &Told) -> bool {
        match self {
            Self::Causes(causes) => causes.iter().flatten().any(|name| *name == told.first),
            Self::Not(names) => !names.contains(&told.first),
        }
    }

    /// Returns the share of the expected causes that are among the first two verdicts.
    pub(super) fn among_first_two(&self, told: &Told) -> f64 {
        let first_two = || std::iter::once(&told.first).chain(&told.others).take(2);
        match self {
            Self::Causes(causes) => {
                let seen = causes.iter().filter(|names| first_two().any(|one| names.contains(one)));
                seen.count() as f64 / causes.len().max(1) as f64
            }
            Self::Not(_) => f64::from(u8::from(self.is_first_right(told))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(first: &str, others: &[&str]) -> Told {
        let others = others.iter().map(|one| (*one).to_owned()).collect();
        let (sentence, shares) = (String::new(), String::new());
        Told { first: first.to_owned(), others, sentence, shares, against: Vec::new(), rate: None }
    }

    #[test]
    fn the_first_two_causes_count_for_alternatives_and_pairs() {
        let loss = Expected::parse("loss|path").unwrap();
        assert!(loss.is_first_right(&told("path", &[])));
        assert!(!loss.is_first_right(&told("cpu", &["loss"])));
        assert!((loss.among_first_two(&told("cpu", &["loss"])) - 1.0).abs() < 1e-9);
        assert!(loss.among_first_two(&told("cpu", &["quota", "loss"])) < 1e-9);
        let pair = Expected::parse("quota + loss|path").unwrap();
        assert!(pair.is_first_right(&told("path", &[])));
        assert!((pair.among_first_two(&told("path", &["cpu"])) - 0.5).abs() < 1e-9);
        assert!((pair.among_first_two(&told("path", &["quota"])) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn any_verdict_but_the_excluded_cause_is_right() {
        let innocent = Expected::parse("not loss").unwrap();
        assert!(innocent.is_first_right(&told("nothing", &[])));
        assert!(!innocent.is_first_right(&told("loss", &[])));
        assert!(Expected::parse("loss|").is_err());
    }
}
