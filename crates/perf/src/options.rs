//! Options of a test, a client and a server.

use crate::accounts::{Accounts, Credentials};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use units::{Bytes, Rate, Span};

/// A test, as client and server agree on it over the control connection.
#[derive(Debug, Clone, PartialEq)]
pub struct TestOptions {
    pub protocol: Protocol,
    pub direction: Direction,
    pub amount: Amount,
    /// Time at the start of the test that no result includes.
    pub omit: Span,
    /// Number of streams in each direction.
    pub streams: u32,
    /// Bytes in a write or datagram; `None` is the default of the protocol ([`Self::block_bytes`]).
    pub block: Option<Bytes>,
    /// The target rate of each stream; `None` sends as fast as the path allows.
    pub rate: Option<Rate>,
    /// Number of blocks that are sent back to back when a target rate is set.
    pub burst: u32,
    /// Interval of the pacing timer.
    pub pacing_timer: Span,
    /// Rate for the kernel's own pacing (SO_MAX_PACING_RATE).
    pub kernel_rate: Option<Rate>,
    /// Size of the send buffer and of the receive buffer (SO_SNDBUF, SO_RCVBUF).
    pub window: Option<Bytes>,
    pub mss: Option<u32>,
    pub no_delay: bool,
    pub congestion: Option<String>,
    pub type_of_service: u8,
    pub flow_label: Option<u32>,
    pub zero_copy: bool,
    /// True if the receiver lets the kernel discard the data without a copy (MSG_TRUNC).
    pub skip_receive_copy: bool,
    pub repeating_payload: bool,
    pub dont_fragment: bool,
    pub udp_wide_counters: bool,
    /// True if the client requests the server's own output.
    pub server_output: bool,
    /// The CPU to which the server pins this test.
    pub server_affinity: Option<usize>,
    pub title: Option<String>,
    pub extra_data: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends (`-R`).
    Reverse,
    /// Client and server send (`--bidir`).
    Both,
}

/// Amount to send. The test ends when the amount is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// The duration; at zero the test runs until the user ends the test.
    Time(Span),
    /// Bytes over all streams of a direction together.
    Bytes(u64),
    Blocks(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClientOptions {
    pub host: String,
    pub port: u16,
    pub family: Option<Family>,
    pub bind: Option<IpAddr>,
    pub bind_device: Option<String>,
    /// The local port of the first data stream; the other streams take the following ports.
    pub client_port: Option<u16>,
    pub connect_timeout: Duration,
    /// Maximum time without data on all receiving streams; then the test fails.
    pub receive_timeout: Duration,
    /// Maximum time that data sent over TCP may stay unacknowledged (TCP_USER_TIMEOUT); `None` is
    /// the kernel's limit.
    pub send_timeout: Option<Duration>,
    /// TCP keepalive of the control connection; `None` sends no probes.
    pub keep_alive: Option<KeepAlive>,
    pub affinity: Option<usize>,
    pub interval: Span,
    pub test: TestOptions,
    /// True if the client measures TCP_INFO over time, CPU per core, and latency under load.
    pub probes: bool,
    /// Duration of the latency measurement on the idle path before the test, for comparison with
    /// the latency under load.
    pub idle_probe: Span,
    /// True if the probes are turned off and on within the test, to measure their cost.
    pub probe_cost: bool,
    /// The client's account, for a server that has accounts.
    pub credentials: Option<Credentials>,
}

/// Settings of TCP keepalive; `None` is the kernel's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepAlive {
    /// Time without data after which the kernel sends the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Number of unanswered probes after which the connection fails.
    pub probes: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub port: u16,
    pub family: Option<Family>,
    pub bind: Option<IpAddr>,
    pub bind_device: Option<String>,
    pub one_off: bool,
    /// Ends the server after this time without a client.
    pub idle_timeout: Option<Duration>,
    pub affinity: Option<usize>,
    pub interval: Span,
    pub probes: bool,
    pub limits: Limits,
    /// The accounts of the clients that the server serves; `None` serves every client.
    pub accounts: Option<Accounts>,
}

/// Limits on each client, and on all clients together.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Maximum number of concurrent tests; a further client is refused with a message.
    pub sessions: usize,
    /// Maximum number of concurrent tests from the same address. The IPv6 addresses of a /64 count
    /// as one address.
    pub sessions_per_address: usize,
    /// Maximum number of connections that have not sent their cookie. A new connection displaces
    /// the oldest connection.
    pub pending: usize,
    pub streams: u32,
    /// Maximum rate of all streams of a test together.
    pub rate: Option<Rate>,
    /// Time over which the rate of a running test is averaged.
    pub rate_window: Span,
    /// Maximum duration of a test, including the omitted time.
    pub duration: Option<Span>,
    /// The additional ports that a client may ask the server to open, for `crr` and UDP tests of
    /// [`crate::rounds`]; `None` permits any port above 1023.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// Timeout for a client's next step in the control protocol.
    pub patience: Duration,
    /// Maximum time without data on all streams and on the control connection.
    pub receive_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl TestOptions {
    pub fn block_bytes(&self) -> usize {
        let default = match self.protocol {
            Protocol::Tcp => TCP_BLOCK,
            Protocol::Udp => UDP_BLOCK,
        };
        self.block.map_or(default, |block| block.count() as usize)
    }
}

impl Default for TestOptions {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            amount: Amount::Time(Span::from_secs(10)),
            omit: Span::ZERO,
            streams: 1,
            block: None,
            rate: None,
            burst: 1,
            pacing_timer: Span::from_millis(1),
            kernel_rate: None,
            window: None,
            mss: None,
            no_delay: false,
            congestion: None,
            type_of_service: 0,
            flow_label: None,
            zero_copy: false,
            skip_receive_copy: false,
            repeating_payload: false,
            dont_fragment: false,
            udp_wide_counters: false,
            server_output: false,
            server_affinity: None,
            title: None,
            extra_data: None,
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: PORT,
            family: None,
            bind: None,
            bind_device: None,
            client_port: None,
            connect_timeout: Duration::from_secs(10),
            receive_timeout: Duration::from_secs(120),
            send_timeout: None,
            keep_alive: None,
            affinity: None,
            interval: Span::from_secs(1),
            test: TestOptions::default(),
            probes: true,
            idle_probe: Span::from_millis(500),
            probe_cost: false,
            credentials: None,
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            port: PORT,
            family: None,
            bind: None,
            bind_device: None,
            one_off: false,
            idle_timeout: None,
            affinity: None,
            interval: Span::from_secs(1),
            probes: true,
            limits: Limits::default(),
            accounts: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 32,
            sessions_per_address: 4,
            pending: 256,
            streams: 128,
            rate: None,
            rate_window: Span::from_secs(5),
            duration: Some(LONGEST_TEST),
            data_ports: None,
            patience: Duration::from_secs(10),
            receive_timeout: Duration::from_secs(120),
        }
    }
}

/// iperf3's port.
pub const PORT: u16 = 5201;
/// Default of [`Limits::duration`].
pub const LONGEST_TEST: Span = Span::from_secs(3600);
const TCP_BLOCK: usize = 128 * 1024;
/// Default size of a datagram: the TCP segment size over IPv4 with timestamps at an MTU of 1500
/// bytes. The client, like iperf3, uses the control connection's segment size instead if the client
/// knows it.
const UDP_BLOCK: usize = 1448;
