//! Measures whether a change costs anything. Two states, `base` and `change`, alternate hundreds of
//! times, each for a few tenths of a second. Each such period is a turn, and measures one value.
//!
//! **Order.** Turns come in groups of four ("fours"): base-change-change-base, or
//! change-base-base-change. A fair coin decides the order of each four independently. Every four
//! gives one contrast, half of (log of both change values minus log of both base values), in which
//! a drift that is linear in the logarithm cancels.
//!
//! **Error rate on a noisy machine.** If the change has no effect, the values do not depend on
//! their state. The coins alone then decide the sign of each contrast, fairly and independently,
//! whatever the noise (correlated in time, drifting, spiky, bimodal). A constant change of the
//! ratio shifts all contrasts alike. Wilcoxon's signed-rank interval assumes only this symmetry
//! ([`crate::signed_rank`]), so it needs no model of the noise, no blocks and no batch means. The
//! Hodges-Lehmann estimate in the interval's middle tolerates spikes in almost a third of the
//! fours. The method cannot detect a change whose effect lasts into the next turn of base, so the
//! runner must let a switch settle before it measures.
//!
//! **Stopping.** The decider evaluates the run four times, at 1/4, 1/2, 3/4 and all of the plan.
//! These looks share the error budget (2, 8, 20 and 70 %, spent late as by O'Brien & Fleming,
//! Biometrics 35, 1979) under Bonferroni's bound. All intervals of a run together therefore cover
//! the truth in 99 % (95 %) of runs, no matter which look ends it.
//!
//! **Verdict.** The rule of [`crate::verdict`] applies. The verdicts "better" and "worse" need the
//! 99 % interval, so at most one run in a hundred without any difference reports a difference. The
//! verdict "the same" needs the 95 % interval.

mod decider;
mod decision;
mod plan;

pub use decider::Decider;
pub use decision::Decision;
pub use plan::{Plan, State};
