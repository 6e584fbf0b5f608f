//! `--report DIR`: a page for a ticket, and the recording behind it.

use super::subject::RECORDING;
use crate::output;
use anyhow::Context;
use doctor::{Diagnosis, Found, Recording};
use report::page::{Page, Section};
use std::path::Path;
use units::Span;

/// Writes `report.html` and the recording, which `weir doctor DIR` can judge again.
pub(super) fn write(
    directory: &Path,
    recording: &Recording,
    diagnosis: &Diagnosis,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("making the directory {}", directory.display()))?;
    recording.write(&directory.join(RECORDING))?;
    let file = directory.join("report.html");
    page(recording, diagnosis).write(&file)?;
    output::note(format_args!("report: {}", file.display()));
    Ok(())
}

fn page(recording: &Recording, diagnosis: &Diagnosis) -> Page {
    let mut facts = vec![format!("kernel {}", diagnosis.kernel)];
    facts.extend(recording.focus.clone());
    facts.extend(recording.label().map(str::to_owned));
    let mut sections = vec![connections(diagnosis)];
    for period in &diagnosis.periods {
        let found = period.flows.iter().take(1).flat_map(|flow| &flow.causes);
        sections.extend(found.chain(&period.machine).map(cause));
    }
    sections.push(lists(diagnosis, "Ruled out", false));
    sections.push(lists(diagnosis, "Not seen", true));
    sections.retain(|section| {
        !section.rows.is_empty() || !section.items.is_empty() || !section.commands.is_empty()
    });
    Page {
        verb: "weir doctor".to_owned(),
        title: "Why is it not faster?".to_owned(),
        answer: std::iter::once(diagnosis.verdict.sentence.clone())
            .chain(to_do(diagnosis))
            .chain(diagnosis.note.clone())
            .collect(),
        facts,
        series: doctor::output::series(recording),
        sections,
        data: RECORDING.to_owned(),
    }
}

/// Returns the advice on the cause of the verdict.
fn to_do(diagnosis: &Diagnosis) -> Option<String> {
    let cause = diagnosis.verdict.cause?;
    let flows = diagnosis.periods.iter().flat_map(|period| &period.flows);
    let of_flows = flows.flat_map(|flow| &flow.causes);
    let of_machine = diagnosis.periods.iter().flat_map(|period| &period.machine);
    let found = of_flows.chain(of_machine).find(|found| found.cause == cause)?;
    let advice = found.finding.advice.first()?;
    Some(format!("To do: {}.", advice.action))
}

fn in_words(cause: &'static str) -> &'static str {
    doctor::rules::words_of(cause).unwrap_or(cause)
}

fn connections(diagnosis: &Diagnosis) -> Section {
    let flows = diagnosis.periods.iter().flat_map(|period| {
        period.flows.iter().map(|flow| {
            let first = flow.causes.iter().find(|found| found.finding.explains.is_some());
            vec![
                format!("{} → {}", flow.from, flow.to),
                flow.processes.clone(),
                flow.rate.shown(),
                flow.rtt.map_or_else(String::new, Span::shown),
                first.map_or("nothing that was seen", |one| in_words(one.cause)).to_owned(),
            ]
        })
    });
    Section {
        heading: "Busiest connections".to_owned(),
        heads: ["connection", "processes", "rate", "round trip", "limited by"]
            .map(str::to_owned)
            .to_vec(),
        rows: flows.collect(),
        ..Section::default()
    }
}

fn cause(found: &Found) -> Section {
    let finding = &found.finding;
    let mut rows: Vec<Vec<String>> = finding
        .evidence
        .iter()
        .map(|one| {
            vec![one.signal.clone(), one.value.clone(), one.threshold.clone().unwrap_or_default()]
        })
        .collect();
    rows.extend(
        finding.allows.map(|rate| vec!["allows at most".to_owned(), rate.shown(), String::new()]),
    );
    let against = finding.against.iter().map(|text| format!("Against it: {text}."));
    let advice = finding.advice.iter().map(|advice| match &advice.limits {
        Some(limits) => format!("{}. But: {limits}.", advice.action),
        None => format!("{}.", advice.action),
    });
    Section {
        heading: match finding.explains {
            Some(share) => {
                let percent = share * 100.0;
                format!(
                    "{}: {} ({percent:.0} % of the missing speed)",
                    found.cause, finding.sentence
                )
            }
            None => format!("{}: {} (not limiting)", found.cause, finding.sentence),
        },
        heads: ["evidence", "value", "counts from"].map(str::to_owned).to_vec(),
        rows,
        items: against.chain(advice).collect(),
        commands: finding.advice.iter().flat_map(|advice| advice.commands.clone()).collect(),
    }
}

fn lists(diagnosis: &Diagnosis, heading: &str, unseen: bool) -> Section {
    let of_periods = diagnosis.periods.iter().flat_map(|period| {
        let flow = period.flows.first();
        let lists = match unseen {
            false => [flow.map(|flow| &flow.ruled_out), Some(&period.ruled_out)],
            true => [flow.map(|flow| &flow.not_seen), Some(&period.not_seen)],
        };
        lists.into_iter().flatten().flatten()
    });
    let mut rows: Vec<Vec<String>> =
        of_periods.map(|one| vec![one.words.to_owned(), one.by.clone()]).collect();
    if unseen {
        let signals = diagnosis.not_seen.iter();
        rows.extend(signals.map(|one| vec![one.what.clone(), one.reason.clone()]));
    }
    Section { heading: heading.to_owned(), rows, ..Section::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doctor::Question;

    #[test]
    fn a_page_begins_with_the_advice_and_has_figures_with_units_and_causes_in_words() {
        let recording = doctor::examples::open("slow-nic").unwrap();
        let diagnosis = doctor::diagnose(&recording, Question::of(&recording));
        let page = page(&recording, &diagnosis);
        assert_eq!(page.answer[1], "To do: Give the machine a faster core, or a second one.");
        let row = &page.sections[0].rows[0];
        assert_eq!((row[2].as_str(), row[4].as_str()), ("439 Mbit/s", "the CPU"));
    }
}
