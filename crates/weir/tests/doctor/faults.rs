//! Known faults in a namespace, and the verdicts about the faults. On a busy machine the CPU may be
//! the first cause, so the fault must be among the first two causes.

use crate::peer::{PORT, Pair};
use crate::support::{Sandbox, is_installed};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use testing::Attempt;

#[test]
fn a_writer_with_little_data_is_limited_by_the_application() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _pair = Pair::start(&sandbox, "20000,20", "65536,0");
    judged_flow(&sandbox, "application");
}

#[test]
fn a_reader_that_sleeps_is_diagnosed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let pair = Pair::start(&sandbox, "65536,0", "50000,50");
    let diagnosis = judged_flow(&sandbox, "slow-reader");
    let flow = &diagnosis["periods"][0]["flows"][0];
    let processes = flow["processes"].as_str().unwrap();
    let both = [&pair.writer, &pair.reader];
    assert!(both.iter().all(|end| processes.contains(&format!("[{}]", end.pid()))), "{processes}");
}

#[test]
fn a_shaper_of_this_machine_is_diagnosed_as_the_limit() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("tc") {
        return testing::skip(testing::Need::Program("tc"));
    }
    let words = "qdisc add dev lo root tbf rate 40mbit burst 128kb latency 200ms";
    let added = sandbox.inside(|| {
        let ended = Command::new("tc").args(words.split(' ')).output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    });
    if !added.0 {
        return testing::skip_because(testing::Need::Tbf, added.1);
    }
    let _pair = Pair::start(&sandbox, "65536,0", "65536,0");
    judged_flow(&sandbox, "shaper");
}

/// Two clients wait in the accept queue, although the queue has room for many more clients.
#[test]
fn clients_that_a_server_does_not_accept_are_diagnosed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (listener, _clients) = sandbox.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, [(); 2].map(|()| TcpStream::connect(address).unwrap()))
    });
    let diagnosis = judged(&sandbox, &["-t", "2"], "accept-queue");
    let evidence = diagnosis["periods"][0]["machine"].to_string();
    assert!(evidence.contains(&listener.local_addr().unwrap().to_string()), "{evidence}");
}

#[test]
fn an_idle_namespace_has_no_fault() {
    let Some(sandbox) = Sandbox::new() else { return };
    testing::undisturbed(DIAGNOSIS, |_| {
        let (ended, interrupts) =
            testing::with_interrupts(|| sandbox.weir(&["doctor", "--json", "-t", "1"]));
        assert!(ended.status.success(), "{ended:?}");
        let diagnosis: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(diagnosis["periods"][0]["flows"].as_array().unwrap().len(), 0, "{diagnosis}");
        let (kind, cause) = (&diagnosis["verdict"]["kind"], &diagnosis["verdict"]["cause"]);
        if kind == "nothing_wrong" {
            Attempt::Right(())
        } else if cause == "stolen-cpu" || cause == "softirq-core" && interrupts > MANY_INTERRUPTS {
            // Other tests and the hypervisor use the same CPUs, so the namespace may be free of
            // faults.
            Attempt::Invalid(format!("interrupts took {interrupts:.2} of a CPU: {diagnosis}"))
        } else {
            Attempt::Wrong(diagnosis.to_string())
        }
    });
}

fn judged_flow(sandbox: &Sandbox, cause: &str) -> Value {
    let flow = format!("port:{PORT}");
    judged(sandbox, &["--flow", &flow], cause)
}

/// Returns the diagnosis, which must name the cause first or second. On a stalled machine other
/// causes may come first.
fn judged(sandbox: &Sandbox, words: &[&str], cause: &str) -> Value {
    let diagnosis = testing::undisturbed(DIAGNOSIS, |_| {
        let ended = sandbox.weir(&[&["doctor", "--json"], words].concat());
        assert!(ended.status.success(), "{ended:?}");
        let diagnosis: Value = serde_json::from_str(&ended.stdout).unwrap();
        let verdict = &diagnosis["verdict"];
        let mut causes = verdict["causes"].as_array().into_iter().flatten().take(2);
        if verdict["kind"] == "limited" && causes.any(|one| one == cause) {
            return Attempt::Right(diagnosis);
        }
        Attempt::Wrong(format!("{cause}: {diagnosis:#}"))
    });
    diagnosis.unwrap()
}

const DIAGNOSIS: &str = "diagnosis";
/// Half of the share from which the doctor names a core: the program also starts and ends in the
/// measured time.
const MANY_INTERRUPTS: f64 = 0.3;
