//! A link's counters, formatted for people.

use crate::report::LATENESS_BOUND;
use crate::{DirectionReport, DirectionStatistics, LinkReport};
use link::{Capacity, LinkConfig};
use std::fmt::Write;
use units::shown;

/// Formats one block of a link's counters; `colour` is for terminals. Rates are averages since
/// `before`, or since the start.
pub fn live(now: &LinkReport, before: Option<&LinkReport>, colour: bool) -> String {
    let mut text = String::new();
    let since = before.map_or(0.0, |before| before.running.secs_f64());
    let seconds = (now.running.secs_f64() - since).max(1e-9);
    let _ = writeln!(
        text,
        "{}  up {}  late p50 {} p99 {} max {}  {} of a core on frames",
        now.name,
        shown::seconds(now.running.secs_f64()),
        micros(now.lateness.p50_us),
        micros(now.lateness.p99_us),
        micros(now.lateness.max_us),
        shown::percent(now.busy_percent),
    );
    let ways = [
        (&now.a, &now.b, &now.ab, before.map(|before| &before.ab)),
        (&now.b, &now.a, &now.ba, before.map(|before| &before.ba)),
    ];
    for (from, to, way, before) in ways {
        let seen = &way.statistics;
        let delivered = before.map_or(0, |before| before.statistics.delivered.bytes);
        let bits = seen.delivered.bytes.saturating_sub(delivered) as f64 * 8.0;
        let _ = writeln!(
            text,
            "{from} → {to}  {}  {} frames  queue {} p95 {}  lost {} full {} early {}{}",
            shown::rate(bits / seconds),
            seen.delivered.frames,
            shown::bytes(seen.queued.bytes as f64),
            shown::bytes(seen.queue_bytes.p95),
            seen.dropped_loss.frames,
            seen.dropped_overflow.frames,
            seen.dropped_early.frames,
            marked(seen),
        );
    }
    for problem in &now.problems {
        let (red, plain) = if colour { (RED, PLAIN) } else { ("", "") };
        let _ = writeln!(text, "{red}NOT VALID: {problem}{plain}");
    }
    text
}

/// Formats the counters of a link, one column per direction. The first line says whether the
/// figures hold. Counters of rare events have a row only if such an event occurred.
pub fn table(report: &LinkReport) -> String {
    let mut text = String::new();
    let late = &report.lateness;
    let _ = match report.problems.split_first() {
        None => writeln!(
            text,
            "{}, {}: valid, frames left at most {} late at p99 (bound {LATENESS_BOUND})",
            report.name,
            shown::seconds(report.running.secs_f64()),
            micros(late.p99_us),
        ),
        Some((problem, _)) => writeln!(
            text,
            "{}, {}: NOT VALID: {problem}",
            report.name,
            shown::seconds(report.running.secs_f64()),
        ),
    };
    for problem in report.problems.iter().skip(1) {
        let _ = writeln!(text, "NOT VALID: {problem}");
    }
    let heads = [format!("{} → {}", report.a, report.b), format!("{} → {}", report.b, report.a)];
    let ways = [&report.ab, &report.ba];
    let mut row = |what: &str, [ab, ba]: [String; 2]| {
        // Padding counts characters, and an arrow is one character.
        let _ = writeln!(text, "{what:<18}  {ab:<w$}  {ba}", w = heads[0].chars().count().max(24));
    };
    row("", heads.clone());
    let each = |show: &dyn Fn(&DirectionReport) -> String| ways.map(show);
    row("rate", each(&|way| capacity(&way.config)));
    row("delay, jitter", each(&|way| format!("{}, {}", way.config.delay, way.config.jitter)));
    row("loss", each(&|way| way.config.loss.to_string()));
    row("queue", each(&|way| way.config.queue.to_string()));
    row(
        "arrived, frames",
        each(&|way| frames(way.statistics.arrived.frames, way.statistics.arrived.bytes)),
    );
    row(
        "delivered",
        each(&|way| frames(way.statistics.delivered.frames, way.statistics.delivered.bytes)),
    );
    row(
        "mean rate",
        each(&|way| {
            let seconds = report.running.secs_f64().max(1e-9);
            shown::rate(way.statistics.delivered.bytes as f64 * 8.0 / seconds)
        }),
    );
    row("dropped", each(&|way| way.statistics.dropped().to_string()));
    row("  queue full", each(&|way| way.statistics.dropped_overflow.frames.to_string()));
    if let Some(early) = counts(ways, |seen| seen.dropped_early.frames) {
        row("  queue early", early);
    }
    row(
        "  lost",
        each(&|way| {
            let seen = &way.statistics;
            let departed = seen.dropped_loss.frames + seen.delivered.frames + seen.in_flight;
            let share = seen.dropped_loss.frames as f64 / (departed as f64).max(1.0) * 100.0;
            format!("{} ({} of departed)", seen.dropped_loss.frames, shown::percent(share))
        }),
    );
    for (what, count) in RARE {
        if let Some(counts) = counts(ways, count) {
            row(what, counts);
        }
    }
    row(
        "still inside",
        each(&|way| (way.statistics.queued.frames + way.statistics.in_flight).to_string()),
    );
    row("queue p50", each(&|way| shown::bytes(way.statistics.queue_bytes.p50)));
    row("      p95", each(&|way| shown::bytes(way.statistics.queue_bytes.p95)));
    row("      p99", each(&|way| shown::bytes(way.statistics.queue_bytes.p99)));
    row("      max", each(&|way| shown::bytes(way.statistics.queue_bytes.max)));
    row("waited p99", each(&|way| micros(way.statistics.sojourn_us.p99)));
    let _ = writeln!(
        text,
        "lateness of the emulation: p50 {}, p99 {}, max {} over {} frames{}",
        micros(late.p50_us),
        micros(late.p99_us),
        micros(late.max_us),
        late.frames,
        if report.real_time { "" } else { ", without real-time scheduling" },
    );
    let _ = writeln!(
        text,
        "CPU time of the emulation: {}, {} of a core: {} for frames, the rest spins before deadlines",
        shown::seconds(report.cpu_seconds),
        shown::percent(report.cpu_percent()),
        shown::percent(report.busy_percent),
    );
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

/// Returns the count of each direction; `None` if both counts are 0.
fn counts(ways: [&DirectionReport; 2], count: Counter) -> Option<[String; 2]> {
    let counts = ways.map(|way| count(&way.statistics));
    (counts != [0, 0]).then(|| counts.map(|count| count.to_string()))
}

/// Describes the CPU time of a link that has ended, without a full stop.
pub fn cost(report: &LinkReport) -> String {
    let frames = report.ab.statistics.delivered.frames + report.ba.statistics.delivered.frames;
    format!(
        "the link used {} of CPU time, {} of a core, for {frames} delivered frame{}",
        shown::seconds(report.cpu_seconds),
        shown::percent(report.cpu_percent()),
        if frames == 1 { "" } else { "s" },
    )
}

fn capacity(config: &LinkConfig) -> String {
    match (&config.rate, config.rate.mean_rate()) {
        (Capacity::Trace(trace), Some(mean)) => {
            format!("trace of {} (mean {})", trace.length(), mean.shown())
        }
        (rate, _) => rate.to_string(),
    }
}

fn marked(seen: &DirectionStatistics) -> String {
    match seen.marked.frames {
        0 => String::new(),
        marked => format!(" marked {marked}"),
    }
}

fn frames(frames: u64, bytes: u64) -> String {
    format!("{frames} ({})", shown::bytes(bytes as f64))
}

fn micros(micros: f64) -> String {
    shown::seconds(micros * 1e-6)
}

type Counter = fn(&DirectionStatistics) -> u64;
const RARE: [(&str, Counter); 5] = [
    ("marked", |seen| seen.marked.frames),
    ("duplicated", |seen| seen.duplicated.frames),
    ("corrupted", |seen| seen.corrupted.frames),
    ("reordered", |seen| seen.reordered.frames),
    ("lost at the ports", |seen| seen.lost_outside_model),
];
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LatenessSummary;
    use crate::statistics::Frames;
    use link::LinkStats;
    use units::{Bytes, Span, Time};

    fn report() -> LinkReport {
        let way = || DirectionReport {
            config: LinkConfig::default(),
            statistics: DirectionStatistics::new(
                &LinkStats::new(Time::ZERO),
                (0, Bytes::ZERO),
                0,
                (0, 0),
                None,
            ),
        };
        LinkReport {
            name: "link0".to_owned(),
            pid: 1,
            a: "left:eth0".to_owned(),
            b: "right:eth0".to_owned(),
            running: Span::from_secs(2),
            valid: true,
            problems: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            real_time: true,
            busy_percent: 0.1,
            cpu_seconds: 0.02,
            lateness: LatenessSummary { frames: 9, p99_us: 30.0, ..LatenessSummary::default() },
            ab: way(),
            ba: way(),
        }
    }

    #[test]
    fn the_first_line_of_a_table_says_whether_the_figures_hold() {
        let mut link = report();
        let text = table(&link);
        let first = "link0, 2.00 s: valid, frames left at most 30.0 µs late at p99 (bound 1ms)\n";
        assert!(text.starts_with(first), "{text}");
        link.problems = vec!["frames left late".to_owned(), "2 frames were lost".to_owned()];
        let text = table(&link);
        let first = "link0, 2.00 s: NOT VALID: frames left late\nNOT VALID: 2 frames were lost\n";
        assert!(text.starts_with(first), "{text}");
    }

    #[test]
    fn a_table_has_rows_of_rare_events_only_if_they_occurred() {
        let mut link = report();
        assert!(!table(&link).contains("reordered"));
        link.ba.statistics.reordered = Frames { frames: 3, bytes: 0 };
        let text = table(&link);
        let row = text.lines().find(|line| line.starts_with("reordered")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["reordered", "0", "3"]);
    }
}
