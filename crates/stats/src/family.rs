//! Many comparisons in one table. At a level of 5 % each, one of 20 comparisons of equal systems
//! shows a difference by chance. Holm's procedure (Scandinavian Journal of Statistics 6, 1979)
//! holds the level for the whole table: the chance that it shows any difference between equal
//! systems is at most the level, however the comparisons depend on each other.
//!
//! Some comparisons are primary: the experiment named them before it ran. They share
//! [`OF_PRIMARY`] of the level. A comparison that shows a difference passes its part of the level
//! on to the rest (the weighted procedure of the same paper).

use crate::median_interval::smallest_p;

/// The chance that a table shows a difference where there is none.
pub const LEVEL: f64 = 0.05;

/// The part of the level that the primary comparisons share.
pub const OF_PRIMARY: f64 = 0.95;

/// A comparison of the table, before the others are taken into account.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    pub p: f64,
    pub primary: bool,
    /// The number of its pairs.
    pub pairs: usize,
}

/// The judgement of a comparison with all others of its table taken into account.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    /// Adjusted p-value: the smallest level of the whole table at which this comparison would show
    /// a difference.
    pub p: f64,
    /// The pairs that the comparison needs before it can show a difference at all. `None` if it has
    /// enough.
    pub needs: Option<usize>,
}

impl Adjusted {
    pub fn is_different(&self) -> bool {
        self.p <= LEVEL
    }
}

/// Holm's weighted procedure over a whole table, in the table's order.
pub fn adjusted(table: &[Member]) -> Vec<Adjusted> {
    let weights = weights(table);
    let mut order: Vec<usize> = (0..table.len()).collect();
    let key = |index: &usize| table[*index].p / weights[*index];
    order.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let mut remaining: f64 = weights.iter().sum();
    // The weight of the comparisons that show no difference decides how much each of them needs.
    let mut undecided = remaining;
    let mut largest: f64 = 0.0;
    let mut all = vec![Adjusted { p: 1.0, needs: None }; table.len()];
    for index in order {
        largest = largest.max((key(&index) * remaining).min(1.0));
        all[index].p = largest;
        remaining -= weights[index];
        if largest <= LEVEL {
            undecided = remaining;
        }
    }
    for (index, one) in all.iter_mut().enumerate().filter(|(_, one)| !one.is_different()) {
        let level = LEVEL * weights[index] / undecided.max(weights[index]);
        let needs = pairs_for(level);
        one.needs = (table[index].pairs < needs).then_some(needs);
    }
    all
}

/// The fewest pairs whose sign test can reach this level.
pub fn pairs_for(level: f64) -> usize {
    (1..MOST_PAIRS).find(|pairs| smallest_p(*pairs) <= level * (1.0 + 1e-9)).unwrap_or(MOST_PAIRS)
}

/// The fewest pairs with which all of `primary` comparisons can show a difference, in a table that
/// also has others or has not.
pub fn pairs_to_decide(primary: usize, has_others: bool) -> usize {
    let of_primary = if has_others { OF_PRIMARY } else { 1.0 };
    pairs_for(LEVEL * of_primary / primary.max(1) as f64)
}

/// They sum up to 1.
fn weights(table: &[Member]) -> Vec<f64> {
    let primary = table.iter().filter(|member| member.primary).count();
    let others = table.len() - primary;
    let of_primary = match (primary, others) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        _ => OF_PRIMARY,
    };
    let weight = |member: &Member| match member.primary {
        true => of_primary / primary as f64,
        false => (1.0 - of_primary) / others as f64,
    };
    table.iter().map(weight).collect()
}

/// 2^-1000 is a level that no table needs.
const MOST_PAIRS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ps: &[f64], primary: usize, pairs: usize) -> Vec<Member> {
        let member = |(index, p): (usize, &f64)| Member { p: *p, primary: index < primary, pairs };
        ps.iter().enumerate().map(member).collect()
    }

    #[test]
    fn more_primary_comparisons_need_more_pairs() {
        assert_eq!(pairs_to_decide(1, false), 6);
        assert_eq!(pairs_to_decide(1, true), 6);
        assert_eq!(pairs_to_decide(2, false), 7);
        assert_eq!(pairs_to_decide(3, true), 7);
        for (primary, others) in [(1, 0), (2, 0), (3, 4)] {
            let enough = pairs_to_decide(primary, others > 0);
            let judged = |pairs| {
                let ps = vec![smallest_p(pairs); primary + others];
                adjusted(&table(&ps, primary, pairs))
            };
            assert!(judged(enough)[..primary].iter().all(Adjusted::is_different));
            assert!(!judged(enough - 1)[0].is_different());
        }
    }

    /// The example of Holm's procedure with four hypotheses: the adjusted values are 4p, 3p, 2p, p
    /// in the order of the p-values, and none is below an earlier one.
    #[test]
    fn without_primary_comparisons_it_is_holms_procedure() {
        let all = adjusted(&table(&[0.01, 0.04, 0.03, 0.005], 0, 20));
        let ps: Vec<f64> = all.iter().map(|one| (one.p * 1e6).round() / 1e6).collect();
        assert_eq!(ps, [0.03, 0.06, 0.06, 0.02]);
    }

    #[test]
    fn a_single_comparison_is_not_adjusted() {
        assert_eq!(adjusted(&table(&[0.03], 0, 9))[0], Adjusted { p: 0.03, needs: None });
        assert_eq!(adjusted(&table(&[0.03], 1, 9))[0].p, 0.03);
        assert_eq!(adjusted(&[]), []);
    }

    #[test]
    fn fifty_rows_need_eleven_pairs() {
        let all = adjusted(&table(&[smallest_p(10); 50], 0, 10));
        assert!(all.iter().all(|one| !one.is_different() && one.needs == Some(11)));
        let all = adjusted(&table(&[smallest_p(11); 50], 0, 11));
        assert!(all.iter().all(|one| one.is_different() && one.needs.is_none()));
    }

    #[test]
    fn one_primary_comparison_decides_with_six_pairs_and_three_with_seven() {
        let mut ps = vec![1.0; 40];
        ps[0] = smallest_p(6);
        let all = adjusted(&table(&ps, 1, 6));
        assert!(all[0].is_different());
        // The rest has the whole level now.
        assert_eq!(all[1].needs, Some(pairs_for(LEVEL / 39.0)));
        ps[..3].fill(smallest_p(7));
        assert!(adjusted(&table(&ps, 3, 7))[..3].iter().all(Adjusted::is_different));
    }
}
