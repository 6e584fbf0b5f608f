//! Queueing disciplines of the calling thread's namespace, with their counters.

use netlink_packet_core::Nla as _;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use units::{Bytes, Rate, Time};

use crate::netlink::RouteDump;
use crate::{ProbeError, clock, netlink};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QdiscSnapshot {
    pub taken: Time,
    pub qdiscs: Vec<Qdisc>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The interface's index.
    pub interface: u32,
    /// `tbf`, `htb`, `fq_codel`, `noqueue`, …
    pub kind: String,
    pub handle: Handle,
    pub parent: Handle,
    pub counters: QdiscCounters,
    /// Bytes queued now.
    pub backlog: Bytes,
    /// Packets queued now.
    pub queued: u32,
    /// Maximum rate per flow (`maxrate` of `fq`).
    pub flow_limit: Option<Rate>,
}

/// The kernel's handle, written `major:minor` in hexadecimal as by `tc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Handle {
    pub major: u16,
    pub minor: u16,
}

impl Handle {
    pub const ROOT: Self = Self { major: u16::MAX, minor: u16::MAX };
    pub const INGRESS: Self = Self { major: u16::MAX, minor: 0xfff1 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QdiscCounters {
    pub bytes: Bytes,
    pub packets: u64,
    pub drops: u64,
    /// The number of times that a rate limit delayed a packet.
    pub overlimits: u64,
    pub requeues: u64,
}

impl QdiscSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let mut snapshot: Self = netlink::read_dump()?;
        snapshot.taken = clock::now();
        Ok(snapshot)
    }

    pub fn parse(datagram: &[u8]) -> Result<Self, ProbeError> {
        netlink::parse_dump(datagram)
    }
}

impl RouteDump for QdiscSnapshot {
    const WHAT: &str = "queues (RTM_GETQDISC)";

    fn request() -> RouteNetlinkMessage {
        RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default())
    }

    fn add(&mut self, answer: RouteNetlinkMessage) {
        if let RouteNetlinkMessage::NewQueueDiscipline(message) = answer {
            self.qdiscs.extend(Qdisc::of(message));
        }
    }
}

impl Qdisc {
    fn of(message: TcMessage) -> Option<Self> {
        let mut qdisc = Self {
            interface: u32::try_from(message.header.index).ok()?,
            kind: String::new(),
            handle: message.header.handle.into(),
            parent: message.header.parent.into(),
            counters: QdiscCounters::default(),
            backlog: Bytes::ZERO,
            queued: 0,
            flow_limit: None,
        };
        for attribute in message.attributes {
            match attribute {
                TcAttribute::Kind(kind) => qdisc.kind = kind,
                TcAttribute::Options(options) if qdisc.kind == "fq" => {
                    qdisc.flow_limit = options.iter().find_map(flow_limit);
                }
                TcAttribute::Stats2(parts) => parts.iter().for_each(|part| qdisc.add(part)),
                _ => {}
            }
        }
        Some(qdisc)
    }

    fn add(&mut self, part: &TcStats2) {
        match part {
            TcStats2::Basic(basic) => {
                self.counters.bytes = Bytes::new(basic.bytes);
                self.counters.packets = basic.packets.into();
            }
            TcStats2::Queue(queue) => {
                self.backlog = Bytes::new(queue.backlog.into());
                self.queued = queue.qlen;
                self.counters.drops = queue.drops.into();
                self.counters.overlimits = queue.overlimits.into();
                self.counters.requeues = queue.requeues.into();
            }
            TcStats2::Other(other) if other.kind() == STATS_PKT64 => {
                // Once the 32-bit count has overflowed, the kernel sends the 64-bit count after the
                // 32-bit count.
                let mut count = [0; 8];
                if other.value_len() == count.len() {
                    other.emit_value(&mut count);
                    self.counters.packets = u64::from_ne_bytes(count);
                }
            }
            _ => {}
        }
    }
}

/// Returns the maximum rate per flow of `fq`, which the kernel gives in bytes a second. All bits
/// set mean no limit.
fn flow_limit(option: &TcOption) -> Option<Rate> {
    let TcOption::Other(all) = option else { return None };
    let mut bytes = vec![0; all.value_len()];
    all.emit_value(&mut bytes);
    let mut rest = bytes.as_slice();
    while rest.len() >= HEADER {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let value = rest.get(HEADER..length)?;
        if kind == FLOW_MAX_RATE {
            let rate = u32::from_ne_bytes(value.try_into().ok()?);
            return (rate != u32::MAX).then(|| Rate::from_bits_per_second(u64::from(rate) * 8));
        }
        rest = rest.get(length.next_multiple_of(HEADER)..)?;
    }
    None
}

impl From<TcHandle> for Handle {
    fn from(handle: TcHandle) -> Self {
        Self { major: handle.major, minor: handle.minor }
    }
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ROOT => f.pad("root"),
            Self::INGRESS => f.pad("ingress"),
            Self { major, minor: 0 } => f.pad(&format!("{major:x}:")),
            Self { major, minor } => f.pad(&format!("{major:x}:{minor:x}")),
        }
    }
}

/// include/uapi/linux/gen_stats.h, TCA_STATS_PKT64.
const STATS_PKT64: u16 = 8;
/// include/uapi/linux/pkt_sched.h, TCA_FQ_FLOW_MAX_RATE.
const FLOW_MAX_RATE: u16 = 7;
/// Bytes of an attribute's length and type. Attributes begin at multiples of this size.
const HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::DefaultNla;
    use netlink_packet_route::tc::{TcStatsBasic, TcStatsQueue};

    fn tbf(packets: u32, wide: Option<u64>) -> Qdisc {
        let mut basic = TcStatsBasic::default();
        basic.bytes = 1000;
        basic.packets = packets;
        let mut queue = TcStatsQueue::default();
        (queue.backlog, queue.qlen, queue.drops) = (3000, 2, 5);
        let mut parts = vec![TcStats2::Basic(basic), TcStats2::Queue(queue)];
        parts.extend(wide.map(|count| {
            TcStats2::Other(DefaultNla::new(STATS_PKT64, count.to_ne_bytes().to_vec()))
        }));
        let mut message = TcMessage::with_index(7);
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Stats2(parts)];
        Qdisc::of(message).unwrap()
    }

    #[test]
    fn qdisc_attributes_of_both_formats_are_parsed() {
        let narrow = tbf(9, None);
        assert_eq!((narrow.interface, narrow.parent), (7, Handle::ROOT));
        assert_eq!((narrow.backlog, narrow.queued), (Bytes::new(3000), 2));
        assert_eq!((narrow.counters.packets, narrow.counters.drops), (9, 5));
        assert_eq!(tbf(1, Some(1 << 40)).counters.packets, 1 << 40);
    }

    #[test]
    fn the_maxrate_of_fq_is_parsed_as_the_rate_limit_of_a_flow() {
        let limit = |rate: u32| {
            let attribute = |kind: u16, value: u32| {
                let header = [8u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
                [header, value.to_ne_bytes().to_vec()].concat()
            };
            let nested = [attribute(1, 10_000), attribute(FLOW_MAX_RATE, rate)].concat();
            let mut message = TcMessage::with_index(7);
            let options = vec![TcOption::Other(DefaultNla::new(2, nested))];
            message.attributes =
                vec![TcAttribute::Kind("fq".to_owned()), TcAttribute::Options(options)];
            Qdisc::of(message).unwrap().flow_limit
        };
        assert_eq!(limit(2_500_000), Some(Rate::from_mbit(20)));
        assert_eq!(limit(u32::MAX), None);
    }

    #[test]
    fn qdisc_handles_are_printed_as_by_tc() {
        let handle = |major, minor| Handle { major, minor }.to_string();
        assert_eq!(handle(1, 0), "1:");
        assert_eq!(handle(0x8001, 10), "8001:a");
        assert_eq!(Handle::ROOT.to_string(), "root");
    }
}
