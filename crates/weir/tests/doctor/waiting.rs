//! Processes that have no connection yet.

use crate::support::{Sandbox, await_some, is_installed};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::Command;
use testing::Attempt;

fn judged(sandbox: &Sandbox, pid: u32) -> Value {
    let ended = sandbox.weir(&["doctor", "--json", "--flow", &format!("pid:{pid}")]);
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn bash(sandbox: &Sandbox, script: &str) -> Option<crate::support::Running> {
    if !is_installed("bash") {
        testing::skip(testing::Need::Program("bash"));
        return None;
    }
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    Some(sandbox.start_command(command))
}

/// Uses a name server that receives queries and sends no answer.
#[test]
fn a_wait_for_a_name_server_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _server = sandbox.inside(|| UdpSocket::bind("127.0.0.1:53").unwrap());
    let query = "exec 3<>/dev/udp/127.0.0.1/53; while :; do echo query >&3; sleep 0.7; done";
    let Some(mut asks) = bash(&sandbox, query) else { return };
    // The process is the test's own program until it has become bash and opened its socket.
    await_some("the query's socket", || {
        let table = sandbox.inside(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
        table.ok()?.contains(" 0100007F:0035 01 ").then_some(())
    });
    let diagnosis = testing::undisturbed("diagnosis of a name service", |_| {
        let diagnosis = judged(&sandbox, asks.pid());
        match diagnosis["verdict"]["cause"] == "name-service" {
            true => Attempt::Right(diagnosis),
            false => Attempt::Wrong(format!("{diagnosis:#}")),
        }
    });
    let diagnosis = diagnosis.unwrap();
    let _ = (asks.child.kill(), asks.child.wait());
    let sentence = diagnosis["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("127.0.0.1") && sentence.contains("bash"), "{sentence}");
}

#[test]
fn idle_and_missing_processes_have_their_own_errors() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(mut idle) = bash(&sandbox, "exec sleep 999") else { return };
    let pid = idle.pid();
    let ended = sandbox.weir(&["doctor", "-t", "1", "--flow", &format!("pid:{pid}")]);
    let _ = (idle.child.kill(), idle.child.wait());
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("has no TCP connection, opens none"), "{}", ended.stderr);
    let ended = sandbox.weir(&["doctor", "-t", "1", "--flow", "pid:4194304"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("there is no process 4194304"), "{}", ended.stderr);
}
