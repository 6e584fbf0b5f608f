use super::{Counter, Ending, Lifecycle};
use crate::options::TestOptions;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct TcpReceiver {
    buffer: Vec<u8>,
    flags: RecvFlags,
}

impl TcpReceiver {
    pub(super) fn new(options: &TestOptions) -> Self {
        // With MSG_TRUNC the kernel discards the bytes itself (tcp(7)), and the buffer is not
        // touched.
        let (room, flags) = if options.skip_receive_copy {
            (UNTOUCHED_ROOM, RecvFlags::TRUNC)
        } else {
            (options.block_bytes().clamp(LEAST_ROOM, UNTOUCHED_ROOM), RecvFlags::empty())
        };
        Self { buffer: vec![0; room], flags }
    }

    pub(super) fn run(
        &mut self,
        socket: &TcpStream,
        lifecycle: &Lifecycle,
        received: &Counter,
    ) -> Option<Ending> {
        while !lifecycle.is_over() {
            match recv(socket, self.buffer.as_mut_slice(), self.flags) {
                // The peer closed the stream, or the test ended: a shutdown wakes the reader.
                Ok((_, 0)) => return (!lifecycle.is_over()).then_some(Ending::Closed),
                Ok((_, count)) => received.add(count as u64),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return (!lifecycle.is_over()).then(|| Ending::of(errno)),
            }
        }
        None
    }
}

/// Minimum size of the buffer: large enough to empty the queue of a delayed reader in few calls,
/// small enough to stay in a core's second-level cache.
const LEAST_ROOM: usize = 128 << 10;
const UNTOUCHED_ROOM: usize = 1 << 20;
