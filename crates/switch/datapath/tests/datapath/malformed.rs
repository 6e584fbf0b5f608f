//! Frames that are truncated, or whose contents are random.

use datapath::Packet;
use flow::{WORDS, word};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Time;

use super::bridge::Bridge;
use super::frames::random_frame;

fn rules() -> Vec<String> {
    let rules = [
        "priority=9,tcp actions=mod_tp_dst:7,mod_nw_dst:10.0.0.9,push_vlan:0x8100,output:2",
        "priority=9,udp6 actions=mod_tp_src:7,set_field:fc00::9->ipv6_src,output:2",
        "priority=9,sctp actions=mod_tp_src:7,output:2",
        "priority=9,icmp actions=set_field:3->icmp_type,output:2",
        "priority=9,icmp6,icmp_type=135 actions=set_field:fe80::9->nd_target,\
         set_field:02:00:00:00:00:55->nd_sll,output:2",
        "priority=8,ip actions=dec_ttl,mod_nw_src:10.0.0.9,mod_nw_tos:8,push_mpls:0x8847,output:2",
        "priority=8,ipv6 actions=dec_ttl,set_field:9->ipv6_label,output:2,strip_vlan,output:3",
        "priority=8,arp actions=load:2->NXM_OF_ARP_OP[],\
         move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:5->NXM_OF_ARP_SPA[],in_port",
        "priority=8,mpls actions=set_mpls_label:5,pop_mpls:0x0800,dec_ttl,output:2",
        "priority=7,dl_vlan=1 actions=mod_vlan_vid:6,mod_vlan_pcp:2,output:2",
        "priority=1 actions=mod_dl_src:02:00:00:00:00:01,push_mpls:0x8847,push_vlan:0x88a8,\
         output:2",
    ];
    rules.map(String::from).to_vec()
}

#[test]
fn a_frame_truncated_at_any_byte_causes_no_panic() {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut bridge = Bridge::new(&rules());
    for _ in 0..400 {
        let frame = random_frame(&mut random);
        let cuts: Vec<_> = (0..=frame.len()).map(|end| frame[..end].to_vec()).collect();
        bridge.process(1, &cuts);
    }
}

#[test]
fn randomly_changed_frames_cause_no_panic() {
    let mut random = Pcg64Mcg::seed_from_u64(8);
    let mut bridge = Bridge::new(&rules());
    for _ in 0..5_000 {
        let mut frame = random_frame(&mut random);
        for _ in 0..random.random_range(1..6) {
            // Most of the first bytes are lengths and types.
            let end = frame.len().min(64);
            let at = random.random_range(0..end);
            frame[at] = random.random();
        }
        frame.truncate(random.random_range(0..=frame.len()));
        bridge.process(1, std::slice::from_ref(&frame));
    }
}

#[test]
fn a_field_write_stays_within_the_frame() {
    let mut random = Pcg64Mcg::seed_from_u64(9);
    for _ in 0..50_000 {
        let mut bytes = random_frame(&mut random);
        let end = random.random_range(0..=bytes.len());
        bytes.truncate(end);
        if end > 12 && random.random_range(0..2) == 0 {
            let at = random.random_range(12..end);
            bytes[at] = random.random();
        }
        let mut packet = Packet::arrived(1, port::Frame::from_bytes(&bytes, Time::ZERO));
        for _ in 0..6 {
            match random.random_range(0..8) {
                0 => packet.push_vlan(0x8100, random.random()),
                1 => packet.pop_vlan(),
                2 => packet.push_mpls(0x8847, random.random()),
                3 => packet.pop_mpls([0x8847, 0x0800][random.random_range(0..2)]),
                4 => packet.parse(),
                _ => {
                    let index = random.random_range(word::ETH_SRC..WORDS);
                    packet.write(index, random.random(), random.random());
                }
            }
        }
    }
}
