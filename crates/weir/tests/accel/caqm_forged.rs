//! Tagged segments forged by another host: the right addresses and ports are not enough to change a
//! connection.

use crate::test_machine::TestMachine;
use crate::test_machine::forge::{Segment, mac, overheard, port, send};
use crate::test_machine::pair::{Pair, RunningTransfer, await_listener};
use crate::test_machine::transfer::accel;
use serde_json::Value;
use std::time::{Duration, Instant};

const ENABLE: [&str; 8] = [
    "enable",
    "caqm",
    "--all",
    "--trusts-path",
    "--interface",
    "near:eth0",
    "--interface",
    "far:eth0",
];

/// Returns the ports of the transfer, the connection that requested the most bytes.
fn ports(machine: &TestMachine) -> (u16, u16) {
    let status = machine.status();
    let flow = flow(&status, "10.0.0.1:");
    let number = |end: &str| flow[end].as_str().unwrap().rsplit_once(':').unwrap().1.parse::<u16>();
    (number("local").unwrap(), number("remote").unwrap())
}

/// Returns the status of the transfer (not of the control connection) at the end with this address.
fn flow<'a>(status: &'a Value, local: &str) -> &'a Value {
    let flows = status["caqm"]["flows"].as_array().unwrap().iter();
    let mine = flows.filter(|flow| flow["local"].as_str().unwrap().starts_with(local));
    let moved = |flow: &&Value| {
        flow["sent_segments"].as_u64().unwrap() + flow["heard_segments"].as_u64().unwrap()
    };
    mine.max_by_key(moved).unwrap()
}

fn implausible(status: &Value) -> u64 {
    status["caqm"]["totals"]["implausible"].as_u64().unwrap_or_default()
}

/// This path has no port, so each refusal is forged.
#[test]
fn a_forged_tag_outside_the_windows_changes_nothing_and_is_counted() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    accel(&machine, &ENABLE);
    let going = RunningTransfer::start(&machine, 5890, "50M");
    let status = machine.status();
    assert_eq!(implausible(&status), 0, "{status}");
    let (near_port, far_port) = ports(&machine);
    let (mut near, mut far) = (port(&machine, "near"), port(&machine, "far"));
    let (to_near, to_far) = (mac(&machine, "near"), mac(&machine, "far"));
    let mut forged = 0;
    for by in [1_u32 << 31, 1 << 30, 3 << 30] {
        for (sequence, acknowledgement) in [(by, 0), (0, by), (by, by)] {
            let data = overheard(&mut far, near_port, far_port);
            let moved = |segment: Segment| Segment {
                sequence: segment.sequence.wrapping_add(sequence),
                acknowledgement: segment.acknowledgement.wrapping_add(acknowledgement),
                ..segment
            };
            // The forged answers grant the sender fewer bytes, or no bytes. The forged requests
            // show the receiver a refusal, or the largest hint.
            let answers = [0x02ff, 0x0000].map(|info| moved(data.answered()).tagged(to_near, info));
            let requests = [0x0600, 0x05ff].map(|info| {
                let segment = Segment { payload: 100, ..moved(data) };
                segment.tagged(to_far, info)
            });
            for _ in 0..50 {
                send(&mut far, &answers);
                send(&mut near, &requests);
            }
            forged += 50 * 4;
        }
    }
    going.goes_on(&machine);
    let status = machine.status();
    let (sender, receiver) = (flow(&status, "10.0.0.1:"), flow(&status, "10.0.0.2:"));
    assert_eq!(sender["refused_bytes"], 0, "{sender}");
    assert_eq!(receiver["denied_bytes"], 0, "{receiver}");
    // The sender requested every byte that the receiver counts.
    let later = machine.status();
    let asked = flow(&later, "10.0.0.1:")["asked_bytes"].as_u64();
    assert!(receiver["approved_bytes"].as_u64() <= asked, "{receiver} {asked:?}");
    let deadline = Instant::now() + PATIENCE;
    while implausible(&machine.status()) < forged {
        assert!(Instant::now() < deadline, "{}", machine.status()["caqm"]["totals"]);
    }
    let status = machine.status();
    assert_eq!(implausible(&status), forged, "{}", status["caqm"]["totals"]);
    let message = machine.weir(&["accel", "status"]).stdout;
    assert!(message.contains(&format!("{forged} tags had no effect")), "{message}");
}

/// The other end of the connections does not support CAQM, and could not read tagged packets.
#[test]
fn a_forged_tag_before_a_handshake_does_not_enable_caqm() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    accel(&machine, &["enable", "caqm", "--all", "--trusts-path", "--interface", "far:eth0"]);
    let (mut near, to_far) = (port(&machine, "near"), mac(&machine, "far"));
    let weir = env!("CARGO_BIN_EXE_weir");
    let server = ["netns", "exec", "far", weir, "perf", "server", "--port", "5892", "--one-off"];
    let mut server = machine.start("ip", &server);
    await_listener(&machine, "5892");
    let forged = Segment {
        from: ([10, 0, 0, 1], 40_001),
        to: ([10, 0, 0, 2], 5892),
        sequence: 1,
        acknowledgement: 1,
        payload: 0,
    };
    send(&mut near, &[forged.tagged(to_far, 0x0300)]);
    let deadline = Instant::now() + PATIENCE;
    while machine.status()["caqm"]["totals"]["heard_answers"] != 1 {
        assert!(Instant::now() < deadline, "{}", machine.status()["caqm"]["totals"]);
    }
    let mut words = vec!["netns", "exec", "near", weir, "perf", "client", "10.0.0.2"];
    words.extend(["--port", "5892", "--cport", "40001", "--time", "1", "--reverse", "--json"]);
    let output = machine.run("ip", &words);
    assert_eq!(output.code, Some(0), "{}{}", output.stderr, output.stdout);
    server.wait().unwrap();
    let status = machine.status();
    let totals = &status["caqm"]["totals"];
    assert_eq!(totals["negotiated"], 0, "{totals}");
    assert_eq!(totals["sent_segments"], 0, "{totals}");
    assert_eq!(implausible(&status), 1, "{totals}");
}

const PATIENCE: Duration = Duration::from_secs(60);
