//! `weir perf client --report` as a user runs it.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use support::{World, await_some};

#[test]
fn a_test_leaves_a_page_markdown_and_numbers() {
    let Some(world) = World::new() else { return };
    let server = world.start(&["perf", "server", "--one-off"]);
    await_some("a server", || server.said_so_far().0.contains("listening").then_some(()));
    let directory = world.home().join("reports/one");
    let where_to = directory.to_str().unwrap();
    let said =
        world.weir(&["perf", "client", "127.0.0.1", "-n", "4MiB", "-P", "2", "--report", where_to]);
    assert!(said.status.success(), "{}", said.stderr);
    assert!(said.stderr.contains("report.html"), "{}", said.stderr);
    let mut names: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["report.html", "report.md", "results.json"]);
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(results["end"]["sum_received"]["bytes"], 4 << 20);
    assert!(results["weir"]["series"].is_array());
    assert!(read("report.md").starts_with("# TCP to 127.0.0.1\n"));
    assert!(read("report.html").contains("Over time"));
}

#[test]
fn a_test_that_fails_leaves_no_report() {
    let Some(world) = World::new() else { return };
    let directory = world.home().join("none");
    let said =
        world.weir(&["perf", "client", "127.0.0.1", "--report", directory.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(1));
    assert!(!directory.exists());
}

#[test]
fn a_place_that_cannot_be_written_is_told_and_the_figures_are_shown() {
    let Some(world) = World::new() else { return };
    let server = world.start(&["perf", "server", "--one-off"]);
    await_some("a server", || server.said_so_far().0.contains("listening").then_some(()));
    let said = world.weir(&["perf", "client", "127.0.0.1", "-n", "1MiB", "--report", "/proc/none"]);
    assert_eq!(said.status.code(), Some(1));
    assert!(said.stderr.contains("/proc/none"), "{}", said.stderr);
    assert!(said.stdout.contains("received"), "{}", said.stdout);
}
