//! Takes the page's script and style from where `npm run build` puts them.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for name in [
        "report.js",
        "report.css",
        "report.js.hash",
        "report.css.hash",
    ] {
        let from = dist.join(name);
        println!("cargo::rerun-if-changed={}", from.display());
        if let Err(error) = fs::copy(&from, out.join(name)) {
            println!(
                "cargo::error=web/dist/{name} is missing ({error}): run scripts/setup, \
                 or: cd web && npm ci && npm run build"
            );
            return;
        }
    }
}
