//! Compiles the cores that are written in C, because the kernel runs them too.

fn main() {
    for file in ["core/contract.h", "core/tcpa.h", "core/native.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .file("core/native.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(false)
        .compile("weir_cc_core");
}
