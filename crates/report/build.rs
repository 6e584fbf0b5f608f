//! Embeds the page's script and style from the output folder of `npm run build`.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    // Read the variable at run time: the checkout may have moved since this was compiled.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = here.join("../../web/dist");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for name in ["report.js", "report.css", "report.js.hash", "report.css.hash"] {
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
