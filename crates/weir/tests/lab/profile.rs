//! `weir lab run --profile` as a user runs it.

use crate::support::Sandbox;
use testing::{Attempt, Need};

const LAB: &str = r#"
name = "profiled"
hosts = ["client"]
[workload]
kind = "bandwidth"
over = "unix"
from = "client"
via = "loopback"
[[system]]
name = "plain"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 1
duration = "300ms"
"#;

#[test]
fn a_profiled_run_has_functions_softirqs_and_a_flame_graph_of_each_system() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("profiled.toml", LAB);
    if !Need::PerfEvents.is_met() {
        return testing::skip(Need::PerfEvents);
    }
    // If the machine stalls for the whole turn, the turn has hardly any samples.
    let measured = testing::undisturbed("profile of a lab", |_| {
        let _ = std::fs::remove_dir_all(sandbox.path("run"));
        let words = ["lab", "run", "profiled.toml", "--trust", "--profile", "--out", "run"];
        let output = sandbox.weir(&words);
        let folded = sandbox.path("run/profile/plain.folded");
        let folded = std::fs::read_to_string(folded).unwrap_or_default();
        match folded.contains("unix_stream_sendmsg") {
            true => Attempt::Right(output),
            false => Attempt::Wrong(format!("{output:?} {folded}")),
        }
    });
    let output = measured.unwrap();
    assert!(output.stdout.contains("CPU profile\nplain: "), "{output:?}");
    assert!(output.stdout.contains("% in softirqs"), "{output:?}");
    assert!(output.stdout.contains("The cost of sampling is not known"), "{output:?}");
    // Each line has a stack and its count. The kernel's function copies the data.
    let folded = sandbox.read("run/profile/plain.folded");
    assert!(folded.contains("unix_stream_sendmsg"), "{folded}");
    let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>());
    assert!(counts.map(Result::unwrap).sum::<u64>() > 0);
    assert!(sandbox.read("run/profile/plain.svg").contains("unix_stream_sendmsg"));
    let page = sandbox.read("run/report.html");
    assert!(page.contains("Where the CPU time goes") && page.contains("unix_stream_sendmsg"));
    assert!(sandbox.read("run/report.md").contains("--profile"));
    assert_eq!(sandbox.leftovers_once(), [""; 0]);
}
