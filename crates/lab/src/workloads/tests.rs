//! Keys of workloads: their values in a cell, and the errors of wrong keys.

use super::WORKLOADS;
use super::crowd::{Crowd, CrowdSettings};
use super::messages::{MessageSettings, Messages};
use crate::bench::{Executor, LabFile};
use crate::runs::{Build, Location, Request};
use results::{Axes, Form};
use std::path::Path;
use units::Bytes;

/// Describes a run of the full form in virtual time, whose directory is in `folder`.
pub(super) fn simulated(lab: LabFile, folder: &Path, threads: usize) -> Request {
    let command = format!("weir sim run {}.toml", lab.name());
    Request {
        lab,
        form: Form::Full,
        location: Location::At(folder.join("run")),
        systems: Vec::new(),
        repeats: None,
        seed: None,
        build: Build::default(),
        command,
        executor: Executor::Simulator { threads },
        shard: None,
    }
}

fn lab(workload: &str) -> Result<LabFile, String> {
    let text = format!(
        "name = \"lab\"\nhosts = [\"a\", \"b\"]\n[axes]\nmany = [\"0\", \"20\"]\n\
         [[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n[workload]\nfrom = \"a\"\nto = \"b\"\n\
         {workload}\n[[system]]\nname = \"x{{many}}\"\nkind = \"external\"\nserver = \"x {{many}}\"\n\
         client = \"x {{files}}/c.yaml\"\nfiles = {{ \"c.yaml\" = \"to: {{server}}\" }}\n\
         [form.full]\nduration = \"1s\"\n"
    );
    let text = text.replace("x{many}", "x");
    LabFile::parse("lab.toml", &text).map_err(|error| error.to_string())
}

fn at(many: &str) -> Axes {
    Axes::from([("many".to_owned(), many.to_owned())])
}

#[test]
fn every_workload_key_is_documented() {
    let page = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        std::fs::read_to_string(root.join(name)).unwrap()
    };
    let pages = page("lab-workloads.md") + &page("lab-file.md");
    let others = WORKLOADS.iter().filter(|workload| workload.kind() != "dummy");
    let keys = others.flat_map(|workload| workload.keys().iter().map(move |key| (workload, key)));
    let missing: Vec<String> = keys
        .filter(|(_, key)| !pages.contains(&format!("`{}`", key.name)))
        .map(|(workload, key)| format!("{}: {}", workload.kind(), key.name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn message_and_crowd_settings_are_parsed() {
    let messages = lab("kind = \"messages\"\nsize = \"64B\"\nstreams = 3").unwrap();
    let expected = MessageSettings { size: Bytes::new(64), count: 500, streams: 3 };
    assert_eq!(Messages.settings(&messages, &at("0")).unwrap(), expected);
    let crowd = lab("kind = \"crowd\"\nidle = \"{many}\"").unwrap();
    assert_eq!(Crowd.settings(&crowd, &at("0")).unwrap(), CrowdSettings { idle: 0, busy: 1 });
    assert_eq!(Crowd.settings(&crowd, &at("20")).unwrap(), CrowdSettings { idle: 20, busy: 1 });
}

#[test]
fn an_invalid_workload_setting_is_refused_with_its_line() {
    for (workload, told) in [
        ("kind = \"messages\"\nsize = \"1MiB\"", "lab.toml:12: a message has from 1 byte"),
        ("kind = \"messages\"\nsize = \"0B\"", "lab.toml:12: a message has from 1 byte"),
        ("kind = \"messages\"\nmessages = 0", "lab.toml:12: `messages` is from 1 to"),
        (
            "kind = \"messages\"\nidle = 1",
            "lab.toml:12: `idle` is for workloads of `kind = \"crowd\"",
        ),
        ("kind = \"crowd\"\nidle = 100000", "lab.toml:12: `idle` is from 0 to 20000"),
        ("kind = \"crowd\"\nmessages = 1", "lab.toml:12: `messages` is for workloads"),
        ("kind = \"crowd\"\nsize = \"1B\"", "lab.toml:12: `size` is for workloads"),
    ] {
        let error = lab(workload).unwrap_err();
        assert!(error.contains(told), "{workload}: {error}");
    }
}
