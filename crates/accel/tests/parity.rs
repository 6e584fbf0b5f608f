//! The core decides the same in the kernel as in the tunnel and the simulator: both builds take the same
//! steps, and every decision and every byte of state is compared.
#![allow(clippy::unwrap_used)]

#[path = "parity/caqm.rs"]
mod caqm;
#[path = "parity/kernel.rs"]
mod kernel;
#[path = "parity/native.rs"]
mod native;
#[path = "parity/sequences.rs"]
mod sequences;

use accel::AccelError;
use kernel::{BATCH, Kernel};
use native::Step;

#[test]
fn the_kernel_decides_as_the_native_build_does() {
    let recorded = sequences::from_worlds();
    let mut calls = [0_usize; 5];
    recorded.iter().for_each(|step| calls[step.call() as usize] += 1);
    assert!(calls.iter().all(|count| *count > 0), "a kind of call is missing: {calls:?}");

    let kernel = match Kernel::load() {
        Ok(kernel) => kernel,
        Err(error @ (AccelError::NotPermitted { .. } | AccelError::NotSupported { .. })) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(kernel.step_size(), native::size(), "the builds do not agree about the structs");
    let changed = sequences::changed(&recorded, 150_000);
    let senseless = sequences::senseless(100_000);
    for (name, steps) in [("recorded", &recorded), ("changed", &changed), ("senseless", &senseless)]
    {
        compare(&kernel, name, steps);
    }
    println!(
        "{} recorded steps, {} recorded and changed, {} senseless: the kernel's build decides the same",
        recorded.len(),
        changed.len(),
        senseless.len(),
    );
}

#[test]
fn the_kernel_decides_as_the_native_build_does_of_caqm() {
    let recorded = caqm::from_worlds();
    let mut calls = [0_usize; caqm::CALLS];
    recorded.iter().for_each(|step| calls[step.call()] += 1);
    // In these worlds nothing is taken back that was believed lost, and who loses much asks no more.
    let missing: Vec<_> = (0..caqm::CALLS).filter(|call| calls[*call] == 0).collect();
    let rare = missing.iter().all(|call| [TIMEOUT, UNDO].contains(call));
    assert!(rare, "a kind of call is missing: {calls:?}");
    let kernel = match caqm::Kernel::load() {
        Ok(kernel) => kernel,
        Err(error @ (AccelError::NotPermitted { .. } | AccelError::NotSupported { .. })) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let changed = caqm::changed(&recorded, 100_000);
    let senseless = caqm::senseless(100_000);
    for (name, steps) in [("recorded", &recorded), ("changed", &changed), ("senseless", &senseless)]
    {
        for (batch, steps) in steps.chunks(caqm::BATCH).enumerate() {
            for (index, (step, answer)) in steps.iter().zip(kernel.take(steps)).enumerate() {
                let at = batch * caqm::BATCH + index;
                assert_eq!(answer.result(), step.taken().result(), "{name} step {at}: {step:?}");
            }
        }
    }
    println!(
        "caqm: {} recorded steps ({calls:?} of each call), {} recorded and changed, {} senseless: the kernel's build \
         decides the same",
        recorded.len(),
        changed.len(),
        senseless.len(),
    );
}

/// Each function that crates/cc exports must be fed, or the comparison means less than it says.
#[test]
fn no_entry_of_the_core_is_left_out() {
    let exported: Vec<&str> = include_str!("../../cc/core/native.c")
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("weir_tcpa_"))
        .collect();
    let known = ["size", "decide", "init", "on_ack", "on_timeout", "on_idle", "note", "floor"];
    for word in exported {
        let entry = word.trim_start_matches("weir_tcpa_");
        assert!(known.contains(&entry), "bpf/parity.h and tests/parity do not know {word}");
    }
}

#[test]
fn no_entry_of_caqms_core_is_left_out() {
    let exported: Vec<&str> = include_str!("../../cc/core/caqm_native.c")
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("weir_caqm_"))
        .collect();
    let known = [
        "sizes",
        "init",
        "measured",
        "request",
        "answer",
        "on_timeout",
        "on_loss",
        "on_undo",
        "on_idle",
        "owe",
        "tell",
    ];
    for word in exported {
        let entry = word.trim_start_matches("weir_caqm_");
        assert!(known.contains(&entry), "bpf/caqm_parity.h and tests/parity do not know {word}");
    }
}

fn compare(kernel: &Kernel, name: &str, steps: &[Step]) {
    for (batch, steps) in steps.chunks(BATCH).enumerate() {
        for (index, (step, answer)) in steps.iter().zip(kernel.take(steps)).enumerate() {
            let at = batch * BATCH + index;
            assert_eq!(answer.result(), step.taken().result(), "{name} step {at}: {step:?}");
        }
    }
}

/// `enum caqm_call` of bpf/caqm_parity.h.
const TIMEOUT: usize = 4;
const UNDO: usize = 6;
