//! Pages of recorded runs.

use crate::support::Sandbox;
use serde_json::{Value, json};

#[test]
fn only_a_valid_run_of_a_clean_commit_is_put_on_record() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("small.toml", LAB);
    let output = sandbox.weir(&["lab", "run", "small.toml", "--out", "run"]);
    let whole = sandbox.results("run");
    assert!(whole["cells"][0]["failed"].is_null(), "{output:?}");
    let recorded = |change: &dyn Fn(&mut Value)| {
        let mut results = whole.clone();
        // Marks all cells valid, even if the machine stalled or other tests used its CPUs during
        // the run.
        for cell in results["cells"].as_array_mut().unwrap() {
            cell["beside"] = Value::Null;
            cell["cpu_limit"] = Value::Null;
        }
        results["valid"] = true.into();
        results["cells"][0]["valid"] = true.into();
        results["cells"][0]["invalid_reasons"] = json!([]);
        results["environment"]["commit"] = "0123abcd".into();
        results["environment"]["tree"] = "clean".into();
        change(&mut results);
        sandbox.write("run/results.json", results.to_string());
        sandbox.weir(&["lab", "record", "run", "--archive", "small.tar.gz"])
    };
    let refused = |words: &str, change: &dyn Fn(&mut Value)| {
        let output = recorded(change);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
        assert!(!sandbox.path("docs/results/small.md").exists());
        assert!(!sandbox.path("small.tar.gz").exists());
    };
    refused("names no commit", &|run| run["environment"]["commit"] = Value::Null);
    refused("differ from their commit", &|run| run["environment"]["tree"] = "modified".into());
    refused("the run is not valid", &|run| run["valid"] = false.into());
    refused("a cell failed", &|run| run["cells"][0]["failed"] = "it broke".into());
    refused("not the file that was run", &|run| run["environment"]["lab_sha256"] = json!("00"));
    refused("recorded no inputs", &|run| run["environment"]["inputs_sha256"] = Value::Null);
    refused("other inputs", &|run| run["environment"]["inputs_sha256"] = json!("00"));
    // The command also refuses a run with a turn of another build, or of another lab file.
    let journal = sandbox.read("run/journal.jsonl");
    let fact = |name: &str| whole["environment"][name].as_str().unwrap();
    let (inputs, weir) = (fact("inputs_sha256"), fact("weir_sha256"));
    assert!(journal.contains(inputs) && journal.contains(weir), "{journal}");
    let zeros = "0".repeat(64);
    let other_file = journal.replacen(inputs, &zeros, 1);
    for (changed, said) in [
        (other_file.replacen(weir, &zeros, 1), "of another build of weir (000000000000, and "),
        (other_file, "of other files than run.toml names"),
        (journal.replace("\"weir\":", "\"was\":"), "of a weir that recorded no inputs"),
    ] {
        sandbox.write("run/journal.jsonl", changed);
        refused(said, &|_| {});
    }
    sandbox.write("run/journal.jsonl", journal);
    let output = recorded(&|run| {
        run["question"] = "Is `cubic` fast?".into();
        let peer = json!({"files": {"peer.yaml": "a: 1\nb: \"c\\n\"\n"}});
        run["environment"]["systems"] = json!({"cubic": peer});
    });
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = sandbox.read("docs/results/small.md");
    // The commit does not contain this lab, so the lab file is beside the page.
    for text in [
        "**Commit:** 0123abcd",
        "a clean tree",
        "weir lab run small.toml",
        "[small.toml](small.toml)",
        "Is `cubic` fast?",
        "**Peers:** cubic; the lab file has the settings",
        "archive `small.tar.gz`",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(output.stdout.trim_end().ends_with("docs/results/small.md"), "{output:?}");
    assert!(page.lines().count() <= 80, "{page}");
    assert!(sandbox.read("docs/results/small.toml").contains("rate = \"5mbit\""));
    // A run with a single value has no chart.
    assert!(!sandbox.path("docs/results/small.svg").exists() && !page.contains("!["), "{page}");
    let packed = std::fs::read(sandbox.path("small.tar.gz")).unwrap();
    // The same run gives the same bytes, and the archive of another run is kept.
    let again = sandbox.weir(&["lab", "record", "run", "--archive", "small.tar.gz", "--json"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let document: Value = serde_json::from_str(&again.stdout).unwrap();
    assert!(page.contains(document["archive_sha256"].as_str().unwrap()), "{document}");
    assert_eq!(std::fs::read(sandbox.path("small.tar.gz")).unwrap(), packed);
    sandbox.write("small.tar.gz", "another run");
    let output = sandbox.weir(&["lab", "record", "run", "--archive", "small.tar.gz"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("name another file with --archive"), "{output:?}");
    sandbox.write("file", "");
    let output = sandbox.weir(&["lab", "record", "run", "--folder", "file/pages"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("name another with --folder"), "{output:?}");
    // The archive has the results that the user named.
    sandbox.write("run/kept.json", sandbox.read("run/results.json"));
    sandbox.write("run/results.json", "{}");
    let output = sandbox.weir(&["lab", "record", "run/kept.json", "--archive", "kept.tar.gz"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read(sandbox.path("kept.tar.gz")).unwrap(), packed);
    let archive = "pages/small.md";
    let output = sandbox.weir(&[
        "lab",
        "record",
        "run/kept.json",
        "--folder",
        "pages",
        "--archive",
        archive,
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("--archive names a file of the page"), "{output:?}");
    assert!(!sandbox.path("pages").exists());
}

const LAB: &str = r#"
name = "small"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
rate = "5mbit"
delay = "5ms"
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "2s"
"#;
