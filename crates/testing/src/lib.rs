//! Decides for the tests of all crates whether a test may be skipped and whether a failed
//! measurement may be repeated.
//!
//! **May a test be skipped?** A test that needs a feature that the machine lacks calls [`skip`] and
//! returns. [`skip`] looks for the feature without the product's code and panics if the machine has
//! it: a defect of the product cannot pass as a missing feature. `scripts/test` counts the test as
//! skipped.
//!
//! **May a failed measurement be repeated?** [`undisturbed`] repeats a measurement only if there is
//! evidence that the machine was disturbed while the measurement ran, and prints the evidence.
//! [`within`] demands the same evidence for an event that took too long and cannot be repeated. A
//! test that judges valid figures only calls [`judged`] or [`not_judged`]. `scripts/test` fails if
//! no measurement of a kind was judged.
//!
//! ```
//! use testing::{Need, skip};
//!
//! fn a_test_over_ipv6() {
//!     let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
//!         return skip(Need::Ipv6);
//!     };
//!     assert!(listener.local_addr().is_ok());
//! }
//! a_test_over_ipv6();
//! ```

mod busy_cpus;
mod disturbance;
mod forbidden;
mod measurement;
mod need;
mod perf_events;

pub use busy_cpus::with_interrupts;
pub use disturbance::{Disturbance, Watch};
pub use forbidden::{forbidden_names, permitted};
pub use measurement::{Attempt, judged, not_judged, try_undisturbed, undisturbed, within};
pub use need::{Need, is_installed, skip, skip_because, skip_part};
