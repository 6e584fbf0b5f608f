//! Parses the bytes of a database server in pieces of any size, and makes a topology from rows of
//! any content.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ovsdb::database::Database;
use ovsdb::interface::Machine;
use ovsdb::report::{Report, Written};
use ovsdb::session::Session;
use ovsdb::topology::Topology;
use ovsdb::value::Value;
use std::path::Path;

struct NoMachine;

impl Machine for NoMachine {
    fn interface_of_pci(&self, address: &str, _: Option<u32>) -> Option<String> {
        address.starts_with("00").then(|| "eth0".to_owned())
    }

    fn has_dummies_alone(&self) -> bool {
        false
    }

    fn rundir(&self) -> &Path {
        Path::new("/run")
    }
}

fuzz_target!(|input: (Vec<u8>, u8)| {
    let (bytes, cut) = input;
    let mut session = Session::begin(0);
    for (number, part) in bytes.chunks(usize::from(cut) + 1).enumerate() {
        if session.receive(part, number as u64).is_err() {
            break;
        }
    }
    let _ = session.tick(u64::MAX / 2);
    let Ok(json) = serde_json::from_slice(&bytes) else { return };
    if let Ok(value) = Value::parse(&json) {
        assert_eq!(Value::parse(&value.to_json()), Ok(value));
    }
    let mut database = Database::default();
    if database.apply(&json).is_ok() {
        let topology = Topology::of(&database, &NoMachine);
        let mut report = Report::default();
        for bridge in &topology.bridges {
            report.set(("Bridge", bridge.row), "datapath_id", Value::none());
        }
        assert!(Written::default().operations(report, |_, _| true).len() <= topology.bridges.len());
    }
});
