//! `weir accel memory`.

use crate::support::await_some;
use crate::test_machine::TestMachine;
use crate::test_machine::path::TestPath;

#[test]
fn the_path_memory_of_an_ended_connection_stays_until_it_is_deleted() {
    let Some(machine) = TestMachine::new() else { return };
    let memory = || -> Vec<serde_json::Value> {
        let output = machine.weir(&["accel", "memory", "--json"]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    };
    assert!(memory().is_empty());
    assert_eq!(machine.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let path = TestPath::lay(&machine);
    assert_eq!(path.transfer(5501), "tcpa");
    // The kernel writes the record when it has nothing more to send for the connection.
    await_some("a record", || (!memory().is_empty()).then_some(()));
    let paths = memory();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0]["to"], "10.0.0.0/24");
    let rate = paths[0]["rate_mbit_s"].as_f64().unwrap();
    assert!((2.0..40.0).contains(&rate), "{paths:?}");
    assert!(machine.weir(&["accel", "memory"]).stdout.contains("10.0.0.0/24"));
    // The next connection starts from the record.
    assert_eq!(path.transfer(5502), "tcpa");

    assert_eq!(machine.weir(&["accel", "memory", "--clear"]).code, Some(0));
    assert!(memory().is_empty());
    assert_eq!(machine.weir(&["accel", "disable"]).code, Some(0));
    assert!(memory().is_empty());
}
