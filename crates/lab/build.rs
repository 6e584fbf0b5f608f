//! Writes the list of the faults in labs/faults: their names in alphabetical order, with the texts
//! of their files.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    // Read the variables when the build script runs: the checkout may have moved since the script
    // was compiled.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let folder = here.join("../../labs/faults");
    println!("cargo::rerun-if-changed={}", folder.display());
    let names = fs::read_dir(&folder).map(|entries| {
        let files = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        // Leave out hidden files, such as an editor's lock file.
        let visible = files.filter(|file| !file.starts_with('.'));
        let mut names: Vec<String> =
            visible.filter_map(|file| file.strip_suffix(".toml").map(str::to_owned)).collect();
        names.sort();
        names
    });
    let written = names.and_then(|names| {
        let rows = names.iter().map(|name| {
            format!("    (\"{name}\", include_str!(concat!({FOLDER}, \"{name}.toml\"))),\n")
        });
        fs::write(out.join("faults.rs"), format!("&[\n{}]\n", rows.collect::<String>()))
    });
    if let Err(error) = written {
        println!("cargo::error=the list of {} could not be written: {error}", folder.display());
    }
}

const FOLDER: &str = r#"env!("CARGO_MANIFEST_DIR"), "/../../labs/faults/""#;
