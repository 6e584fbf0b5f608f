use super::budget::Encore;
use super::{Budget, Counter, Course, Ending, Pace, payload};
use crate::options::TestOptions;
use probe::tcp::TcpInfo;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct TcpSender {
    source: Source,
    block: usize,
    pace: Option<Pace>,
}

#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    /// Pages that the kernel hands to the socket as they are.
    File(File),
}

impl TcpSender {
    pub(super) fn new(options: &TestOptions) -> io::Result<Self> {
        let block = options.block_bytes().max(1);
        let bytes = payload(options, block);
        let source = if options.zero_copy {
            let mut file = File::from(memfd_create("weir perf", MemfdFlags::CLOEXEC)?);
            file.write_all(&bytes)?;
            Source::File(file)
        } else {
            Source::Memory(bytes)
        };
        Ok(Self { source, block, pace: Pace::of(options, options.pacing_timer) })
    }

    pub(super) fn run(
        &mut self,
        socket: &TcpStream,
        course: &Course,
        budget: &Budget,
        sent: &Counter,
    ) -> Option<Ending> {
        if let Some(pace) = &mut self.pace {
            pace.begin(course.started());
        }
        let mut encore = Encore::default();
        // Blocks begun, blocks the pace has let through, and what is left of the block at hand.
        let (mut begun, mut allowed, mut left) = (0u64, 0u64, 0usize);
        while course.may_send() {
            if left == 0 {
                if begun == allowed {
                    match &self.pace {
                        Some(pace) => allowed += pace.wait(begun, course),
                        None => allowed += 1,
                    }
                    if begun == allowed {
                        continue;
                    }
                }
                if budget.claim(1) == 0 && !encore.is_due(Some(socket)) {
                    continue;
                }
                begun += 1;
                left = self.block;
            }
            match self.source.give(socket, self.block - left, left) {
                Ok(count) => {
                    sent.add(count as u64);
                    left -= count.min(left);
                }
                // A write that waited as long as it may, having given nothing.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) => std::thread::yield_now(),
                Err(errno) => return Some(Ending::of(errno)),
            }
        }
        None
    }
}

impl Source {
    fn give(&self, socket: &TcpStream, from: usize, count: usize) -> Result<usize, Errno> {
        match self {
            Self::Memory(bytes) => send(socket, &bytes[from..from + count], SendFlags::NOSIGNAL),
            Self::File(file) => sendfile(socket, file, Some(&mut (from as u64)), count),
        }
    }
}

/// All that the socket was given has reached the peer's kernel.
pub(super) fn is_acknowledged(info: &TcpInfo) -> bool {
    info.unacked.unwrap_or(0) == 0 && info.notsent.is_none_or(|left| left.count() == 0)
}
