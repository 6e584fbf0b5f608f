//! The scripts of the project.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;
use support::is_installed;

/// Both outlive the program that made them.
#[test]
fn shared_memory_that_a_test_leaves_behind_is_found() {
    for program in ["ipcmk", "ipcrm"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let script = r#"
        . scripts/leftovers.sh
        before=$(machine_state)
        file=$(mktemp /dev/shm/left-XXXXXX)
        segment=$(ipcmk -M 4096 | tr -dc 0-9)
        trap 'rm -f "$file"; ipcrm -m "$segment" 2>/dev/null' EXIT
        new_objects "$before" | grep -xF "shared memory file $file"
        new_objects "$before" | grep -xF "System V segment $segment"
        rm "$file"
        ipcrm -m "$segment"
        new_objects "$before" | grep -F -e "$file" -e "segment $segment" && exit 1
        exit 0
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("shared memory file /dev/shm/left-"), "{output:?}");
    assert!(text.contains("System V segment "), "{output:?}");
}

/// Memory in use belongs to a living process, which may be another program's.
#[test]
fn shared_memory_in_use_is_not_left_behind() {
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let script = r#"
        . scripts/leftovers.sh
        before=$(machine_state)
        export file=$(mktemp /dev/shm/left-XXXXXX)
        coproc python3 -c '
import mmap, os
with open(os.environ["file"], "r+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    print("mapped", flush=True)
    input()'
        trap 'rm -f "$file"; kill $COPROC_PID 2>/dev/null' EXIT
        read -r word <&"${COPROC[0]}" && [ "$word" = mapped ] || exit 2
        new_objects "$before" | grep -F "$file" && exit 1
        exit 0
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
