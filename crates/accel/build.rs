//! Compiles the BPF programs, and the native side of the parity test.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for folder in ["bpf", "tests/parity", CORE] {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    for entry in fs::read_dir("bpf").expect("this crate has a folder bpf") {
        let source = entry.expect("it can be read").path();
        if let Some(name) = source.to_str().and_then(|path| path.strip_suffix(".bpf.c")) {
            let name = name.trim_start_matches("bpf/");
            compile(&source, &out.join(format!("{name}.bpf.o")));
        }
    }
    parity(&out);
}

/// Compiles for kernels of 5.1 or later (`-mcpu=v3`), with types (`-g`): BTF lets the loader find
/// structs in kernels that differ from the build machine's.
fn compile(source: &Path, object: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let headers = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys names its headers");
    // BTF names the source of each line. Without the prefix maps, BTF would contain the build
    // directory.
    let here = env::current_dir().expect("cargo runs this in the crate's folder");
    let map = |from: &OsStr, to: &str| {
        let mut flag = OsString::from("-ffile-prefix-map=");
        flag.push(from);
        flag.push(to);
        flag
    };
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-c"])
        .args([
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-missing-field-initializers",
            "-Werror",
        ])
        .args([map(here.as_os_str(), "=."), map(&headers, "=libbpf")])
        .args(["-D__TARGET_ARCH_x86", "-I", "bpf", "-I", CORE])
        .arg("-isystem")
        .arg(headers)
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang could not compile {} ({status})", source.display()),
        Err(error) => panic!(
            "{} cannot be run ({error}); BPF programs need it: apt-get install clang, or name one with CLANG",
            clang.display()
        ),
    }
}

/// Builds the native side of the parity test, which only the integration tests link. The native
/// side wraps each function of the cores to record every call (see tests/parity/native.c).
fn parity(out: &Path) {
    let debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let mut build = c_compiler::Build::new();
    if debug {
        build.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
    }
    build
        .files(NATIVE)
        .include("bpf")
        .include(CORE)
        .std("c11")
        .warnings(true)
        .cargo_metadata(false)
        .compile("weir_accel_parity");
    for side in NATIVE {
        let text = fs::read_to_string(side).expect("it was compiled");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for entry in words.filter_map(|word| word.strip_prefix("__wrap_")) {
            println!("cargo::rustc-link-arg-tests=-Wl,--wrap={entry}");
        }
    }
    println!("cargo::rustc-link-arg-tests={}/libweir_accel_parity.a", out.display());
}

const CORE: &str = "../cc/core";
const NATIVE: [&str; 3] =
    ["tests/parity/native.c", "tests/parity/caqm_native.c", "tests/parity/window_native.c"];
