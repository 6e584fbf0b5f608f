//! `weir accel status`: its report of connections and of tcpa's state.

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::{Transfer, accel, goes_on, with_tcpa};
use serde_json::Value;

fn senders(machine: &TestMachine, port: u16) -> Vec<Value> {
    let status = machine.status();
    let to = format!("127.0.0.1:{port}");
    let flows = status["flows"].as_array().unwrap().clone();
    flows.into_iter().filter(|flow| flow["remote"] == to.as_str()).collect()
}

#[test]
fn status_shows_the_state_of_tcpa() {
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

    // Connections from before the update keep the former program. The status shows these
    // connections without the counters that only the newer program has.
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

#[test]
fn status_lists_the_nine_modules_with_increasing_counters() {
    let Some(machine) = TestMachine::new() else { return };
    assert!(machine.weir(&["accel", "status"]).stdout.starts_with("tcpa is off\n"));
    assert_eq!(machine.status()["modules"].as_array().unwrap().len(), 0);
    accel(&machine, &["enable", "tcpa", "--all", "--init-cwnd", "20"]);
    let text = machine.weir(&["accel", "status"]).stdout;
    assert!(text.starts_with("tcpa is on: no open connection uses it\n"), "{text}");
    let transfer = Transfer::start(&machine, 5703);
    goes_on(&machine);
    let text = machine.weir(&["accel", "status"]).stdout;
    assert!(text.starts_with("tcpa is on: 4 connections use it at "), "{text}");
    assert!(!text.contains("packet construction"), "{text}");
    let text = machine.weir(&["accel", "status", "--modules"]).stdout;
    let status = machine.status();
    assert!(
        status["answer"].as_str().unwrap().starts_with("tcpa is on: 4 connections"),
        "{status}"
    );
    assert_eq!(status["caqm"]["answer"], "caqm is off");
    let modules = status["modules"].as_array().unwrap();
    let names: Vec<_> = modules.iter().map(|module| module["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "packet construction",
            "smooth sending",
            "timeout",
            "probe",
            "sack",
            "loss detection",
            "congestion control",
            "retransmission",
            "new data",
        ]
    );
    for name in names {
        assert!(text.contains(name), "{name}: {text}");
    }
    let of = |status: &Value, name: &str, counter: &str| {
        let modules = status["modules"].as_array().unwrap();
        let module = modules.iter().find(|module| module["name"] == name).unwrap();
        module["counters"][counter].as_f64().unwrap()
    };
    assert!(of(&status, "packet construction", "sent_bytes") > 1e6, "{status}");
    assert!(of(&status, "new data", "segments") > 10.0, "{status}");
    assert!(of(&status, "smooth sending", "pacing_mbit_s") > 1.0, "{status}");
    assert_eq!(modules[6]["carried_by"], "core");
    assert_eq!(modules[1]["switches"]["init_cwnd"], "20");
    assert_eq!(modules[2]["switches"]["rto_min"], "200ms");

    // The work of connections still counts after they have ended.
    let before = of(&status, "packet construction", "sent_bytes");
    drop(transfer);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let ended = loop {
        let status = machine.status();
        if status["ended_connections"] == 4 {
            break status;
        }
        assert!(std::time::Instant::now() < deadline, "{status}");
    };
    assert!(of(&ended, "packet construction", "sent_bytes") >= before, "{ended}");
    assert!(machine.weir(&["accel", "status"]).stdout.contains("4 have ended"));
    accel(&machine, &["disable"]);
}
