//! `weir accel enable caqm` as a user runs it: two hosts that agree, and tags on the way between them.
#![allow(clippy::unwrap_used)]

mod accel_world;

use accel_world::AccelWorld;
use accel_world::pair::Pair;
use accel_world::transfer::accel;
use serde_json::Value;

const ENABLE: [&str; 7] =
    ["enable", "caqm", "--all", "--interface", "near:eth0", "--interface", "far:eth0"];

fn totals(world: &AccelWorld) -> Value {
    world.status()["caqm"]["totals"].clone()
}

fn count(totals: &Value, name: &str) -> u64 {
    totals[name].as_u64().unwrap()
}

#[test]
fn both_ends_agree_and_every_data_packet_bears_a_tag() {
    let Some(world) = AccelWorld::new() else { return };
    let pair = Pair::lay(&world);
    let said = accel(&world, &[&ENABLE[..], &["--trusts-path"]].concat());
    assert!(said.contains("caqm is on"), "{said}");
    assert_eq!(pair.transfer(5801, &[]), "caqm");
    let totals = totals(&world);
    // The control connection and the transfer, at both ends.
    assert_eq!(count(&totals, "negotiated"), 4, "{totals}");
    assert_eq!(count(&totals, "declined"), 0, "{totals}");
    assert_eq!(totals["sent_segments"], totals["heard_segments"], "{totals}");
    assert_eq!(totals["sent_answers"], totals["heard_answers"], "{totals}");
    // Nothing was cut before the other end: the tag goes through with the super-packets.
    assert!(count(&totals, "sent_segments") > 10 * count(&totals, "sent_packets"), "{totals}");
    assert_eq!(totals["sent_super"], totals["heard_super"], "{totals}");
    accel(&world, &["disable"]);
    assert_eq!(world.pinned(), "");
    assert_ne!(pair.transfer(5802, &[]), "caqm");
}

#[test]
fn a_port_that_does_caqm_is_asked_and_answers() {
    let Some(world) = AccelWorld::new() else { return };
    let link = ["--rate", "200mbit", "--delay", "2ms", "--queue", "caqm:60KB"];
    let pair = Pair::over(&world, &link);
    accel(&world, &[&ENABLE[..], &["--rtt-standard", "4ms"]].concat());
    assert_eq!(pair.transfer(5803, &[]), "caqm");
    let totals = totals(&world);
    println!("{totals}");
    assert_eq!(count(&totals, "negotiated"), 4, "{totals}");
    assert_eq!(count(&totals, "gave_up"), 0, "{totals}");
    assert!(count(&totals, "heard_answers") > 50, "{totals}");
}

#[test]
fn where_no_port_does_it_is_reno_and_without_tags() {
    let Some(world) = AccelWorld::new() else { return };
    let link = ["--rate", "200mbit", "--delay", "2ms", "--queue", "droptail:200KB"];
    let pair = Pair::over(&world, &link);
    accel(&world, &ENABLE);
    pair.transfer(5804, &[]);
    let totals = totals(&world);
    println!("{totals}");
    assert_eq!(count(&totals, "negotiated"), 4, "{totals}");
    assert!(count(&totals, "gave_up") > 0, "{totals}");
    // Some 50 MB went without.
    assert!(count(&totals, "sent_segments") < 100, "{totals}");
}
