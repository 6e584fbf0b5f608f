//! Wrong use has exit status 2, and its error tells the user what to do.

use crate::support::Sandbox;

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
fn an_invalid_or_missing_flow_is_reported() {
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
fn a_report_directory_that_is_not_empty_is_refused() {
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

#[test]
fn a_device_file_is_refused_as_a_recording() {
    let Some(sandbox) = Sandbox::new() else { return };
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
