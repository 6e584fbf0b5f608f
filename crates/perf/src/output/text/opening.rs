//! The first lines of the text: client, server and the test's options.

use super::format::{Style, TextFormat};
use crate::event::{Latency, LatencySource, Role, Started};
use crate::options::{Amount, Direction, Protocol};
use crate::output::figures::millis;
use crate::output::peer_program;
use units::{Bytes, Span, foreign};

pub(super) fn lines(started: &Started, format: &TextFormat) -> String {
    let mut out = format.labelled("weir perf", Style::Bold, &peers(started));
    if let Some(title) = &started.options.title {
        out += &format.labelled("title", Style::Dim, &foreign(title).to_string());
    }
    out += &format.labelled("test", Style::Dim, &test(started, format).join(", "));
    if format.verbose {
        out += &details(started, format);
    }
    out
}

/// Formats a latency: "p50 0.042 ms, p99 0.113 ms, 50 datagrams echoed".
pub(super) fn latency(latency: &Latency) -> String {
    let Latency { samples, lost, .. } = latency;
    let by = match latency.by {
        LatencySource::Echo => format!("{samples} datagrams echoed"),
        LatencySource::Ping => format!("{samples} pings"),
        LatencySource::TcpInfo => "as measured by the kernel on the streams themselves".to_owned(),
    };
    let lost = if *lost == 0 { String::new() } else { format!(", {lost} lost") };
    let max = millis(latency.max);
    format!("p50 {}, p99 {}, max {max}, {by}{lost}", millis(latency.p50), millis(latency.p99))
}

fn peers(started: &Started) -> String {
    let Started { local, remote, .. } = started;
    let peer = foreign(&started.peer).to_string();
    let far = if peer.is_empty() || peer == remote.ip().to_string() {
        remote.to_string()
    } else {
        format!("{peer} ({remote})")
    };
    let words = match started.role {
        Role::Client => format!("{local} to {far}"),
        Role::Server => format!("{local} for {far}"),
    };
    format!("{words}, {}", peer_program(started))
}

fn test(started: &Started, format: &TextFormat) -> Vec<String> {
    let options = &started.options;
    let (udp, both) = (options.protocol == Protocol::Udp, options.direction == Direction::Both);
    let direction = match (options.direction, started.role) {
        (Direction::Both, _) => "both ways",
        (Direction::Forward, Role::Client) | (Direction::Reverse, Role::Server) => "from here",
        _ => "to here",
    };
    let mut words = vec![format!("{} {direction}", if udp { "UDP" } else { "TCP" })];
    words.push(match options.amount {
        Amount::Time(Span::ZERO) => "no end".to_owned(),
        Amount::Time(span) => seconds(span),
        Amount::Bytes(count) => Bytes::new(count).to_string(),
        Amount::Blocks(count) if udp => format!("{count} datagrams"),
        Amount::Blocks(count) => format!("{count} blocks"),
    });
    if options.omit > Span::ZERO {
        words.push(format!("the first {} left out", seconds(options.omit)));
    }
    if options.streams > 1 {
        let each = if both { " each way" } else { "" };
        words.push(format!("{} streams{each}", options.streams));
    }
    if let Some(rate) = options.rate {
        let each = if options.streams > 1 || both { " each" } else { "" };
        let rate = format.unit.show(rate.bits_per_second() as f64);
        words.push(format!("at {rate}{each}"));
    }
    let block = Bytes::new(options.block_bytes() as u64);
    words.push(format!("{} of {block}", if udp { "datagrams" } else { "blocks" }));
    words.extend(algorithms(started));
    words.extend(particulars(started, format));
    words
}

/// Returns the names of the congestion controls, as read back from the local sockets.
fn algorithms(started: &Started) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    // A receiving socket has a congestion control, too, but it has no effect.
    for stream in started.streams.iter().filter(|stream| stream.sends) {
        let name = stream.congestion.as_ref().map(|name| foreign(name).to_string());
        names.extend(name.filter(|name| !names.contains(name)));
    }
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Describes the options that differ from the defaults.
fn particulars(started: &Started, format: &TextFormat) -> Vec<String> {
    let options = &started.options;
    let mut words = Vec::new();
    if let Some(rate) = options.kernel_rate {
        let rate = format.unit.show(rate.bits_per_second() as f64);
        words.push(format!("paced by the kernel at {rate}"));
    }
    if let Some(window) = options.window {
        words.push(format!("buffers of {window}"));
    }
    if let Some(mss) = options.mss {
        words.push(format!("segments of {mss}B"));
    }
    if options.type_of_service != 0 {
        words.push(format!("type of service {:#04x}", options.type_of_service));
    }
    for (is, shown) in [
        (options.no_delay, "no delay"),
        (options.zero_copy, "zero copy"),
        (options.skip_receive_copy, "received data not copied"),
        (options.dont_fragment, "not to be fragmented"),
    ] {
        if is {
            words.push(shown.to_owned());
        }
    }
    words
}

fn details(started: &Started, format: &TextFormat) -> String {
    let mut out = String::new();
    let at = httpdate::fmt_http_date(started.at);
    out += &format.labelled("time", Style::Dim, &at);
    out += &format.labelled("cookie", Style::Dim, &foreign(&started.cookie).to_string());
    if let Some(mss) = started.mss {
        out += &format.labelled("mss", Style::Dim, &format!("{mss} on the control connection"));
    }
    for stream in &started.streams {
        let (from, to) = if stream.sends {
            (stream.local, stream.remote)
        } else {
            (stream.remote, stream.local)
        };
        let congestion = stream.congestion.as_ref().map(foreign);
        let congestion = congestion.map(|name| format!(", {name}")).unwrap_or_default();
        let buffers = format!(
            "buffers of {} to send and {} to receive",
            stream.send_buffer, stream.receive_buffer
        );
        let text = format!("{from} to {to}{congestion}, {buffers}");
        out += &format.labelled(&format!("stream {}", stream.id), Style::Dim, &text);
    }
    out
}

fn seconds(span: Span) -> String {
    let text = format!("{:.3}", span.secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}
