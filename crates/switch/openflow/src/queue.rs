//! Queues. A port has one queue with the number 0: the queue of its rate limit, if it has one.

use flow::port_number::PortNumber;
use flow::request::{Bridge, PortStatistics, Refusal};

use super::Version;
use super::flow_statistics::put_duration;
use super::message::{Message, begin_message, end_message};
use super::octets::{Put, Reader};
use super::port::port_numbers;

/// Reads a request for the statistics or descriptions of queues. Returns the ports that it selects.
pub(super) fn decode_queue_request(
    mut body: Reader<'_>,
    version: Version,
    bridge: &dyn Bridge,
) -> Result<Vec<u32>, Refusal> {
    let port = read_port(&mut body, version)?;
    let queue = body.u32()?;
    let ports = ports(port, bridge)?;
    if queue != ONLY && queue != ALL {
        return Err(Refusal::BadQueue);
    }
    Ok(ports)
}

pub(super) fn encode_queue_statistics(port: &PortStatistics, version: Version, out: &mut Vec<u8>) {
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
    out.put_u32(ONLY);
    // A port without a rate has no queue, and no counts.
    let counted = |count: u64| if port.has_rate { count } else { u64::MAX };
    out.put_u64(counted(port.sent_bytes));
    out.put_u64(counted(port.sent_packets));
    out.put_u64(port.sent_dropped.map_or(u64::MAX, counted));
    match version {
        Version::V10 | Version::V11 | Version::V12 => {}
        _ if port.has_rate => put_duration(port.duration, out),
        _ => out.put_u64(u64::MAX),
    }
}

/// Writes a queue's description for OpenFlow 1.4 and later.
pub(super) fn encode_queue_description(port: &PortStatistics, out: &mut Vec<u8>) {
    out.put_u32(port.number);
    out.put_u32(ONLY);
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
    for port in ports {
        out.put_u32(ONLY);
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

/// Returns the number of a port, or of all ports.
fn ports(port: PortNumber, bridge: &dyn Bridge) -> Result<Vec<u32>, Refusal> {
    let wanted = if port == PortNumber::ALL { PortNumber::NONE } else { port };
    port_numbers(wanted, bridge).ok_or(Refusal::BadQueuePort)
}

/// The number of the only queue of a port.
const ONLY: u32 = 0;
const ALL: u32 = u32::MAX;
