//! `report.md` of a measurement.

use super::{
    Measurement, Table, answer, cpu, environment, how, latency, limits, meaning, outcome, title,
};
use crate::markdown::{escape, line, table};
use results::LONGEST_TEXT;
use units::foreign;

pub(super) fn render(measurement: &Measurement) -> String {
    let mut out = String::new();
    line(&mut out, &format!("# {}\n", escape(&title(&measurement.started))));
    for sentence in answer(measurement) {
        line(&mut out, &format!("{}\n", escape(&sentence)));
    }
    for warning in &measurement.ended.warnings {
        line(&mut out, &format!("**Warning:** {}\n", escape(warning)));
    }
    for (heading, part) in [
        ("What both ends counted", outcome(measurement)),
        ("Latency", latency(measurement)),
        ("What limited the sender", limits(measurement)),
        ("CPU", cpu(measurement)),
    ] {
        section(&mut out, heading, &part);
    }
    section(&mut out, "How it was measured", &named(how(measurement)));
    for paragraph in meaning() {
        line(&mut out, &format!("{}\n", escape(paragraph)));
    }
    section(&mut out, "This machine", &named(environment(measurement)));
    if !measurement.command.is_empty() {
        line(&mut out, "## How to repeat it\n");
        line(&mut out, &format!("    {}\n", foreign(&measurement.command).up_to(LONGEST_TEXT)));
    }
    line(
        &mut out,
        "What happened over time is drawn in report.html; every number is in results.json.",
    );
    out
}

fn section(out: &mut String, heading: &str, part: &Table) {
    if !part.rows.is_empty() {
        line(out, &format!("## {heading}\n"));
        table(out, &part.heads, &part.rows);
    }
}

fn named(rows: Vec<(String, String)>) -> Table {
    Table {
        heads: vec!["what".to_owned(), "value".to_owned()],
        rows: rows.into_iter().map(|(name, text)| vec![name, text]).collect(),
    }
}
