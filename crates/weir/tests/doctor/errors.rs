//! Wrong use has status 2 and says what to do.

use crate::support::Sandbox;
use std::process::Command;

#[test]
fn files_that_are_no_recordings_are_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("other.json", r#"{"name": "\u001b[31mred"}"#);
    sandbox.write("newer.json", r#"{"weir_recording": 99}"#);
    for (file, words) in [
        ("missing.json", "--record"),
        ("other.json", "no recording of"),
        ("newer.json", "use a newer weir"),
    ] {
        let ended = sandbox.weir(&["doctor", file]);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words) && !ended.stderr.contains('\u{1b}'), "{ended:?}");
    }
}

#[test]
fn a_flow_that_is_none_or_does_not_exist() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ended = sandbox.weir(&["doctor", "--flow", "nonsense"]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("pid:NUMBER"), "{}", ended.stderr);
    let ended = sandbox.weir(&["doctor", "--flow", "port:9", "-t", "1"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no TCP connection matches port 9"), "{}", ended.stderr);
}

#[test]
fn a_recording_is_not_observed_again() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ended = sandbox.weir(&["doctor", "seen.json", "--flow", "1"]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}

#[test]
fn a_report_directory_that_holds_something_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("notes.txt", "mine");
    let ended = sandbox.weir(&["doctor", "-t", "1", "--report", "."]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the directory holds something already"), "{}", ended.stderr);
    let ended = sandbox.weir(&["doctor", "-t", "1", "--report", "new/page"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let again = sandbox.weir(&["doctor", "new/page", "--report", "new/page"]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

/// Every command that reads a file refuses a pipe at once, also behind a link or in a directory.
#[test]
fn no_command_waits_for_a_pipe() {
    let Some(sandbox) = Sandbox::new() else { return };
    for name in ["pipe", "pipe.json", "pipe.toml", "run/results.json", "saved/recording.json"] {
        std::fs::create_dir_all(sandbox.path(name).parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(sandbox.path(name)).status().unwrap().success());
    }
    std::os::unix::fs::symlink("pipe.json", sandbox.path("link.json")).unwrap();
    sandbox.write("trace.toml", "trace = \"pipe\"\n");
    for words in [
        &["doctor", "pipe"][..],
        &["doctor", "pipe.json"],
        &["doctor", "link.json"],
        &["doctor", "./run"],
        &["doctor", "saved/recording.json"],
        &["lab", "report", "./run"],
        &["lab", "compare", "./run", "./run"],
        &["lab", "validate", "./pipe.toml"],
        &["lab", "run", "./pipe.toml", "--smoke"],
        &["link", "run", "--trace", "pipe", "--", "true"],
        &["perf", "server", "--users", "pipe", "--rsa-private-key", "pipe"],
        &["gen", "-f", "pipe", "--port", "null"],
        &["switch", "add-flows", "br0", "pipe"],
    ] {
        let ended = sandbox.weir(words);
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{words:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{words:?}: {ended:?}");
    }
    for device in ["/dev/zero", "/dev/tty", "/dev/full"] {
        let ended = sandbox.weir(&["doctor", device]);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stderr.contains("is a device, not a regular file"), "{ended:?}");
    }
}

#[test]
fn a_recording_is_not_written_through_the_link_of_another_user() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(shared) = sandbox.shared_directory("precious") else { return };
    for name in ["link", "way/recording"] {
        let path = format!("{shared}/{name}");
        let ended = sandbox.weir(&["doctor", "-t", "1", "--record", &path]);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stderr.contains("symbolic link of user"), "{ended:?}");
        assert!(ended.stderr.contains("name another with --record"), "{ended:?}");
    }
    assert_eq!(sandbox.read("precious"), "precious");
    assert!(!sandbox.path("recording").exists());
    let ended = sandbox.weir(&["doctor", "-t", "1", "--record", &format!("{shared}/own")]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}
