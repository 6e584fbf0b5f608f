//! `--open`: established connections change their algorithm and continue.

use crate::world::transfer::{Transfer, accel, algorithms, goes_on, with_tcpa};
use crate::world::{AccelWorld, available};

#[test]
fn open_connections_change_where_asked_and_back() {
    let Some(world) = AccelWorld::new() else { return };
    let _transfer = Transfer::start(&world, 5601);
    let before = algorithms(&world);
    assert!(!before.contains(&"tcpa".to_owned()), "{before:?}");

    accel(&world, &["enable", "tcpa", "--port", "5601"]);
    assert_eq!(algorithms(&world), before, "nobody asked for open ones");
    let told = accel(&world, &["enable", "tcpa", "--port", "5601", "--open"]);
    assert!(told.contains("2 now use it"), "{told}");
    assert_eq!(with_tcpa(&world), 2);
    goes_on(&world);
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    assert!(told.contains("2 now use it"), "{told}");
    assert_eq!(with_tcpa(&world), 4);
    goes_on(&world);

    let file = world.write("leave.toml", "[[rule]]\nport = 5601\nalgorithm = \"none\"\n[[rule]]\n");
    accel(&world, &["policy", &file]);
    assert_eq!(with_tcpa(&world), 4, "nobody asked for open ones");
    let told = accel(&world, &["policy", &file, "--open"]);
    assert!(told.contains("2 use their former algorithm again"), "{told}");
    assert_eq!(with_tcpa(&world), 2);
    let told = accel(&world, &["disable", "--open"]);
    assert!(told.contains("2 use their former algorithm again"), "{told}");
    assert_eq!(algorithms(&world), before);
    assert!(!available().contains("tcpa"));
    goes_on(&world);
}

#[test]
fn connections_that_kept_tcpa_are_found_after_disable() {
    let Some(world) = AccelWorld::new() else { return };
    let _transfer = Transfer::start(&world, 5611);
    accel(&world, &["enable", "tcpa", "--all", "--open"]);
    accel(&world, &["update"]);
    accel(&world, &["disable"]);
    assert_eq!(with_tcpa(&world), 4);
    goes_on(&world);
    // A new installation takes them over.
    let told = accel(&world, &["enable", "tcpa", "--port", "5611", "--open"]);
    assert!(told.contains("2 now use it"), "{told}");
    assert_eq!(with_tcpa(&world), 4);
    accel(&world, &["disable"]);
    let told = accel(&world, &["disable", "--open"]);
    assert!(told.contains("off already"), "{told}");
    assert!(told.contains("4 use their former algorithm again"), "{told}");
    assert_eq!(with_tcpa(&world), 0);
    goes_on(&world);
}

/// Rules apply to the control groups of this machine, and so does `--open`.
#[test]
fn open_connections_of_another_machine_are_left_alone() {
    let Some(world) = AccelWorld::new() else { return };
    let other = world.second();
    let _transfer = Transfer::start(&other, 5621);
    let before = algorithms(&other);
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    assert!(told.contains("0 now use it"), "{told}");
    assert_eq!(algorithms(&other), before);
}

/// All connections of this machine belong to it, in any network namespace.
#[test]
fn open_connections_of_other_namespaces_change_too() {
    let Some(world) = AccelWorld::new() else { return };
    let transfer = "ip link set lo up; $0 perf server --port 5631 --one-off & \
                    until ss -tlnH | grep -q 5631; do sleep 0.01; done; \
                    $0 perf client 127.0.0.1 --port 5631 --time 600 --bitrate 50M & \
                    until [ $(ss -tnH state established | wc -l) = 4 ]; do sleep 0.01; done; \
                    echo ready; read word; ss -tniH state established | grep -o tcpa; kill %1 %2; exit";
    let words = ["--net", "bash", "-c", transfer, env!("CARGO_BIN_EXE_weir")];
    let mut inner = world.start_with_input("unshare", &words);
    let mut line = String::new();
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let mut output = BufReader::new(inner.stdout.take().unwrap());
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended");
    }
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    inner.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    inner.wait().unwrap();
    assert!(told.contains("4 now use it"), "{told}");
    assert_eq!(rest.matches("tcpa").count(), 4, "{rest}");
}

#[test]
fn an_update_reaches_open_connections_where_asked() {
    let Some(world) = AccelWorld::new() else { return };
    let _transfer = Transfer::start(&world, 5621);
    accel(&world, &["enable", "tcpa", "--all", "--open"]);
    let known = || {
        let flows = world.status()["flows"].as_array().unwrap().clone();
        flows.iter().filter(|flow| !flow["core"].is_null()).count()
    };
    assert_eq!(known(), 4);
    accel(&world, &["update"]);
    assert_eq!(known(), 0, "nobody asked for open ones");
    let told = accel(&world, &["update", "--open"]);
    assert!(told.contains("4 now use it"), "{told}");
    assert_eq!((known(), with_tcpa(&world)), (4, 4));
    goes_on(&world);
}
