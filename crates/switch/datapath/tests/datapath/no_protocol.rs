//! Packets whose IP protocol or ARP operation is 0: a rewrite does not change their network header.

use super::bridge::Bridge;
use super::frames::frame;

fn sent(actions: &str, packet: &[u8]) -> Vec<u8> {
    let mut bridge = Bridge::new(&[format!("{actions},output:2")]);
    let mut sent = bridge.process(1, &[packet.to_vec()]).sent;
    assert_eq!(sent.len(), 1, "{actions}");
    sent.remove(0).1
}

#[test]
fn an_ip_header_without_a_protocol_stays_as_it_is() {
    let plain = frame("ip,nw_proto=0,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64");
    assert_eq!(plain[23], 0);
    for actions in [
        "ip,actions=set_field:1.2.3.4->ip_src",
        "ip,actions=set_field:1.2.3.4->ip_dst",
        "ip,actions=mod_nw_src:1.2.3.4",
        "ip,actions=load:0x1020304->NXM_OF_IP_DST[]",
        "ip,actions=move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
        "ip,actions=mod_nw_tos:40",
        "ip,actions=mod_nw_ecn:1",
        "ip,actions=mod_nw_ttl:9",
    ] {
        assert_eq!(sent(actions, &plain), plain, "{actions}");
    }
    // The action still changes the Ethernet header.
    let other = sent("ip,actions=mod_dl_dst:02:00:00:00:00:77,mod_nw_dst:1.2.3.4", &plain);
    assert_eq!((&other[..6], &other[14..]), (&[2, 0, 0, 0, 0, 0x77][..], &plain[14..]));
    let with = frame("ip,nw_proto=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64");
    assert_eq!(sent("ip,actions=mod_nw_dst:1.2.3.4", &with)[30..34], [1, 2, 3, 4]);
}

#[test]
fn one_megaflow_serves_packets_with_and_without_a_protocol() {
    let mut bridge = Bridge::new(&["ip,actions=mod_nw_dst:1.2.3.4,output:2"]);
    let packet = |protocol: u8| frame(&format!("ip,nw_proto={protocol},nw_dst=10.0.0.2"));
    let sent = bridge.process(1, &[packet(50), packet(0), packet(51), packet(0)]).sent;
    let last: Vec<_> = sent.iter().map(|(_, bytes)| bytes[33]).collect();
    assert_eq!((last, bridge.datapath.len()), (vec![4, 2, 4, 2], 1));
}

#[test]
fn an_arp_packet_without_an_operation_stays_as_it_is() {
    let plain = frame("arp,arp_op=0,arp_spa=10.0.0.1,arp_tpa=10.0.0.2");
    for actions in [
        "arp,actions=set_field:1.2.3.4->arp_spa",
        "arp,actions=load:0x1020304->NXM_OF_ARP_TPA[]",
        "arp,actions=set_field:02:00:00:00:00:09->arp_sha",
        "arp,actions=set_field:02:00:00:00:00:09->arp_tha",
    ] {
        assert_eq!(sent(actions, &plain), plain, "{actions}");
    }
    // The ARP operation after the rewrite decides, as in Open vSwitch.
    let request = sent("arp,actions=set_field:1->arp_op,set_field:1.2.3.4->arp_spa", &plain);
    assert_eq!((&request[20..22], &request[28..32]), (&[0, 1][..], &[1, 2, 3, 4][..]));
    let reply = frame("arp,arp_op=2,arp_spa=10.0.0.1");
    assert_eq!(sent("arp,actions=set_field:0->arp_op,set_field:1.2.3.4->arp_spa", &reply), reply);
    assert_eq!(sent("arp,actions=set_field:1.2.3.4->arp_spa", &reply)[28..32], [1, 2, 3, 4]);
}
