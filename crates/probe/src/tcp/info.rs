use units::{Bytes, Rate, Share, Span};

/// Declares [`TcpInfo`] with each field's offset in the kernel's `struct tcp_info`
/// (include/uapi/linux/tcp.h). A field beyond the returned bytes stays `None`.
macro_rules! tcp_info {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $raw:ident @ $offset:literal $read:expr;)*) => {
        /// The kernel's data about one connection. `None` is a field that this kernel does not
        /// provide.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        #[non_exhaustive]
        pub struct TcpInfo {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl TcpInfo {
            /// Reads the fields that `bytes` hold: the kernel returns only the fields of its own
            /// version.
            pub fn from_bytes(bytes: &[u8]) -> Self {
                Self {
                    $($field: bytes
                        .get($offset..$offset + size_of::<$raw>())
                        .and_then(|bytes| bytes.try_into().ok())
                        .map($raw::from_ne_bytes)
                        .and_then($read),)*
                }
            }

            /// Returns each field's end offset in the structure, and whether the field is known.
            #[cfg(test)]
            fn known(&self) -> Vec<(usize, bool)> {
                vec![$(($offset + size_of::<$raw>(), self.$field.is_some()),)*]
            }
        }
    };
}

tcp_info! {
    state: TcpState = u8 @ 0 TcpState::from_number;
    congestion_state: CongestionState = u8 @ 1 CongestionState::from_number;
    /// Timeouts of the segment that is being retransmitted.
    retransmits: u8 = u8 @ 2 Some;
    probes: u8 = u8 @ 3 Some;
    backoff: u8 = u8 @ 4 Some;
    timestamps: bool = u8 @ 5 bit::<0>;
    sack: bool = u8 @ 5 bit::<1>;
    window_scaling: bool = u8 @ 5 bit::<2>;
    ecn: bool = u8 @ 5 bit::<3>;
    /// Whether at least one packet arrived with an ECN-capable codepoint.
    ecn_seen: bool = u8 @ 5 bit::<4>;
    /// Whether data in the SYN was acknowledged (TCP Fast Open).
    syn_data: bool = u8 @ 5 bit::<5>;
    /// The shift of the peer's window scale option.
    snd_wscale: u8 = u8 @ 6 |both| Some(both & 15);
    rcv_wscale: u8 = u8 @ 6 |both| Some(both >> 4);
    /// Whether `delivery_rate` was measured while the connection was application-limited.
    delivery_rate_app_limited: bool = u8 @ 7 bit::<0>;
    rto: Span = u32 @ 8 micros;
    ato: Span = u32 @ 12 micros;
    snd_mss: Bytes = u32 @ 16 bytes;
    rcv_mss: Bytes = u32 @ 20 bytes;
    /// Segments in flight; for a listening socket, connections waiting to be accepted.
    unacked: u32 = u32 @ 24 Some;
    /// Segments selectively acknowledged; for a listening socket, the maximum length of its accept
    /// queue.
    sacked: u32 = u32 @ 28 Some;
    lost: u32 = u32 @ 32 Some;
    /// Segments retransmitted and not yet acknowledged.
    retrans: u32 = u32 @ 36 Some;
    last_data_sent: Span = u32 @ 44 millis;
    last_data_received: Span = u32 @ 52 millis;
    last_ack_received: Span = u32 @ 56 millis;
    pmtu: Bytes = u32 @ 60 bytes;
    rcv_ssthresh: Bytes = u32 @ 64 bytes;
    rtt: Span = u32 @ 68 micros;
    rttvar: Span = u32 @ 72 micros;
    /// The slow-start threshold in segments.
    snd_ssthresh: u32 = u32 @ 76 Some;
    /// The congestion window in segments.
    snd_cwnd: u32 = u32 @ 80 Some;
    advmss: Bytes = u32 @ 84 bytes;
    /// The reordering threshold in segments.
    reordering: u32 = u32 @ 88 Some;
    /// The receiver's estimate of the round trip.
    rcv_rtt: Span = u32 @ 92 micros;
    /// Data that the application reads per round trip.
    rcv_space: Bytes = u32 @ 96 bytes;
    /// Segments retransmitted since the start.
    total_retrans: u32 = u32 @ 100 Some;
    /// The largest `Rate` means no limit.
    pacing_rate: Rate = u64 @ 104 rate;
    /// The largest `Rate` means no limit.
    max_pacing_rate: Rate = u64 @ 112 rate;
    bytes_acked: Bytes = u64 @ 120 wide;
    bytes_received: Bytes = u64 @ 128 wide;
    segs_out: u32 = u32 @ 136 Some;
    segs_in: u32 = u32 @ 140 Some;
    notsent: Bytes = u32 @ 144 bytes;
    /// The smallest round trip; `None` also before the first sample.
    min_rtt: Span = u32 @ 148 |count| (count != u32::MAX).then(|| Span::from_micros(count.into()));
    data_segs_in: u32 = u32 @ 152 Some;
    data_segs_out: u32 = u32 @ 156 Some;
    delivery_rate: Rate = u64 @ 160 rate;
    /// Time with data in flight or to send; includes the two limited times below.
    busy_time: Span = u64 @ 168 wide_micros;
    rwnd_limited: Span = u64 @ 176 wide_micros;
    sndbuf_limited: Span = u64 @ 184 wide_micros;
    /// Segments delivered.
    delivered: u32 = u32 @ 192 Some;
    /// Segments delivered and acknowledged with an ECN congestion mark.
    delivered_ce: u32 = u32 @ 196 Some;
    /// Bytes sent, including retransmissions.
    bytes_sent: Bytes = u64 @ 200 wide;
    bytes_retrans: Bytes = u64 @ 208 wide;
    dsack_dups: u32 = u32 @ 216 Some;
    /// How often the sender detected reordering.
    reord_seen: u32 = u32 @ 220 Some;
    /// Packets received out of order.
    rcv_ooopack: u32 = u32 @ 224 Some;
    /// The receive window that the peer offers. Linux 5.4.
    snd_wnd: Bytes = u32 @ 228 bytes;
    /// The receive window offered to the peer. Linux 6.2.
    rcv_wnd: Bytes = u32 @ 232 bytes;
    rehash: u32 = u32 @ 236 Some;
    /// Timeouts since the start. Linux 6.7.
    total_rto: u16 = u16 @ 240 Some;
    total_rto_recoveries: u16 = u16 @ 242 Some;
    total_rto_time: Span = u32 @ 244 millis;
    /// Segments received with an ECN congestion mark. Linux 6.18 (Accurate ECN, RFC 9768).
    received_ce: u32 = u32 @ 248 Some;
    delivered_e1: Bytes = u32 @ 252 bytes;
    delivered_e0: Bytes = u32 @ 256 bytes;
    delivered_ce_bytes: Bytes = u32 @ 260 bytes;
    received_e1: Bytes = u32 @ 264 bytes;
    received_e0: Bytes = u32 @ 268 bytes;
    received_ce_bytes: Bytes = u32 @ 272 bytes;
    // The last word is left out: 6.18 holds two 16-bit fields there and later kernels a bit field
    // of the same length, so its meaning is ambiguous.
}

impl TcpInfo {
    /// Returns the sum of acknowledged and received bytes, without parsing the other fields.
    pub fn moved(bytes: &[u8]) -> Option<Bytes> {
        let count = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Bytes::new(count(120)?.saturating_add(count(128)?)))
    }

    /// Returns the congestion window in bytes.
    pub fn cwnd(&self) -> Option<Bytes> {
        let mss = self.snd_mss?.count();
        Some(Bytes::new(mss * u64::from(self.snd_cwnd?)))
    }

    /// Returns the connection's activity since `earlier`, which was read `elapsed` ago.
    pub fn since(&self, earlier: &Self, elapsed: Span) -> TcpUse {
        fn both<T, R>(later: Option<T>, earlier: Option<T>, minus: fn(T, T) -> R) -> Option<R> {
            later.zip(earlier).map(|(later, earlier)| minus(later, earlier))
        }
        TcpUse {
            elapsed,
            bytes_acked: both(self.bytes_acked, earlier.bytes_acked, Bytes::saturating_sub),
            bytes_received: both(
                self.bytes_received,
                earlier.bytes_received,
                Bytes::saturating_sub,
            ),
            bytes_sent: both(self.bytes_sent, earlier.bytes_sent, Bytes::saturating_sub),
            bytes_retrans: both(self.bytes_retrans, earlier.bytes_retrans, Bytes::saturating_sub),
            // The 32-bit counters wrap on long connections.
            retrans: both(self.total_retrans, earlier.total_retrans, u32::wrapping_sub),
            segs_out: both(self.segs_out, earlier.segs_out, u32::wrapping_sub),
            segs_in: both(self.segs_in, earlier.segs_in, u32::wrapping_sub),
            data_segs_out: both(self.data_segs_out, earlier.data_segs_out, u32::wrapping_sub),
            delivered: both(self.delivered, earlier.delivered, u32::wrapping_sub),
            delivered_ce: both(self.delivered_ce, earlier.delivered_ce, u32::wrapping_sub),
            reord_seen: both(self.reord_seen, earlier.reord_seen, u32::wrapping_sub),
            timeouts: both(self.total_rto, earlier.total_rto, u16::wrapping_sub),
            busy: both(self.busy_time, earlier.busy_time, Span::saturating_sub),
            rwnd_limited: both(self.rwnd_limited, earlier.rwnd_limited, Span::saturating_sub),
            sndbuf_limited: both(self.sndbuf_limited, earlier.sndbuf_limited, Span::saturating_sub),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct TcpUse {
    pub elapsed: Span,
    pub bytes_acked: Option<Bytes>,
    pub bytes_received: Option<Bytes>,
    pub bytes_sent: Option<Bytes>,
    pub bytes_retrans: Option<Bytes>,
    pub retrans: Option<u32>,
    pub segs_out: Option<u32>,
    pub segs_in: Option<u32>,
    pub data_segs_out: Option<u32>,
    pub delivered: Option<u32>,
    pub delivered_ce: Option<u32>,
    pub reord_seen: Option<u32>,
    pub timeouts: Option<u16>,
    pub busy: Option<Span>,
    pub rwnd_limited: Option<Span>,
    pub sndbuf_limited: Option<Span>,
}

impl TcpUse {
    /// Returns the share of retransmitted segments among all data segments sent.
    pub fn retransmit_share(&self) -> Option<Share> {
        share(self.retrans?.into(), self.data_segs_out?.into())
    }
}

/// RFC 9293 section 3.3.2, numbered as in include/net/tcp_states.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TcpState {
    Established = 1,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// A connection request that has no socket yet.
    NewSynReceived,
    /// Bound, and neither listening nor connected.
    BoundInactive,
}

impl TcpState {
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            12 => Self::NewSynReceived,
            13 => Self::BoundInactive,
            _ => return None,
        })
    }
}

/// `enum tcp_ca_state`: the sender's view of the last round of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CongestionState {
    Open,
    Disorder,
    Reduced,
    Recovery,
    Loss,
}

impl CongestionState {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Open,
            1 => Self::Disorder,
            2 => Self::Reduced,
            3 => Self::Recovery,
            4 => Self::Loss,
            _ => return None,
        })
    }
}

fn bit<const N: u8>(bits: u8) -> Option<bool> {
    Some(bits >> N & 1 == 1)
}

fn micros(count: u32) -> Option<Span> {
    Some(Span::from_micros(count.into()))
}

fn millis(count: u32) -> Option<Span> {
    Some(Span::from_millis(count.into()))
}

fn wide_micros(count: u64) -> Option<Span> {
    Some(Span::from_micros(count))
}

fn bytes(count: u32) -> Option<Bytes> {
    Some(Bytes::new(count.into()))
}

fn wide(count: u64) -> Option<Bytes> {
    Some(Bytes::new(count))
}

fn rate(bytes_per_second: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(bytes_per_second.saturating_mul(8)))
}

fn share(part: u64, whole: u64) -> Option<Share> {
    (whole > 0).then(|| Share::new(part as f64 / whole as f64).unwrap_or(Share::ONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The structure has 280 bytes in Linux 6.18. The last word is not read.
    const LENGTH: usize = 280;

    #[test]
    fn a_tcp_info_of_any_length_gives_a_prefix_of_the_fields() {
        let whole = [1u8; LENGTH];
        let all = TcpInfo::from_bytes(&whole);
        assert!(all.known().iter().all(|(_, known)| *known));
        for length in 0..LENGTH {
            for (end, known) in TcpInfo::from_bytes(&whole[..length]).known() {
                assert_eq!(known, end <= length, "field ending at {end} of {length}");
            }
        }
    }

    #[test]
    fn tcp_info_values_are_converted_to_their_units() {
        let mut raw = [0u8; LENGTH];
        raw[0] = 1;
        raw[5] = 0b110;
        raw[6] = 0x7a;
        raw[7] = 1;
        raw[16..20].copy_from_slice(&1448u32.to_ne_bytes());
        raw[68..72].copy_from_slice(&20_000u32.to_ne_bytes());
        raw[80..84].copy_from_slice(&10u32.to_ne_bytes());
        raw[112..120].copy_from_slice(&u64::MAX.to_ne_bytes());
        raw[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        raw[160..168].copy_from_slice(&1_000_000u64.to_ne_bytes());
        raw[120..128].copy_from_slice(&7u64.to_ne_bytes());
        raw[128..136].copy_from_slice(&5u64.to_ne_bytes());
        let info = TcpInfo::from_bytes(&raw);
        let both = info.bytes_acked.zip(info.bytes_received).map(|(sent, came)| sent + came);
        assert_eq!((TcpInfo::moved(&raw), both), (Some(Bytes::new(12)), Some(Bytes::new(12))));
        assert_eq!(TcpInfo::moved(&raw[..130]), None);
        assert_eq!(info.state, Some(TcpState::Established));
        assert_eq!(
            (info.timestamps, info.sack, info.window_scaling),
            (Some(false), Some(true), Some(true))
        );
        assert_eq!((info.snd_wscale, info.rcv_wscale), (Some(10), Some(7)));
        assert_eq!(info.delivery_rate_app_limited, Some(true));
        assert_eq!(info.rtt, Some(Span::from_millis(20)));
        assert_eq!(info.cwnd(), Some(Bytes::new(14_480)));
        assert_eq!(info.min_rtt, None);
        assert_eq!(info.delivery_rate, Some(Rate::from_mbit(8)));
        assert_eq!(info.max_pacing_rate, Some(Rate::from_bits_per_second(u64::MAX)));
    }

    #[test]
    fn tcp_activity_between_two_readings_is_computed() {
        let earlier = TcpInfo {
            bytes_acked: Some(Bytes::new(0)),
            total_retrans: Some(u32::MAX),
            data_segs_out: Some(0),
            busy_time: Some(Span::from_secs(1)),
            ..TcpInfo::default()
        };
        let later = TcpInfo {
            bytes_acked: Some(Bytes::new(1_000_000)),
            total_retrans: Some(9),
            data_segs_out: Some(1000),
            busy_time: Some(Span::from_millis(1500)),
            ..TcpInfo::default()
        };
        let spent = later.since(&earlier, Span::from_secs(1));
        assert_eq!(spent.bytes_acked, Some(Bytes::new(1_000_000)));
        assert_eq!(spent.retransmit_share(), Share::from_percent(1.0));
        assert_eq!(spent.busy, Some(Span::from_millis(500)));
        assert_eq!(spent.rwnd_limited, None, "an unknown time must not give a difference");
    }

    proptest! {
        #[test]
        fn the_parser_of_tcp_info_never_panics(
            one in prop::collection::vec(any::<u8>(), 0..400),
            two in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let (one, two) = (TcpInfo::from_bytes(&one), TcpInfo::from_bytes(&two));
            let spent = two.since(&one, Span::from_millis(1));
            let _ = (spent.retransmit_share(), one.cwnd());
        }
    }
}
