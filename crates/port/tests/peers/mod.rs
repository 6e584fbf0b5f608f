//! Two connected ports.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use port::{DuplexPort, Frame, Refusal};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A temporary folder, which is removed when this value is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for a condition, but at most for a minute.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn await_connection(ports: &[&dyn DuplexPort]) {
    until("the connection", || ports.iter().all(|port| port.is_connected()));
}

/// Builds a frame whose bytes depend on its number.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (number.wrapping_mul(31).wrapping_add(at * 7) >> 2) as u8).collect()
}

/// Sends all packets, and retries refused packets.
pub fn send_all(port: &dyn DuplexPort, packets: &[&[u8]]) {
    let mut done = 0;
    until("room", || {
        while done < packets.len() {
            let accepted = port.send(&packets[done..]).unwrap();
            done += accepted.sent;
            match accepted.refusal {
                None => {}
                Some(Refusal::Full) => return false,
                Some(refusal) => panic!("{refusal:?}"),
            }
        }
        true
    });
}

pub fn receive_some(port: &dyn DuplexPort, count: usize) -> Vec<Frame> {
    let mut batch = Vec::new();
    until("a frame", || {
        port.receive(0, &mut batch, count).unwrap();
        batch.len() >= count
    });
    batch
}

/// Sends frames of many sizes in both directions at the same time, and compares every byte.
pub fn exchange(left: &dyn DuplexPort, right: &dyn DuplexPort) {
    let sizes = [14, 60, 64, 65, 1514, 2036, 2037, 4096, 9018, 65_000];
    let frames: Vec<Vec<u8>> =
        (0..3000_u32).map(|n| frame(n, sizes[n as usize % sizes.len()])).collect();
    std::thread::scope(|scope| {
        for (sender, receiver) in [(left, right), (right, left)] {
            let frames = &frames;
            scope.spawn(move || {
                for chunk in frames.chunks(17) {
                    let packets: Vec<&[u8]> = chunk.iter().map(|bytes| &bytes[..]).collect();
                    send_all(sender, &packets);
                }
            });
            scope.spawn(move || {
                let mut done = 0;
                let mut batch = Vec::new();
                until("every frame", || {
                    while receiver.receive(0, &mut batch, 32).unwrap() > 0 {
                        for frame in batch.drain(..) {
                            assert!(frame.bytes() == frames[done], "frame {done}");
                            done += 1;
                        }
                    }
                    done == frames.len()
                });
            });
        }
    });
}

/// Sends bytes with descriptors. Ignores an error, because the peer may have ended the connection
/// meanwhile.
pub fn send_with(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    let _ = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// Receives a message with one descriptor.
pub fn receive_with(stream: &UnixStream, bytes: &mut [u8]) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(bytes)];
    recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    rights.unwrap()
}
