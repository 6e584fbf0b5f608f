//! Actions that push and pop MPLS entries.

use super::bridge::Bridge;
use super::frames::frame;

/// Builds a frame with an IP packet below MPLS entries. Each entry is a label and a TTL, the
/// outermost first.
fn under(entries: &[(u32, u8)], packet: &str) -> Vec<u8> {
    let mut frame = frame(packet);
    let rest = frame.split_off(14);
    frame[12..14].copy_from_slice(&[0x88, 0x47]);
    for (at, (label, ttl)) in entries.iter().enumerate() {
        let bottom = u32::from(at + 1 == entries.len()) << 8;
        frame.extend((label << 12 | bottom | u32::from(*ttl)).to_be_bytes());
    }
    frame.extend(rest);
    frame
}

/// Returns the Ethernet type of the frame that `actions` send, and its MPLS entries as label and
/// TTL.
fn sent(actions: &str, packet: &[u8]) -> (u16, Vec<(u32, u8)>) {
    let mut bridge = Bridge::new(&[format!("actions={actions},output:2")]);
    let sent = bridge.process(1, &[packet.to_vec()]).sent;
    let [(2, bytes)] = &sent[..] else { panic!("{actions}: {sent:?}") };
    let mut entries = Vec::new();
    for entry in bytes[14..].as_chunks::<4>().0 {
        let entry = u32::from_be_bytes(*entry);
        entries.push((entry >> 12, entry as u8));
        if entry & 0x100 != 0 {
            break;
        }
    }
    (u16::from_be_bytes([bytes[12], bytes[13]]), entries)
}

#[test]
fn an_mpls_label_pushed_after_a_pop_has_the_ttl_of_the_packet() {
    for ttl in [255, 64, 1, 7] {
        let packet = under(&[(20, 32)], &format!("udp,nw_ttl={ttl}"));
        for (kind, name) in [(0x8847, "0x8847"), (0x8848, "0x8848")] {
            let swapped = sent(&format!("pop_mpls:0x0800,push_mpls:{name}"), &packet);
            assert_eq!(swapped, (kind, vec![(0, ttl)]));
        }
    }
    let packet = under(&[(20, 32)], "udp,nw_ttl=9");
    let (_, entries) = sent("pop_mpls:0x0800,dec_ttl,push_mpls:0x8847,dec_mpls_ttl", &packet);
    assert_eq!(entries, [(0, 7)]);
    let packet = under(&[(20, 32)], "udp6,nw_ttl=77");
    assert_eq!(sent("pop_mpls:0x86dd,push_mpls:0x8847", &packet).1, [(2, 77)]);
}

#[test]
fn an_mpls_label_pushed_on_other_labels_copies_the_outermost_label_and_ttl() {
    let packet = under(&[(20, 32), (21, 33)], "udp,nw_ttl=9");
    let (_, entries) = sent("pop_mpls:0x8847,push_mpls:0x8848", &packet);
    assert_eq!(entries, [(21, 33), (21, 33)]);
    let (_, entries) = sent("pop_mpls:0x8847,pop_mpls:0x0800,push_mpls:0x8847", &packet);
    assert_eq!(entries, [(0, 9)]);
}

#[test]
fn an_mpls_label_on_a_packet_without_a_ttl_has_ttl_64() {
    // Open vSwitch uses 64 for a TTL of 0, and for packets that are not IP.
    assert_eq!(sent("push_mpls:0x8847", &frame("udp,nw_ttl=0")).1, [(0, 64)]);
    assert_eq!(sent("push_mpls:0x8847", &frame("udp6,nw_ttl=0")).1, [(2, 64)]);
    assert_eq!(sent("push_mpls:0x8847", &frame("arp,arp_op=1")).1, [(0, 64)]);
    assert_eq!(sent("push_mpls:0x8847", &frame("udp,nw_ttl=1")).1, [(0, 1)]);
    let packet = under(&[(20, 32)], "udp,nw_ttl=0");
    assert_eq!(sent("pop_mpls:0x0800,push_mpls:0x8847", &packet).1, [(0, 64)]);
}
