//! Parses texts from users of a switch: rules, groups, packets, and requests of ovs-appctl. An
//! accepted rule can be printed and parsed again.
#![no_main]

use flow::request::{FlowCommand, GroupCommand};
use libfuzzer_sys::fuzz_target;
use switch::run::unixctl::Requests;

fuzz_target!(|bytes: &[u8]| {
    let mut requests = Requests::default();
    if requests.receive(bytes).is_ok() {
        while let Ok(Some(_)) = requests.take() {}
    }
    let Ok(rule) = std::str::from_utf8(bytes) else { return };
    let names = text::PortNames::default();
    for command in [FlowCommand::Add, FlowCommand::ModifyStrict, FlowCommand::Delete] {
        if let Ok(change) = text::parse_flow(rule, command, &names) {
            let matching = text::print_match(&change.matching);
            let parsed = text::parse_match(&matching, &names);
            assert!(parsed.is_ok(), "{matching}: {parsed:?}");
            let _ = text::print_actions(&change.actions);
        }
    }
    let _ = text::parse_filter(rule, &names);
    for command in [GroupCommand::Add, GroupCommand::InsertBucket, GroupCommand::Delete] {
        let _ = text::parse_group(rule, command, &names);
    }
    for key in
        [text::parse_packet(rule, &names), text::parse_datapath_key(rule)].into_iter().flatten()
    {
        let _ = text::compose(&key);
    }
});
