//! Rings in shared memory: creator and attached peer, peers that reconnect, and hostile peers.

#![allow(clippy::unwrap_used)]

mod peers;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};

use peers::{
    Folder, await_connection, exchange, frame, receive_some, receive_with, send_all, send_with,
    until,
};
use port::shared_ring::layout::{Direction, Geometry};
use port::{DuplexPort, Frame, Refusal, RingPort};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};

#[test]
fn frames_of_all_sizes_arrive_in_order_in_both_directions() {
    let folder = Folder::new("ring");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    let attached = RingPort::attach(&path).unwrap();
    await_connection(&[&creator, &attached]);
    exchange(&creator, &attached);
    let counters = [creator.counters(), attached.counters()];
    assert_eq!(counters[0].sent_frames, counters[1].received_frames);
    assert_eq!(counters[1].sent_bytes, counters[0].received_bytes);
    assert!(creator.describe().contains("connected"), "{}", creator.describe());
}

#[test]
fn a_full_ring_refuses_frames_and_accepts_them_later() {
    let folder = Folder::new("full");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    let attached = RingPort::attach(&path).unwrap();
    await_connection(&[&creator, &attached]);
    let bytes = frame(7, 64);
    let packets = [&bytes[..]; 64];
    let mut sent = 0;
    let refusal = loop {
        let accepted = creator.send(&packets).unwrap();
        sent += accepted.sent;
        if accepted.refusal.is_some() {
            break accepted.refusal;
        }
    };
    assert_eq!((sent, refusal), (Geometry::default().descriptors as usize, Some(Refusal::Full)));
    let mut batch = Vec::new();
    assert_eq!(attached.receive(0, &mut batch, 100).unwrap(), 100);
    assert_eq!(creator.send(&packets).unwrap().sent, 64);
    let long = vec![0; creator.longest() + 1];
    assert_eq!(creator.send(&[&long]).unwrap().refusal, Some(Refusal::TooLong));
}

#[test]
fn a_new_peer_replaces_a_closed_peer_whose_last_frames_still_arrive() {
    let folder = Folder::new("again");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    for round in 0..3 {
        let attached = RingPort::attach(&path).unwrap();
        await_connection(&[&creator, &attached]);
        let before = creator.changes();
        send_all(&attached, &[&frame(round, 90)]);
        drop(attached);
        until("the end", || !creator.is_connected());
        assert!(creator.changes() > before);
        assert_eq!(receive_some(&creator, 1)[0].bytes(), frame(round, 90));
        let refused = creator.send(&[&[0; 60]]).unwrap();
        assert_eq!((refused.sent, refused.refusal), (0, Some(Refusal::NoPeer)));
    }
    let attached = RingPort::attach(&path).unwrap();
    await_connection(&[&creator, &attached]);
    drop(creator);
    until("the end", || !attached.is_connected());
    assert!(!std::path::Path::new(&path).exists());
    let creator = RingPort::create(&path).unwrap();
    await_connection(&[&creator, &attached]);
    exchange(&creator, &attached);
}

#[test]
fn a_sent_frame_wakes_a_sleeping_receiver() {
    let folder = Folder::new("sleep");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    let attached = RingPort::attach(&path).unwrap();
    await_connection(&[&creator, &attached]);
    for round in 0..20 {
        let mut batch = Vec::new();
        for _ in 0..40 {
            assert_eq!(creator.receive(0, &mut batch, 8).unwrap(), 0);
        }
        let fd = creator.fd(0).unwrap();
        assert!(!is_readable(fd.as_fd(), 0), "the byte of an earlier wake-up is still unread");
        send_all(&attached, &[&frame(round, 60)]);
        assert!(is_readable(fd.as_fd(), 60_000));
        assert_eq!(receive_some(&creator, 1).len(), 1);
    }
}

#[test]
fn invalid_indexes_and_descriptors_end_the_connection() {
    let folder = Folder::new("hostile");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    let geometry = Geometry::default();
    let receiving = geometry.places(Direction::ToCreator);
    let sending = geometry.places(Direction::FromCreator);
    let word = |offset: u32, len: u32| u64::from(offset) | u64::from(len) << 32;
    let attacks: [(&str, Vec<Write>); 6] = [
        ("runs ahead", vec![(receiving.produced, (geometry.descriptors + 1).to_le_bytes().into())]),
        ("runs back", vec![(receiving.produced, u32::MAX.to_le_bytes().into())]),
        (
            "wild length",
            vec![
                (receiving.descriptors, word(0, u32::MAX).to_le_bytes().into()),
                (receiving.produced, 1_u32.to_le_bytes().into()),
            ],
        ),
        (
            "wild offset",
            vec![
                (receiving.descriptors, word(geometry.area - 10, 60).to_le_bytes().into()),
                (receiving.produced, 1_u32.to_le_bytes().into()),
            ],
        ),
        ("consumes too much", vec![(sending.consumed, 4000_u32.to_le_bytes().into())]),
        ("consumes backwards", vec![(sending.consumed, u32::MAX.to_le_bytes().into())]),
    ];
    for (name, writes) in attacks {
        let (stream, memory) = hostile(&path);
        until("the attack", || creator.is_connected());
        for (at, bytes) in writes {
            memory.write_all_at(&bytes, at as u64).unwrap();
        }
        until(name, || {
            let mut batch = Vec::new();
            creator.receive(0, &mut batch, 64).unwrap();
            for _ in 0..100 {
                creator.send(&[&[0; 60][..]; 64]).unwrap();
            }
            !creator.is_connected()
        });
        assert!(creator.describe().contains("disconnected, because"), "{}", creator.describe());
        drop(stream);
    }
    let attached = RingPort::attach(&path).unwrap();
    await_connection(&[&creator, &attached]);
    exchange(&creator, &attached);
}

#[test]
fn random_writes_into_the_memory_cause_no_panic() {
    let folder = Folder::new("random");
    let path = folder.path("ring");
    let creator = RingPort::create(&path).unwrap();
    let places = Geometry::default().places(Direction::ToCreator);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..60 {
        let (stream, memory) = hostile(&path);
        until("the attack", || creator.is_connected());
        for round in 0..200_u32 {
            let noise: Vec<u8> =
                (0..256).flat_map(|_| (next() >> (next() % 50)).to_le_bytes()).collect();
            memory.write_all_at(&noise, places.descriptors as u64).unwrap();
            let index = if round % 8 == 7 { next() as u32 } else { round };
            memory.write_all_at(&index.to_le_bytes(), places.produced as u64).unwrap();
            let mut batch: Vec<Frame> = Vec::new();
            creator.receive(0, &mut batch, 64).unwrap();
            assert!(batch.len() <= 64);
            creator.send(&[&[1; 60][..]; 8]).unwrap();
        }
        drop(stream);
        until("the end", || {
            creator.receive(0, &mut Vec::new(), 4096).unwrap();
            !creator.is_connected()
        });
    }
}

#[test]
fn memory_that_its_creator_can_truncate_is_refused() {
    let folder = Folder::new("unsealed");
    let path = folder.path("ring");
    let listener = UnixListener::bind(&path).unwrap();
    let attached = RingPort::attach(&path).unwrap();
    let geometry = Geometry::default();
    let len = geometry.memory_len() as u64;
    let greeting = |descriptors: u32, area: u32| {
        [&b"weirrng\x01"[..], &descriptors.to_le_bytes(), &area.to_le_bytes()].concat()
    };
    let fine = greeting(geometry.descriptors, geometry.area);
    for (sealed, size, greeting, expected) in [
        (false, len, fine.clone(), "not sealed"),
        (true, len - 1, fine, "smaller than announced"),
        (true, len, greeting(3, 1 << 20), "announces 3 descriptors"),
        (true, len, greeting(1 << 31, 1 << 30), "announces 2147483648"),
        (true, len, b"GET / HTTP/1.1\r\n".to_vec(), "another version of the ring protocol"),
    ] {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("weir-test", flags).unwrap();
        rustix::fs::ftruncate(&file, size).unwrap();
        if sealed {
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        }
        let (stream, _) = listener.accept().unwrap();
        send_with(&stream, &greeting, &[file.as_fd()]);
        until(expected, || attached.describe().contains(expected));
        assert!(!attached.is_connected());
    }
}

/// Bytes to write, and their offset in the memory.
type Write = (usize, Vec<u8>);

/// Attaches to a ring without [`RingPort`]. Returns the socket and the memory.
fn hostile(path: &str) -> (UnixStream, File) {
    let mut stream = UnixStream::connect(path).unwrap();
    let memory = receive_with(&stream, &mut [0; 16]);
    stream.write_all(b"attached").unwrap();
    (stream, memory.into())
}

fn is_readable(fd: BorrowedFd<'_>, milliseconds: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let time = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    poll(&mut fds, Some(&time)).unwrap() > 0
}
