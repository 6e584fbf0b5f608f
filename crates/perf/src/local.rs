//! Round trips and bandwidth between two processes of this machine, over a UNIX socket, pipes or
//! TCP: lmbench's lat_unix, lat_pipe, lat_tcp, bw_unix, bw_pipe and bw_tcp.
//!
//! The second process runs this program again ([`far_end`]). The standard input and output of the
//! second process lead to the first process. The second process ends when the first process ends.

mod channel;
mod far;
mod outcome;

pub use far::{Task, far_end};
pub use outcome::{Bandwidth, LocalLatency};

use crate::PerfError;
use crate::event::Stop;
use crate::rounds::Latencies;
use channel::Channel;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use units::{Bytes, Span};

/// The transport between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Unix,
    Pipe,
    Tcp,
}

#[derive(Debug, Clone)]
pub struct LocalOptions {
    pub program: PathBuf,
    pub over: Over,
    /// Size of a message in a latency test, or of a read and a write in a bandwidth test.
    pub size: Bytes,
    pub time: Span,
    /// The CPUs to which this process and the second process are pinned.
    pub affinity: [Option<usize>; 2],
}

impl Over {
    pub const ALL: [Self; 3] = [Self::Unix, Self::Pipe, Self::Tcp];
    /// The size of a message in lmbench's latency tests.
    pub const MESSAGE: Bytes = Bytes::new(1);
    /// The size of a read and a write in lmbench's bandwidth tests.
    pub const BLOCK: Bytes = Bytes::kib(64);
    pub const LARGEST: Bytes = Bytes::new(1 << 24);

    pub fn word(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unix => "AF_UNIX",
            Self::Pipe => "pipe",
            Self::Tcp => "TCP",
        })
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|over| over.word() == text);
        known.copied().ok_or_else(|| format!("`{text}`: write unix, pipe or tcp"))
    }
}

/// Measures the time from a message to its echo.
pub fn latency(options: &LocalOptions, stop: &Stop) -> Result<LocalLatency, PerfError> {
    let mut channel = Channel::open(options, Task::Echo, stop)?;
    let mut message = vec![b'l'; usize::try_from(options.size.count()).unwrap_or(usize::MAX)];
    let mut latencies = Latencies::default();
    let warm = Instant::now() + WARM_UP;
    while Instant::now() < warm {
        channel.exchange(&mut message)?;
    }
    let begun = Instant::now();
    let until = begun + options.time.as_duration();
    let mut before = begun;
    while before < until {
        channel.exchange(&mut message)?;
        let now = Instant::now();
        latencies.add(now - before);
        before = now;
    }
    channel.finish()?;
    let summary = latencies.summary().ok_or(PerfError::Interrupted)?;
    let elapsed: Span = (before - begun).into();
    Ok(LocalLatency { over: options.over, size: options.size, elapsed, summary })
}

/// Measures the rate at which this process reads the data that the second process writes.
pub fn bandwidth(options: &LocalOptions, stop: &Stop) -> Result<Bandwidth, PerfError> {
    let mut channel = Channel::open(options, Task::Fill, stop)?;
    let mut block = vec![0; usize::try_from(options.size.count()).unwrap_or(usize::MAX)];
    let warm = Instant::now() + WARM_UP;
    while Instant::now() < warm {
        channel.read(&mut block)?;
    }
    let (begun, mut bytes) = (Instant::now(), 0);
    let until = begun + options.time.as_duration();
    let mut now = begun;
    while now < until {
        bytes += channel.read(&mut block)? as u64;
        now = Instant::now();
    }
    channel.finish()?;
    let elapsed = (now - begun).into();
    Ok(Bandwidth { over: options.over, size: options.size, elapsed, bytes: Bytes::new(bytes) })
}

/// During the warm-up the second process starts, and both processes touch their memory.
const WARM_UP: Duration = Duration::from_millis(20);
