//! Passes frames of any content through a switch whose rules change each kind of header, and
//! through the parser: a frame that the switch sends unchanged has the fields of its arrival.
#![no_main]

use std::cell::RefCell;

use datapath::{Callees, Datapath, NoTracker, Settings, Sink, extract};
use flow::port_number::PortNumber;
use flow::request::{PacketIn, PortDescription};
use flow::step::PortIndex;
use libfuzzer_sys::fuzz_target;
use pipeline::{BridgePort, Tables, Translator};
use port::Frame;
use text::{PortNames, parse_flow_line};
use units::Time;

const RULES: &[&str] = &[
    "table=0 actions=output:3,resubmit(,1)",
    "table=1,priority=9,tcp actions=mod_tp_dst:7,mod_nw_dst:10.0.0.9,push_vlan:0x8100,output:2",
    "table=1,priority=9,udp6 actions=mod_tp_src:7,set_field:fc00::9->ipv6_src,output:2",
    "table=1,priority=9,sctp actions=mod_tp_src:7,output:2",
    "table=1,priority=9,icmp actions=set_field:3->icmp_type,output:2",
    "table=1,priority=9,icmp6,icmp_type=135 actions=set_field:fe80::9->nd_target,\
     set_field:02:00:00:00:00:55->nd_sll,output:2",
    "table=1,priority=8,ip actions=dec_ttl,mod_nw_src:10.0.0.9,push_mpls:0x8847,output:2",
    "table=1,priority=8,ipv6 actions=dec_ttl,set_field:9->ipv6_label,output:2",
    "table=1,priority=8,arp actions=load:2->NXM_OF_ARP_OP[],load:5->NXM_OF_ARP_SPA[],in_port",
    "table=1,priority=8,mpls actions=set_mpls_label:5,pop_mpls:0x0800,dec_ttl,output:2",
    "table=1,priority=7,dl_vlan=1 actions=mod_vlan_vid:6,mod_vlan_pcp:2,output:2",
    "table=1,priority=1 actions=mod_dl_src:02:00:00:00:00:01,push_mpls:0x8847,push_vlan:0x88a8,\
     output:2",
];

struct Switch {
    tables: Tables,
    datapath: Datapath,
}

#[derive(Default)]
struct Unchanged(Vec<Vec<u8>>);

impl Sink for Unchanged {
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>) {
        if port == PortIndex(3) {
            self.0.extend(frames.iter().map(|frame| frame.bytes().to_vec()));
        }
    }

    fn packet_in(&mut self, _: Option<u16>, _: PacketIn) {}
}

impl Switch {
    fn new() -> Self {
        let mut tables = Tables::new();
        for number in 1..=3_u16 {
            tables.insert_port(BridgePort {
                index: PortIndex(number),
                description: PortDescription {
                    number: PortNumber(number.into()),
                    hardware_address: [2, 0, 0, 0, 0, number as u8],
                    name: format!("p{number}"),
                    config: 0,
                    state: 0,
                    current_speed_kbit: 0,
                    max_speed_kbit: 0,
                },
            });
        }
        for rule in RULES {
            let change = parse_flow_line(rule, &PortNames::none()).expect("a valid rule");
            tables.flow_mod(change, 0).expect("an acceptable rule");
        }
        let mut datapath = Datapath::new(Settings::default());
        datapath.limit_megaflows(10_000);
        Self { tables, datapath }
    }

    fn process(&mut self, bytes: &[u8]) {
        let mut sink = Unchanged::default();
        let mut callees = Callees {
            slow: &mut Translator::new(&self.tables),
            tracker: &mut NoTracker,
            sink: &mut sink,
        };
        // The second frame finds the megaflow of the first frame.
        let mut frames = vec![Frame::from_bytes(bytes, Time::ZERO); 2];
        self.datapath.process(1, &mut frames, Time::ZERO, &mut callees);
        assert_eq!(sink.0, [bytes, bytes]);
        assert_eq!(extract(1, &sink.0[0]), extract(1, bytes));
    }
}

thread_local! {
    static SWITCH: RefCell<Switch> = RefCell::new(Switch::new());
}

fuzz_target!(|bytes: &[u8]| SWITCH.with_borrow_mut(|switch| switch.process(bytes)));
