//! vhost-user: this crate's driver with this crate's device, DPDK's driver with this crate's
//! device, and hostile front ends.

#![allow(clippy::unwrap_used)]

mod peers;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use peers::{Folder, await_connection, exchange, frame, receive_some, send_all, send_with, until};
use port::vhost::message::{
    HEADER, Region, Request, RingAddresses, RingFile, RingState, features, message,
};
use port::{DuplexPort, VhostDevice, VhostDriver};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;

#[test]
fn frames_of_all_sizes_arrive_in_order_in_both_directions() {
    for device_listens in [true, false] {
        let folder = Folder::new("vhost");
        let path = folder.path("socket");
        let path = Path::new(&path);
        let (device, driver) = match device_listens {
            true => {
                let device = VhostDevice::listen(path, 1).unwrap();
                (device, VhostDriver::connect(path).unwrap())
            }
            false => {
                let driver = VhostDriver::listen(path).unwrap();
                (VhostDevice::connect(path, 1).unwrap(), driver)
            }
        };
        await_connection(&[&device, &driver]);
        exchange(&device, &driver);
        assert_eq!(device.counters().truncated, 0);
    }
}

#[test]
fn a_vhost_user_driver_or_device_can_disconnect_and_reconnect() {
    let folder = Folder::new("vhost-again");
    let path = folder.path("socket");
    let path = Path::new(&path);
    let device = VhostDevice::listen(path, 1).unwrap();
    for round in 0..3 {
        let driver = VhostDriver::connect(path).unwrap();
        await_connection(&[&device, &driver]);
        send_all(&driver, &[&frame(round, 90)]);
        drop(driver);
        until("the end", || !device.is_connected());
        assert_eq!(receive_some(&device, 1)[0].bytes(), frame(round, 90));
    }
    let driver = VhostDriver::connect(path).unwrap();
    await_connection(&[&device, &driver]);
    drop(device);
    until("the end", || !driver.is_connected());
    let device = VhostDevice::listen(path, 4).unwrap();
    await_connection(&[&device, &driver]);
    exchange(&device, &driver);
}

#[test]
fn invalid_rings_and_chains_end_the_connection() {
    let folder = Folder::new("vhost-hostile");
    let path = folder.path("socket");
    let device = VhostDevice::listen(Path::new(&path), 1).unwrap();
    let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
        [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()]
            .concat()
    };
    let offered = |count: u16| [0_u16.to_le_bytes(), count.to_le_bytes(), [0, 0]].concat();
    // The first number of a patch is an offset in the hostile front end's memory: see `FrontEnd`.
    let attacks: [(&str, Vec<Patch>); 6] = [
        ("index runs ahead", vec![(AVAILABLE, offered(SIZE + 1))]),
        ("head outside", vec![(AVAILABLE, [offered(1)[..4].to_vec(), vec![0xff; 2]].concat())]),
        ("loop", vec![(0, descriptor(0, 20, 1, 0)), (AVAILABLE, offered(1))]),
        ("next outside", vec![(0, descriptor(0, 20, 1, 999)), (AVAILABLE, offered(1))]),
        ("table outside", vec![(0, descriptor(1 << 40, 64, 4, 0)), (AVAILABLE, offered(1))]),
        (
            "table in itself",
            vec![(0, descriptor(BASE + SECOND, 64, 4, 0)), (AVAILABLE, offered(1))],
        ),
    ];
    for (name, writes) in attacks {
        let front = FrontEnd::connect(&path);
        front.set_up();
        until(name, || device.is_connected());
        for (at, bytes) in writes {
            front.memory.write_all_at(&bytes, SECOND + at).unwrap();
        }
        until(name, || {
            device.receive(0, &mut Vec::new(), 64).unwrap();
            !device.is_connected()
        });
        assert!(device.describe().contains("because"), "{name}: {}", device.describe());
    }
    // A frame in a buffer outside the memory is dropped.
    let front = FrontEnd::connect(&path);
    front.set_up();
    until("the connection", || device.is_connected());
    front.memory.write_all_at(&descriptor(u64::MAX - 10, 100, 0, 0), SECOND).unwrap();
    front.memory.write_all_at(&offered(1), SECOND + AVAILABLE).unwrap();
    until("the count", || {
        assert_eq!(device.receive(0, &mut Vec::new(), 64).unwrap(), 0);
        device.counters().truncated == 1
    });
    // The device must not write a read-only buffer.
    front.memory.write_all_at(&descriptor(BASE, 2048, 0, 0), 0).unwrap();
    front.memory.write_all_at(&offered(1), AVAILABLE).unwrap();
    until("the end", || {
        device.send(&[&[0; 60]]).unwrap();
        !device.is_connected()
    });
    drop(front);
    serve_next_driver(&device, &path);
}

#[test]
fn super_packets_pass_only_to_a_driver_that_accepts_them() {
    let folder = Folder::new("vhost-super");
    let path = folder.path("socket");
    let device = VhostDevice::listen(Path::new(&path), 1).unwrap();
    // A TCP packet; the test does not need a correct checksum.
    let mut packet = vec![2; 12];
    packet.extend([0x08, 0x00, 0x45, 0, 0x0b, 0xe0, 0, 7, 0x40, 0, 64, 6, 0, 0]);
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1]);
    packet.extend([0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..3_000).map(|at| at as u8));
    let virtio = wire::VirtioHeader {
        partial_checksum: Some(wire::virtio::PartialChecksum { start: 34, offset: 16 }),
        gso: Some(wire::Gso { kind: wire::virtio::GsoKind::TcpV4, ecn: false, size: 1_000 }),
        data_valid: false,
        header_len: 54,
    };
    let whole = [&virtio.to_bytes()[..], &packet].concat();
    let descriptor = |place: u64, len: usize, flags: u16| {
        let len = (len as u32).to_le_bytes();
        [&(BASE + place).to_le_bytes()[..], &len, &flags.to_le_bytes(), &[0; 2]].concat()
    };
    let offered = [0_u16.to_le_bytes(), 1_u16.to_le_bytes(), [0, 0]].concat();
    let (sent_at, received_at) = (2 * SECOND, 4 * SECOND);
    let accepted = features::CHECKSUM | features::HOST_TSO4;
    let taken = features::GUEST_CHECKSUM | features::GUEST_TSO4;
    for features in [0, accepted | taken] {
        let front = FrontEnd::connect(&path);
        front.share_with(features);
        front.start_rings();
        until("the connection", || device.is_connected());
        front.memory.write_all_at(&whole, sent_at).unwrap();
        front.memory.write_all_at(&descriptor(sent_at, whole.len(), 0), SECOND).unwrap();
        front.memory.write_all_at(&offered, SECOND + AVAILABLE).unwrap();
        let frames = receive_some(&device, 1);
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        assert!(frame.bytes() == packet);
        assert_eq!(frame.is_unfinished(), features != 0);
        let tcp = port::Offload::of(&packet, &virtio).unwrap();
        assert_eq!(device.takes(tcp), features != 0);
        if features == 0 {
            drop(front);
            until("the end", || !device.is_connected());
            continue;
        }
        assert_eq!((frame.offload(), frame.on_wire().0), (tcp, 3));
        front.memory.write_all_at(&descriptor(received_at, 60_000, 2), 0).unwrap();
        front.memory.write_all_at(&offered, AVAILABLE).unwrap();
        let accepted = device.send_unfinished(&[&packet], &[tcp]).unwrap();
        assert_eq!((accepted.sent, device.counters().sent_frames), (1, 3));
        let mut arrived = vec![0; whole.len()];
        front.memory.read_exact_at(&mut arrived, received_at).unwrap();
        // The header's field for the number of buffers is 1.
        assert_eq!(arrived[..10], whole[..10]);
        assert!(arrived[10..12] == [1, 0] && arrived[12..] == packet);
        assert!(device.describe().contains("offloads pass"), "{}", device.describe());
    }
}

#[test]
fn truncated_guest_memory_ends_only_the_connection() {
    let folder = Folder::new("vhost-cut");
    let path = folder.path("socket");
    let device = VhostDevice::listen(Path::new(&path), 1).unwrap();
    // The truncation must be noticed by an access for a packet to the driver, and for a packet from
    // the driver.
    for is_sending in [true, false] {
        let front = FrontEnd::connect(&path);
        front.set_up();
        until("the connection", || device.is_connected());
        front.memory.set_len(0).unwrap();
        until("the end", || {
            match is_sending {
                true => drop(device.send(&[&[0; 60]]).unwrap()),
                false => assert_eq!(device.receive(0, &mut Vec::new(), 64).unwrap(), 0),
            }
            !device.is_connected()
        });
        assert!(
            device.describe().contains("the driver's memory was cut off"),
            "{}",
            device.describe()
        );
    }
    serve_next_driver(&device, &path);
}

#[test]
fn malformed_vhost_user_messages_end_only_the_connection() {
    let folder = Folder::new("vhost-messages");
    let path = folder.path("socket");
    let device = VhostDevice::listen(Path::new(&path), 1).unwrap();
    let state = |ring, value| RingState { ring, value };
    let addresses = |descriptors| RingAddresses { ring: 0, descriptors, used: 0, available: 0 };
    for request in [
        Request::SetFeatures(u64::MAX),
        Request::SetProtocolFeatures(u64::MAX),
        Request::SetRingSize(state(2, 64)),
        Request::GetRingBase(state(u32::MAX, 0)),
        Request::SetRingKick(RingFile { ring: 0, has_file: true }),
        Request::SetMemoryTable(vec![
            Region {
                guest_address: 0,
                size: 4096,
                user_address: 0,
                file_offset: 0
            };
            8
        ]),
    ] {
        let mut front = FrontEnd::connect(&path);
        front.tell(&request, &[]);
        front.await_end();
    }
    for (size, descriptors) in [(0, BASE), (63, BASE), (65536, BASE), (64, 1), (64, BASE + 1)] {
        let mut front = FrontEnd::connect(&path);
        front.share();
        front.tell(&Request::SetRingSize(state(0, size)), &[]);
        front.tell(&Request::SetRingAddresses(addresses(descriptors)), &[]);
        front.tell(&Request::SetRingKick(RingFile { ring: 0, has_file: false }), &[]);
        front.await_end();
    }
    for bytes in [
        message(1, 2, &[]),
        [&2_u32.to_ne_bytes()[..], &1_u32.to_ne_bytes(), &u32::MAX.to_ne_bytes()].concat(),
        message(5, 0, &[0xff; 300]),
        message(9, 0, &[0; 39]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let mut front = FrontEnd::connect(&path);
        front.stream.write_all(&bytes).unwrap();
        front.await_end();
    }
    serve_next_driver(&device, &path);
}

/// Checks that the device still serves a driver.
fn serve_next_driver(device: &dyn DuplexPort, path: &str) {
    let driver = VhostDriver::connect(Path::new(path)).unwrap();
    await_connection(&[device, &driver]);
    exchange(device, &driver);
}

#[test]
fn testpmd_returns_every_frame() {
    let Some(testpmd) = testpmd() else {
        testing::skip_because(
            testing::Need::Program("dpdk-testpmd"),
            "with net_virtio_user (Debian: dpdk-dev)",
        );
        return;
    };
    let folder = Folder::new("testpmd");
    let path = folder.path("socket");
    let device = VhostDevice::listen(Path::new(&path), 1).unwrap();
    for options in ["", ",mrg_rxbuf=0", ",packed_vq=0,in_order=0,queue_size=1024"] {
        let mut child = Command::new("timeout")
            .args(["60", &testpmd, "--no-huge", "-m", "256", "--no-pci", "-l", "0,1"])
            .args(["--no-shconf", "--log-level", "*:error"])
            .arg(format!("--vdev=net_virtio_user0,path={path},queues=1{options}"))
            .args(["--", "--forward-mode=io", "--total-num-mbufs=4096", "--auto-start", "-i"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let start = std::time::Instant::now();
        while !device.is_connected() && start.elapsed() < Duration::from_secs(30) {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if !device.is_connected() {
            drop(child.stdin.take());
            let _ = child.wait();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("testpmd does not connect: {}\n{said}", device.describe());
        }
        // A driver that has just started may drop the first frames, so send until a frame comes
        // back.
        until("an echo", || {
            device.send(&[&frame(1, 77)]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            device.receive(0, &mut Vec::new(), 1).unwrap() > 0
        });
        // Echoes keep their order, so all earlier echoes have arrived before the last echo.
        let last = frame(2, 78);
        send_all(&device, &[&last]);
        until("the last echo", || {
            let mut echoed = Vec::new();
            device.receive(0, &mut echoed, 64).unwrap();
            echoed.iter().any(|echo| echo.bytes() == &last[..])
        });
        let sizes = [60, 64, 128, 590, 1514];
        for round in 0..200_u32 {
            let frames: Vec<Vec<u8>> =
                (0..16).map(|n| frame(round * 16 + n, sizes[n as usize % 5])).collect();
            let packets: Vec<&[u8]> = frames.iter().map(|bytes| &bytes[..]).collect();
            send_all(&device, &packets);
            let echoed = receive_some(&device, 16);
            for (echo, sent) in echoed.iter().zip(&frames) {
                assert!(echo.bytes() == sent, "{options}: round {round}");
            }
        }
        child.stdin.take().unwrap().write_all(b"quit\n").unwrap();
        let _ = child.wait();
        until("the end", || !device.is_connected());
    }
}

/// Bytes to write, and their offset in the memory.
type Patch = (u64, Vec<u8>);

/// A hand-written front end: one region with two rings of [`SIZE`] descriptors.
struct FrontEnd {
    stream: UnixStream,
    memory: File,
}

impl FrontEnd {
    fn connect(path: &str) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let file = rustix::fs::memfd_create("weir-test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, LEN).unwrap();
        Self { stream, memory: file.into() }
    }

    fn tell(&self, request: &Request, files: &[BorrowedFd<'_>]) {
        let (number, payload) = request.encode();
        let bytes = message(number, 0, &payload);
        send_with(&self.stream, &bytes, files);
    }

    fn share(&self) {
        self.share_with(0);
    }

    fn share_with(&self, accepted: u64) {
        let needed = features::VERSION_1 | features::MERGEABLE_BUFFERS;
        self.tell(&Request::SetFeatures(needed | accepted), &[]);
        let region = Region { guest_address: BASE, size: LEN, user_address: BASE, file_offset: 0 };
        self.tell(&Request::SetMemoryTable(vec![region]), &[self.memory.as_fd()]);
    }

    fn set_up(&self) {
        self.share();
        self.start_rings();
    }

    fn start_rings(&self) {
        for ring in 0..2 {
            let start = BASE + u64::from(ring) * SECOND;
            let event: OwnedFd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
            self.tell(&Request::SetRingSize(RingState { ring, value: u32::from(SIZE) }), &[]);
            self.tell(
                &Request::SetRingAddresses(RingAddresses {
                    ring,
                    descriptors: start,
                    used: start + USED,
                    available: start + AVAILABLE,
                }),
                &[],
            );
            let file = RingFile { ring, has_file: true };
            self.tell(&Request::SetRingCall(file), &[event.as_fd()]);
            self.tell(&Request::SetRingKick(file), &[event.as_fd()]);
        }
    }

    /// Waits until the device closes the connection.
    fn await_end(&mut self) {
        let mut bytes = [0; HEADER];
        match self.stream.read(&mut bytes) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("{other:?} {bytes:?}"),
        }
    }
}

/// Returns the name of an installed `testpmd` that has the virtio-user driver.
fn testpmd() -> Option<String> {
    let named = std::env::var("WEIR_TESTPMD").unwrap_or_else(|_| "dpdk-testpmd".to_owned());
    let output = Command::new("timeout")
        .args(["20", &named, "--no-huge", "-m", "64", "--no-pci", "-l", "0"])
        .args(["--no-shconf", "--vdev=net_virtio_user0,path=/nonexistent/socket", "--"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A testpmd without the virtio-user driver does not know the device's name.
    (output.status.code() != Some(127) && said.contains("irtio")).then_some(named)
}

const SIZE: u16 = 64;
const BASE: u64 = 1 << 30;
const LEN: u64 = 1 << 20;
/// The offset of the second ring, into which the driver sends frames.
const SECOND: u64 = 1 << 16;
const AVAILABLE: u64 = 1024;
const USED: u64 = 2048;
