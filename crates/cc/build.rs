//! Compiles the C cores natively. The cores are in C, because the kernel runs the cores, too.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=core");
    let mut build = cc::Build::new();
    // Trap undefined behaviour in the C cores in every test and fuzz run. The trap needs no runtime
    // library, so dependent crates link as usual.
    let debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    if debug || env::var_os("CARGO_CFG_FUZZING").is_some() {
        for flag in ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"] {
            build.flag_if_supported(flag);
        }
    }
    build
        .file("core/native.c")
        .file("core/caqm_native.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(false)
        .compile("weir_cc_core");
}
