//! Compares segmentation by the kernel with segmentation by a port: the frames of a super-packet
//! must be identical. The test sends the super-packet with the VLAN tag in its bytes; on the
//! receiving side, the kernel moves the tag out of the bytes and carries it beside the packet.

use etherparse::PacketBuilder;
use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::process::Command;
use units::Bytes;
use wire::checksum::Sum;
use wire::headers::Layout;
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{Gso, Network, VirtioHeader};

use crate::interface::Interface;
use crate::{PacketOptions, PacketPort, Port, PortCounters, socket};

#[test]
fn software_segmentation_gives_the_same_frames_as_the_kernel() {
    let compared = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            testing::skip_because(testing::Need::NetworkNamespaces, error);
            return;
        }
        run("ip", "link add one type veth peer name two");
        for name in ["one", "two"] {
            // Switch IPv6 off, so that the test receives no router solicitations from the kernel.
            let setting = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            let _ = std::fs::write(setting, "1");
            run("ip", &format!("link set {name} up"));
        }
        let udp = testing::Need::UdpSuperPackets.is_met();
        if !udp {
            testing::skip_part(testing::Need::UdpSuperPackets);
        }
        let cases = cases().into_iter().filter(|case| udp || !case.udp);
        let packets: Vec<_> = cases.map(super_packet).collect();
        let (ours, counters) = through_port(&packets);
        assert_eq!(counters.super_packets, packets.len() as u64);
        assert_eq!(counters.tags_inserted, packets.len() as u64 * 2 / 3);

        if !Command::new("ethtool").arg("--version").status().is_ok_and(|status| status.success()) {
            testing::skip(testing::Need::Program("ethtool"));
            return;
        }
        run("ethtool", "-K one tx off sg off tso off gso off txvlan off tx-udp-segmentation off");
        let (kernels, counters) = through_port(&packets);
        assert_eq!((counters.super_packets, counters.checksums_completed), (0, 0));

        assert_eq!(ours.len(), kernels.len());
        for (number, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            assert!(ours == kernels, "frame {number}:\n{ours:02x?}\n{kernels:02x?}");
        }
    });
    compared.join().unwrap();
}

#[derive(Debug, Clone, Copy)]
struct Case {
    v6: bool,
    udp: bool,
    tpid: Option<u16>,
    len: usize,
    size: u16,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for v6 in [false, true] {
        for udp in [false, true] {
            for tpid in [None, Some(0x8100), Some(0x88a8)] {
                for (len, size) in [(60_000, 1400), (14_000, 1400), (4_001, 999), (1_201, 600)] {
                    cases.push(Case { v6, udp, tpid, len, size });
                }
            }
        }
    }
    cases
}

/// Builds a packet as the kernel passes it to a device with all offloads: a `virtio_net_hdr` and
/// the frame.
fn super_packet(case: Case) -> Vec<u8> {
    let payload: Vec<u8> = (0..case.len).map(|n| ((n * 13) >> 3) as u8).collect();
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = match case.v6 {
        false => link.ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64),
        true => link.ipv6([0xfd; 16], [0xfe; 16], 64),
    };
    if case.udp {
        ip.udp(4000, 5000).write(&mut frame, &payload).unwrap();
    } else {
        // The header has a sequence number that wraps, a timestamp option, and flags that only some
        // segments get.
        let tcp = ip.tcp(4000, 5000, u32::MAX - 5000, 1024).ack(77).psh().fin().ece().cwr();
        let options = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        tcp.options_raw(&options).unwrap().write(&mut frame, &payload).unwrap();
    }
    if let Some(tpid) = case.tpid {
        let [first, second] = tpid.to_be_bytes();
        frame.splice(12..12, [first, second, 0x60, 5]);
    }
    let layout = Layout::parse(&frame).unwrap();
    let (ip, start) = (layout.network_offset, layout.transport_offset);
    let offset = if case.udp { 6 } else { 16 };
    let addresses = match layout.network {
        Network::Ipv4 => &frame[ip + 12..ip + 20],
        _ => &frame[ip + 8..ip + 40],
    };
    let pseudo = Sum::of(addresses)
        .plus_word(if case.udp { 17 } else { 6 })
        .plus_long((frame.len() - start) as u32);
    frame[start + offset..][..2].copy_from_slice(&pseudo.folded().to_be_bytes());
    let kind = match (case.udp, case.v6) {
        (true, _) => GsoKind::UdpL4,
        (false, false) => GsoKind::TcpV4,
        (false, true) => GsoKind::TcpV6,
    };
    let virtio = VirtioHeader {
        partial_checksum: Some(PartialChecksum { start: start as u16, offset: offset as u16 }),
        gso: Some(Gso { kind, ecn: !case.udp, size: case.size }),
        header_len: layout.payload_offset().unwrap() as u16,
        data_valid: false,
    };
    [&virtio.to_bytes()[..VirtioHeader::LEN], &frame].concat()
}

fn through_port(packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, PortCounters) {
    let options = PacketOptions { receive_buffer: Bytes::new(64 << 20), ..Default::default() };
    let mut port = PacketPort::open_with("two", options).unwrap();
    let sender = socket::open().unwrap();
    let one = Interface::query(&sender, "one").unwrap();
    socket::set_number(&sender, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).unwrap();
    socket::set_number(&sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 1 << 20).unwrap();
    socket::bind(&sender, one.index as i32, 0).unwrap();
    let mut batch = Vec::new();
    for packet in packets {
        assert_eq!(socket::send(&sender, std::iter::once(packet.as_slice())).unwrap(), 1);
        // A veth pair delivers packets before the call returns, or soon afterwards from ksoftirqd.
        let before = batch.len();
        let payload = packet.len();
        while batch[before..].iter().map(crate::Frame::len).sum::<usize>() + 10 < payload {
            let mut fds = [PollFd::from_borrowed_fd(port.fd().unwrap(), PollFlags::IN)];
            let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "a packet did not arrive");
            port.receive(&mut batch, usize::MAX).unwrap();
        }
    }
    assert_eq!(port.counters().drops(), 0);
    (batch.iter().map(|frame| frame.bytes().to_vec()).collect(), port.counters())
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}
