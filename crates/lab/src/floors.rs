//! A test that no source imports a higher floor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The floors from the lowest to the highest. Each floor is a folder and a module of the crate.
const FLOORS: [&str; 5] = ["model", "bench", "analysis", "workloads", "runs"];

#[test]
fn no_source_imports_a_higher_floor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = sources(&root);
    let tests = test_modules(&sources);
    let mut found = Vec::new();
    for (path, text) in &sources {
        let name = path.strip_prefix(&root).unwrap_or(path);
        // lib.rs is on no floor, because lib.rs names each floor's public items.
        let Some((floor, depth)) = floor_of(name) else { continue };
        if tests.iter().any(|test| path.starts_with(test) || *path == test.with_extension("rs")) {
            continue;
        }
        for (line, import) in imports(text, depth) {
            let place = format!("crates/lab/src/{}:{line}", name.display());
            found.extend(mistake(floor, &import).map(|mistake| format!("{place}: {mistake}")));
        }
    }
    assert!(sources.len() > 100, "only {} sources under {}", sources.len(), root.display());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the error if a source on `floor` must not import `import`, such as `runs::Build`.
fn mistake(floor: &str, import: &str) -> Option<String> {
    let height = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let first = import.split("::").next().unwrap_or_default();
    match (height(first), height(floor)) {
        (Some(imported), Some(own)) if imported > own => Some(format!(
            "`{floor}` imports `crate::{import}` of the floor `{first}` above: move the type down to \
             `{floor}`, or this code up to `{first}`"
        )),
        (None, _) => Some(format!(
            "`crate::{import}` names no floor: begin the path with crate::{}",
            FLOORS.join(", crate::")
        )),
        _ => None,
    }
}

/// Returns the floor of a source, and the number of modules between the source and the crate's
/// root.
fn floor_of(name: &Path) -> Option<(&str, usize)> {
    let parts: Vec<&str> = name.iter().filter_map(|part| part.to_str()).collect();
    let (file, folders) = parts.split_last()?;
    let depth = folders.len() + usize::from(*file != "mod.rs");
    Some((folders.first()?, depth))
}

/// Returns the paths from the crate's root in the code of a source, each with its line. Leaves out
/// comments and tests: a test may open a whole lab.
fn imports(text: &str, depth: usize) -> Vec<(usize, String)> {
    let from_root = ["super"].repeat(depth).join("::");
    let roots = ["crate::".to_owned(), format!("{from_root}::")];
    let code = code_of(text);
    let mut found = Vec::new();
    for root in roots {
        for (place, _) in code.match_indices(&root) {
            let before = code[..place].chars().next_back().unwrap_or(' ');
            if before == ':' || before.is_alphanumeric() {
                continue;
            }
            let line = 1 + code[..place].matches('\n').count();
            let rest = &code[place + root.len()..];
            found.extend(leaves(rest).into_iter().map(|import| (line, import)));
        }
    }
    found
}

/// Expands `a::{b, c::d}` to `a::b` and `a::c::d`.
fn leaves(text: &str) -> Vec<String> {
    let text = text.trim_start();
    let Some(inside) = text.strip_prefix('{') else {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let path: &str = text.split(|c| !is_part(c)).next().unwrap_or_default();
        return match path.strip_suffix("::") {
            Some(parent) => {
                let rest = leaves(&text[path.len()..]).into_iter();
                rest.map(|leaf| format!("{parent}::{leaf}")).collect()
            }
            None => vec![path.to_owned()],
        };
    };
    let (mut depth, mut begin, mut found) = (0_usize, 0, Vec::new());
    for (place, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let part = &inside[begin..place];
                if !part.trim().is_empty() {
                    found.extend(leaves(part));
                }
                begin = place + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Returns the source with blank lines in place of its comments and its tests.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    // `is_test`: whether the line is part of an item for tests. `end`: the line that ends this
    // item.
    let (mut is_test, mut end) = (false, None);
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let shown = match &end {
            Some(last) => {
                if line == last {
                    end = None;
                }
                ""
            }
            None if line.trim_start().starts_with("//") => "",
            None if is_test => {
                is_test = line.trim_start().starts_with("#[");
                if line.ends_with('{') {
                    end = Some(format!("{indent}}}"));
                }
                ""
            }
            None => {
                is_test = line.trim() == "#[cfg(test)]";
                line
            }
        };
        code.push_str(shown);
        code.push('\n');
    }
    code
}

/// Returns the files and folders of modules that exist only in tests, without the ending `.rs`.
fn test_modules(sources: &[(PathBuf, String)]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for (path, text) in sources {
        let folder = match path.file_name().is_some_and(|name| name == "mod.rs") {
            true => path.with_file_name(""),
            false => path.with_extension(""),
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let module = pair[1].strip_suffix(';').and_then(|line| line.split("mod ").nth(1));
            if let ("#[cfg(test)]", Some(module)) = (pair[0], module) {
                found.insert(folder.join(module));
            }
        }
    }
    found
}

/// Returns all sources below a folder.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn an_upward_import_is_detected_in_every_use_syntax() {
    let of = |text: &str| -> Vec<String> {
        let each = imports(text, 2).into_iter();
        each.filter_map(|(line, import)| Some(format!("{line}: {}", mistake("bench", &import)?)))
            .collect()
    };
    let own =
        "use crate::model::{Failure, file::Ends};\nuse crate::bench::Job;\nuse super::job::Job;\n";
    assert_eq!(of(own), [""; 0]);
    let comment = "// crate::runs::Build\n/// [`Build`](crate::runs::Build)\n";
    let test = "#[cfg(test)]\nmod tests {\n    use crate::runs::Build;\n}\n";
    assert_eq!(of(&format!("{comment}{test}")), [""; 0]);
    let expected = "`bench` imports `crate::runs::Build` of the floor `runs` above: move the type down to \
                    `bench`, or this code up to `runs`";
    for (text, line) in [
        ("use crate::runs::Build;", 1),
        ("\nuse crate::{model::Failure, runs::{Build}};", 2),
        ("fn a(b: &crate::runs::Build) {}", 1),
        ("use super::super::runs::Build;", 1),
        ("#[cfg(test)]\nmod tests {\n}\nuse crate::runs::Build;", 4),
        ("#[cfg(test)]\nmod tests;\nuse crate::runs::Build;", 3),
    ] {
        assert_eq!(of(text), [format!("{line}: {expected}")], "{text}");
    }
    assert!(of("use crate::Failure;")[0].contains("names no floor"));
}
