//! `weir accel status`: its report of connections and of the core's state.

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::{Transfer, accel, with_tcpa};
use serde_json::Value;

/// The connections that send to this port.
fn senders(machine: &TestMachine, port: u16) -> Vec<Value> {
    let status = machine.status();
    let to = format!("127.0.0.1:{port}");
    let flows = status["flows"].as_array().unwrap().clone();
    flows.into_iter().filter(|flow| flow["remote"] == to.as_str()).collect()
}

#[test]
fn status_shows_the_state_of_the_core() {
    let Some(machine) = TestMachine::new() else { return };
    accel(&machine, &["enable", "tcpa", "--all"]);
    let _transfer = Transfer::start(&machine, 5702);
    let flows = senders(&machine, 5702);
    assert_eq!(flows.len(), 2, "{flows:?}");
    for flow in &flows {
        assert!(flow["core"]["floor_percent"].as_f64().unwrap() < 10.0, "{flow}");
        let mode = flow["core"]["mode"].as_str().unwrap();
        assert!(["start-up", "drain", "steady", "pause"].contains(&mode), "{flow}");
    }
    assert!(flows.iter().any(|flow| flow["core"]["rate_mbit_s"].as_f64() > Some(1.0)), "{flows:?}");
    assert!(flows.iter().any(|flow| flow["core"]["before"] == "reno"), "{flows:?}");
    let text = machine.weir(&["accel", "status"]).stdout;
    for word in ["sent again", "path loses", "remembered", "limited by", "127.0.0.1:5702"] {
        assert!(text.contains(word), "{word}: {text}");
    }

    // Connections with the program from before an update are shown, without the figures that only
    // the newer program keeps.
    accel(&machine, &["update"]);
    let flows = senders(&machine, 5702);
    assert_eq!(flows.len(), 2);
    assert!(flows.iter().all(|flow| flow["core"].is_null()), "{flows:?}");
    assert!(machine.weir(&["accel", "status"]).stdout.contains("(earlier one)"));
    accel(&machine, &["disable"]);
    let status = machine.status();
    assert_eq!(status["state"], "off");
    assert_eq!(status["flows"].as_array().unwrap().len(), with_tcpa(&machine));
}
