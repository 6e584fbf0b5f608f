//! Tests of the pipeline as a whole.

mod bonds;
mod change;
mod limits;
mod packets;
mod patches;
mod queues;
mod random;
mod rule_sets;
mod trace;
mod vlans;
mod way;
