//! Records the source from which the program is built: the commit, whether the files differ from
//! the commit, and the compilers. A run of a lab names these facts. Outside a git checkout
//! `WEIR_COMMIT` names the commit; without `WEIR_COMMIT` the commit is unknown.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = here.join("../..");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let sources = sources(&root);
    for source in &sources {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    if let Ok(commit) = env::var(COMMIT) {
        told(COMMIT, &commit);
    } else if let Some(commit) = checkout(&root) {
        told(COMMIT, &commit);
        let modified =
            git(&root, &[&["status", "--porcelain", "--"], &words(&sources)[..]].concat());
        if let Some(modified) = modified {
            told("WEIR_TREE", if modified.is_empty() { "clean" } else { "modified" });
        }
        watch_commit(&root);
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = env::var(COMMIT).ok().or_else(|| checkout(&root));
    let short = commit.as_deref().and_then(|commit| commit.get(..12));
    told("WEIR_VERSION", &short.map_or_else(|| version.clone(), |c| format!("{version} ({c})")));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    for (name, compiler) in [("WEIR_RUSTC", rustc), ("WEIR_CLANG", clang)] {
        if let Some(version) = output(Command::new(compiler).arg("--version")) {
            told(name, version.lines().next().unwrap_or_default());
        }
    }
}

/// Lists all files that end up in the program, relative to `root`. Tests and documents do not end
/// up in the program.
fn sources(root: &Path) -> Vec<String> {
    let mut sources = SHARED.map(str::to_owned).to_vec();
    for entry in fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        let parts = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        for name in parts.filter_map(|part| part.file_name().into_string().ok()) {
            if !NOT_BUILT.contains(&name.as_str()) {
                let of = entry.file_name();
                sources.push(format!("crates/{}/{name}", of.to_string_lossy()));
            }
        }
    }
    sources.retain(|source| root.join(source).exists());
    sources.sort();
    sources
}

/// Returns the commit of the checkout at `root`; `None` if `root` merely lies inside another
/// checkout.
fn checkout(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(root).ok()? {
        return None;
    }
    git(root, &["rev-parse", "HEAD"])
}

/// Watches the reflog of HEAD, which every commit changes. The index is unsuitable, because `git
/// status` rewrites the index.
fn watch_commit(root: &Path) {
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
        // Watches only existing files: cargo runs this script at each build if a file is missing.
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

fn told(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn words(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    output(Command::new("git").arg("-C").arg(root).args(arguments))
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

const COMMIT: &str = "WEIR_COMMIT";
const SHARED: [&str; 4] = ["Cargo.toml", "Cargo.lock", "labs", "web/src"];
const NOT_BUILT: [&str; 3] = ["tests", "benches", "examples"];
