//! The totals of a test.

use super::answer;
use super::format::{Style, TextFormat};
use super::progress::{labelled, shows_each};
use crate::event::{CpuUse, Ended, Latency, ServerOutput, Started, StreamTotal};
use crate::options::{Direction, Protocol};
use crate::output::figures::{millis, percent, rate_of, share_percent};
use crate::output::outcome::{DirectionStreams, Outcome, directions};
use crate::output::{LOOPBACK, limits};
use units::foreign;

pub(super) fn lines(started: &Started, ended: &Ended, format: &TextFormat) -> String {
    let directions = directions(started.role, &ended.streams);
    let outcomes: String =
        directions.iter().map(|direction| outcome(started, direction, format)).collect();
    let far = ended.server_output.as_ref().map(|output| far_output(output, format));
    let far = far.unwrap_or_default();
    let looking = ended.observed.as_ref().and_then(|observed| observed.probe_cost);
    let looking = looking.map(|cost| format.labelled("probes", Style::Plain, &cost.to_string()));
    let looking = looking.unwrap_or_default();
    if format.quiet {
        return outcomes + &looking + &far;
    }
    let answer = answer::sentence(started, ended, &directions, format);
    let mut out = format!("\n{}{outcomes}", format.labelled("summary", Style::Bold, &answer));
    for direction in &directions {
        out += &path(started, direction, format);
    }
    out += &delays(started, ended, format);
    out += &cpu("CPU here", &ended.local_cpu, format);
    if let Some(there) = &ended.remote_cpu {
        out += &cpu("CPU there", there, format);
    }
    out += &congestion(started, ended, format);
    out += &looking;
    for warning in &ended.warnings {
        out += &format.labelled(
            "warning",
            Style::Attention,
            &foreign(warning).up_to(LONGEST_WARNING).to_string(),
        );
    }
    out + &far
}

fn outcome(
    started: &Started,
    direction: &DirectionStreams<'_, StreamTotal>,
    format: &TextFormat,
) -> String {
    let mut out = String::new();
    let with_who = started.options.direction == Direction::Both || started.options.streams > 1;
    let mut put = |who: &str, streams: &[&StreamTotal], style: Style| {
        let who =
            if with_who { labelled(who, started, direction.sends, format) } else { String::new() };
        out += &both_ends(&who, &Outcome::of(streams), started.options.protocol, style, format);
    };
    match direction.streams.as_slice() {
        [one] => put(&one.id.to_string(), &[one], Style::Bold),
        streams => {
            if shows_each(&started.options, format) && !format.quiet {
                for stream in streams {
                    put(&stream.id.to_string(), &[stream], Style::Plain);
                }
            }
            put("SUM", streams, Style::Bold);
        }
    }
    out
}

fn both_ends(
    who: &str,
    outcome: &Outcome,
    protocol: Protocol,
    style: Style,
    format: &TextFormat,
) -> String {
    let sent = match protocol {
        Protocol::Tcp => retransmitted(outcome),
        Protocol::Udp => format!("{} datagrams", outcome.datagrams_of_sender()),
    };
    let received = outcome.datagrams.map(|datagrams| {
        format!(
            "jitter {}, lost {}/{} ({}), {} reordered, {} duplicate{}",
            millis(datagrams.jitter),
            datagrams.lost,
            datagrams.count,
            percent(share_percent(datagrams.lost, datagrams.count)),
            datagrams.reordered,
            datagrams.duplicates,
            if datagrams.duplicates == 1 { "" } else { "s" }
        )
    });
    [("sent", outcome.sent, sent), ("received", outcome.received, received.unwrap_or_default())]
        .into_iter()
        // An iperf3 server does not learn how much its client sent.
        .filter(|(_, end, _)| end.is_known())
        .map(|(what, end, detail)| {
            let rate = format.unit.show(rate_of(end.bytes, end.elapsed));
            let head = match who {
                "" => format!("{what:<12}"),
                _ => format!("{who:<7}{what:<10}"),
            };
            let figures = format!("{:>8}  {rate:>11}", end.bytes.shown());
            row(&head, &figures, &detail, style, format)
        })
        .collect()
}

/// Formats a row of the totals. Details that do not fit beside the result go on the next line.
fn row(head: &str, figures: &str, detail: &str, style: Style, format: &TextFormat) -> String {
    let indent = head.chars().count();
    let taken = indent + figures.chars().count() + 3;
    let painted = format!("{head}{}", format.paint(figures, style));
    if detail.is_empty() {
        return format!("{painted}\n");
    }
    if taken + detail.chars().count() <= format.width {
        return format!("{painted}   {detail}\n");
    }
    let below = TextFormat { width: format.width.saturating_sub(indent), ..format.clone() };
    let below = below.labelled("", Style::Plain, detail);
    let below: String = below.lines().map(|line| format!("{}\n", indented(line, head))).collect();
    format!("{painted}\n{below}")
}

fn indented(line: &str, head: &str) -> String {
    format!("{}{}", " ".repeat(head.chars().count()), line.trim_start())
}

fn retransmitted(outcome: &Outcome) -> String {
    let Some(count) = outcome.retransmits else {
        return String::new();
    };
    let noun = if count == 1 { "retransmit" } else { "retransmits" };
    match outcome.bytes_retransmitted {
        Some(bytes) if count > 0 => {
            let share = share_percent(bytes.count(), outcome.sent.bytes.count());
            format!("{count} {noun} ({})", percent(share))
        }
        _ => format!("{count} {noun}"),
    }
}

fn path(
    started: &Started,
    direction: &DirectionStreams<'_, StreamTotal>,
    format: &TextFormat,
) -> String {
    let mut out = String::new();
    if let Some(limited_by) = Outcome::of(&direction.streams).limited_by {
        let name = match started.options.direction {
            Direction::Both => labelled("limit", started, direction.sends, format),
            _ => "limited by".to_owned(),
        };
        out += &format.labelled(&name, Style::Dim, &limits::words(&limited_by));
    }
    if format.verbose {
        for stream in &direction.streams {
            let words = path_words(stream);
            if !words.is_empty() {
                let name = format!("path of {}", stream.id);
                out += &format.labelled(&name, Style::Dim, &words.join(", "));
            }
        }
    }
    out
}

fn path_words(stream: &StreamTotal) -> Vec<String> {
    let Some(path) = stream.path else {
        return Vec::new();
    };
    let spans = [("min", path.min_rtt), ("mean", path.mean_rtt), ("max", path.max_rtt)];
    let mut words: Vec<String> = spans
        .into_iter()
        .filter_map(|(name, span)| Some(format!("{name} rtt {}", millis(span?))))
        .collect();
    let sizes = [("cwnd", path.max_cwnd), ("peer's window", path.max_send_window)];
    words.extend(
        sizes
            .into_iter()
            .filter_map(|(name, bytes)| Some(format!("{name} up to {}", bytes?.shown()))),
    );
    words.extend(path.reorder_seen.map(|count| format!("{count} times out of order")));
    words
}

fn delays(started: &Started, ended: &Ended, format: &TextFormat) -> String {
    let figures = |latency: &Latency, beside: &str| {
        let lost = match latency.lost {
            0 => String::new(),
            lost => format!(", {lost} of {} lost", lost + latency.samples),
        };
        format!("p50 {}, p99 {}{beside}{lost}", millis(latency.p50), millis(latency.p99))
    };
    let (idle, loaded) = (ended.idle_latency.as_ref(), ended.loaded_latency.as_ref());
    let times = match (idle, loaded) {
        (Some(idle), Some(loaded)) if loaded.p99 >= idle.p99 * 2 => {
            let times = loaded.p99.nanos() as f64 / idle.p99.nanos().max(1) as f64;
            format!(" ({times:.0} times as long)")
        }
        _ => String::new(),
    };
    let mut words = Vec::new();
    words.extend(idle.map(|latency| format!("idle {}", figures(latency, ""))));
    words.extend(loaded.map(|latency| format!("under load {}", figures(latency, &times))));
    if words.is_empty() {
        return String::new();
    }
    let out = format.labelled("latency", Style::Dim, &words.join("; "));
    match started.is_loopback() {
        true => out + &format.labelled("", Style::Plain, LOOPBACK),
        false => out,
    }
}

fn cpu(name: &str, cpu: &CpuUse, format: &TextFormat) -> String {
    let whole = cpu.user + cpu.system;
    let mut text =
        format!("process {whole:.1} % (user {:.1} %, system {:.1} %)", cpu.user, cpu.system);
    let cores = if format.verbose { usize::MAX } else { MOST_CORES };
    let mut busiest: Vec<_> = cpu.cores.iter().collect();
    busiest.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    busiest.truncate(cores);
    busiest.sort_by_key(|core| core.core);
    for (index, core) in busiest.iter().enumerate() {
        // The label says `machine`, because other programs also run on these cores.
        text += if index == 0 { "; machine: " } else { ", " };
        text += &format!("core {} {:.0} %", core.core, core.busy);
        if core.softirq >= 0.5 {
            text += &format!(" (softirq {:.0} %)", core.softirq);
        }
    }
    format.labelled(name, Style::Dim, &text)
}

fn congestion(started: &Started, ended: &Ended, format: &TextFormat) -> String {
    if started.options.protocol == Protocol::Udp {
        return String::new();
    }
    let words: Vec<String> =
        [("here", &ended.local_congestion), ("there", &ended.remote_congestion)]
            .into_iter()
            .filter_map(|(end, name)| Some(format!("{} {end}", foreign(name.as_ref()?))))
            .collect();
    if words.is_empty() {
        return String::new();
    }
    format.labelled("algorithm", Style::Dim, &words.join(", "))
}

fn far_output(output: &ServerOutput, format: &TextFormat) -> String {
    let text = match output {
        ServerOutput::Text(text) => text.clone(),
        ServerOutput::Json(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    let mut out = format!("\n{}\n", format.paint("server output", Style::Bold));
    for line in text.lines() {
        out += &format!("{}\n", foreign(line));
    }
    out
}

const LONGEST_WARNING: usize = 1024;
/// Maximum number of cores shown without `-V`.
const MOST_CORES: usize = 4;
