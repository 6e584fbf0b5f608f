//! The types that all parts of the switch share: the fields of packets, matches on these fields,
//! actions, requests of controllers, and the steps of the datapath.
//!
//! The protocol (`openflow`), the rule language (`text`), the tables (`pipeline`) and the
//! forwarding (`datapath`) depend on this crate, and not on each other. Everything here is data: no
//! I/O, no clock, no randomness.
//!
//! | begin with | for |
//! | --- | --- |
//! | [`Field`], [`Key`], [`Match`] | the fields of packets, and matches on fields |
//! | [`action`] | the actions of rules |
//! | [`request`] | changes of tables, and their contents |
//! | [`step`], [`Megaflow`] | the interface between pipeline and datapath |
//! | [`connection`] | tracked connections |
//!
//! ```
//! use flow::{Field, Key, Match};
//!
//! let mut packet = Key::ZERO;
//! packet.write(Field::IpDst, 0x0a00_0207);
//!
//! let mut network = Match::any();
//! network.set_masked(Field::IpDst, 0x0a00_0200, 0xffff_ff00);
//! assert!(network.matches(&packet));
//! ```

pub mod action;
pub mod connection;
mod field;
mod hash;
mod key;
mod matching;
mod megaflow;
pub mod mix;
pub mod port_number;
pub mod request;
pub mod step;

pub use field::{
    Field, Format, Masking, NXM_NX, NXM_OF, OXM_BASIC, OXM_REGISTERS, Place, Prerequisite,
    WireField,
};
pub use key::{Key, WORDS, word};
pub use matching::Match;
pub use megaflow::Megaflow;
