//! Every option of iperf3's client that changes the behaviour of the two ends, and how the test
//! observes it.

use super::case::{Both, Case, case, expect};
use super::document::DirectionFigures;
use super::sockets::{Seen, Socket};
use serde_json::json;

pub(crate) fn all() -> Vec<Case> {
    [tcp(), udp(), amounts(), sockets(), addresses(), output()].into_iter().flatten().collect()
}

fn tcp() -> Vec<Case> {
    vec![
        case("TCP", "-t 1"),
        case("TCP back", "-R -t 1"),
        case("TCP both ways", "--bidir -t 1"),
        case("TCP, 4 streams", "-P 4 -t 1").documents(|both| streams(both, 4, 0)),
        case("TCP, 4 streams back", "-P 4 -R -t 1").documents(|both| streams(both, 0, 4)),
        case("TCP, 4 streams both ways", "-P 4 --bidir -t 1").documents(|both| streams(both, 4, 4)),
        case("TCP paced", "-b 50M -t 1").documents(|both| paced(both, 50e6)),
        case("TCP paced, 2 streams", "-b 20M -P 2 -t 1").documents(|both| paced(both, 40e6)),
        case("TCP paced back", "-b 50M -R -t 1").documents(|both| paced(both, 50e6)),
        case("TCP paced both ways", "-b 50M --bidir -t 1").documents(|both| paced(both, 50e6)),
        case("TCP in bursts", "-b 50M/16 -t 1 -l 16K").documents(|both| paced(both, 50e6)),
        case("TCP paced by the kernel", "--fq-rate 50M -t 1"),
        case("omitted start", "-O 1 -t 1 -b 80M").documents(omitted),
        case("omitted start, back", "-O 1 -t 1 -b 80M -R").documents(omitted),
        case("without copying", "-Z -n 64M").documents(|both| sent(both, 64 << 20)),
        case("without copying, back", "-Z -n 64M -R").documents(|both| sent(both, 64 << 20)),
        case("without copying, both ways", "-Z -t 1 --bidir"),
        case("same payload again", "--repeating-payload -n 16M")
            .documents(|both| sent(both, 16 << 20)),
    ]
}

fn udp() -> Vec<Case> {
    vec![
        case("UDP at its default", "-u -t 1").documents(|both| paced(both, 1.05e6)),
        case("UDP", "-u -b 50M -t 1").documents(|both| paced(both, 50e6)),
        case("UDP back", "-u -b 50M -R -t 1").documents(|both| paced(both, 50e6)),
        case("UDP both ways", "-u -b 20M --bidir -t 1").documents(|both| paced(both, 20e6)),
        case("UDP, 4 streams", "-u -P 4 -b 10M -t 1").documents(|both| streams(both, 4, 0)),
        case("UDP, 4 streams back", "-u -P 4 -b 10M -R -t 1").documents(|both| streams(both, 0, 4)),
        case("UDP, 4 streams both ways", "-u -P 4 -b 10M --bidir -t 1")
            .documents(|both| streams(both, 4, 4)),
        case("UDP unpaced", "-u -b 0 -t 1"),
        case("UDP unpaced, back", "-u -b 0 -R -t 1"),
        case("UDP, small datagrams", "-u -b 10M -l 200 -t 1").documents(length(200)),
        case("UDP, Ethernet's datagrams", "-u -b 50M -l 1448 -t 1").documents(length(1448)),
        case("UDP in bursts", "-u -b 50M/32 -l 1000 -t 1").documents(|both| paced(both, 50e6)),
        case("UDP, bytes", "-u -b 100M -n 4M").documents(|both| sent(both, 4 << 20)),
        case("UDP, bytes back", "-u -b 100M -n 4M -R").documents(|both| sent(both, 4 << 20)),
        case("UDP, datagrams", "-u -b 100M -k 300 -l 1000").documents(|both| sent(both, 300_000)),
        case("UDP, datagrams back", "-u -b 100M -k 300 -l 1000 -R")
            .documents(|both| sent(both, 300_000)),
        case("UDP, numbers of 64 bits", "-u -b 20M --udp-counters-64bit -t 1"),
        case("UDP, numbers of 64 bits, back", "-u -b 20M --udp-counters-64bit -R -t 1"),
        // Each end starts counting by its own clock, so the counts may differ by a datagram. At the
        // size that suits the loopback, 76 datagrams a second, a datagram would be more than 1 %.
        case("UDP, omitted start", "-u -b 20M -l 1400 -O 1 -t 3").documents(omitted),
        case("UDP over IPv6", "-6 -u -b 20M -t 1").host("::1"),
        case("UDP over IPv6, back", "-6 -u -b 20M -R -t 1").host("::1"),
        case("UDP, buffers", "-u -b 20M -w 96K -t 1").sockets(|seen| {
            seen.at_both("buffers of 96 KiB", |socket| {
                socket.datagrams
                    && socket.send_buffer == (2 * 96) << 10
                    && socket.receive_buffer == (2 * 96) << 10
            })
        }),
        case("UDP, unfragmented", "-u -b 20M -l 1000 --dont-fragment -t 1"),
    ]
}

fn amounts() -> Vec<Case> {
    vec![
        case("bytes", "-n 32M").documents(|both| sent(both, 32 << 20)),
        case("bytes back", "-n 32M -R").documents(|both| sent(both, 32 << 20)),
        case("bytes, 4 streams", "-n 32M -P 4").documents(|both| streams(both, 4, 0)),
        case("bytes both ways", "-n 16M --bidir"),
        case("blocks", "-k 100").documents(|both| sent(both, 100 << 17)),
        // iperf3's client takes a short read for a block, and ends too early.
        case("blocks back", "-k 100 -R"),
        case("blocks of 4 KiB", "-k 500 -l 4K").documents(|both| {
            length(4096)(both)?;
            sent(both, 500 << 12)
        }),
        case("small blocks", "-l 100 -b 4M -t 1").documents(length(100)),
        case("large blocks", "-l 1M -n 64M").documents(length(1 << 20)),
    ]
}

/// Returns the cases that observe the effect of an option on a socket while the test runs.
fn sockets() -> Vec<Case> {
    vec![
        case("window", "-w 128K -t 1 -b 50M")
            .sockets(|seen| seen.at_both("buffers of 128 KiB", |socket| window(socket, 128)))
            .documents(|both| {
                both.ends_say("/start/sock_bufsize", &json!(128 << 10))?;
                both.ends_say("/start/sndbuf_actual", &json!(256 << 10))?;
                both.ends_say("/start/rcvbuf_actual", &json!(256 << 10))
            }),
        case("window, back", "-w 128K -R -t 1 -b 50M")
            .sockets(|seen| seen.at_both("buffers of 128 KiB", |socket| window(socket, 128))),
        case("segments", "-M 1000 -t 1 -b 50M").sockets(segments_of_1000),
        case("segments, back", "-M 1000 -R -t 1 -b 50M").sockets(segments_of_1000),
        case("reno", "-C reno -t 1 -b 50M")
            .sockets(|seen| congestion(&seen.client, "reno"))
            .documents(|both| congestion_of_sender(both, "reno")),
        case("reno, back", "-C reno -R -t 1 -b 50M")
            .sockets(|seen| congestion(&seen.server, "reno"))
            .documents(|both| congestion_of_sender(both, "reno")),
        case("cubic", "-C cubic -t 1 -b 50M")
            .sockets(|seen| congestion(&seen.client, "cubic"))
            .documents(|both| congestion_of_sender(both, "cubic")),
        case("cubic, both ways", "-C cubic --bidir -t 1 -b 50M")
            .sockets(|seen| {
                congestion(&seen.client, "cubic")?;
                congestion(&seen.server, "cubic")
            })
            .documents(|both| congestion_of_sender(both, "cubic")),
        case("no delay", "-N -t 1 -b 50M")
            .sockets(|seen| seen.at_both("TCP_NODELAY", |socket| stream(socket) && socket.nodelay)),
        case("no delay, back", "-N -R -t 1 -b 50M")
            .sockets(|seen| seen.at_both("TCP_NODELAY", |socket| stream(socket) && socket.nodelay)),
        // For IPv4 on an IPv6 socket iperf3's server marks no packet, because it sets only IPv6's
        // class.
        case("type of service, both families", "-S 0x20 -t 1 -b 50M")
            .sockets(|seen| seen.at_ours("TOS 0x20", |socket| stream(socket) && socket.tos == 0x20))
            .documents(|both| both.ends_say("/start/test_start/tos", &json!(0x20))),
        case("type of service", "-S 0x20 -t 1 -b 50M").server("-4").sockets(marked_0x20),
        case("type of service, octal, back", "-S 040 -R -t 1 -b 50M")
            .server("-4")
            .sockets(marked_0x20),
        case("type of service, UDP", "-S 32 -u -t 1 -b 50M").server("-4").sockets(marked_0x20),
        case("type of service, UDP back", "-S 0x20 -u -R -t 1 -b 50M")
            .server("-4")
            .sockets(marked_0x20),
        case("traffic class", "-6 -S 0x20 -t 1 -b 50M").host("::1").sockets(marked_0x20),
        case("code point", "--dscp af41 -t 1 -b 50M")
            .server("-4")
            .sockets(|seen| seen.at_both("TOS 0x88", |socket| socket.tos == 0x88)),
        case("pinned", "-A 0,1 -t 1 -b 50M").sockets(|seen| {
            let pinned = |cpus: &[String], cpu: &str| cpus.iter().any(|list| list == cpu);
            expect(pinned(&seen.client_cpus, "0") && pinned(&seen.server_cpus, "1"), || {
                format!("CPUs {:?} and {:?}", seen.client_cpus, seen.server_cpus)
            })
        }),
    ]
}

fn addresses() -> Vec<Case> {
    vec![
        case("IPv6", "-6 -n 32M").host("::1"),
        case("IPv6 back", "-6 -R -n 32M").host("::1"),
        case("IPv6 both ways", "-6 --bidir -t 1 -b 50M").host("::1"),
        case("IPv6 flow label", "-6 -L 4660 -n 8M").host("::1"),
        case("IPv4 only", "-4 -n 8M").server("-4"),
        case("server bound", "-n 8M").server("-B 127.0.0.3").host("127.0.0.3").documents(|both| {
            expect(both.client_says("/start/connected/0/remote_host") == "127.0.0.3", || {
                format!("connected {}", both.client_says("/start/connected"))
            })
        }),
        case("server bound, UDP", "-u -b 20M -t 1").server("-B 127.0.0.3").host("127.0.0.3"),
        case("client bound", "-B 127.0.0.2 --cport 45000 -n 8M").documents(from_45000),
        case("client bound, 2 streams", "-B 127.0.0.2 --cport 45000 -P 2 -n 8M").documents(
            |both| {
                from_45000(both)?;
                let port = both.client_says("/start/connected/1/local_port");
                expect(*port == 45001, || format!("the second stream comes from {port}"))
            },
        ),
        case("client bound, UDP", "-u -b 20M -B 127.0.0.2 --cport 45000 -t 1")
            .documents(from_45000),
        case("client bound, UDP back", "-u -b 20M -B 127.0.0.2 --cport 45000 -R -t 1")
            .documents(from_45000),
    ]
}

fn output() -> Vec<Case> {
    vec![
        case("title", "-T a-title -n 8M").documents(|both| {
            let title = both.client_says("/title");
            expect(title == "a-title", || format!("the client's title is {title}"))
        }),
        case("extra data", "--extra-data some-words -n 8M")
            .documents(|both| both.ends_say("/extra_data", &json!("some-words"))),
        case("the server's output", "--get-server-output -n 32M").documents(of_server),
        case("the server's output, back", "--get-server-output -n 32M -R").documents(of_server),
        case("the server's output, UDP", "-u -b 20M --get-server-output -t 1").documents(of_server),
        case("text", "-t 1 -b 50M").plain(&["bits/sec", "bit/s"]),
        case("text, 4 streams both ways", "-t 1 -b 10M -P 4 --bidir").plain(&["SUM"]),
        case("text of the server", "-t 1 -b 50M --get-server-output")
            .plain(&["Server output", "server output"]),
        case("text, everything", "-t 1 -b 50M -V -f m").plain(&["Mbits/sec", "Mbit/s"]),
        case("text, UDP", "-u -t 1 -b 50M").plain(&["bits/sec", "bit/s"]),
        case("many intervals", "-i 0.1 -t 1 -b 50M").documents(|both| {
            let intervals = both.client_says("/intervals").as_array().map_or(0, Vec::len);
            expect((5..=11).contains(&intervals), || format!("{intervals} intervals"))
        }),
        case("timeouts", "--connect-timeout 3000 --rcv-timeout 5000 -R -n 8M"),
        case("server's limits", "-b 10M -t 1").server("--server-bitrate-limit 500M"),
    ]
}

fn streams(both: &Both, up: usize, down: usize) -> Result<(), String> {
    let count = |direction: &Option<DirectionFigures>| {
        direction.as_ref().map_or(0, |direction| direction.streams.len())
    };
    let found = (count(&both.client.up), count(&both.client.down));
    expect(found == (up, down), || format!("streams {found:?}, not {:?}", (up, down)))
}

/// Checks the number of bytes sent. Minimum: `bytes`, less a datagram that was in flight when the
/// sender counted. Maximum: `bytes`, plus the data that each end may have in flight when the limit
/// is reached.
fn sent(both: &Both, bytes: u64) -> Result<(), String> {
    let direction = both.client.up.as_ref().or(both.client.down.as_ref()).ok_or("no direction")?;
    let least = bytes
        - direction.datagrams.map_or(0, |datagrams| direction.sent.bytes / datagrams.sent.max(1));
    let most = bytes + (bytes / 5).max(4 << 20);
    expect((least..=most).contains(&direction.sent.bytes), || {
        format!("{} bytes sent instead of {bytes}", direction.sent.bytes)
    })
}

/// Checks the pace: a busy machine may be slower, but no test may be faster.
fn paced(both: &Both, bits_per_second: f64) -> Result<(), String> {
    if !both.exact {
        return Ok(());
    }
    for direction in [&both.client.up, &both.client.down].into_iter().flatten() {
        let rate = direction.sent.bits_per_second;
        expect(rate < bits_per_second * 1.1, || format!("{rate} bit/s, faster than ordered"))?;
    }
    Ok(())
}

fn omitted(both: &Both) -> Result<(), String> {
    let intervals = both.client_says("/intervals").as_array().cloned().unwrap_or_default();
    let (omitted, counted): (Vec<_>, Vec<_>) =
        intervals.iter().partition(|one| one["sum"]["omitted"] == true);
    let bytes: u64 = counted.iter().filter_map(|one| one["sum"]["bytes"].as_u64()).sum();
    let direction = both.client.up.as_ref().or(both.client.down.as_ref()).ok_or("no direction")?;
    let own =
        if both.client.up.is_some() { direction.sent.bytes } else { direction.received.bytes };
    let same = own.abs_diff(bytes) <= own / 100 || !both.exact;
    expect(!omitted.is_empty() && same, || {
        format!("{} intervals omitted, {bytes} bytes in the others, {own} in all", omitted.len())
    })
}

fn length(bytes: u64) -> impl Fn(&Both) -> Result<(), String> {
    move |both| both.ends_say("/start/test_start/blksize", &json!(bytes))
}

/// Whether the socket has the requested buffer. Linux grants twice the requested size
/// (net/core/sock.c).
fn window(socket: &Socket, kib: usize) -> bool {
    stream(socket)
        && socket.send_buffer == (2 * kib) << 10
        && socket.receive_buffer == (2 * kib) << 10
}

/// Checks the streams' marks; the control connection has none of the test's options.
fn marked_0x20(seen: &Seen) -> Result<(), String> {
    seen.at_both("TOS 0x20", |socket| socket.tos == 0x20)
}

fn stream(socket: &Socket) -> bool {
    !socket.datagrams
}

/// Checks the segment size; timestamps take twelve of the bytes.
fn segments_of_1000(seen: &Seen) -> Result<(), String> {
    seen.at_both("segments of 988 bytes", |socket| socket.mss == 988)
}

/// Checks the sender's algorithm. The receiver's algorithm has no effect, and Weir's server does
/// not set an algorithm.
fn congestion_of_sender(both: &Both, name: &str) -> Result<(), String> {
    let message = both.client_says("/end/sender_tcp_congestion");
    expect(message == name, || format!("the client's sender_tcp_congestion is {message}"))?;
    let message = both.client_says("/end/receiver_tcp_congestion");
    expect(message.is_string(), || format!("the client's receiver_tcp_congestion is {message}"))
}

fn congestion(sockets: &[Socket], name: &str) -> Result<(), String> {
    expect(sockets.iter().any(|socket| socket.congestion == name), || {
        format!("no socket of the sender has {name}: {sockets:?}")
    })
}

fn from_45000(both: &Both) -> Result<(), String> {
    let first = both.client_says("/start/connected/0");
    expect(first["local_host"] == "127.0.0.2" && first["local_port"] == 45000, || {
        format!("the first stream is {first}")
    })
}

/// Checks that the client has the server's whole document.
fn of_server(both: &Both) -> Result<(), String> {
    let fetched = both.client_says("/server_output_json/end");
    let own = both.server_says("/end");
    for sum in ["sum_sent", "sum_received"] {
        let (fetched, own) = (&fetched[sum]["bytes"], &own[sum]["bytes"]);
        expect(own.is_u64() && fetched == own, || {
            format!("{sum} of the server: {own}, and as its client has it: {fetched}")
        })?;
    }
    Ok(())
}
