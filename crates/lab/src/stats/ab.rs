//! Does a change cost anything? Two states, `base` and `change`, alternate hundreds of times, each
//! for a few tenths of a second, and one value is measured in each turn.
//!
//! **Order.** Turns come in fours, base-change-change-base or its mirror image, which a fair coin
//! decides for each four on its own. Every four gives one contrast, half of (log of both change
//! values minus log of both base values): a drift that is linear in the logarithm cancels in it.
//!
//! **Why the error rate holds on a noisy machine.** Where the change does nothing, the values are the
//! same whichever state they are filed under, so the coins alone make the sign of each contrast: fair
//! and independent, whatever the noise (correlated in time, drifting, spiky, bimodal). A constant
//! change of the ratio shifts all contrasts alike. That symmetry is all that Wilcoxon's signed-rank
//! interval asks ([`super::signed_rank`]), so it needs no model of the noise, no blocks and no batch
//! means; the Hodges-Lehmann estimate in its middle stands up to spikes in almost a third of the fours.
//! What it cannot see: a change whose effect lasts into the next turn of base. The runner must let a
//! switch settle before it measures.
//!
//! **Stopping.** Four looks, at 1/4, 1/2, 3/4 and all of the plan. They share the error budget (2, 8,
//! 20 and 70 %, spent late as by O'Brien & Fleming, Biometrics 35, 1979) under Bonferroni's bound,
//! so that all intervals of a run together cover the truth in 99 % (95 %) of runs, no matter
//! which look ends it.
//!
//! **Verdict.** By the rule of [`super::ratio`]: better or worse on the 99 % interval, so that a run
//! without any difference is called one at most once in a hundred; no difference on the 95 % interval.

mod decider;
mod decision;
mod plan;

pub use decider::Decider;
pub use decision::Decision;
pub use plan::{Plan, State};
