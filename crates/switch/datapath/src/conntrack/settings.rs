use units::Span;

/// The settings of a new [`super::Conntrack`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The seed of hashes and of the ports that `nat(…,random)` chooses. The senders of packets
    /// should not know the seed.
    pub seed: u64,
    /// Maximum number of threads that track packets at the same time; see
    /// [`super::Conntrack::set_threads`].
    pub threads: usize,
    /// Maximum number of connections; `dpctl/ct-set-maxconns` changes this limit later.
    pub max_connections: u32,
    pub timeouts: Timeouts,
    /// Whether packets with wrong checksums are invalid.
    pub verify_checksums: bool,
    /// Whether TCP segments outside the window are invalid; `dpctl/ct-enable-tcp-seq-chk` changes
    /// this setting.
    pub check_tcp_sequence: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            threads: 1,
            max_connections: 3_000_000,
            timeouts: Timeouts::default(),
            verify_checksums: true,
            check_tcp_sequence: true,
        }
    }
}

/// The lifetime of a connection after its last packet, by the connection's state. Names and
/// defaults are those of Open vSwitch's userspace datapath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// After a SYN and before the SYN-ACK.
    pub tcp_syn_sent: Span,
    /// While the handshake is not complete.
    pub tcp_syn_recv: Span,
    pub tcp_established: Span,
    /// After the FIN of one endpoint.
    pub tcp_fin_wait: Span,
    /// After the FINs of both endpoints.
    pub tcp_time_wait: Span,
    /// After both FINs are acknowledged, or after a reset.
    pub tcp_close: Span,
    /// For UDP and all other protocols without a handshake: after the first packet.
    pub udp_first: Span,
    /// For UDP: after several packets, all from the first endpoint.
    pub udp_single: Span,
    /// For UDP: after packets from both endpoints.
    pub udp_multiple: Span,
    pub icmp_first: Span,
    pub icmp_reply: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_sent: Span::from_secs(30),
            tcp_syn_recv: Span::from_secs(30),
            tcp_established: Span::from_secs(24 * 60 * 60),
            tcp_fin_wait: Span::from_secs(15 * 60),
            tcp_time_wait: Span::from_secs(45),
            tcp_close: Span::from_secs(30),
            udp_first: Span::from_secs(60),
            udp_single: Span::from_secs(60),
            udp_multiple: Span::from_secs(30),
            icmp_first: Span::from_secs(60),
            icmp_reply: Span::from_secs(30),
        }
    }
}

/// The state of a connection that decides its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    TcpSynSent,
    TcpSynRecv,
    TcpEstablished,
    TcpFinWait,
    TcpTimeWait,
    TcpClose,
    UdpFirst,
    UdpSingle,
    UdpMultiple,
    IcmpFirst,
    IcmpReply,
}

/// Lifetimes in milliseconds, by [`Phase`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetimes([u64; 11]);

impl Lifetimes {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let spans = [
            timeouts.tcp_syn_sent,
            timeouts.tcp_syn_recv,
            timeouts.tcp_established,
            timeouts.tcp_fin_wait,
            timeouts.tcp_time_wait,
            timeouts.tcp_close,
            timeouts.udp_first,
            timeouts.udp_single,
            timeouts.udp_multiple,
            timeouts.icmp_first,
            timeouts.icmp_reply,
        ];
        Self(spans.map(|span| (span.nanos() / 1_000_000).clamp(1, LONGEST_MS)))
    }

    pub(super) fn of(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }
}

/// Maximum lifetime: a year, so that sums of a time and a lifetime do not overflow.
const LONGEST_MS: u64 = 365 * 24 * 3600 * 1000;
