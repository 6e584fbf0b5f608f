//! Tests the rules for single rows, and properties of any table.

use crate::noise::{Noise, run, tables};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::table::{Judged, MOST_MORE, Pair, judged};
use stats::{Direction, Row, Verdict, compare_runs, default_threshold};

fn row(pairs: &[Pair]) -> Row {
    of(pairs, Direction::HigherIsBetter)
}

fn of(pairs: &[Pair], direction: Direction) -> Row {
    let blocks: Vec<Option<Pair>> = pairs.iter().map(|pair| Some(*pair)).collect();
    Row::new(&blocks, direction, default_threshold(), 0).unwrap()
}

fn only(row: Row) -> Judged {
    judged(&[row]).unwrap()[0]
}

fn measured<const N: usize>(pairs: [(f64, f64); N]) -> Vec<Pair> {
    pairs.map(|(a, b)| (Some(a), Some(b))).to_vec()
}

const FASTER: [(f64, f64); 6] =
    [(57.1, 5.8), (56.2, 5.9), (58.3, 5.7), (57.0, 5.8), (57.2, 5.8), (57.5, 5.8)];

#[test]
fn six_blocks_on_one_side_of_1_decide_and_five_do_not() {
    let six = measured(FASTER);
    let large = only(row(&six));
    assert_eq!((large.verdict, large.more_blocks), (Verdict::Better, None));
    assert!((large.ratio.coverage.unwrap() - 0.96875).abs() < 1e-12);
    assert_eq!(only(of(&six, Direction::LowerIsBetter)).verdict, Verdict::Worse);
    let five = only(row(&six[..5]));
    assert_eq!(
        (five.verdict, five.ratio.ci95, five.more_blocks),
        (Verdict::Undecided, None, Some(1))
    );
    assert!(five.ratio.range.is_some());
    let mut one_against = six;
    one_against[0].0 = Some(5.0);
    let undecided = only(row(&one_against));
    assert_eq!(undecided.verdict, Verdict::Undecided);
    // The ratio of one block in six is on the other side of 1, so two blocks of twelve are expected
    // there. The exact interval of twelve blocks leaves two blocks out.
    assert_eq!(undecided.more_blocks, Some(6));
}

#[test]
fn equal_values_have_an_interval_of_one_point() {
    let equal = only(row(&measured([(3.0, 3.0); 6])));
    assert_eq!((equal.verdict, equal.ratio.ci95), (Verdict::Same, Some((1.0, 1.0))));
    let double = measured([(6.0, 3.0); 6]);
    assert_eq!(only(row(&double)).verdict, Verdict::Better);
    let table = judged(&[row(&double), row(&double), row(&measured([(3.0, 3.0); 6]))]).unwrap();
    assert_eq!(table[0].ratio.ci95, Some((2.0, 2.0)));
    assert_eq!((table[2].verdict, table[2].ratio.ci95), (Verdict::Same, Some((1.0, 1.0))));
}

#[test]
fn zero_and_failed_repeats_rank_worst() {
    let some = Some(10.0);
    let other = row(&measured(FASTER));
    for worst in [Some(0.0), None] {
        for table in [vec![row(&[(worst, some); 6])], vec![row(&[(worst, some); 6]), other.clone()]]
        {
            let always = judged(&table).unwrap()[0];
            assert_eq!((always.ratio.median, always.verdict), (0.0, Verdict::Worse));
            assert_eq!(always.ratio.ci95, Some((0.0, 0.0)));
        }
        let never = only(row(&[(some, worst); 6]));
        assert_eq!((never.ratio.median, never.verdict), (f64::INFINITY, Verdict::Better));
        assert_eq!(only(row(&[(worst, None), (some, some)])).ratio.median, 1.0);
    }
    // Without the two failures, system a would be better.
    let mut pairs = vec![(Some(20.0), some); 8];
    pairs[..2].fill((None, some));
    assert_eq!(only(row(&pairs)).verdict, Verdict::Undecided);
    // A failure beside five slow repeats does not hide the difference, and the interval includes
    // the failure.
    let mut slow = vec![(Some(5.0), some); 6];
    slow[0].0 = None;
    let found = judged(&[row(&slow), other]).unwrap()[0];
    assert_eq!(found.verdict, Verdict::Worse);
    assert_eq!(found.ratio.ci95.unwrap().0, 0.0);
    // A failed repeat does not count as a short completion time.
    let late = only(of(&[(None, some); 6], Direction::LowerIsBetter));
    assert_eq!((late.ratio.median, late.verdict), (f64::INFINITY, Verdict::Worse));
}

/// A disturbance of a block affects both systems of a pair alike, but not two independent sets of
/// runs.
#[test]
fn pairs_cancel_a_shared_disturbance() {
    let mut draw = Pcg64Mcg::seed_from_u64(1);
    let pairs: Vec<(f64, f64)> = (0..20)
        .map(|_| {
            let machine: f64 = draw.random_range(50.0..150.0);
            (machine * draw.random_range(1.07..1.09), machine)
        })
        .collect();
    let paired: Vec<Pair> = pairs.iter().map(|(a, b)| (Some(*a), Some(*b))).collect();
    assert_eq!(only(row(&paired)).verdict, Verdict::Better);
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let unpaired = |a: &[f64]| {
        compare_runs(a, &b, Direction::HigherIsBetter, default_threshold(), 1).unwrap().verdict
    };
    assert_eq!(unpaired(&a), Verdict::Undecided);
    let tenfold: Vec<f64> = a.iter().map(|value| value * 10.0).collect();
    assert_eq!(unpaired(&tenfold), Verdict::Better);
}

#[test]
fn a_row_with_missing_blocks_is_judged() {
    let mut draw = Pcg64Mcg::seed_from_u64(4);
    let mut table = run(Noise::LogNormal, &[2.0, 1.0, 1.0], 8, 0.0, &mut draw);
    let blocks: Vec<Option<Pair>> =
        (0..8).map(|block| (block > 1).then_some((Some(20.0), Some(10.0)))).collect();
    table.push(Row::new(&blocks, Direction::HigherIsBetter, default_threshold(), 0).unwrap());
    let found = judged(&table).unwrap();
    assert_eq!((found[0].verdict, found[0].ratio.n), (Verdict::Better, 8));
    assert_eq!((found[3].verdict, found[3].ratio.n), (Verdict::Better, 6));
}

/// A table may have cells without losses, which hardly vary, beside cells with losses.
#[test]
fn rows_with_much_noise_do_not_widen_the_interval_of_a_row_with_little_noise() {
    for table in tables(Noise::QuietAndLoud, &[1.0, 3.0, 1.0, 1.0, 1.2, 1.0], 6, 0.0, 10) {
        let verdicts = [0, 2, 4].map(|row| table[row].verdict);
        assert_eq!(verdicts, [Verdict::Same, Verdict::Same, Verdict::Better], "{table:?}");
    }
}

/// A further run with the number of blocks that undecided rows name decides most of these rows.
#[test]
fn the_named_number_of_blocks_decides_most_undecided_rows() {
    let effects = [1.12, 1.0, 1.15, 1.0, 1.12, 1.0];
    let mut asked = Vec::new();
    for table in tables(Noise::LogNormal, &effects, 6, 0.0, 20) {
        asked.extend(table.iter().filter_map(|row| row.more_blocks));
    }
    assert!(asked.len() > 60, "{asked:?}");
    asked.sort_unstable();
    let usual = asked[asked.len() / 2];
    assert!((6..60).contains(&usual), "{usual}");
    let longer = tables(Noise::LogNormal, &effects, 6 + usual, 0.0, 3);
    let decided = longer.iter().flatten().filter(|row| row.verdict != Verdict::Undecided).count();
    assert!(decided >= 11, "{decided} of 18 with {usual} more blocks");
}

/// Judges a row of seven blocks with these logarithms of their ratios, alone in their table.
fn alone(logarithms: [f64; 7]) -> Judged {
    only(row(&measured(logarithms.map(|log| (log.exp(), 1.0)))))
}

/// The deviation of logarithms of +-e around their middle is 1.1751 e here: the mean of the own
/// variance e^2 (6 degrees of freedom) and of the robust variance 10/6 e^2 (8 degrees).
#[test]
fn the_named_blocks_follow_from_the_width_of_the_interval_of_a_median() {
    let around = |middle: f64, e: f64| {
        let found = alone([e, -e, e, -e, e, -e, 0.0].map(|log| log + middle));
        (found.verdict, found.more_blocks)
    };
    // 1.96 * 1.2533 * 1.1751 * 0.09 / sqrt(29) = 0.0482 is the first below ln 1.05 = 0.0488.
    assert_eq!(around(0.0, 0.09), (Verdict::Undecided, Some(22)));
    // 3 of 7 blocks contradict the median. The exact interval of 203 blocks leaves out 87 blocks at
    // either end, three sevenths of all blocks. No interval of fewer blocks leaves out this share.
    for middle in [0.06, -0.06] {
        assert_eq!(around(middle, 0.09), (Verdict::Undecided, Some(196)));
    }
    // More than 200 further blocks are no answer.
    assert_eq!(around(0.0, 0.5), (Verdict::Undecided, None));
    // A block without a difference also speaks against the median: the interval of 12 blocks leaves
    // out two.
    let found = alone([0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.0]);
    assert_eq!((found.verdict, found.more_blocks), (Verdict::Undecided, Some(5)));
    let found = alone([-0.3, -0.3, -0.3, -0.3, -0.3, -0.3, 0.0]);
    assert_eq!((found.verdict, found.more_blocks), (Verdict::Undecided, Some(5)));
}

#[test]
fn with_too_few_blocks_the_number_of_missing_blocks_is_named() {
    for blocks in 1..6 {
        let found = only(row(&measured(FASTER)[..blocks]));
        assert_eq!(found.more_blocks, Some(6 - blocks));
    }
}

fn noisy(width: f64) -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        8 => (-width..width).prop_map(|log: f64| Some(log.exp())),
        1 => Just(Some(1.0)),
        1 => Just(Some(0.0)),
        1 => Just(None),
    ]
}

fn any_table() -> impl Strategy<Value = Vec<(f64, Vec<Option<Pair>>)>> {
    (1_usize..9, 0.001..3.0_f64).prop_flat_map(|(blocks, width)| {
        let pair = prop::option::weighted(0.95, (noisy(width), noisy(width)));
        let row = (-5.0..5.0_f64, prop::collection::vec(pair, blocks));
        prop::collection::vec(row, 1..12)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn interval_and_verdict_never_contradict_in_any_table(drawn in any_table(), less: bool) {
        let direction = if less { Direction::LowerIsBetter } else { Direction::HigherIsBetter };
        let table: Vec<Row> = drawn
            .into_iter()
            .filter_map(|(effect, mut blocks)| {
                for (a, _) in blocks.iter_mut().flatten() {
                    *a = a.map(|a| a * effect.exp());
                }
                Row::new(&blocks, direction, default_threshold(), 0).ok()
            })
            .collect();
        for row in judged(&table).unwrap() {
            let ratio = row.ratio;
            let Some((low, high)) = ratio.ci95 else {
                prop_assert_eq!(row.verdict, Verdict::Undecided);
                prop_assert!(ratio.n < 6 && row.more_blocks == Some(6 - ratio.n));
                continue;
            };
            prop_assert!(low <= ratio.median && ratio.median <= high, "{:?}", row);
            let excludes_one = low > 1.0 || high < 1.0;
            let up = ratio.median > 1.0;
            match row.verdict {
                Verdict::Better => prop_assert!(excludes_one && up != less),
                Verdict::Worse => prop_assert!(excludes_one && up == less),
                Verdict::Same => prop_assert!(low >= 1.0 / 1.05 && high <= 1.05),
                Verdict::Undecided => {
                    prop_assert!(!excludes_one || (0.5..=2.0).contains(&ratio.median));
                }
            }
            let more = row.more_blocks.unwrap_or(1);
            prop_assert!((1..=MOST_MORE).contains(&more));
            prop_assert!(row.verdict == Verdict::Undecided || row.more_blocks.is_none());
        }
    }

    /// The result depends neither on the order of the rows nor on the unit of a row.
    #[test]
    fn the_order_and_unit_of_rows_do_not_change_verdicts(seed: u64, scale in -9.0..9.0f64) {
        let mut draw = Pcg64Mcg::seed_from_u64(seed);
        let table = run(Noise::Stalls, &[1.0, 1.2, 2.0, 100.0], 6, 0.0, &mut draw);
        let forwards = judged(&table).unwrap();
        let mut reversed = judged(&table.into_iter().rev().collect::<Vec<_>>()).unwrap();
        reversed.reverse();
        prop_assert_eq!(&forwards, &reversed);
        let mut draw = Pcg64Mcg::seed_from_u64(seed);
        let effects = [1.0, 1.2 * scale.exp(), 2.0, 100.0];
        let scaled = judged(&run(Noise::Stalls, &effects, 6, 0.0, &mut draw)).unwrap();
        let ends = |row: &Judged| row.ratio.ci95.unwrap();
        prop_assert!((ends(&scaled[1]).0 / ends(&forwards[1]).0 / scale.exp() - 1.0).abs() < 1e-6);
        prop_assert!((ends(&scaled[0]).1 / ends(&forwards[0]).1 - 1.0).abs() < 1e-6);
    }
}
