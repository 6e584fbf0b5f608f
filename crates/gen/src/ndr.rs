//! The highest rates that a device forwards within a loss goal: MLRsearch
//! (draft-ietf-bmwg-mlrsearch), with the tests of RFC 2544 and RFC 9004 around it.

mod bench;
mod goal;
mod others;
mod report;
mod search;
mod tester;
mod usual;

pub use bench::{BackToBack, Bench, Event, LatencyAt, SizeResult, Stop};
pub use goal::Goal;
pub use report::{json, markdown, text};
pub use search::{GoalResult, Observed, Search, Step, Verdict};
pub use tester::{PortTester, Tester, Trial};
pub use usual::usual_time;
