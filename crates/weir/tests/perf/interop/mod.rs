//! `weir perf` with other implementations of iperf3's protocol, in both roles, as their users run
//! them.
//!
//! Every case has a separate network namespace, with a server of one implementation and a client of
//! the other. The test compares the output of both ends afterwards. The matrix is printed
//! (`--nocapture` shows it) and written to `target/tmp/perf_interop_*.md`. `WEIR_INTEROP_ONLY=text`
//! runs the cases whose names contain the text.

mod case;
mod cases;
mod document;
mod matrix;
mod run;
mod sockets;

use matrix::Matrix;
use run::Program;

#[test]
fn weir_and_iperf3_exchange_every_test() {
    let Some(path) = found("iperf3", "WEIR_IPERF3", "apt-get install iperf3") else { return };
    let matrix = Matrix::run(&Program::iperf3(path), &cases::all());
    assert!(matrix.holds(), "see the table above");
}

/// Tests with riperf3, another implementation in Rust.
#[test]
fn weir_and_riperf3_exchange_every_test() {
    let how = "cargo install riperf3-cli --version ^0.8";
    let Some(path) = found("riperf3", "WEIR_RIPERF3", how) else { return };
    let matrix = Matrix::run(&Program::riperf3(path), &cases::all());
    assert!(matrix.holds(), "see the table above");
}

/// Finds the program of that name, or the program that the variable names; `None`, with a note,
/// without either.
fn found(name: &'static str, variable: &str, how: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(path) => Some(path),
        Err(_) if crate::support::is_installed(name) => Some(name.to_owned()),
        Err(_) => {
            testing::skip_because(testing::Need::Program(name), how);
            None
        }
    }
}
