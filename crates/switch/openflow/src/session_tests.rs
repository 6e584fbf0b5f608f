use flow::Field;
use flow::port_number::PortNumber;
use flow::request::{
    Change, ConnectionFlush, FlowEntry, FlowFilter, FlowMod, Flows, Fragments, GroupEntry,
    GroupMod, GroupStatistics, MeterEntry, MeterMod, MeterStatistics, PacketIn, PacketInReason,
    PacketOut, PortDescription, PortMod, PortStatistics, Resumption, TableConfig, TableEntry,
    TableMod, TableStatus, VacancyChange,
};

use super::*;
use crate::bundle::Waiting;
use crate::packet::encode_packet_in;
use crate::{FlowRemovedReason, PortStatus};

/// A bridge that accepts all requests and stores nothing.
#[derive(Debug, Default)]
struct Empty {
    changes: Vec<FlowMod>,
    generation: Option<u64>,
    fragments: Fragments,
    ports: Vec<PortDescription>,
}

impl Bridge for Empty {
    fn resume(&mut self, _: Resumption) -> Result<(), Refusal> {
        Ok(())
    }

    fn fragments(&self) -> Fragments {
        self.fragments
    }

    fn set_fragments(&mut self, fragments: Fragments) {
        self.fragments = fragments;
    }

    fn generation(&mut self) -> &mut Option<u64> {
        &mut self.generation
    }

    fn datapath_id(&self) -> u64 {
        1
    }
    fn description(&self) -> String {
        "empty".into()
    }
    fn flow_mod(&mut self, change: FlowMod) -> Result<(), Refusal> {
        self.changes.push(change);
        Ok(())
    }
    fn commit(&mut self, changes: Vec<Change>) -> Result<(), (usize, Refusal)> {
        for change in changes {
            if let Change::Flow(change) = change {
                self.changes.push(change);
            }
        }
        Ok(())
    }
    fn watch(&mut self) {}
    fn flows(&self, _: &FlowFilter) -> Result<Flows, Refusal> {
        Ok(Vec::new().into())
    }
    fn changes(&self, _: &FlowFilter, _: u64) -> Result<Flows, Refusal> {
        Ok(Vec::new().into())
    }
    fn has_flow(&self, _: &FlowEntry) -> bool {
        false
    }
    fn table_numbers(&self) -> Vec<u8> {
        Vec::new()
    }
    fn table(&self, _: u8) -> Option<TableEntry> {
        None
    }
    fn table_mod(&mut self, _: &TableMod) -> Result<(), Refusal> {
        Ok(())
    }
    fn name_table(&mut self, _: u8, _: &str) -> Result<(), Refusal> {
        Ok(())
    }
    fn port_numbers(&self) -> Vec<PortNumber> {
        self.ports.iter().map(|port| port.number).collect()
    }
    fn port(&self, number: PortNumber) -> Option<PortDescription> {
        self.ports.iter().find(|port| port.number == number).cloned()
    }
    fn port_statistics(&self, _: PortNumber) -> Option<PortStatistics> {
        None
    }
    fn port_mod(&mut self, _: &PortMod) -> Result<(), Refusal> {
        Ok(())
    }
    fn group_mod(&mut self, _: GroupMod) -> Result<(), Refusal> {
        Ok(())
    }
    fn group_numbers(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }
    fn group(&self, _: u32) -> Option<GroupEntry> {
        None
    }
    fn group_statistics(&self, _: u32) -> Option<GroupStatistics> {
        None
    }
    fn meter_mod(&mut self, _: MeterMod) -> Result<(), Refusal> {
        Ok(())
    }
    fn meter_numbers(&self, _: u32) -> Result<Vec<u32>, Refusal> {
        Ok(Vec::new())
    }
    fn meter(&self, _: u32) -> Option<MeterEntry> {
        None
    }
    fn meter_statistics(&self, _: u32) -> Option<MeterStatistics> {
        None
    }
    fn flush_connections(&mut self, _: &ConnectionFlush) {}
    fn packet_out(&mut self, _: PacketOut) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Builds a hello of a version, without a bitmap, and then echo requests of growing length.
fn conversation(version: Version) -> Vec<u8> {
    let mut bytes = vec![version.number(), 0, 0, 8, 0, 0, 0, 1];
    for length in [0_u16, 1, 7, 100, 3000] {
        bytes.extend([version.number(), 2]);
        bytes.extend((8 + length).to_be_bytes());
        bytes.extend([0, 0, 0, 9]);
        bytes.resize(bytes.len() + usize::from(length), 0x55);
    }
    bytes
}

#[test]
fn openflow_replies_are_the_same_at_any_split_of_the_stream() {
    let bytes = conversation(Version::V13);
    let mut whole = Vec::new();
    Session::new(Kind::Service).receive(&bytes, &mut Empty::default(), &mut whole).unwrap();
    for size in [1, 2, 7, 8, 9, 100, 1000] {
        let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
        for piece in bytes.chunks(size) {
            session.receive(piece, &mut Empty::default(), &mut out).unwrap();
            assert!(session.partial.len() < 1 << 16);
        }
        assert_eq!(out, whole, "pieces of {size} bytes");
    }
}

#[test]
fn the_session_uses_the_highest_common_version() {
    for version in Version::ALL {
        let mut session = Session::new(Kind::Service);
        let mut out = Vec::new();
        session.receive(&conversation(version)[..8], &mut Empty::default(), &mut out).unwrap();
        assert_eq!(session.version(), Some(version));
    }
    // The hello's header has version 1.5, and its bitmap has versions 1.0 and 1.3.
    let hello = [6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x12];
    let mut session = Session::new(Kind::Service);
    session.receive(&hello, &mut Empty::default(), &mut Vec::new()).unwrap();
    assert_eq!(session.version(), Some(Version::V13));
    // A hello with only an unknown version ends the session with an error.
    let hello = [8, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 1, 0];
    let mut out = Vec::new();
    let result = Session::new(Kind::Service).receive(&hello, &mut Empty::default(), &mut out);
    assert_eq!(result, Err(ProtocolError::NoCommonVersion));
    assert_eq!(out[1], 1);
}

#[test]
fn a_stream_without_a_hello_at_its_start_is_closed() {
    let mut out = Vec::new();
    let echo = [4, 2, 0, 8, 0, 0, 0, 1];
    let result = Session::new(Kind::Service).receive(&echo, &mut Empty::default(), &mut out);
    assert_eq!(result, Err(ProtocolError::NoHello));
    let short = [4, 0, 0, 7, 0, 0, 0, 1];
    let result = Session::new(Kind::Service).receive(&short, &mut Empty::default(), &mut out);
    assert_eq!(result, Err(ProtocolError::ShortMessage(7)));
}

/// Opens a session in `version`, sends `messages`, and returns the reply bytes.
fn answers(version: Version, messages: &[&[u8]]) -> Vec<u8> {
    let mut session = Session::new(Kind::Service);
    let mut bridge = Empty::default();
    session.receive(&conversation(version)[..8], &mut bridge, &mut Vec::new()).unwrap();
    let mut out = Vec::new();
    for message in messages {
        session.receive(message, &mut bridge, &mut out).unwrap();
    }
    out
}

#[test]
fn an_error_has_the_whole_request_in_its_version() {
    let mut request = vec![2, 5, 0, 200, 0, 0, 0, 7];
    request.resize(200, 0x11);
    let out = answers(Version::V10, &[&request]);
    // The reply begins with the error OFPET_BAD_REQUEST, OFPBRC_BAD_VERSION.
    assert_eq!(out[..12], [2, 1, 0, 212, 0, 0, 0, 7, 0, 1, 0, 0]);
    assert_eq!(out[12..], request);
}

#[test]
fn a_features_reply_has_the_ports_that_fit() {
    let port = |number| PortDescription {
        number: PortNumber(number),
        hardware_address: [0; 6],
        name: format!("p{number}"),
        config: 0,
        state: 0,
        current_speed_kbit: 0,
        max_speed_kbit: 0,
    };
    let mut bridge = Empty { ports: (1..2000).map(port).collect(), ..Empty::default() };
    for (version, size) in [(Version::V10, 48), (Version::V12, 64)] {
        let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
        session.receive(&conversation(version)[..8], &mut bridge, &mut out).unwrap();
        out.clear();
        let request = [version.number(), 5, 0, 8, 0, 0, 0, 1];
        session.receive(&request, &mut bridge, &mut out).unwrap();
        assert_eq!(usize::from(u16::from_be_bytes([out[2], out[3]])), out.len(), "{version}");
        assert_eq!((out.len() - 32) / size, (0xffff - 32) / size);
    }
}

#[test]
fn a_port_mod_gives_its_sender_a_port_status_only_in_openflow_1_5() {
    let port = |config, state| PortDescription {
        number: PortNumber(1),
        hardware_address: [0; 6],
        name: "p1".into(),
        config,
        state,
        current_speed_kbit: 0,
        max_speed_kbit: 0,
    };
    let statuses = PortStatus::of_modified(&port(0, 4), &port(1, 1));
    for (version, own) in [(Version::V10, 1), (Version::V14, 1), (Version::V15, 2)] {
        for (is_own, expected) in [(true, own), (false, 2)] {
            let mut session = Session::new(Kind::Controller);
            let hello = &conversation(version)[..8];
            session.receive(hello, &mut Empty::default(), &mut Vec::new()).unwrap();
            let told = statuses.iter().filter(|status| {
                let mut out = Vec::new();
                session.port_status(status, is_own, &mut out);
                !out.is_empty()
            });
            assert_eq!(told.count(), expected, "{version}, {is_own}");
        }
    }
}

#[test]
fn vacancy_events_need_openflow_1_4_and_a_request() {
    let (change, config) = (VacancyChange::Up, TableConfig::default());
    let status = TableStatus { change, table: 1, config, vacancy: 90 };
    for (version, is_told) in [(Version::V13, false), (Version::V14, true)] {
        let (mut session, mut out) = (Session::new(Kind::Controller), Vec::new());
        let hello = &conversation(version)[..8];
        session.receive(hello, &mut Empty::default(), &mut Vec::new()).unwrap();
        session.table_status(&status, &mut out);
        assert!(out.is_empty(), "nobody asked");
        // This Nicira request asks for events as master: vacancies that fall or rise.
        let mut ask = vec![version.number(), 4, 0, 24, 0, 0, 0, 1];
        ask.extend(NICIRA.to_be_bytes());
        ask.extend([0, 0, 0, 27, 0, 9, 0, 8, 0, 0, 0, 0x18]);
        session.receive(&ask, &mut Empty::default(), &mut Vec::new()).unwrap();
        session.table_status(&status, &mut out);
        assert_eq!(!out.is_empty(), is_told, "{version}");
    }
}

#[test]
fn openflow_1_4_has_a_reason_for_rules_removed_with_their_meter() {
    let flow = FlowEntry {
        table: 0,
        priority: 0,
        cookie: 0,
        matching: flow::Match::any(),
        actions: Vec::new(),
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: flow::request::FlowFlags::default(),
        duration: std::time::Duration::ZERO,
        idle_age: std::time::Duration::ZERO,
        hard_age: std::time::Duration::ZERO,
        packets: 0,
        bytes: 0,
        added: 1,
        changed: 1,
    };
    for (version, reason) in [(Version::V13, 2), (Version::V14, 4)] {
        let (mut session, mut out) = (Session::new(Kind::Controller), Vec::new());
        let hello = &conversation(version)[..8];
        session.receive(hello, &mut Empty::default(), &mut Vec::new()).unwrap();
        session.flow_removed(&flow, FlowRemovedReason::MeterDelete, &mut out);
        assert_eq!((out[1], out[18]), (11, reason), "{version}");
    }
}

#[test]
fn a_new_connection_gets_the_events_of_its_version() {
    let request = |version: Version| [version.number(), 26, 0, 8, 0, 0, 0, 1];
    let out = answers(Version::V13, &[&request(Version::V13)]);
    let words: Vec<_> = out[8..].chunks(4).map(|word| word[3]).collect();
    assert_eq!(words, [0x03, 0, 7, 7, 0x0f, 0]);
    let out = answers(Version::V14, &[&request(Version::V14)]);
    let words: Vec<_> = out[8..].chunks(8).map(|property| (property[1], property[7])).collect();
    assert_eq!(words[..6], [(1, 0x3b), (0, 0), (3, 7), (2, 7), (5, 0x3f), (4, 0)]);
    assert_eq!(words.len(), 12);
}

#[test]
fn group_mods_are_forwarded_to_peers_that_enabled_request_forward() {
    let mut bridge = Empty::default();
    let mut maker = Session::new(Kind::Service);
    let hello = &conversation(Version::V14)[..8];
    maker.receive(hello, &mut bridge, &mut Vec::new()).unwrap();
    let add = [5, 15, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1];
    maker.receive(&add, &mut bridge, &mut Vec::new()).unwrap();
    let forwards = maker.take_forwards();
    assert_eq!(forwards.len(), 1);
    for (version, head) in [(Version::V14, 8), (Version::V13, 16), (Version::V12, 16)] {
        let mut other = Session::new(Kind::Service);
        let hello = &conversation(version)[..8];
        other.receive(hello, &mut bridge, &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        other.forward(&forwards[0], &mut out);
        assert!(out.is_empty(), "nobody asked");
        // This Nicira request asks for events as master: forwarded requests for groups and meters.
        let mut ask = vec![version.number(), 4, 0, 24, 0, 0, 0, 1];
        ask.extend(NICIRA.to_be_bytes());
        ask.extend([0, 0, 0, 27, 0, 11, 0, 8, 0, 0, 0, 3]);
        other.receive(&ask, &mut bridge, &mut Vec::new()).unwrap();
        other.forward(&forwards[0], &mut out);
        let mut expected = add;
        expected[0] = version.number();
        assert_eq!(out[head..], expected, "{version}");
    }
}

/// Builds a control message for a bundle in OpenFlow 1.4.
fn control(id: u8, kind: u8) -> Vec<u8> {
    vec![5, 33, 0, 16, 0, 0, 0, 1, 0, 0, 0, id, 0, kind, 0, 3]
}

/// Builds a message that adds a rule to a bundle in OpenFlow 1.4.
fn addition(id: u8, table: u8) -> Vec<u8> {
    let mut bytes = vec![5, 34, 0, 72, 0, 0, 0, 1, 0, 0, 0, id, 0, 0, 0, 3];
    bytes.extend([5, 14, 0, 56, 0, 0, 0, 1]);
    bytes.extend([0; 16]);
    bytes.extend([table, 0, 0, 0, 0, 0, 0x80, 0]);
    bytes.extend([0xff; 12]);
    bytes.extend([0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
    bytes
}

/// Opens a session of OpenFlow 1.4 whose bundles use `memory`.
fn with_memory(memory: &Arc<BundleMemory>) -> Session {
    let mut session = Session::sharing(Kind::Service, &Version::ALL, memory.clone());
    let hello = &conversation(Version::V14)[..8];
    session.receive(hello, &mut Empty::default(), &mut Vec::new()).unwrap();
    session
}

/// Sends a message. Returns OpenFlow's code of the bundle failure that the message causes, if any.
fn failure(session: &mut Session, bridge: &mut Empty, message: &[u8]) -> Option<u8> {
    let mut out = Vec::new();
    session.receive(message, bridge, &mut out).unwrap();
    let is_error = out.get(1) == Some(&1);
    assert!(!is_error || out[8..10] == [0, 17], "another error: {:?}", &out[8..12]);
    is_error.then(|| out[11])
}

const BAD_ID: Option<u8> = Some(2);
const OUT_OF_BUNDLES: Option<u8> = Some(5);
const TOO_MANY: Option<u8> = Some(12);

#[test]
fn a_bundle_that_is_opened_twice_is_dropped() {
    let mut bridge = Empty::default();
    let mut session = with_memory(&Arc::default());
    assert_eq!(failure(&mut session, &mut bridge, &control(1, 0)), None);
    assert_eq!(failure(&mut session, &mut bridge, &control(1, 0)), BAD_ID);
    assert_eq!(failure(&mut session, &mut bridge, &control(1, 4)), BAD_ID);
}

#[test]
fn a_connection_can_open_a_limited_number_of_bundles() {
    let mut bridge = Empty::default();
    let mut session = with_memory(&Arc::default());
    let most = super::super::bundle::MAX_BUNDLES as u8;
    for id in 0..most {
        assert_eq!(failure(&mut session, &mut bridge, &control(id, 0)), None);
    }
    assert_eq!(failure(&mut session, &mut bridge, &control(most, 0)), OUT_OF_BUNDLES);
    // After the end of a bundle, another bundle can be opened.
    assert_eq!(failure(&mut session, &mut bridge, &control(0, 6)), None);
    assert_eq!(failure(&mut session, &mut bridge, &control(most, 0)), None);
}

#[test]
fn a_bundle_has_limits_of_messages_and_bytes() {
    for (messages, bytes) in [(3, usize::MAX), (usize::MAX, 8 << 10)] {
        let mut bridge = Empty::default();
        let mut session = with_memory(&Arc::default());
        session.bundles.limits = super::super::bundle::Limits { messages, bytes };
        let mut add = |bridge: &mut _| failure(&mut session, bridge, &addition(1, 0));
        let added = (0..100).find(|_| add(&mut bridge).is_some()).unwrap();
        assert!((2..100).contains(&added), "{added} messages");
        // All later messages of the overfull bundle are refused, because a part of the bundle must
        // not be committed.
        assert_eq!(add(&mut bridge), TOO_MANY);
        assert_eq!(failure(&mut session, &mut bridge, &control(1, 4)), TOO_MANY);
        assert!(bridge.changes.is_empty());
        assert_eq!(failure(&mut session, &mut bridge, &addition(1, 0)), None);
        assert_eq!(failure(&mut session, &mut bridge, &control(1, 4)), None);
        assert_eq!(bridge.changes.len(), 1);
    }
}

#[test]
fn connections_share_the_memory_of_bundles_and_return_it() {
    let mut bridge = Empty::default();
    let memory = Arc::new(BundleMemory::new(64 << 10));
    let mut greedy = with_memory(&memory);
    while failure(&mut greedy, &mut bridge, &addition(1, 0)).is_none() {}
    // The refused bundle has returned its memory.
    let mut fill = |session: &mut Session| {
        (0..1000).find(|_| failure(session, &mut bridge, &addition(2, 0)).is_some()).unwrap()
    };
    let most = fill(&mut greedy);
    assert!(most > 10, "{most} messages");
    let mut half = with_memory(&memory);
    for _ in 0..most / 2 {
        let out = &mut Vec::new();
        half.receive(&addition(1, 0), &mut Empty::default(), out).unwrap();
        assert!(out.is_empty());
    }
    let mut other = with_memory(&memory);
    assert!(fill(&mut other) <= most - most / 2);
    drop(half);
    assert_eq!(fill(&mut with_memory(&memory)), most);
}

#[test]
fn a_bundle_of_262_144_rules_fits() {
    let text = "table=1,priority=10,tcp,nw_dst=48.0.0.1,tp_dst=80 actions=load:1->NXM_NX_REG0[],\
        ct(commit,zone=1,table=2,nat(dst=10.0.0.1-10.0.0.9:1000-2000),exec(load:1->NXM_NX_CT_MARK[])),\
        mod_dl_dst:02:00:00:00:00:01,dec_ttl,output:2";
    let names = text::PortNames::none();
    let change = text::parse_flow(text, flow::request::FlowCommand::Add, &names).unwrap();
    let held = super::super::footprint::footprint(&Change::Flow(change));
    let message = size_of::<Waiting>() + 300 + held;
    let most = super::super::bundle::MOST_BYTES / message;
    assert!(most > 262_144 * 5 / 4, "{most} rules of {message} bytes");
}

#[test]
fn a_rule_of_the_reserved_table_is_refused_when_it_is_added_to_a_bundle() {
    let mut session = with_memory(&Arc::default());
    let mut out = Vec::new();
    session.receive(&addition(1, 254), &mut Empty::default(), &mut out).unwrap();
    // The expected error is OFPBRC_EPERM.
    assert_eq!((out[1], &out[8..12]), (1, &[0, 1, 0, 5][..]));
}

#[test]
fn openflow_1_0_packet_ins_have_the_reason_invalid_ttl_on_request() {
    let mut session = Session::new(Kind::Service);
    let hello = &conversation(Version::V10)[..8];
    session.receive(hello, &mut Empty::default(), &mut Vec::new()).unwrap();
    let packet = PacketIn {
        frame: vec![0; 60],
        total_len: 60,
        reason: PacketInReason::InvalidTtl,
        table: 0,
        cookie: 0,
        controller: 0,
        metadata: flow::Key::ZERO,
        userdata: Vec::new(),
        continuation: None,
    };
    for (flags, reason) in [(0, None), (4, Some(2))] {
        let config = [1, 9, 0, 12, 0, 0, 0, 1, 0, flags, 0, 128];
        session.receive(&config, &mut Empty::default(), &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        session.packet_in(&packet, &mut out);
        assert_eq!(out.get(16).copied(), reason, "flags {flags}");
    }
}

#[test]
fn nicira_packet_ins_have_the_reasons_of_their_version() {
    let mut metadata = flow::Key::ZERO;
    metadata.write(Field::EthType, 0x0800);
    metadata.write(Field::CtNwProto, 17);
    metadata.write(Field::CtState, 0x30);
    let mut packet = PacketIn {
        frame: vec![0; 60],
        total_len: 60,
        reason: PacketInReason::PacketOut,
        table: 0,
        cookie: 0,
        controller: 0,
        metadata,
        userdata: Vec::new(),
        continuation: None,
    };
    let encoded = |packet: &PacketIn, version| {
        let mut out = Vec::new();
        let format = PacketInFormat::Nicira2;
        encode_packet_in(packet, version, format, &mut out);
        out
    };
    let has = |out: &[u8], part: &[u8]| out.windows(part.len()).any(|window| window == part);
    assert!(has(&encoded(&packet, Version::V10), &[0, 5, 0, 5, 1]));
    assert!(has(&encoded(&packet, Version::V14), &[0, 5, 0, 5, 5]));
    // The entry NXM_NX_CT_NW_PROTO is missing, because an invalid packet has no original tuple.
    let protocol = [0, 1, 119 << 1, 1, 17];
    assert!(!has(&encoded(&packet, Version::V10), &protocol));
    packet.metadata.write(Field::CtState, 0x21);
    assert!(has(&encoded(&packet, Version::V10), &protocol));
}

#[test]
fn openflow_1_5_packet_outs_may_have_the_packet_type_ethernet_only() {
    let packet = |kind: u8| {
        let mut bytes = vec![6, 13, 0, 46, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        bytes.extend([0, 1, 0, 20, 0x80, 0, 0, 4, 0xff, 0xff, 0xff, 0xfd]);
        bytes.extend([0x80, 0, 88, 4, 0, kind, 8 * kind, 0, 0, 0, 0, 0]);
        bytes.resize(46, 0);
        bytes
    };
    assert_eq!(answers(Version::V15, &[&packet(0)]), [] as [u8; 0]);
    // The expected error is OFPBMC_BAD_VALUE: the bridge has only packets with an Ethernet header.
    assert_eq!(answers(Version::V15, &[&packet(1)])[8..12], [0, 4, 0, 7]);
}

#[test]
fn a_selection_method_is_accepted_under_both_experimenter_numbers() {
    for experimenter in [0x4d, 0x40] {
        let mut add = vec![6, 15, 0, 64, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        add.extend([0xff; 4]);
        add.extend([0xff, 0xff, 0, 40, 0, 0, 0x15, experimenter, 0, 0, 0, 1, 0, 0, 0, 0]);
        add.extend(*b"hash\0\0\0\0\0\0\0\0\0\0\0\0");
        add.extend([0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(answers(Version::V15, &[&add]), [] as [u8; 0]);
    }
}

#[test]
fn messages_of_every_type_and_length_cause_no_panic() {
    for version in Version::ALL {
        let mut session = Session::new(Kind::Service);
        let mut out = Vec::new();
        let mut bridge = Empty::default();
        session.receive(&conversation(version)[..8], &mut bridge, &mut out).unwrap();
        for fill in [0_u8, 1, 0xff] {
            for kind in 0..=40 {
                for length in 8..160_u16 {
                    let mut message = vec![version.number(), kind];
                    message.extend(length.to_be_bytes());
                    message.resize(length.into(), fill);
                    session.receive(&message, &mut bridge, &mut out).unwrap();
                    out.clear();
                }
            }
            // Sends multipart requests and Nicira messages of every number.
            for number in 0..40_u16 {
                for length in 16..120_u16 {
                    for head in
                        [[4, 0, 0], [16, 0xff, 0xff], [18, 0xff, 0xff], [18, 0, 0], [16, 0, 0]]
                    {
                        let mut message = vec![version.number(), head[0]];
                        message.extend(length.to_be_bytes());
                        message.extend([0, 0, 0, 1]);
                        match head[0] {
                            4 => {
                                message.extend(NICIRA.to_be_bytes());
                                message.extend(u32::from(number).to_be_bytes());
                            }
                            _ => {
                                message.extend(number.to_be_bytes());
                                message.extend([0; 6]);
                            }
                        }
                        message.resize(length.into(), fill);
                        session.receive(&message, &mut bridge, &mut out).unwrap();
                        out.clear();
                    }
                }
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_message_bodies_cause_no_panic(version in 0..4_usize, kind in 0..40_u8, body in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let version = Version::ALL[version];
        let mut bytes = vec![version.number(), 0, 0, 8, 0, 0, 0, 1, version.number(), kind];
        bytes.extend((8 + body.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 2]);
        bytes.extend(body);
        let mut session = Session::new(Kind::Service);
        let _ = session.receive(&bytes, &mut Empty::default(), &mut Vec::new());
    }
}
