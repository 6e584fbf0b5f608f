//! A traffic generator that reads TRex's profiles, and the search for the highest rate that a
//! device forwards without loss.
//!
//! | module | for |
//! | --- | --- |
//! | [`profile`] | TRex's YAML, checked |
//! | [`capture`] | captures, from files and built in |
//! | [`traffic`] | the packets of a profile and their times, as pure code |
//! | [`neighbour`] | ARP and neighbour discovery, as pure code |
//! | [`run`] | ports, sending and receiving threads |
//! | [`malformed`] | malformed and unusual frames, as pure code |
//! | [`ndr`] | the highest rate without loss |
//! | [`report`] | a run as text and as JSON |

pub mod capture;
mod confinement;
mod error;
mod frequency;
pub mod malformed;
pub mod ndr;
pub mod neighbour;
pub mod profile;
pub mod report;
pub mod run;
mod synthetic;
pub mod traffic;

pub use capture::Capture;
pub use confinement::confine;
pub use error::GenError;
pub use frequency::{Frequency, Load};
pub use profile::Profile;
pub use synthetic::{FrameMix, load};
pub use traffic::{Addressing, LaneAddresses, Plan, PlanOptions, Traffic};
