//! Tests transfers in virtual time.

use crate::bench::LabFile;
use crate::model::{Cancel, Outcome, Plan, PlannedCell};
use crate::runs::{Ended, Progress, run};
use crate::workloads::tests::simulated;
use std::time::Duration;

/// The first data is acknowledged two round trips after the first SYN. The next second contains the
/// second flight: 20 segments of each stream. The last segment may wait for an ACK.
#[test]
fn the_window_opens_at_the_first_data_of_all_streams() {
    let lab = LabFile::parse("slow.toml", LAB).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let request = simulated(lab, folder.path(), 1);
    let Ended::Run(finished) = run(request, &Cancel::default(), &mut Unseen).unwrap() else {
        panic!()
    };
    let goodput = finished.results.cells[0].metrics["goodput_mbit_s"].median;
    let flight = 2.0 * 20.0 * 1448.0 * 8.0 / 1e6;
    assert!((0.9..=1.0).contains(&(goodput / flight)), "{goodput} {flight}");
}

struct Unseen;

impl Progress for Unseen {
    fn plan(&mut self, _plan: &Plan, _finished: usize, _estimate: Duration) {}

    fn step(&mut self, _number: usize, _cell: &PlannedCell, _estimate: Duration) {}

    fn done(&mut self, _number: usize, _outcome: &Outcome) {}

    fn note(&mut self, _text: &str) {}
}

const LAB: &str = r#"name = "slow"
hosts = ["a", "b"]
[[link]]
between = ["a", "b"]
rate = "1mbit"
rtt = "1s"
[workload]
kind = "bulk"
from = "a"
to = "b"
streams = 2
omit = "0s"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 1
duration = "1s"
"#;
