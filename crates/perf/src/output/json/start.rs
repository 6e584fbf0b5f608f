//! The key `start` of the JSON: the addresses of client and server, and the test's options.

use super::{entry, number};
use crate::event::{Role, Started, StreamFacts};
use crate::options::{Amount, Direction, Protocol};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, SocketAddr};
use std::time::UNIX_EPOCH;
use units::{Bytes, Rate};

pub(in crate::output) fn value(started: &Started) -> Value {
    let options = &started.options;
    let mut start = ours();
    entry(&mut start, "connected", started.streams.iter().map(connected).collect::<Vec<_>>());
    let seconds = started.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    entry(
        &mut start,
        "timestamp",
        json!({ "time": httpdate::fmt_http_date(started.at), "timesecs": seconds }),
    );
    match started.role {
        Role::Client => {
            let peer = json!({ "host": started.peer, "port": started.remote.port() });
            entry(&mut start, "connecting_to", peer);
        }
        Role::Server => {
            let peer = json!({ "host": host(started.remote), "port": started.remote.port() });
            entry(&mut start, "accepted_connection", peer);
        }
    }
    entry(&mut start, "cookie", started.cookie.as_str());
    if options.protocol == Protocol::Tcp {
        match options.mss {
            Some(mss) => entry(&mut start, "tcp_mss", mss),
            None => {
                let mss = started.mss.map_or(0, Bytes::count);
                entry(&mut start, "tcp_mss_default", mss);
            }
        }
    }
    let rate = options.rate.map_or(0, Rate::bits_per_second);
    let kernel_rate = options.kernel_rate.map_or(0, Rate::bits_per_second);
    entry(&mut start, "target_bitrate", rate);
    entry(&mut start, "fq_rate", kernel_rate);
    if let Some(stream) = started.streams.first() {
        entry(&mut start, "sock_bufsize", options.window.map_or(0, Bytes::count));
        entry(&mut start, "sndbuf_actual", stream.send_buffer.count());
        entry(&mut start, "rcvbuf_actual", stream.receive_buffer.count());
    }
    entry(&mut start, "test_start", test(started, rate, kernel_rate));
    Value::Object(start)
}

/// Returns `start` for a test that failed before a peer replied.
pub(in crate::output) fn without_peer() -> Value {
    Value::Object(ours())
}

fn ours() -> Map<String, Value> {
    let mut start = Map::new();
    entry(&mut start, "connected", Vec::<Value>::new());
    entry(&mut start, "version", VERSION);
    entry(&mut start, "system_info", system());
    start
}

fn connected(stream: &StreamFacts) -> Value {
    json!({
        "socket": stream.id,
        "local_host": host(stream.local),
        "local_port": stream.local.port(),
        "remote_host": host(stream.remote),
        "remote_port": stream.remote.port(),
    })
}

fn test(started: &Started, rate: u64, kernel_rate: u64) -> Value {
    let options = &started.options;
    let (time, bytes, blocks) = match options.amount {
        Amount::Time(span) => (span.secs_f64(), 0, 0),
        Amount::Bytes(count) => (0.0, count, 0),
        Amount::Blocks(count) => (0.0, 0, count),
    };
    json!({
        "protocol": match options.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        },
        "num_streams": options.streams,
        "blksize": options.block_bytes(),
        "omit": number(options.omit.secs_f64()),
        "duration": number(time),
        "bytes": bytes,
        "blocks": blocks,
        "reverse": u8::from(options.direction == Direction::Reverse),
        "tos": options.type_of_service,
        "target_bitrate": rate,
        "bidir": u8::from(options.direction == Direction::Both),
        "fqrate": kernel_rate,
    })
}

/// Shows an IPv4 peer of an IPv6 socket in IPv4 notation, as iperf3 does.
fn host(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4),
        four @ IpAddr::V4(_) => four,
    };
    ip.to_string()
}

/// Describes the system in the format of `uname -a`.
fn system() -> String {
    let name = rustix::system::uname();
    [name.sysname(), name.nodename(), name.release(), name.version(), name.machine()]
        .map(|part| part.to_string_lossy().into_owned())
        .join(" ")
}

/// Version in the JSON. Scripts check iperf's version, and the keys here are those of iperf 3.12.
const VERSION: &str = concat!("iperf 3.12 (weir ", env!("CARGO_PKG_VERSION"), ")");
