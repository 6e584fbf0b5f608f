//! `weir perf client --report` as a user runs it.

use crate::support::{Sandbox, await_some, intervals};
use serde_json::Value;
use testing::{Attempt, Need};

#[test]
fn a_test_leaves_a_page_markdown_and_numbers() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = sandbox.start(&["perf", "server", "--one-off"]);
    await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
    let directory = sandbox.home().join("reports/one");
    let where_to = directory.to_str().unwrap();
    let output = sandbox.weir(&[
        "perf",
        "client",
        "127.0.0.1",
        "-n",
        "4MiB",
        "-P",
        "2",
        "--report",
        where_to,
    ]);
    assert!(output.status.success(), "{}", output.stderr);
    assert!(output.stderr.contains("report.html"), "{}", output.stderr);
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
fn a_profile_has_functions_a_flame_graph_and_stacks_of_the_measured_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !Need::PerfEvents.is_met() {
        return testing::skip(Need::PerfEvents);
    }
    let directory = sandbox.home().join("where");
    let place = directory.to_str().unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    // If the machine stalls for the measured time, the profile has no stacks.
    testing::undisturbed("profile of a short test", |attempt| {
        let server = sandbox.start(&["perf", "server", "--one-off"]);
        await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
        if attempt > 1 {
            std::fs::remove_dir_all(&directory).unwrap();
        }
        let words =
            ["perf", "client", "127.0.0.1", "-t", "300ms", "--idle-probe", "0", "--profile"];
        let output = sandbox.weir(&[&words[..], &[place]].concat());
        assert!(output.status.success(), "{}", output.stderr);
        assert!(server.end().status.success());
        // Client and server run on this machine, so the profile has the kernel's functions of TCP.
        let stacks = read("profile/this-machine.folded");
        let told = ["this-machine: ", "function "].iter().all(|one| output.stderr.contains(one));
        match told && stacks.contains("tcp_sendmsg") {
            true => Attempt::Right(()),
            false => Attempt::Wrong(format!("{output:?} {stacks}")),
        }
    });
    assert!(read("profile/this-machine.svg").contains("tcp_sendmsg"));
    let page = read("report.html");
    assert!(page.contains("Where the CPU time goes") && page.contains("<svg"));
}

/// The report must draw the data of the far sender's kernel if the far end is Weir, and otherwise
/// state that the data is missing.
#[test]
fn a_far_sender_reports_the_data_of_its_kernel_over_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = sandbox.start(&["perf", "server"]);
    await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
    let measured = |name: &str, words: &[&str]| {
        let directory = sandbox.home().join(name);
        let place = directory.to_str().unwrap();
        let always = ["perf", "client", "127.0.0.1", "-n", "64M", "--report", place];
        let output = sandbox.weir(&[&always, words].concat());
        assert!(output.status.success(), "{}", output.stderr);
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let results: Value = serde_json::from_str(&read("results.json")).unwrap();
        (results, read("report.md"))
    };
    let lines = |results: &Value, name: &str| -> Vec<String> {
        let series = results["weir"]["series"].as_array().unwrap();
        let named = series.iter().filter(|one| one["name"] == name);
        let lines = named.flat_map(|one| one["lines"].as_array().unwrap());
        lines.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
    };
    let (results, markdown) = measured("reverse", &["-R"]);
    for name in ["throughput", "rtt", "cwnd"] {
        assert_eq!(lines(&results, name), ["1"], "{name}");
    }
    assert_eq!(lines(&results, "limited_by").len(), 4);
    assert!(results["weir"]["peer"]["series"].is_null(), "told once");
    assert!(!markdown.contains("not drawn over time"), "{markdown}");
    let (results, _) = measured("both", &["--bidir"]);
    assert_eq!(lines(&results, "rtt"), ["1", "3"]);
    server.signal("INT");
    assert!(server.end().status.success());

    let server = sandbox.start(&["perf", "server", "-1", "--no-probes"]);
    await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
    let (results, markdown) = measured("silent", &["-R"]);
    assert_eq!(lines(&results, "rtt"), Vec::<String>::new());
    assert!(markdown.contains("not drawn over time: it did not report it"), "{markdown}");
}

#[test]
fn an_interrupted_test_leaves_a_report_that_names_the_failure() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (signalled, reason) in [("client", "interrupted"), ("server", "ended the test")] {
        let directory = sandbox.home().join(format!("broken-by-{signalled}"));
        let where_to = directory.to_str().unwrap();
        let server = sandbox.start(&["perf", "server"]);
        await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
        let client = sandbox.start(&[
            "perf",
            "client",
            "127.0.0.1",
            "-b",
            "5M",
            "-i",
            "0.1",
            "-t",
            "600",
            "--report",
            where_to,
        ]);
        await_some("intervals", || (intervals(&client.output_so_far().0) >= 4).then_some(()));
        if signalled == "client" { &client } else { &server }.signal("INT");
        let output = client.end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            output.stderr.contains("report.html") && output.stderr.contains(reason),
            "{output:?}"
        );
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let results: Value = serde_json::from_str(&read("results.json")).unwrap();
        assert!(results["error"].as_str().unwrap().contains(reason), "{}", results["error"]);
        assert!(results["intervals"].as_array().unwrap().len() >= 4);
        assert!(results["end"]["sum_sent"]["bytes"].as_u64().unwrap() > 0);
        assert!(results["end"]["sum_received"].is_null());
        for text in [read("report.md"), read("report.html")] {
            assert!(text.contains("the test broke off") && text.contains(reason));
        }
        if signalled == "client" {
            server.signal("INT");
        }
        assert!(server.end().status.success());
    }
}

#[test]
fn a_test_that_never_began_leaves_no_report() {
    let Some(sandbox) = Sandbox::new() else { return };
    let directory = sandbox.home().join("none");
    let output =
        sandbox.weir(&["perf", "client", "127.0.0.1", "--report", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!directory.exists());
}

#[test]
fn an_unusable_directory_is_reported_before_the_test() {
    let Some(sandbox) = Sandbox::new() else { return };
    let report = |place: &str| sandbox.weir(&["perf", "client", "127.0.0.1", "--report", place]);
    let output = report("/proc/none");
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
    let said = ["cannot create /proc/none", "name another with --report"];
    assert!(said.iter().all(|words| output.stderr.contains(words)), "{}", output.stderr);
    sandbox.write("tmp/taken", "");
    let output = report("tmp");
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("`taken`"), "{}", output.stderr);
    std::fs::remove_file(sandbox.path("tmp/taken")).unwrap();
}
