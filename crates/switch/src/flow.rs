//! The fields of packets, and matches on them.

mod field;
mod key;
mod matching;

pub use field::{
    Field, Format, Masking, NXM_NX, NXM_OF, OXM_BASIC, OXM_REGISTERS, Place, Prerequisite,
    WireField,
};
pub use key::{Key, WORDS, word};
pub use matching::Match;
