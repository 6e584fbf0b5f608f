//! Frames that no honest host sends, at CAQM hosts and at a CAQM port: well-formed frames pass,
//! nothing breaks, and no window leaves its bounds.

use crate::test_machine::TestMachine;
use crate::test_machine::forge::{FROM, mac, overheard, port, send};
use crate::test_machine::pair::{Pair, RunningTransfer};
use crate::test_machine::transfer::accel;
use port::Port as _;
use std::process::Command;
use std::time::{Duration, Instant};

const TPID: u16 = 0x88a8;
const VLAN: u16 = 0x8100;
const OLD: u16 = 0x9100;

fn tcp_over_ipv4(ports: (u16, u16), from: [u8; 4], to: [u8; 4], payload: u16) -> Vec<u8> {
    let mut bytes = vec![0x08, 0x00, 0x45, 0];
    bytes.extend((40 + payload).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + usize::from(payload), 7);
    bytes
}

fn framed(to: [u8; 6], tags: &[(u16, u16)], body: &[u8]) -> Vec<u8> {
    let mut bytes = [to, FROM].concat();
    for (tpid, info) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(info.to_be_bytes());
    }
    bytes.extend(body);
    bytes
}

/// Builds a SYN to a listening port, with at most 40 bytes of these raw options.
fn syn(port: u16, flags: u8, options: &[u8]) -> Vec<u8> {
    syn_with(port, flags, 0, options)
}

fn syn_with(port: u16, flags: u8, reserved: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = tcp_over_ipv4((40_000, port), [10, 0, 0, 1], [10, 0, 0, 2], 0);
    let header_len = 20 + options.len().next_multiple_of(4).min(40);
    bytes[34] = (header_len as u8 / 4) << 4 | reserved;
    bytes[35] = flags;
    bytes.extend(options);
    bytes.resize(22 + header_len, 0);
    bytes[4..6].copy_from_slice(&(20 + header_len as u16).to_be_bytes());
    // The kernel itself processes well-formed segments, so they need valid checksums.
    let sum = |bytes: &[u8], more: u32| {
        let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let mut sum = words.sum::<u32>() + more;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    };
    let header = sum(&bytes[2..22], 0);
    bytes[12..14].copy_from_slice(&header);
    let pseudo = u32::from(u16::from_be_bytes(sum(&bytes[14..22], 6 + header_len as u32)) ^ 0xffff);
    let segment = sum(&bytes[22..], pseudo);
    bytes[38..40].copy_from_slice(&segment);
    bytes
}

/// Builds malformed offers and offers with invalid values, in SYNs and in segments that resemble a
/// SYN.
fn offers(to: [u8; 6], port: u16) -> Vec<Vec<u8>> {
    let whole = [254, 10, b'C', b'A', b'Q', b'M', 0x88, 0xa8, 0x07, 0x00];
    let mut frames = Vec::new();
    for info in [0x0700, 0x0701, 0x0400, 0x0401, 0x05ff, 0x2700, 0xffff_u16] {
        let mut offer = whole;
        offer[8..].copy_from_slice(&info.to_be_bytes());
        for flags in [0x02, 0x12, 0x03, 0x06, 0x10] {
            frames.push(framed(to, &[], &syn(port, flags, &offer)));
            frames.push(framed(to, &[(TPID, 0x0300)], &syn(port, flags, &offer)));
        }
    }
    for reserved in 0..16 {
        for flags in [0x02, 0x12, 0x03, 0x06, 0x42, 0x82, 0xc2, 0xd2] {
            let body = syn_with(port, flags, reserved, &[]);
            frames.push(framed(to, &[], &body));
            frames.push(framed(to, &[(VLAN, 5)], &body));
            frames.push(framed(to, &[(TPID, 0x0300)], &body));
            frames.extend((34..body.len()).map(|length| framed(to, &[], &body[..length])));
        }
    }
    for length in 0..=u8::MAX {
        let mut offer = whole;
        offer[1] = length;
        frames.push(framed(to, &[], &syn(port, 2, &offer)));
    }
    for before in 0..40 {
        frames.push(framed(to, &[], &syn(port, 2, &[&vec![1; before][..], &whole].concat())));
        frames.push(framed(to, &[], &syn(port, 2, &vec![254; before])));
    }
    let cut = framed(to, &[], &syn(port, 2, &whole));
    frames.extend((20..cut.len()).map(|length| cut[..length].to_vec()));
    frames
}

/// Builds frames with every combination of tags and every kind of content, each truncated at every
/// byte.
fn senseless(to: [u8; 6]) -> Vec<Vec<u8>> {
    let tcp = tcp_over_ipv4((1, 2), [10, 0, 0, 1], [10, 0, 0, 2], 20);
    let mut ipv6 = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64];
    ipv6.resize(10 + 32 + 20, 0x50);
    let mut fragment = tcp.clone();
    fragment[8] = 0x20;
    let mut long = tcp.clone();
    long[2] = 0x4f;
    let arp = [&[0x08, 0x06][..], &[0; 28]].concat();
    let mut frames = Vec::new();
    for info in [0x0580, 0x0700, 0x0300, 0x0203, 0x2580, 0xffff] {
        let tag = (TPID, info);
        for tags in [
            &[tag][..],
            &[(VLAN, 5), tag],
            &[(OLD, 6), (VLAN, 5), tag],
            &[(VLAN, 7), (VLAN, 6), (VLAN, 5), tag],
            &[tag, tag],
            &[tag, tag, tag, tag, tag],
            &[tag, (VLAN, 5)],
            &[(VLAN, 5), tag, (VLAN, 6)],
        ] {
            for body in [&tcp, &ipv6, &fragment, &long, &arp, &vec![TPID.to_be_bytes()[0], 0xa8]] {
                frames.push(framed(to, tags, body));
            }
        }
        for tags in [&[tag][..], &[(VLAN, 5), tag]] {
            let whole = framed(to, tags, &tcp);
            frames.extend((14..whole.len()).map(|length| whole[..length].to_vec()));
        }
    }
    frames
}

fn complaints() -> usize {
    let log = Command::new("dmesg").output().unwrap();
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let bad = ["BUG", "WARNING", "Oops", "general protection", "bad checksum", "hw csum"];
    log.lines().filter(|line| bad.iter().any(|word| line.contains(word))).count()
}

#[test]
fn malformed_caqm_frames_leave_the_windows_of_hosts_unchanged() {
    let Some(machine) = TestMachine::new() else { return };
    let _pair = Pair::lay(&machine);
    let before = complaints();
    let mut words = vec!["enable", "caqm", "--all", "--trusts-path", "--max-cwnd", "40"];
    words.extend(["--negotiation", "both"]);
    words.extend(["--interface", "near:eth0", "--interface", "far:eth0"]);
    accel(&machine, &words);
    let going = RunningTransfer::start(&machine, 5860, "100M");
    let (mut near, mut far) = (port(&machine, "near"), port(&machine, "far"));
    let (to_near, to_far) = (mac(&machine, "near"), mac(&machine, "far"));
    send(&mut near, &senseless(to_far));
    send(&mut far, &senseless(to_near));
    send(&mut near, &offers(to_far, 5860));
    send(&mut far, &offers(to_near, 5860));
    going.goes_on(&machine);

    // Forged answers and requests for existing connections, with valid numbers.
    let status = machine.status();
    let address = |text: &str| text.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let mut forged = 0;
    for flow in status["caqm"]["flows"].as_array().unwrap() {
        let (local, remote) = (flow["local"].as_str().unwrap(), flow["remote"].as_str().unwrap());
        // The forgeries are for the transfer: the control connection is silent.
        if !local.starts_with("10.0.0.1:") || flow["sent_segments"].as_u64() < Some(100) {
            continue;
        }
        for info in [0x01ff, 0x05ff, 0x0600] {
            let data = overheard(&mut far, address(local), address(remote));
            send(&mut far, &vec![data.answered().tagged(to_near, info); 1000]);
            forged += 1000;
        }
    }
    going.goes_on(&machine);
    let status = machine.status();
    let flows = status["caqm"]["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 4, "{status}");
    for flow in flows {
        let window = flow["window_segments"].as_u64().unwrap();
        assert!((1..=40).contains(&window), "{flow}");
    }
    // The hosts accepted forged requests; the connection's own requests bound the grants.
    let ignored = status["caqm"]["totals"]["implausible"].as_u64().unwrap();
    assert!(forged == 3000 && ignored < forged, "{status}");
    // Tags of another kind were ignored.
    assert!(status["caqm"]["totals"]["alone"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(complaints(), before);
}

#[test]
fn a_caqm_port_forwards_malformed_caqm_frames() {
    let Some(machine) = TestMachine::new() else { return };
    let link = ["--rate", "100mbit", "--delay", "1ms", "--queue", "caqm:60KB"];
    let pair = Pair::over(&machine, &link);
    let (mut near, mut far) = (port(&machine, "near"), port(&machine, "far"));
    let to = mac(&machine, "far");
    let frames = [senseless(to), offers(to, 5861)].concat();
    let (mut batch, mut came, mut whole) = (Vec::new(), 0, 0);
    let mut receive = || {
        far.receive(&mut batch, 256).unwrap();
        batch.drain(..).filter(|frame| frame.bytes()[6..12] == FROM).count()
    };
    // Sends a few frames at a time, so that the queue of a stalled port drops no frames.
    for few in frames.chunks(100) {
        send(&mut near, few);
        // The kernel itself drops a tag that is followed by a truncated header (skb_vlan_untag() of
        // net/core/skbuff.c).
        whole += few.iter().filter(|frame| frame.len() >= 20).count();
        let mut last = Instant::now();
        while came < whole && last.elapsed() < Duration::from_millis(100) {
            let more = receive();
            if more > 0 {
                (came, last) = (came + more, Instant::now());
            }
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while came < whole {
        assert!(Instant::now() < deadline, "{came} of {whole} came");
        came += receive();
    }
    // Afterwards the port still carries valid traffic.
    let interfaces = ["--interface", "near:eth0", "--interface", "far:eth0"];
    accel(&machine, &[&["enable", "caqm", "--all"][..], &interfaces].concat());
    assert_eq!(pair.transfer(5861, &[]), "caqm");
}
