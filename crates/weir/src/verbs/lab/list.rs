//! `weir lab list`: the built-in labs.

use super::width;
use crate::exit::Ending;
use crate::output;
use lab::{Overview, builtin};
use std::time::Duration;

pub(super) fn run(json: bool) -> anyhow::Result<Ending> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut labs = Vec::new();
    for builtin in builtin::BUILTIN {
        let lab = builtin::open(builtin.name)?;
        labs.push((builtin.name, Overview::of(&lab, threads), lab));
    }
    if json {
        let entries = labs.iter().map(|(name, about, lab)| {
            serde_json::json!({
                "name": name,
                "question": lab.question,
                "runs_on_machine": about.on_machine,
                "runs_in_simulator": about.in_simulator,
                "needs_root": about.on_machine && !about.in_simulator,
                "quick_seconds": about.quick.as_secs(),
                "full_seconds": about.full.as_secs(),
            })
        });
        let entries: Vec<_> = entries.collect();
        output::print(serde_json::to_string_pretty(&entries)? + "\n")?;
        return Ok(Ending::Fine);
    }
    let width = width();
    let mut text = format!("{:<16} {:>9} {:>9}  {:<12}\n", "lab", "quick", "full", "runs by");
    for (name, about, lab) in &labs {
        let world = match (about.on_machine, about.in_simulator) {
            (true, true) => "lab, sim",
            (false, true) => "sim",
            _ => "lab",
        };
        let [quick, full] = [about.quick, about.full].map(rough_time);
        text += &format!("{name:<16} {quick:>9} {full:>9}  {world}\n");
        for line in wrapped(&lab.question, width.saturating_sub(4)) {
            text += &format!("    {line}\n");
        }
    }
    text += "\nlab: `weir lab run`, as root or in a user namespace. sim: `weir sim run`, by any user.\n\
             The times follow the runs of docs/results, on two CPUs, for the systems whose programs are \
             installed here.\n";
    output::print(text)?;
    Ok(Ending::Fine)
}

/// Rounds a time of a minute or more to minutes: an estimate is no more exact.
fn rough_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{} s", seconds.max(1)),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            let gap = if used > 0 { " " } else { "" };
            lines[last] += &format!("{gap}{word}");
        }
    }
    lines
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir lab list
  weir lab list --json | jq -r '.[] | select(.quick_seconds < 60) | .name'";
