//! Shards of a run, and the merged run.

use super::labs::GRID;
use crate::support::Sandbox;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Returns the results without the facts that differ between two runs of the same lab.
fn figures(sandbox: &Sandbox, run: &str) -> Value {
    let mut results = sandbox.results(run);
    let fields = results.as_object_mut().unwrap();
    for name in ["started", "duration_s", "command"] {
        fields.remove(name);
    }
    let facts = fields["environment"].as_object_mut().unwrap();
    for name in ["threads", "steal_percent"] {
        facts.remove(name);
    }
    results
}

#[test]
fn any_number_of_shards_merges_to_the_run_without_shards() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("grid.toml", GRID);
    let output = sandbox.weir(&["sim", "run", "./grid.toml", "--out", "whole"]);
    assert!(output.status.success(), "{output:?}");
    let whole = figures(&sandbox, "whole");
    let samples = std::fs::read(sandbox.path("whole/samples.parquet")).unwrap();
    for of in [1, 3, 16] {
        let parts: Vec<String> = (1..=of).map(|number| format!("{number}-of-{of}")).collect();
        for (number, part) in (1..).zip(&parts) {
            let shard = format!("{number}/{of}");
            let words = ["sim", "run", "./grid.toml", "--shard", &shard, "--out", part];
            let output = sandbox.weir(&words);
            assert!(output.status.success(), "{output:?}");
            assert!(!sandbox.path(part).join("results.json").exists());
        }
        let merged = format!("merged-{of}");
        // The order of the shards must not matter.
        let mut words = vec!["lab", "merge", "--out", &merged];
        words.extend(parts.iter().rev().map(String::as_str));
        let output = sandbox.weir(&words);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(figures(&sandbox, &merged), whole, "{of} shards");
        assert!(std::fs::read(sandbox.path(&merged).join("samples.parquet")).unwrap() == samples);
        let valid = sandbox.weir(&["lab", "validate", &merged]);
        assert!(valid.status.success(), "{valid:?}");
    }

    let refused = |words: &[&str], reason: &str| {
        let output = sandbox.weir(&[&["lab", "merge", "--out", "never"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(reason), "{reason}: {output:?}");
        assert!(!sandbox.path("never").exists());
    };
    refused(&["1-of-3"], "2 of 3 shards are missing: 2, 3");
    refused(&["1-of-3", "3-of-3"], "shard 2/3 is missing");
    refused(&["1-of-3", "1-of-3"], "are both shard 1/3");
    refused(&["1-of-3", "2-of-16"], "are not shards of one run");
    refused(&["whole"], "is no shard");
    refused(&["."], "has a directory for each shard: name these, as in ./*");
    let words = ["sim", "run", "./grid.toml", "--shard", "2/3", "--seed", "99", "--out", "other"];
    assert!(sandbox.weir(&words).status.success());
    refused(&["1-of-3", "other", "3-of-3"], "their `seed` differs");
    let journal = sandbox.read("2-of-3/journal.jsonl");
    sandbox.write("2-of-3/journal.jsonl", journal.split_once('\n').unwrap().1);
    refused(&["1-of-3", "2-of-3", "3-of-3"], "lacks 1 of its ");
    let resumed = sandbox.weir(&["sim", "run", "--resume", "2-of-3"]);
    assert!(resumed.status.success() && resumed.stdout.contains("shard 2/3: "), "{resumed:?}");
    let output = sandbox.weir(&["lab", "merge", "1-of-3", "2-of-3", "3-of-3", "--out", "again"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(figures(&sandbox, "again"), whole);
}

#[test]
fn an_exported_array_job_measures_all_shards_and_continues_an_unfinished_shard() {
    let Some(sandbox) = Sandbox::new() else { return };
    let exported = |words: &[&str]| {
        let output = sandbox.weir(&[&["lab", "export", "--slurm"], words].concat());
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/sweeps.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let script = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(exported(&["cc-grid", "--shards", "16"]), script);
    let grid = sandbox.path("grid.toml");
    sandbox.write("grid.toml", GRID);
    let script = exported(&["./grid.toml", "--shards", "3"]);
    let parts = script.lines().find_map(|line| line.strip_prefix("out=")?.split('/').next());
    let parts = parts.unwrap().to_owned();
    sandbox.write("sweep.sbatch", &script);
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = format!("{}:{}", weir.display(), std::env::var("PATH").unwrap());
    let task = |task: &str| {
        let mut command = Command::new("sh");
        command.arg("sweep.sbatch").env("PATH", &path).env("SLURM_ARRAY_TASK_ID", task);
        sandbox.start_command(command).end()
    };
    for number in ["1", "2", "3", "3"] {
        let output = task(number);
        assert!(output.status.success(), "{number}: {output:?}");
    }
    let shards = ["1", "2", "3"].map(|number| format!("{parts}/{number}"));
    let [one, two, three] = shards.each_ref().map(String::as_str);
    let output = sandbox.weir(&["lab", "merge", one, two, three, "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.results("run")["valid"], true);
    std::fs::write(&grid, format!("{GRID}# changed\n")).unwrap();
    let output = task("1");
    assert!(output.status.code() == Some(2) && output.stderr.contains("changed"), "{output:?}");
}
