//! Checks the documents. Every command exists with its options, every file is accepted, every
//! variable of the environment is named, and JSON follows the schemas.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::Sandbox;

/// Reads the text of each document, by its path from the root of the project.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs")];
    let mut files = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                None if path.is_dir() => folders.push(path),
                Some("md") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    files.iter().map(|path| (path.clone(), text(path))).collect()
}

/// Returns the fenced blocks of one language.
fn fragments<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    let parts = text.split(open.as_str()).skip(1);
    parts.filter_map(|part| part.split_once("\n```").map(|(fragment, _)| fragment)).collect()
}

/// Returns the commands of `weir` in a console block, as the shell would pass them.
fn commands(fragment: &str) -> Vec<Vec<String>> {
    let joined = fragment.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in joined.lines() {
        let Some(at) = line.find("# ").or_else(|| line.find("$ ")) else { continue };
        // A host's name may precede the prompt; lines without a prompt are output.
        if !line[..at].chars().all(|c| c.is_ascii_alphanumeric()) {
            continue;
        }
        for part in line[at + 2..].split(" && ").flat_map(|part| part.split(" | ")) {
            let part = part.rsplit_once("$(").map_or(part, |(_, inner)| inner);
            if let Some(at) = part.find("weir ").filter(|at| is_start(&part[..*at])) {
                let line = part[at..].split([')', '&', ';', '>', '#']).next().unwrap_or_default();
                found.push(words(line));
            }
        }
    }
    found
}

/// Whether the words before the program only start it, for example in another namespace.
fn is_start(before: &str) -> bool {
    let before = before.trim();
    before.is_empty() || before.ends_with('=') || before.starts_with("ip netns exec")
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.trim().chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, ' ') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[test]
fn the_reference_of_lab_files_explains_every_key_of_a_link() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/reference/lab-file.md")).unwrap();
    let (_, links) = text.split_once("## `[[link]]`").unwrap();
    let (links, _) = links.split_once("\n## ").unwrap();
    // The first column has the keys. `seed` is no key of a lab file: the runner chooses the seeds.
    let heads: Vec<_> = links.lines().filter_map(|line| line.split('|').nth(1)).collect();
    for key in emu::Settings::KEYS.into_iter().filter(|key| *key != "seed") {
        let named = format!("`{key}`");
        assert!(heads.iter().any(|head| head.contains(&named)), "lab-file.md has no row of {key}");
    }
}

#[test]
fn every_command_exists_with_its_options() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        for words in fragments(&text, "console").into_iter().flat_map(commands) {
            // Skips words that the shell replaces, and abbreviated keys.
            if words.iter().any(|word| word.starts_with('$') || word.contains('…')) {
                continue;
            }
            // With `--help`, clap checks the options before it and runs nothing.
            let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            let output = command.args(&words[1..end]).arg("--help").output().unwrap();
            count += 1;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{}: {}: {error}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(count > 30, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Any user may put a socket into `/tmp`, and commands would connect to that user's process.
#[test]
fn documents_and_help_put_no_socket_into_a_world_writable_directory() {
    let mut texts = documents();
    for words in [&["switch", "run"][..], &["switch", "call"], &["switch", "add-flow"], &["gen"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(words).arg("--help").output().unwrap();
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        texts.push((PathBuf::from(format!("weir {} --help", words.join(" "))), help));
    }
    let mut wrong = Vec::new();
    for (path, text) in texts {
        for line in text.lines() {
            for before in
                ["--rundir ", "OVS_RUNDIR=", "rundir = \"", "unix:", "ring:", "vhost-user:", "-t "]
            {
                if ["/tmp", "/var/tmp", "/dev/shm"]
                    .iter()
                    .any(|open| line.contains(&format!("{before}{open}")))
                {
                    wrong.push(format!("{}: {line}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_lab_and_policy_file_in_the_documents_is_accepted() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (mut labs, mut policies) = (0, 0);
    for (path, text) in documents() {
        for fragment in fragments(&text, "toml") {
            let place = format!("{}:\n{fragment}", path.display());
            if fragment.contains("[form.full]") {
                sandbox.write("lab.toml", fragment);
                let output = sandbox.weir(&["lab", "validate", "lab.toml"]);
                assert!(output.status.success(), "{place}\n{}", output.stderr);
                labs += 1;
            } else if fragment.contains("[[rule]]") {
                // The example's interface exists on another machine: only errors of the file count.
                sandbox.write("accel.toml", fragment);
                let output = sandbox.weir(&["accel", "policy", "--check", "accel.toml"]);
                let is_of_file = output.stderr.contains("accel.toml:");
                assert!(!is_of_file, "{place}\n{}", output.stderr);
                policies += 1;
            }
        }
    }
    assert!(labs > 0 && policies > 0, "{labs} labs, {policies} policies");
}

/// The command of a results page must build the page's commit, name an existing lab in the page's
/// form, and have only flags that exist.
#[test]
fn every_recorded_page_ends_with_the_command_that_made_it() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        if !path.parent().is_some_and(|folder| folder.ends_with("results")) {
            continue;
        }
        count += 1;
        if let Err(reason) = repeats_its_page(&path, &text) {
            wrong.push(format!("{}: {reason}", path.display()));
        }
    }
    assert!(count > 20, "only {count} pages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn repeats_its_page(path: &Path, text: &str) -> Result<(), String> {
    let fragment = text
        .split_once("## How to repeat it")
        .and_then(|(_, rest)| fragments(rest, "sh").into_iter().next())
        .ok_or("no commands to repeat it")?;
    let lines: Vec<&str> = fragment.lines().collect();
    let [checkout, build, command] = lines.as_slice() else {
        return Err(format!("not three commands: {lines:?}"));
    };
    let commit = checkout.strip_prefix("git checkout ").ok_or("no checkout")?;
    if !text.contains(&format!("**Commit:** {commit} (a clean tree)")) {
        return Err(format!("it does not say that {commit} measured it"));
    }
    if *build != "cargo build --release --locked -p weir" {
        return Err(format!("the commit is not built: {build}"));
    }
    let words = words(command);
    let (program, rest) = words.split_first().ok_or("no command")?;
    if program != "target/release/weir" {
        return Err(format!("{program} is not what the commit builds"));
    }
    let lab = match rest {
        [verb, run, lab, ..] if ["lab", "sim"].contains(&verb.as_str()) && run == "run" => lab,
        _ => return Err(format!("no `lab run LAB` or `sim run LAB`: {command}")),
    };
    let page = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    if lab != page {
        return Err(format!("it runs {lab}"));
    }
    let form = match rest.iter().find(|word| *word == "--quick" || *word == "--smoke") {
        Some(flag) => flag.trim_start_matches("--"),
        None => "full",
    };
    if !text.contains(&format!("**Form:** the {form} form of the lab {lab};")) {
        return Err(format!("the page does not show the {form} form"));
    }
    let weir = |words: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(error)
    };
    // With `--help`, clap checks the options before it and runs nothing.
    weir(&[rest, &["--help".to_owned()]].concat())?;
    weir(&["lab", "show", lab.as_str()].map(str::to_owned))
}

/// On the site a link to a folder, or out of the folder, is broken.
#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let summary = std::fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        let path = path.canonicalize().unwrap();
        let is_page = path.starts_with(root.join("docs"));
        let name = path.strip_prefix(root.join("docs")).unwrap_or(&path);
        if is_page && !name.ends_with("SUMMARY.md") && !summary.contains(&*name.to_string_lossy()) {
            wrong.push(format!("{} is not in SUMMARY.md", path.display()));
        }
        // Text between fences is no Markdown.
        let prose: String = text.split("\n```").step_by(2).collect();
        for part in prose.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            count += 1;
            let file = path.parent().unwrap().join(target);
            let inside =
                !is_page || file.canonicalize().is_ok_and(|f| f.starts_with(root.join("docs")));
            if !file.is_file() || !inside {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(count > 20, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Coverage holds only for independent repeats, and a page must state this condition.
#[test]
fn no_document_claims_a_coverage_without_its_condition() {
    for (path, text) in documents() {
        for sentence in text.split(". ").filter(|sentence| sentence.contains("coverage is exact")) {
            assert!(sentence.contains("independent"), "{}: {sentence}", path.display());
        }
    }
}

#[test]
fn no_page_on_record_counts_a_cell_that_was_not_run_as_failed() {
    for (path, text) in documents() {
        let failed = text.split("\n## Failed\n").nth(1).unwrap_or_default();
        let failed = failed.split("\n## ").next().unwrap_or_default();
        assert!(!failed.contains("not run"), "{}", path.display());
        for line in text.lines().filter(|line| line.starts_with('|')) {
            assert!(!line.contains(" (failed) / "), "{}: {line}", path.display());
        }
    }
}

/// The recorded runs show `tcpa` level with BBR on lossy paths (docs/results/cc-kernel.md).
#[test]
fn the_help_of_tcpa_claims_no_more_than_the_records_show() {
    for words in [&["accel", "enable", "--help"][..], &["accel", "enable", "tcpa", "--help"]] {
        let help = help(words);
        assert!(help.contains("level with BBR"), "{help}");
        assert!(!help.contains("Faster sending") && !help.contains("shorter queue"), "{help}");
    }
}

#[test]
fn help_guide_and_readme_say_what_tcpa_is_for_with_figures_on_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let paths = read("docs/results/tcpa-paths.md");
    let drawn = paths.lines().find(|line| line.starts_with("| drawn |")).unwrap();
    for figure in ["| 1,207 [", "| 1,339 ["] {
        assert!(drawn.contains(figure), "{figure} is not in {drawn}");
    }
    let files = read("docs/results/tcpa.md");
    for row in ["| bbr | 8MB | 2,397 [", "| tcpa | 8MB | 2,398 ["] {
        assert!(files.contains(row), "docs/results/tcpa.md has no row {row}");
    }
    let purpose = "tcpa is for servers of short files: files of 640 KB arrived at 1,339 KB/s with \
                   tcpa and 1,207 with BBR over drawn paths, files of 8 MB at 2,398 and 2,397 over \
                   eight fixed paths. For larger files and lossy paths try BBR first: weir accel \
                   enable bbr --port 443";
    for text in [help(&["accel", "--help"]), read("README.md"), read("docs/guides/accel.md")] {
        let words = text.replace('`', "");
        let words: Vec<&str> = words.split_whitespace().collect();
        assert!(words.join(" ").contains(purpose), "{text}");
    }
}

fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_variable_of_the_environment_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/command.md")).unwrap();
    let mut folders = vec![root.join("crates")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "benches", "examples", "target"].contains(&name.as_str())
            {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "build.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                for part in text.split("env::var").skip(1) {
                    let quoted = part.split(['(', ')']).nth(1).unwrap_or_default();
                    found.extend(
                        quoted
                            .strip_prefix('"')
                            .and_then(|q| q.strip_suffix('"'))
                            .map(str::to_owned),
                    );
                }
            }
        }
    }
    found.retain(|name| !name.starts_with("CARGO") && name != "PATH" && name != "OUT_DIR");
    found.sort();
    found.dedup();
    let missing: Vec<_> =
        found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/command.md does not name {missing:?}");
}

#[test]
fn json_follows_its_schemas() {
    let Some(sandbox) = Sandbox::new() else { return };
    let labs = sandbox.weir(&["lab", "list", "--json"]);
    follows("lab-list-1", &labs.stdout);
    sandbox.write("bad.toml", "name = \"bad\"\nhots = []\n");
    let output = sandbox.weir(&["lab", "validate", "bad.toml", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    follows("lab-validate-1", &output.stdout);
    let output = sandbox.weir(&["sim", "run", "incast", "--smoke", "--json", "--out", "run"]);
    follows("lab-results-1", &output.stdout);
    let words = ["lab", "commands", "true", "true", "--pairs", "20", "--json"];
    follows("lab-commands-1", &sandbox.weir(&words).stdout);

    let output = sandbox.weir(&["lab", "export", "run", "--out", "export"]);
    assert!(output.status.success(), "{output:?}");
    let table = sandbox.read("export/results.csv");
    let head = table.lines().next().unwrap();
    assert!(head.starts_with("system,") && head.contains(",metric,unit,median,"), "{head}");
    assert!(table.lines().count() > 5, "{table}");
}

#[track_caller]
fn follows(schema: &str, document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../docs/reference/schemas/{schema}.json"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let document: Value =
        serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
    let mut wrong = Vec::new();
    check(&schema, &document, "$", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Validates `value` against the part of JSON Schema that the schemas of the documents use.
fn check(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(some) => some.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let fits = |one: &&str| *one == kind || (*one == "number" && kind == "integer");
    if !allowed.is_empty() && !allowed.iter().any(fits) {
        wrong.push(format!("{place} is {kind}, not {allowed:?}"));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        wrong.push(format!("{place} is {value}, none of {values:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            wrong.push(format!("{place} has no `{name}`"));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{place}[{number}]"), wrong);
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let place = format!("{place}.{name}");
        match schema["properties"].get(name) {
            Some(named) => check(named, inner, &place, wrong),
            None => check(&schema["additionalProperties"], inner, &place, wrong),
        }
    }
}
