//! Checks that a core makes the same decisions in the kernel as in the tunnel and the simulator.
//! The kernel's build and the program's build of a core take the same steps; the test compares
//! every decision and every byte of state.
#![allow(clippy::unwrap_used)]

#[path = "parity/caqm.rs"]
mod caqm;
#[path = "parity/kernel.rs"]
mod kernel;
#[path = "parity/sequences.rs"]
mod sequences;
#[path = "parity/step.rs"]
mod step;
#[path = "parity/tcpa.rs"]
mod tcpa;

use accel::AccelError;
use kernel::Kernel;
use rand_pcg::Pcg64Mcg;
use step::{Core, Step};

#[test]
fn tcpa_decides_the_same_in_the_kernel_and_in_the_native_build() {
    let recorded = tcpa::from_worlds();
    let calls: [usize; tcpa::CALLS] = count(&recorded);
    assert!(calls.iter().all(|count| *count > 0), "a kind of call is missing: {calls:?}");
    compare(&recorded, 150_000, tcpa::any_call);
}

#[test]
fn caqm_decides_the_same_in_the_kernel_and_in_the_native_build() {
    let recorded = caqm::from_worlds();
    let calls: [usize; caqm::CALLS] = count(&recorded);
    // The simulated worlds do not make all calls: the worlds have no spurious loss, and a sender
    // with much loss stops sending requests.
    let missing: Vec<_> = (0..caqm::CALLS).filter(|call| calls[*call] == 0).collect();
    let rare = missing.iter().all(|call| [caqm::TIMEOUT, caqm::UNDO].contains(call));
    assert!(rare, "a kind of call is missing: {calls:?}");
    compare(&recorded, 100_000, caqm::any_call);
}

/// The test must call each function that crates/cc exports: a missing function would weaken the
/// comparison.
#[test]
fn every_c_function_of_tcpa_and_caqm_is_compared() {
    for (core, wrapped, compared_otherwise) in [
        (
            include_str!("../../cc/core/native.c"),
            include_str!("parity/native.c"),
            // The size of the state, and the functions that the test compares after each call.
            &["weir_tcpa_size", "weir_tcpa_decide", "weir_tcpa_floor"][..],
        ),
        (
            include_str!("../../cc/core/caqm_native.c"),
            include_str!("parity/caqm_native.c"),
            &["weir_caqm_sizes"],
        ),
    ] {
        let words = |text: &'static str| {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect::<Vec<_>>()
        };
        let wrapped = words(wrapped);
        let exported = words(core).into_iter().filter(|word| word.starts_with("weir_"));
        for entry in exported.filter(|entry| !compared_otherwise.contains(entry)) {
            let wrap = format!("__wrap_{entry}");
            assert!(wrapped.contains(&wrap.as_str()), "tests/parity has no {wrap}");
        }
    }
}

fn count<C: Core, const CALLS: usize>(recorded: &[Step<C>]) -> [usize; CALLS] {
    let mut calls = [0; CALLS];
    recorded.iter().for_each(|step| calls[step.call()] += 1);
    calls
}

fn compare<C: Core>(recorded: &[Step<C>], changed: usize, any: fn(&mut Pcg64Mcg) -> u32) {
    let kernel = match Kernel::load() {
        Ok(kernel) => kernel,
        Err(error @ (AccelError::NotPermitted { .. } | AccelError::NotSupported { .. })) => {
            testing::skip_because(testing::Need::StructOps, error);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    kernel.compare("recorded", recorded);
    kernel.compare("changed", &sequences::changed(recorded, changed));
    kernel.compare("senseless", &sequences::senseless(SENSELESS, any));
    println!(
        "{}: {} recorded steps, {changed} recorded and changed, {SENSELESS} random: the kernel's build decides the same",
        C::NAME,
        recorded.len(),
    );
}

const SENSELESS: usize = 100_000;
