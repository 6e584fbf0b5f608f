//! The two ends of a TCP connection, each a state machine without a clock and without I/O.

mod pacer;
mod probe;
mod prr;
mod rack;
mod ranges;
mod rate;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
#[cfg(test)]
mod scripts;
mod sender;
mod ticks;
mod window;

pub(crate) use receiver::Receiver;
pub(crate) use sender::{Counts, Identity, Sender};
