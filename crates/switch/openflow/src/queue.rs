//! Queues. A port without configured queues has one queue with the number 0: the queue of the
//! port's rate limit, if the port has a limit.

use flow::port_number::PortNumber;
use flow::request::{Bridge, PortStatistics, QueueStatistics, Refusal};

use super::Version;
use super::flow_statistics::put_duration;
use super::message::{Message, begin_message, end_message};
use super::octets::{Put, Reader};
use super::port::port_numbers;

/// A queue of a port. The reply lists queues by this combined number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId {
    port: u16,
    queue: u16,
}

impl QueueId {
    fn of(port: u32, queue: u32) -> Option<Self> {
        let port = PortNumber(port).to_16_bits()?;
        Some(Self { port, queue: u16::try_from(queue).ok()? })
    }

    fn number(self) -> u32 {
        u32::from(self.port) << 16 | u32::from(self.queue)
    }

    pub(super) fn of_number(number: u32) -> Self {
        Self { port: (number >> 16) as u16, queue: number as u16 }
    }

    pub(super) fn port(self) -> PortNumber {
        PortNumber::from_16_bits(self.port)
    }
}

/// Reads a request for the statistics or descriptions of queues. Returns the numbers of the
/// [`QueueId`]s that the request selects.
pub(super) fn decode_queue_request(
    mut body: Reader<'_>,
    version: Version,
    bridge: &dyn Bridge,
) -> Result<Vec<u32>, Refusal> {
    let port = read_port(&mut body, version)?;
    let wanted = body.u32()?;
    let ports = ports(port, bridge)?;
    let selected = queues_of(ports, bridge).filter(|(_, queue)| wanted == ALL || wanted == *queue);
    let ids: Vec<u32> =
        selected.filter_map(|(port, queue)| Some(QueueId::of(port, queue)?.number())).collect();
    if ids.is_empty() && wanted != ALL {
        return Err(Refusal::BadQueue);
    }
    Ok(ids)
}

/// Returns the queues of ports, each as the number of the port and the number of the queue.
fn queues_of(ports: Vec<u32>, bridge: &dyn Bridge) -> impl Iterator<Item = (u32, u32)> {
    ports.into_iter().flat_map(|port| {
        let queues = bridge.port_statistics(PortNumber(port)).map(|port| numbers(&port));
        queues.unwrap_or_default().into_iter().map(move |queue| (port, queue))
    })
}

/// Returns the numbers of a port's queues.
fn numbers(port: &PortStatistics) -> Vec<u32> {
    match port.queues.as_slice() {
        [] => vec![ONLY],
        queues => queues.iter().map(|queue| queue.queue).collect(),
    }
}

pub(super) fn encode_queue_statistics(
    port: &PortStatistics,
    id: QueueId,
    version: Version,
    out: &mut Vec<u8>,
) {
    let number = u32::from(id.queue);
    let found = port.queues.iter().find(|queue| queue.queue == number);
    if found.is_none() && !port.queues.is_empty() {
        return;
    }
    match version {
        Version::V10 => {
            out.put_u16(PortNumber(port.number).to_16_bits().unwrap_or(0xffff));
            out.put_zeros(2);
        }
        Version::V11 | Version::V12 | Version::V13 => out.put_u32(port.number),
        _ => {
            out.put_u16(48);
            out.put_zeros(6);
            out.put_u32(port.number);
        }
    }
    out.put_u32(number);
    let of_rate = port.has_rate.then(|| QueueStatistics {
        queue: ONLY,
        sent_packets: port.sent_packets,
        sent_bytes: port.sent_bytes,
        dropped: port.sent_dropped.unwrap_or(u64::MAX),
        duration: port.duration,
    });
    let has_duration = !matches!(version, Version::V10 | Version::V11 | Version::V12);
    match found.or(of_rate.as_ref()) {
        Some(queue) => {
            [queue.sent_bytes, queue.sent_packets, queue.dropped]
                .into_iter()
                .for_each(|count| out.put_u64(count));
            if has_duration {
                put_duration(queue.duration, out);
            }
        }
        // A port without queues and without a rate counts nothing.
        None => (0..if has_duration { 4 } else { 3 }).for_each(|_| out.put_u64(u64::MAX)),
    }
}

/// Writes a queue's description for OpenFlow 1.4 and later.
pub(super) fn encode_queue_description(port: &PortStatistics, id: QueueId, out: &mut Vec<u8>) {
    out.put_u32(port.number);
    out.put_u32(id.queue.into());
    out.put_u16(16);
    out.put_zeros(6);
}

/// Answers a request for a port's queues in OpenFlow before 1.4.
pub(super) fn answer_queue_config(
    message: &Message<'_>,
    bridge: &dyn Bridge,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let version = message.header.version;
    let port = read_port(&mut message.body(), version)?;
    let ports = ports(port, bridge)?;
    let start = begin_message(message.reply(message.header.kind + 1), out);
    match version {
        Version::V10 => {
            out.put_u16(port.to_16_bits().unwrap_or(0xffff));
            out.put_zeros(6);
        }
        _ => {
            out.put_u32(port.0);
            out.put_zeros(4);
        }
    }
    for (port, queue) in queues_of(ports, bridge) {
        // The reply is a single message with a 16-bit length. Queues that do not fit are left out.
        if out.len() - start > MOST_BYTES - 16 {
            break;
        }
        out.put_u32(queue);
        if matches!(version, Version::V10 | Version::V11) {
            out.put_u16(8);
            out.put_zeros(2);
        } else {
            out.put_u32(port);
            out.put_u16(16);
            out.put_zeros(6);
        }
    }
    end_message(start, out);
    Ok(())
}

fn read_port(body: &mut Reader<'_>, version: Version) -> Result<PortNumber, Refusal> {
    Ok(match version {
        Version::V10 => {
            let port = PortNumber::from_16_bits(body.u16()?);
            body.skip(2)?;
            port
        }
        _ => PortNumber(body.u32()?),
    })
}

/// Returns the number of the given port, or the numbers of all ports.
fn ports(port: PortNumber, bridge: &dyn Bridge) -> Result<Vec<u32>, Refusal> {
    let wanted = if port == PortNumber::ALL { PortNumber::NONE } else { port };
    port_numbers(wanted, bridge).ok_or(Refusal::BadQueuePort)
}

/// The number of the queue of a port without configured queues.
const ONLY: u32 = 0;
const ALL: u32 = u32::MAX;
/// Maximum length of a message.
const MOST_BYTES: usize = 0xffff;
