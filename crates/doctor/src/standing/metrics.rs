//! Writes metrics in the text format of
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::{NONE, Standing};
use std::fmt::Write;
use units::Span;

pub(super) fn exposition(standing: &Standing, up: Span, since: Span) -> String {
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "weir_doctor_{name} {value}");
    };
    one("up_seconds", "gauge", "This observer has run for this many seconds.", up.secs_f64());
    let help = "The last observation ended this many seconds ago.";
    one("observation_age_seconds", "gauge", help, since.secs_f64());
    let help = "The observer has judged this many observations.";
    one("observations_total", "counter", help, standing.observations as f64);
    let help = "The observer has used this much CPU time.";
    one("cpu_seconds_total", "counter", help, standing.own_cpu.secs_f64());
    let help = "The last observation judged this many busy connections.";
    one("busy_connections", "gauge", help, standing.busy as f64);
    let help = "This many series of connections are kept apart.";
    one("series", "gauge", help, standing.flows.len() as f64);
    let help = "At most this many series of connections are kept apart.";
    one("series_limit", "gauge", help, standing.flows.most() as f64);
    let help = "The limit sent this many additions to a series `other`.";
    one("series_refused_total", "counter", help, standing.flows.refused as f64);

    head(&mut text, "verdict", "gauge", "The verdict of the last observation, which has value 1.");
    if let Some(verdict) = &standing.now {
        let (kind, cause) = (verdict.kind.name(), verdict.cause.unwrap_or(NONE));
        let _ = writeln!(text, "weir_doctor_verdict{{kind=\"{kind}\",cause=\"{cause}\"}} 1");
    }
    let help = "The machine had this verdict for so many seconds.";
    head(&mut text, "verdict_seconds_total", "counter", help);
    for ((kind, cause), time) in &standing.verdicts {
        let seconds = time.secs_f64();
        let _ = writeln!(
            text,
            "weir_doctor_verdict_seconds_total{{kind=\"{kind}\",cause=\"{cause}\"}} {seconds}"
        );
    }
    let help =
        "The cause explained a fifth or more for the machine as a whole for so many seconds.";
    head(&mut text, "machine_seconds_total", "counter", help);
    for ((cause, healthy), time) in &standing.machine {
        let (healthy, seconds) = (yes(*healthy), time.secs_f64());
        let _ = writeln!(
            text,
            "weir_doctor_machine_seconds_total{{cause=\"{cause}\",healthy=\"{healthy}\"}} {seconds}"
        );
    }
    let help =
        "The kernel has dropped this many packets for its reason since the observer's start.";
    head(&mut text, "kernel_drops_total", "counter", help);
    for (reason, packets) in &standing.drops {
        let reason = label(reason);
        let _ = writeln!(text, "weir_doctor_kernel_drops_total{{reason={reason}}} {packets}");
    }
    let help = "The cause limited busy connections for so many connection seconds.";
    head(&mut text, "connection_seconds_total", "counter", help);
    for (subject, time) in standing.flows.all() {
        let healthy = yes(subject.healthy);
        let (program, destination) = (label(&subject.program), label(&subject.destination));
        let (cause, container) = (subject.cause, label(&subject.container));
        let seconds = time.secs_f64();
        let _ = writeln!(
            text,
            "weir_doctor_connection_seconds_total{{cause=\"{cause}\",healthy=\"{healthy}\",\
             program={program},destination={destination},container={container}}} {seconds}"
        );
    }
    text
}

const fn yes(is_true: bool) -> &'static str {
    if is_true { "yes" } else { "no" }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP weir_doctor_{name} {help}\n# TYPE weir_doctor_{name} {kind}");
}

/// Quotes a label value. Only `\` and `"` need an escape: `units::foreign` has replaced the control
/// characters of names.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
