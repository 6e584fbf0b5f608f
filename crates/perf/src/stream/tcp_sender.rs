use super::budget::OverBudgetPacer;
use super::{Budget, Counter, Ending, Lifecycle, Pace, payload};
use crate::options::TestOptions;
use probe::tcp::TcpInfo;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::{Errno, writev};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct TcpSender {
    source: Source,
    block: usize,
    /// Maximum number of blocks per write.
    most: u64,
    pace: Option<Pace>,
}

#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    /// A file whose pages the kernel passes to the socket without a copy.
    File(File),
}

impl TcpSender {
    pub(super) fn new(options: &TestOptions) -> io::Result<Self> {
        let block = options.block_bytes().max(1);
        // If the user sets a block size, each write has this size. Otherwise use fewer and larger
        // writes, which cost less.
        let most = if options.block.is_none() { DEFAULT_BLOCKS } else { 1 };
        let source = if options.zero_copy {
            let mut file = File::from(memfd_create("weir perf", MemfdFlags::CLOEXEC)?);
            file.write_all(&payload(options, block * most as usize))?;
            Source::File(file)
        } else {
            Source::Memory(payload(options, block))
        };
        Ok(Self { source, block, most, pace: Pace::of(options, options.pacing_timer) })
    }

    pub(super) fn run(
        &mut self,
        socket: &TcpStream,
        lifecycle: &Lifecycle,
        budget: &Budget,
        sent: &Counter,
    ) -> Option<Ending> {
        if let Some(pace) = &mut self.pace {
            pace.begin(lifecycle.started());
        }
        let mut over_budget = OverBudgetPacer::default();
        // Number of blocks begun, and the bytes of these blocks that are still to be written.
        let (mut begun, mut left) = (0u64, 0usize);
        while lifecycle.may_send() {
            if left == 0 {
                let due = self.pace.as_ref().map_or(self.most, |pace| pace.wait(begun, lifecycle));
                if due == 0 {
                    continue;
                }
                let mut blocks = budget.claim(due.min(self.most));
                if blocks == 0 {
                    if !over_budget.is_due(Some(socket)) {
                        continue;
                    }
                    blocks = 1;
                }
                begun += blocks;
                left = blocks as usize * self.block;
            }
            match self.source.give(socket, self.block, left) {
                Ok(count) => {
                    sent.add(count as u64);
                    left -= count.min(left);
                }
                // The write timed out without sending anything.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) => std::thread::yield_now(),
                Err(errno) => return Some(Ending::of(errno)),
            }
        }
        None
    }
}

impl Source {
    /// Writes the last `left` bytes of a sequence of blocks in a single call.
    fn give(&self, socket: &TcpStream, block: usize, left: usize) -> Result<usize, Errno> {
        match self {
            // Repeat the same block, which stays in the cache.
            Self::Memory(bytes) => {
                let (whole, rest) = (left / block, left % block);
                let mut slices = [IoSlice::new(&[]); DEFAULT_BLOCKS as usize + 1];
                slices[0] = IoSlice::new(&bytes[block - rest..]);
                slices[1..=whole].fill(IoSlice::new(bytes));
                writev(socket, &slices[usize::from(rest == 0)..=whole])
            }
            Self::File(file) => sendfile(socket, file, Some(&mut 0), left),
        }
    }
}

/// True if the peer's kernel has acknowledged all data that was written to the socket.
pub(super) fn is_acknowledged(info: &TcpInfo) -> bool {
    info.unacked.unwrap_or(0) == 0 && info.notsent.is_none_or(|left| left.count() == 0)
}

/// Number of blocks per write by default: a mebibyte in blocks of iperf3's size. On loopback a
/// write of a mebibyte takes a third less CPU per byte than a write of a block (compare
/// `write/512K` with `write/64K` in benches/streams.rs).
const DEFAULT_BLOCKS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    #[test]
    fn each_write_has_a_requested_block_size_even_if_it_equals_the_default() {
        let most = |block: Option<u64>| {
            let options = TestOptions { block: block.map(Bytes::new), ..TestOptions::default() };
            TcpSender::new(&options).unwrap().most
        };
        assert_eq!([most(None), most(Some(128 << 10)), most(Some(64 << 10))], [8, 1, 1]);
    }
}
