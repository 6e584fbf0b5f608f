//! Runs tcpa in the running kernel. The whole machine sees a registration, so only one test runs
//! at a time. Only the test's own sockets get the algorithm.
#![allow(clippy::unwrap_used)]

use accel::algorithm::{Algorithm, NAME};
use accel::kernel::Interface;
use accel::{AccelError, Tunables};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Loads the algorithm; `None`, after a message, if the kernel cannot run it.
fn loaded() -> Option<(Algorithm, File)> {
    // Another build's tests may run on this machine: lock a directory that all tests share.
    let turn = File::open("/sys/kernel").unwrap();
    turn.lock().unwrap();
    if available().contains(NAME) {
        testing::skip(testing::Need::FreeCongestion(NAME));
        return None;
    }
    match Algorithm::load() {
        Ok(algorithm) => Some((algorithm, turn)),
        Err(error @ (AccelError::NotPermitted { .. } | AccelError::NotSupported { .. })) => {
            testing::skip_because(testing::Need::StructOps, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Waits until the algorithm `name` is gone: the kernel may release a link some time after its end.
fn await_free(name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while available().contains(name) {
        assert!(Instant::now() < deadline, "{name} stays registered");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends some megabytes over the loopback interface.
fn carry(stream: &mut TcpStream, megabytes: usize) {
    let piece = vec![7; 1 << 20];
    for _ in 0..megabytes {
        stream.write_all(&piece).unwrap();
    }
}

fn pair() -> (TcpStream, std::thread::JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut end, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        while let Ok(count @ 1..) = end.read(&mut buffer) {
            total += count as u64;
        }
        total
    });
    (stream, reader)
}

#[test]
fn sockets_keep_tcpa_when_it_is_replaced_and_unregistered() {
    let Some((mut first, _turn)) = loaded() else { return };
    let link = first.register().unwrap();
    assert!(available().contains(NAME));
    let (mut stream, reader) = pair();
    probe::tcp::set_congestion_control(&stream, NAME).unwrap();
    carry(&mut stream, 8);

    let mut second = Algorithm::load().unwrap();
    let taken = second.register().unwrap_err();
    assert!(matches!(taken, AccelError::NameTaken { .. }), "{taken}");
    second.replace(link.link()).unwrap();
    let (mut newer, newer_reader) = pair();
    probe::tcp::set_congestion_control(&newer, NAME).unwrap();
    carry(&mut newer, 8);
    carry(&mut stream, 8);

    drop((link, first, second));
    await_free(NAME);
    let (other, other_reader) = pair();
    assert!(probe::tcp::set_congestion_control(&other, NAME).is_err());
    carry(&mut stream, 8);
    assert_eq!(probe::tcp::congestion_control_of(&stream).unwrap(), NAME);
    drop((stream, newer, other));
    assert_eq!(reader.join().unwrap(), 24 << 20);
    assert_eq!(newer_reader.join().unwrap(), 8 << 20);
    assert_eq!(other_reader.join().unwrap(), 0);
}

#[test]
fn tcpa_under_another_name_is_independent() {
    let name = format!("other_{}", std::process::id());
    let beside = match Algorithm::load_unpinned(&name, &Tunables::default()) {
        Err(error @ (AccelError::NotPermitted { .. } | AccelError::NotSupported { .. })) => {
            testing::skip_because(testing::Need::StructOps, error);
            return;
        }
        beside => beside,
    };
    let registration = beside.unwrap().register().unwrap();
    let (mut stream, reader) = pair();
    probe::tcp::set_congestion_control(&stream, &name).unwrap();
    carry(&mut stream, 8);
    drop(registration);
    await_free(&name);
    drop(stream);
    assert_eq!(reader.join().unwrap(), 8 << 20);
    let refused = Algorithm::load_unpinned("longer-than-the-kernel-has-room", &Tunables::default());
    assert!(refused.unwrap_err().to_string().contains("1 to 15 letters"));
}

/// Tests the variant for kernels before 6.4, which have no links.
#[test]
fn without_links_tcpa_is_registered_and_unregistered() {
    let Some((first, _turn)) = loaded() else { return };
    drop(first);
    let interface = Interface { links: false, ..accel::kernel::interface().unwrap() };
    let mut algorithm = Algorithm::load_for(interface).unwrap();
    let registration = algorithm.register().unwrap();
    assert!(available().contains(NAME));
    let (mut stream, reader) = pair();
    probe::tcp::set_congestion_control(&stream, NAME).unwrap();
    carry(&mut stream, 8);
    drop(registration);
    await_free(NAME);
    carry(&mut stream, 8);
    drop(stream);
    assert_eq!(reader.join().unwrap(), 16 << 20);
}
