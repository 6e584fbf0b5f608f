//! Checks conventions of the project's own sources that no compiler checks.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Directories below `crates` whose code runs congestion control algorithms without naming them.
const HOSTS: [&str; 3] = ["quic/src", "sim/src/tcp", "tunnel/src"];
const ALGORITHMS: [&str; 7] = ["Bbr", "Bbr3", "Caqm", "Cubic", "Dctcp", "Reno", "Tcpa"];

#[test]
fn code_that_runs_congestion_control_names_no_algorithm() {
    let mut found = Vec::new();
    for host in HOSTS {
        let files = sources(&crates().join(host));
        assert!(!files.is_empty(), "{host} has no sources: change HOSTS of this test");
        found.extend(lines_with(&files, names_an_algorithm));
    }
    let advice = "add what the host needs to cc::CongestionControl or cc::Algorithm, and ask there";
    assert!(found.is_empty(), "these lines name an algorithm; {advice}:\n{}", found.join("\n"));
}

#[test]
fn an_algorithm_is_named_by_its_variant_its_type_or_its_text() {
    for line in [
        "match algorithm { Algorithm::Tcpa => true, _ => false }",
        "self.algorithm == cc::Algorithm::CubicRfc9438",
        "use cc::Algorithm::{self, Tcpa};",
        "use cc::Algorithm::*;",
        "Box::new(Caqm::new(&path))",
        "if algorithm.name() == \"bbr\" {",
    ] {
        assert!(names_an_algorithm(line), "{line}");
    }
    for line in [
        "Congestion::Algorithm(algorithm) => algorithm.start(&path),",
        "Algorithm::ALL.iter().chain([&Algorithm::TUNNEL_DEFAULT])",
        "Box::new(CaqmReceiver::new(&settings))",
        "algorithms().find(|algorithm| algorithm.name() == name)",
    ] {
        assert!(!names_an_algorithm(line), "{line}");
    }
}

#[test]
fn security_md_lists_the_actions_that_tests_of_confined_programs_try() {
    let text = fs::read_to_string(crates().join("../SECURITY.md")).unwrap();
    let list = text.split_once(" Refused:\n").unwrap().1;
    let list = list.split_once("\n\n").unwrap().0.replace('\n', " ");
    let mut listed: Vec<_> = list.trim_end_matches('.').split(", ").map(str::trim).collect();
    // Only x86_64 has iopl(2) and ioperm(2).
    listed.retain(|name| cfg!(target_arch = "x86_64") || !["`iopl`", "`ioperm`"].contains(name));
    let tried: Vec<_> = testing::forbidden_names().map(|name| format!("`{name}`")).collect();
    assert_eq!(listed, tried, "SECURITY.md and crates/testing/src/forbidden.rs differ");
}

#[test]
fn only_the_units_crate_computes_spelling_suggestions() {
    let own = crates().join("units/src/spelling.rs");
    let mut files = sources(&crates());
    let before = files.len();
    files.retain(|file| *file != own);
    assert_eq!(before, files.len() + 1, "{} is missing: change this test", own.display());
    let is_second = |line: &str| {
        ["strsim", "levenshtein", "osa_distance", "did you mean"].iter().any(|&w| line.contains(w))
    };
    let found = lines_with(&files, is_second);
    let advice = "use units::did_you_mean, units::nearest or units::suggestion";
    assert!(found.is_empty(), "{advice} instead of these lines:\n{}", found.join("\n"));
}

#[test]
fn only_the_host_crate_lists_the_directories_of_libraries() {
    let list = crates().join("host/src/confinement.rs");
    let is_listed = |line: &str| line.contains("\"/usr/lib64\"");
    assert_eq!(lines_with(std::slice::from_ref(&list), is_listed).len(), 1, "change this test");
    let mut files = sources(&crates());
    files.retain(|file| *file != list);
    let found = lines_with(&files, is_listed);
    assert!(found.is_empty(), "use host::LIBRARIES instead of these lines:\n{}", found.join("\n"));
}

/// Files and folders below `crates` that read TOML files through the settings crate.
const READERS: [&str; 8] = [
    "settings/src",
    "lab/src/model/file",
    "lab/src/workloads/read.rs",
    "lab/src/workloads/check.rs",
    "accel/src/policy_file.rs",
    "switch/src/run/config.rs",
    "tunnel/src/config",
    "tunnel/src/quic_tun/settings.rs",
];

#[test]
fn readers_of_toml_files_match_no_error_texts() {
    let paths = READERS.iter().map(|reader| crates().join(reader));
    let files = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    let found = lines_with(&files.collect::<Vec<_>>(), matches_an_error_text);
    let advice = "add a case to settings::What, or a type of your own, and match the type";
    assert!(found.is_empty(), "{advice} instead of these lines:\n{}", found.join("\n"));
    for line in [
        "let error = toml::from_str::<File>(text).unwrap_err();",
        "if message.contains(\"unknown placeholder\") {",
        ".filter(|error| !error.to_string().starts_with(\"system\"))",
        "let key = error.message().strip_prefix(\"missing field `\")?;",
    ] {
        assert!(matches_an_error_text(line), "{line}");
    }
    assert!(!matches_an_error_text("matches!(mistake.what, What::MissingKey(_))"));
}

/// Whether a line looks for a text in an error, or makes an error of the TOML crate.
fn matches_an_error_text(line: &str) -> bool {
    let searches = ["contains(", "starts_with(", "ends_with(", "strip_prefix(", "split", "find("];
    let errors = ["message", "message()", "error", "problem", "reason", "to_string()"];
    let of_error = |search: &str| {
        let mut before = line.match_indices(search).map(|(at, _)| line[..at].strip_suffix('.'));
        before.any(|before| before.is_some_and(|text| errors.iter().any(|e| text.ends_with(e))))
    };
    searches.iter().any(|search| of_error(search)) || line.contains("toml::from_str")
}

fn names_an_algorithm(line: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Returns the identifiers after `before`, where `before` is not the end of a longer identifier.
    let behind = |before: &str| -> Vec<String> {
        let places = line.match_indices(before).filter(|(at, _)| !line[..*at].ends_with(is_word));
        let rest = places.map(|(at, _)| line[at + before.len()..].chars());
        rest.map(|rest| rest.take_while(|c| is_word(*c)).collect()).collect()
    };
    // Constants have no lower-case letters and functions no capitals, so neither is a variant. An
    // import of variants has no identifier after `before`.
    let is_variant = |name: &String| {
        name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.contains(|c: char| c.is_ascii_lowercase())
    };
    behind("Algorithm::").iter().any(is_variant)
        || ALGORITHMS.iter().any(|name| !behind(&format!("{name}::")).is_empty())
        || line.contains("name() == \"")
}

fn is_test_module(line: &str) -> bool {
    ["mod tests {", "pub(crate) mod tests {"].iter().any(|head| line.starts_with(head))
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns the lines of product code for which `is_wrong` holds, with their files.
fn lines_with(files: &[PathBuf], is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        // Unit tests are the last module of a file.
        let product = text.lines().take_while(|line| !is_test_module(line));
        let code = product.map(|line| line.split("//").next().unwrap_or_default());
        let wrong = code.filter(|line| is_wrong(line));
        found.extend(wrong.map(|line| format!("{}: {}", file.display(), line.trim())));
    }
    found
}

/// Returns all Rust files of product code below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "benches", "target"].contains(&&*name) {
                found.extend(sources(&path));
            }
        } else if name.ends_with(".rs") && !TESTS.iter().any(|test| path.ends_with(test)) {
            found.push(path);
        }
    }
    found
}

/// Files that contain unit tests.
const TESTS: [&str; 3] = ["quic/src/pair.rs", "sim/src/tcp/scripts.rs", "tests.rs"];
