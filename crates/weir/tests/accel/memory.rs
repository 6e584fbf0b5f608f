//! `weir accel memory` and `unit`.

use crate::world::AccelWorld;
use crate::world::path::Path;

#[test]
fn an_ended_connection_is_remembered_until_it_is_forgotten() {
    let Some(world) = AccelWorld::new() else { return };
    let memory = || -> Vec<serde_json::Value> {
        let said = world.weir(&["accel", "memory", "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        serde_json::from_str(&said.stdout).unwrap()
    };
    assert!(memory().is_empty());
    assert_eq!(world.weir(&["accel", "enable", "tcpa", "--all"]).code, Some(0));
    let path = Path::lay(&world);
    assert_eq!(path.transfer(5501), "tcpa");
    let paths = memory();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0]["to"], "10.0.0.0/24");
    let rate = paths[0]["rate_mbit_s"].as_f64().unwrap();
    assert!((2.0..40.0).contains(&rate), "{paths:?}");
    assert!(world.weir(&["accel", "memory"]).stdout.contains("10.0.0.0/24"));
    // The next connection starts from the record.
    assert_eq!(path.transfer(5502), "tcpa");

    assert_eq!(world.weir(&["accel", "memory", "--clear"]).code, Some(0));
    assert!(memory().is_empty());
    assert_eq!(world.weir(&["accel", "disable"]).code, Some(0));
    assert!(memory().is_empty());
}

#[test]
fn a_unit_names_the_command_and_the_file() {
    let Some(world) = AccelWorld::new() else { return };
    let said = world.weir(&["accel", "unit", "/etc/some/policy.toml"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let start =
        format!("ExecStart={} accel policy /etc/some/policy.toml", env!("CARGO_BIN_EXE_weir"));
    assert!(said.stdout.contains(&start), "{}", said.stdout);
}
