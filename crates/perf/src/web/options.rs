use super::{Address, Header};
use crate::PerfError;
use std::path::PathBuf;
use std::time::Duration;
use units::Span;

#[derive(Debug, Clone)]
pub struct WebOptions {
    pub address: Address,
    /// Header fields of each request.
    pub headers: Vec<Header>,
    /// Number of concurrent connections of all threads together.
    pub connections: u32,
    pub threads: u32,
    /// Whether a connection carries many requests. If false, a connection ends after its first
    /// response.
    pub keep_alive: bool,
    /// Open loop: requests a second over all connections. `None` for a closed loop.
    pub rate: Option<f64>,
    pub time: Span,
    /// The time at the start of the measurement that no result includes.
    pub omit: Span,
    /// Time limit of a request, including the opening of its connection.
    pub timeout: Duration,
    pub trust: Trust,
    /// The CPU to which the threads are pinned.
    pub affinity: Option<usize>,
}

/// The certificates that an https server may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    System,
    /// The certificates in this PEM file, and certificates that they have issued.
    File(PathBuf),
    /// Any certificate.
    Anything,
}

impl WebOptions {
    pub fn new(address: Address) -> Self {
        Self {
            address,
            headers: Vec::new(),
            connections: 10,
            threads: 1,
            keep_alive: true,
            rate: None,
            time: Span::from_secs(10),
            omit: Span::ZERO,
            timeout: Duration::from_secs(2),
            trust: Trust::System,
            affinity: None,
        }
    }

    /// Returns the HTTP request.
    pub(super) fn request(&self) -> Vec<u8> {
        self.address.request(&self.headers, !self.keep_alive)
    }

    pub fn check(&self) -> Result<(), PerfError> {
        let refuse = |text: String| Err(PerfError::Usage(text));
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return refuse(format!("--connections is from 1 to {MOST_CONNECTIONS}"));
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return refuse(format!("--threads is from 1 to {MOST_THREADS}"));
        }
        if self.threads > self.connections {
            let connections = self.connections;
            return refuse(format!(
                "--threads {} for {connections} connections: a thread needs a connection of its own",
                self.threads
            ));
        }
        if self.rate.is_some_and(|rate| !(SLOWEST..=FASTEST).contains(&rate)) {
            return refuse(format!("--rate is from {SLOWEST} to {FASTEST} requests/s"));
        }
        if self.time == Span::ZERO || self.timeout.is_zero() {
            return refuse("--time and --timeout are above 0".to_owned());
        }
        let length = self.request().len();
        if length > LONGEST_REQUEST {
            return refuse(format!(
                "the request takes {length} bytes, and {LONGEST_REQUEST} are possible: shorten the URL \
                 or --header"
            ));
        }
        Ok(())
    }
}

const MOST_CONNECTIONS: u32 = 10_000;
const MOST_THREADS: u32 = 128;
/// Maximum length of a request in bytes. A request fits in the buffers of TLS and of a new
/// connection.
const LONGEST_REQUEST: usize = 32 << 10;
const SLOWEST: f64 = 0.1;
const FASTEST: f64 = 1e7;
