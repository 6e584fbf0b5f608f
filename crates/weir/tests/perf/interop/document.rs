//! An end's JSON document, and whether two of them are consistent.

use super::case::{Both, expect};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Document {
    whole: Value,
    /// The direction from the client to the server, and the reverse direction.
    pub(crate) up: Option<DirectionFigures>,
    pub(crate) down: Option<DirectionFigures>,
}

/// One direction, as one end reports it.
#[derive(Debug, Default)]
pub(crate) struct DirectionFigures {
    pub(crate) sent: Sum,
    pub(crate) received: Sum,
    pub(crate) retransmits: Option<u64>,
    pub(crate) datagrams: Option<Datagrams>,
    /// Bytes by the client's port: sent and received.
    pub(crate) streams: BTreeMap<u64, (u64, u64)>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) bytes: u64,
    pub(crate) bits_per_second: f64,
}

impl Sum {
    /// Returns the period over which the rate was computed, in seconds.
    fn seconds(self) -> f64 {
        self.bytes as f64 * 8.0 / self.bits_per_second
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Datagrams {
    pub(crate) sent: u64,
    pub(crate) counted: u64,
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl Document {
    /// Reads an end's output. `bidir` and `reverse` select the directions.
    pub(crate) fn read(text: &str, end: End, bidir: bool, reverse: bool) -> Result<Self, String> {
        let whole: Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON document: {error}"))?;
        if let Some(error) = whole.get("error") {
            return Err(format!("its document says {error}"));
        }
        let mut document = Self { whole, up: None, down: None };
        if bidir || !reverse {
            document.up = Some(document.direction("", end == End::Client)?);
        }
        if bidir || reverse {
            let suffix = if bidir { "_bidir_reverse" } else { "" };
            document.down = Some(document.direction(suffix, end == End::Server)?);
        }
        Ok(document)
    }

    pub(crate) fn value(&self, pointer: &str) -> &Value {
        self.whole.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Reads the figures of one direction. `suffix` ends the names of the direction's sums;
    /// `sends`: whether this end is the sender of the direction.
    fn direction(&self, suffix: &str, sends: bool) -> Result<DirectionFigures, String> {
        let sum = |name: &str| {
            let place = format!("/end/{name}{suffix}");
            let value = self.value(&place);
            let bytes = value["bytes"].as_u64().ok_or(format!("{place} has no bytes: {value}"))?;
            let rate = value["bits_per_second"].as_f64();
            let bits_per_second = rate.ok_or(format!("{place} has no bits_per_second"))?;
            Ok::<_, String>((Sum { bytes, bits_per_second }, value))
        };
        let (sent, sent_value) = sum("sum_sent")?;
        let (received, received_value) = sum("sum_received")?;
        let mut direction = DirectionFigures { sent, received, ..DirectionFigures::default() };
        direction.retransmits = sent_value["retransmits"].as_u64();
        let ports: BTreeMap<u64, u64> = self.ports();
        let mut sums = (0, 0);
        let mut out_of_order = 0;
        let streams = self.value("/end/streams").as_array().ok_or("there are no streams")?;
        for stream in streams {
            let udp = stream.get("udp");
            let head = udp.unwrap_or(&stream["sender"]);
            if head["sender"].as_bool() != Some(sends) {
                continue;
            }
            let bytes = |value: &Value| value["bytes"].as_u64().unwrap_or(0);
            let (sent, received) = match udp {
                // iperf3 reports the sent datagrams of a datagram stream.
                Some(udp) => {
                    out_of_order += udp["out_of_order"].as_u64().unwrap_or(0);
                    (bytes(udp), 0)
                }
                None => (bytes(&stream["sender"]), bytes(&stream["receiver"])),
            };
            sums = (sums.0 + sent, sums.1 + received);
            let socket = head["socket"].as_u64().unwrap_or(0);
            let port = *ports.get(&socket).ok_or(format!("start names no socket {socket}"))?;
            direction.streams.insert(port, (sent, received));
        }
        if sent_value.get("packets").is_some() {
            direction.datagrams = Some(Datagrams {
                sent: sent_value["packets"].as_u64().filter(|&sent| sent < NEGATIVE).unwrap_or(0),
                counted: received_value["packets"].as_u64().unwrap_or(0),
                lost: received_value["lost_packets"].as_u64().unwrap_or(0),
                out_of_order,
            });
            sums.1 = received.bytes;
        }
        expect(sums == (sent.bytes, received.bytes), || {
            format!("its streams come to {sums:?}, its sums are {sent:?} and {received:?}")
        })?;
        Ok(direction)
    }

    /// Returns the client's port of each socket.
    fn ports(&self) -> BTreeMap<u64, u64> {
        let connected = self.value("/start/connected").as_array().cloned().unwrap_or_default();
        connected
            .iter()
            .filter_map(|one| {
                let (local, remote) = (one["local_port"].as_u64()?, one["remote_port"].as_u64()?);
                let port = if local == SERVER_PORT { remote } else { local };
                Some((one["socket"].as_u64()?, port))
            })
            .collect()
    }
}

/// Checks that both ends' values are within a hundredth of each other. In a test of some
/// milliseconds the ends' clocks start and stop too far apart to compare rates.
pub(crate) fn agree(both: &Both, rates: bool) -> Result<(), String> {
    let directions = [
        ("up", &both.client.up, &both.server.up, false),
        ("down", &both.client.down, &both.server.down, true),
    ];
    for (name, client, server, server_sends) in directions {
        let (Some(client), Some(server)) = (client, server) else { continue };
        let close = |what: &str, client: f64, server: f64, message: bool| {
            let apart = (client - server).abs() / client.max(server).max(1.0);
            // iperf3's server reports 0 for the client's count.
            expect(apart <= TOLERANCE || !message && server == 0.0, || {
                format!("{name}, {what}: the client says {client}, the server {server}")
            })
        };
        let sums = [
            ("sent", client.sent, server.sent, server_sends),
            ("received", client.received, server.received, !server_sends),
        ];
        for (what, client, server, message) in sums {
            expect(client.bytes > 0 && client.bits_per_second > 0.0, || {
                format!("{name}, {what}: the client says {client:?}")
            })?;
            close(&format!("bytes {what}"), client.bytes as f64, server.bytes as f64, message)?;
            if rates && (client.seconds() - server.seconds()).abs() > CLOCKS {
                let [client, server] = [client.bits_per_second, server.bits_per_second];
                close(&format!("bit/s {what}"), client, server, message)?;
            }
        }
        expect(client.streams.len() == server.streams.len(), || {
            format!("{name}: streams {:?} and {:?}", client.streams, server.streams)
        })?;
        for (port, (sent, received)) in &client.streams {
            let there = server.streams.get(port);
            let there = there.ok_or(format!("{name}: the server knows no stream from {port}"))?;
            let what = format!("bytes of the stream from port {port}");
            close(&what, *sent as f64, there.0 as f64, server_sends)?;
            let counted = client.datagrams.is_none() && !server_sends;
            close(&what, *received as f64, there.1 as f64, counted)?;
        }
        match (client.datagrams, server.datagrams) {
            (Some(client), Some(server)) => {
                let close = |what: &str, client: u64, server: u64, message: bool| {
                    close(what, client as f64, server as f64, message)
                };
                close("datagrams sent", client.sent, server.sent, server_sends)?;
                close("datagrams counted", client.counted, server.counted, !server_sends)?;
                close("lost", client.lost, server.lost, !server_sends)?;
                close("out of order", client.out_of_order, server.out_of_order, !server_sends)?;
            }
            (None, None) => {
                let under_way = client.sent.bytes.saturating_sub(client.received.bytes) as f64;
                let count = client.streams.len() as u64;
                // The client and the server may stop at slightly different moments.
                let apart = (client.sent.seconds() - client.received.seconds()).abs();
                let most = (socket_buffers() * count) as f64
                    + apart * client.sent.bits_per_second / 8.0
                    + client.sent.bytes as f64 * TOLERANCE;
                expect(
                    client.received.bytes <= client.sent.bytes + WRITE * count
                        && (!both.exact || under_way <= most),
                    || format!("{name}: sent and received are too far apart: {client:?}"),
                )?;
                let of_sender = if server_sends { server } else { client }.retransmits;
                expect(client.retransmits.is_some() && of_sender.is_some(), || {
                    format!("{name}: retransmits {:?} and {of_sender:?}", client.retransmits)
                })?;
                let [a, b] = [client.retransmits.unwrap_or(0), of_sender.unwrap_or(0)];
                // A kernel may still retransmit after one end has read the counter and before the
                // other end reads it.
                if both.exact {
                    close("retransmits", a as f64, b as f64, true)?;
                }
            }
            _ => return Err(format!("{name}: one counts datagrams, the other does not")),
        }
    }
    Ok(())
}

/// Returns the maximum number of bytes that one end of a stream has sent and the other end has not
/// read yet.
fn socket_buffers() -> u64 {
    let most = |name: &str| -> u64 {
        let three = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        three.split_whitespace().last().unwrap().parse().unwrap()
    };
    most("tcp_wmem") + most("tcp_rmem")
}

/// Maximum number of bytes that a sender's last write adds after the bytes were counted, while the
/// clock stops.
const WRITE: u64 = 1 << 20;
const SERVER_PORT: u64 = 5201;
const TOLERANCE: f64 = 0.01;
/// Maximum difference in seconds between the stop times of two ends on a busy machine: less than a
/// hundredth of the usual length of a test.
const CLOCKS: f64 = 0.05;
/// Numbers from here on are negative: iperf3 3.12 prints small negative numbers as unsigned
/// numbers. The server of iperf3 3.12 counts no datagrams of a client that omits some, and
/// subtracts 1.
const NEGATIVE: u64 = 1 << 63;
