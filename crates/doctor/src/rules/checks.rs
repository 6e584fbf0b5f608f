//! Tests of the table, of the rules as source text, and of the lists of causes elsewhere.

use super::{TABLE, row_of};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files of the folder that are no rules.
const NO_RULES: [&str; 7] = ["checks", "finding", "precedence", "rank", "rule", "settle", "sketch"];
/// Types that every rule may import.
const WORDS: [&str; 6] = ["Advice", "Case", "Evidence", "Finding", "Outcome", "Rule"];

fn name(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

fn at(place: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(place)
}

fn text(place: &Path) -> String {
    std::fs::read_to_string(place).unwrap_or_else(|error| panic!("{place:?}: {error}"))
}

/// Returns the files of the rules and of their parts.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|file| !NO_RULES.contains(&name(file).as_str()));
    files.chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}

/// Returns each file of a rule, and its text without tests.
fn rules() -> Vec<(PathBuf, String)> {
    let files = files(&at("src/rules"));
    assert!(files.len() > 60, "{}", files.len());
    let code = |file: &PathBuf| text(file).split("#[cfg(test)]").next().unwrap().to_owned();
    files.into_iter().map(|file| (file.clone(), code(&file))).collect()
}

fn causes() -> BTreeSet<&'static str> {
    TABLE.iter().map(|row| row.rule.cause).collect()
}

/// Returns the words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn no_rule_imports_a_rule_or_ranks_its_cause() {
    for (file, text) in rules() {
        let used = text.split("super::").skip(1).map(|rest| {
            let end = rest.find(';').unwrap_or(rest.len());
            rest[..end].trim_start_matches('{').trim_end_matches('}').to_owned()
        });
        for word in used
            .flat_map(|used| used.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>())
        {
            assert!(word.is_empty() || WORDS.contains(&word.as_str()), "{file:?}: {word}");
        }
        assert!(!text.contains("crate::rules"), "{file:?}");
        assert!(!text.contains(".explains"), "{file:?}: the table ranks a finding");
    }
}

#[test]
fn every_case_of_a_rule_has_a_rank_in_the_table() {
    let table = text(&at("src/rules.rs"));
    for (file, text) in rules() {
        let cases = text.match_indices(": Case = ").map(|(end, _)| &text[..end]);
        for case in cases.filter_map(|before| before.rsplit("const ").next()) {
            let named = format!("({}::{case}, ", name(&file));
            assert!(table.contains(&named), "src/rules.rs has no rank {named}…)");
        }
    }
}

#[test]
fn every_cause_has_one_row_with_a_reason() {
    for row in TABLE {
        let same = TABLE.iter().filter(|other| other.rule.cause == row.rule.cause);
        assert_eq!(same.count(), 1, "{}", row.rule.cause);
        assert!(row.because.ends_with('.'), "{}", row.rule.cause);
    }
}

#[test]
fn causes_that_a_row_names_exist() {
    for row in TABLE {
        for cause in row.named() {
            assert!(row_of(cause).is_some(), "{}: {cause}", row.rule.cause);
        }
    }
}

#[test]
fn the_reference_explains_every_cause_of_the_table_and_no_other() {
    let page = text(&at("../../docs/reference/doctor.md"));
    let table = page.split("| cause | decided by |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let told: BTreeSet<&str> =
        rows.flat_map(|row| quoted(row.split('|').nth(1).unwrap_or_default())).collect();
    let causes = causes();
    let missing: Vec<_> = causes.difference(&told).collect();
    assert!(missing.is_empty(), "docs/reference/doctor.md does not explain {missing:?}");
    let unknown: Vec<_> = told.difference(&causes).collect();
    assert!(unknown.is_empty(), "docs/reference/doctor.md explains {unknown:?}, which no rule has");
}

/// The faults of `weir lab run faults`, and the reference's list of causes that no fault can make.
#[test]
fn every_cause_has_a_fault_file_or_a_reason_why_none_can_make_it() {
    let mut made = BTreeSet::from(["nothing".to_owned()]);
    for file in std::fs::read_dir(at("../../labs/faults")).unwrap() {
        let text = text(&file.unwrap().path());
        for line in text.lines().filter(|line| line.starts_with("expect")) {
            let names = line.split('"').nth(1).unwrap_or_default().trim_start_matches("not ");
            made.extend(names.split(['|', '+']).map(|name| name.trim().to_owned()));
        }
    }
    let causes = causes();
    let unknown: Vec<_> =
        made.iter().filter(|name| *name != "nothing" && !causes.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "labs/faults expects {unknown:?}, which no rule has");
    let page = text(&at("../../docs/reference/doctor.md"));
    let list = page.split("No fault of that lab has these causes").nth(1).unwrap();
    let list: BTreeSet<&str> = quoted(list.split("\n`weir ").next().unwrap()).collect();
    let missing: Vec<_> =
        causes.iter().filter(|cause| !made.contains(**cause) && !list.contains(**cause)).collect();
    assert!(
        missing.is_empty(),
        "no file of labs/faults expects {missing:?}, and docs/reference/doctor.md tells no reason"
    );
}
