//! The snoop socket of a bridge. As in Open vSwitch, each peer gets copies of the messages that the
//! bridge exchanges with one of its controllers, and `ovs-ofctl snoop` prints the copies.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use host::BoundFile;
use openflow::{Kind, Session};
use rustix::event::PollFlags;

use super::connection::{is_transient, message_length};
use super::outgoing::Outgoing;
use super::remote::Remote;
use super::stream::Stream;

pub(super) struct SnoopSocket {
    listener: UnixListener,
    /// Removes the socket's file when it is dropped.
    _file: BoundFile,
    snoopers: Vec<Snooper>,
}

#[derive(Debug)]
struct Snooper {
    /// The controller whose messages the peer gets, including the messages of later connections to
    /// this controller.
    controller: Remote,
    stream: Stream,
    out: Outgoing,
}

impl SnoopSocket {
    pub(super) fn new((listener, file): (UnixListener, BoundFile)) -> Self {
        Self { listener, _file: file, snoopers: Vec::new() }
    }

    /// Returns the listener and the peers, each with the events for which the switch waits.
    pub(super) fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let peer = |snooper: &Snooper| match snooper.out.waiting() {
            0 => PollFlags::IN,
            _ => PollFlags::IN | PollFlags::OUT,
        };
        let peers =
            self.snoopers.iter().map(move |snooper| (snooper.stream.as_fd(), peer(snooper)));
        std::iter::once((self.listener.as_fd(), PollFlags::IN)).chain(peers)
    }

    /// Returns a new peer; `None` if no peer waits.
    pub(super) fn accept(&self) -> io::Result<Option<Stream>> {
        match self.listener.accept() {
            Ok((stream, _)) => Stream::unix(stream).map(Some),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a peer. If the controller already has its maximum number of peers, closes the
    /// connection instead.
    pub(super) fn add(&mut self, stream: Stream, controller: Remote) {
        let others = self.snoopers.iter().filter(|snooper| snooper.controller == controller);
        if others.count() >= MOST_SNOOPERS {
            tracing::info!("controller {controller}: {MOST_SNOOPERS} peers snoop: refused another");
            return;
        }
        let mut out = Outgoing::new();
        Session::new(Kind::Service).start(out.buffer());
        self.snoopers.push(Snooper { controller, stream, out });
    }

    /// Whether a peer gets copies of the messages of this controller.
    pub(super) fn is_watching(&self, controller: Remote) -> bool {
        self.snoopers.iter().any(|snooper| snooper.controller == controller)
    }

    /// Closes the connections of peers whose controllers are no longer in the settings.
    pub(super) fn keep(&mut self, controllers: &[Remote]) {
        self.snoopers.retain(|snooper| controllers.contains(&snooper.controller));
    }

    /// Copies whole messages to the peers. As in Open vSwitch, a peer that reads too slowly misses
    /// messages.
    pub(super) fn copy(&mut self, controller: Remote, mut messages: &[u8]) {
        while let Some(length) = message_length(messages) {
            let (message, rest) = messages.split_at(length);
            let snoopers = self.snoopers.iter_mut();
            for snooper in snoopers.filter(|snooper| snooper.controller == controller) {
                if snooper.out.waiting() < MOST_WAITING {
                    snooper.out.buffer().extend_from_slice(message);
                }
            }
            messages = rest;
        }
    }

    /// Writes the copies, and drops the peers that have closed their connections.
    pub(super) fn run(&mut self, scratch: &mut [u8]) {
        self.snoopers.retain_mut(|snooper| snooper.run(scratch).is_ok());
    }
}

impl Snooper {
    fn run(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        self.out.write(&mut self.stream)?;
        // A peer sends only its hello, which needs no answer.
        match self.stream.read(scratch) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Maximum number of peers for each controller, as in Open vSwitch.
const MOST_SNOOPERS: usize = 8;
/// If a peer has at least this number of unread bytes, the peer misses messages.
const MOST_WAITING: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use ovsdb::topology::Carrier;

    use super::*;

    #[test]
    fn a_snooper_that_does_not_read_misses_messages_and_gets_the_others_whole() {
        let directory = tempfile::tempdir().unwrap();
        let folder = host::PrivateDirectory::make_named(directory.path()).unwrap();
        let (listener, file) = folder.socket("br0.snoop").listen(None).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut socket = SnoopSocket::new((listener, file));
        let connect = || UnixStream::connect(directory.path().join("br0.snoop")).unwrap();
        let remote = |port| Remote {
            carrier: Carrier::Tcp,
            address: std::net::SocketAddr::from(([127, 0, 0, 1], port)),
        };
        let mut peers: Vec<_> = (0..=MOST_SNOOPERS).map(|_| connect()).collect();
        for _ in &peers {
            let stream = socket.accept().unwrap().unwrap();
            socket.add(stream, remote(1));
        }
        assert!(socket.accept().unwrap().is_none());
        assert_eq!(socket.snoopers.len(), MOST_SNOOPERS);
        let mut scratch = [0; 64];
        let mut message = vec![0; 1000];
        message[..8].copy_from_slice(&[4, 10, 0x03, 0xe8, 0, 0, 0, 0]);
        // Another controller's bytes, and an incomplete message, are not copied.
        socket.copy(remote(2), &message);
        socket.copy(remote(1), &message[..999]);
        for _ in 0..4_000 {
            socket.copy(remote(1), &message);
            socket.run(&mut scratch);
        }
        let waiting = socket.snoopers.iter().map(|snooper| snooper.out.waiting()).max().unwrap();
        assert!(waiting < MOST_WAITING + message.len(), "{waiting}");
        let peer = &mut peers[0];
        peer.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        peer.set_nonblocking(true).unwrap();
        let mut bytes = Vec::new();
        while socket.snoopers[0].out.waiting() > 0 {
            let _ = peer.read_to_end(&mut bytes);
            socket.run(&mut scratch);
        }
        let _ = peer.read_to_end(&mut bytes);
        let hello = message_length(&bytes).unwrap();
        let copies = &bytes[hello..];
        assert!(copies.len() < 4_000 * message.len() && copies.len() > MOST_WAITING);
        assert!(copies.chunks(message.len()).all(|copy| copy == message));
        peers.clear();
        socket.run(&mut scratch);
        assert!(!socket.is_watching(remote(1)));
    }
}
