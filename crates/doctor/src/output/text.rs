use crate::diagnosis::{
    Confidence, Diagnosis, FlowReport, Found, PeriodReport, RuledOut, VerdictKind,
};
use crate::recording::Origin;
use crate::rules::Advice;
use crate::words;
use std::collections::BTreeSet;
use std::fmt::Write;
use units::foreign;

/// For a person. `wide` is the number of columns; `all` shows every cause that was ruled out.
pub fn text(diagnosis: &Diagnosis, wide: usize, all: bool) -> String {
    let mut page = Page { text: String::new(), wide: wide.max(40) };
    page.wrapped("", &diagnosis.verdict.sentence);
    if diagnosis.verdict.kind == VerdictKind::Limited
        && diagnosis.verdict.confidence == Confidence::Low
    {
        page.wrapped("", "The confidence is low: see what speaks against it.");
    }
    if let Some(note) = &diagnosis.note {
        page.wrapped("", &format!("Recording: {}", foreign(note)));
    }
    let mut advised = BTreeSet::new();
    let are_cells = diagnosis.origin == Origin::Saved && diagnosis.periods.len() > 1;
    match are_cells && !all {
        true => page.cells(diagnosis),
        false => {
            for period in &diagnosis.periods {
                page.period(period, diagnosis.periods.len() > 1);
            }
        }
    }
    page.advice(diagnosis, &mut advised);
    page.ruled_out(diagnosis, all);
    page.not_seen(diagnosis, all);
    page.observation(diagnosis);
    page.text
}

struct Page {
    text: String,
    wide: usize,
}

impl Page {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}", text.trim_end());
    }

    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n{text}");
    }

    /// Words filled to the width; later lines are indented as far as the first one's text.
    fn wrapped(&mut self, indent: &str, text: &str) {
        let blank = " ".repeat(indent.chars().count());
        let mut line = indent.to_owned();
        let mut is_first = true;
        for word in text.split(' ') {
            let long = line.chars().count() + 1 + word.chars().count() > self.wide;
            if long && !is_first {
                self.line(&line);
                line.clone_from(&blank);
                is_first = true;
            }
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
            is_first = false;
        }
        self.line(&line);
    }

    fn period(&mut self, period: &PeriodReport, several: bool) {
        if several {
            self.heading(&format!("{} ({})", foreign(&period.label), words::span(period.observed)));
        }
        for (at, flow) in period.flows.iter().enumerate() {
            self.flow(flow, at == 0);
        }
        if period.flows.is_empty() && !several && period.observer_cpu.is_none() {
            self.heading(&format!("Observed for {}.", words::span(period.observed)));
        }
        if !period.machine.is_empty() {
            self.heading("Out of order on this machine");
            for found in &period.machine {
                self.found(found, "  - ");
            }
        }
    }

    /// A line for each cell of a lab.
    fn cells(&mut self, diagnosis: &Diagnosis) {
        self.heading("Cells (--verbose shows their evidence)");
        for period in &diagnosis.periods {
            let Some(flow) = period.flows.first() else { continue };
            let cause = flow.causes.iter().find(|found| found.finding.explains.is_some());
            let cause = match cause {
                Some(found) => found.finding.sentence.clone(),
                None => "no cause that was saved".to_owned(),
            };
            let rate = words::rate(flow.rate);
            self.wrapped("  - ", &format!("{}, {rate}: {cause}", foreign(&period.label)));
        }
    }

    fn flow(&mut self, flow: &FlowReport, first: bool) {
        let mut title = format!("{} → {}", foreign(&flow.from), foreign(&flow.to));
        if !flow.processes.is_empty() {
            let _ = write!(title, "  {}", foreign(&flow.processes));
        }
        let _ = write!(title, "  {}", words::rate(flow.rate));
        if let Some(rtt) = flow.rtt {
            let _ = write!(title, ", round trip {}", words::span(rtt));
        }
        if let Some(congestion) = &flow.congestion {
            let _ = write!(title, ", {}", foreign(congestion));
        }
        self.line("");
        self.wrapped("", &title);
        let limits = || flow.causes.iter().filter(|found| found.finding.explains.is_some());
        if limits().next().is_none() {
            self.wrapped("  ", "nothing that was seen limits it");
        }
        for (at, found) in limits().enumerate() {
            if !first && at > 0 {
                break;
            }
            self.found(found, "  - ");
        }
        let other = flow.causes.iter().filter(|found| found.finding.explains.is_none());
        for found in other.filter(|_| first) {
            self.wrapped("  - ", &format!("present, not limiting: {}", found.finding.sentence));
        }
    }

    fn found(&mut self, found: &Found, indent: &str) {
        let finding = &found.finding;
        let share = finding.explains.map_or_else(String::new, |share| {
            format!("  ({} of the missing speed)", words::percent(share))
        });
        self.wrapped(indent, &format!("{}{share}", finding.sentence));
        for evidence in &finding.evidence {
            let threshold = evidence.threshold.as_ref().map_or_else(String::new, |from| match from
                .starts_with("below")
            {
                true => format!("  (counts {from})"),
                false => format!("  (counts from {from})"),
            });
            self.wrapped("      ", &format!("{}: {}{threshold}", evidence.signal, evidence.value));
        }
        if let Some(rate) = finding.allows {
            self.wrapped("      ", &format!("allows at most: {}", words::rate(rate)));
        }
        for against in &finding.against {
            self.wrapped("      ", &format!("against it: {against}"));
        }
    }

    fn advice(&mut self, diagnosis: &Diagnosis, advised: &mut BTreeSet<String>) {
        let first = diagnosis.periods.iter().flat_map(|period| {
            let flows = period.flows.iter().take(1).flat_map(|flow| &flow.causes);
            flows.filter(|found| found.finding.explains.is_some()).take(2).chain(&period.machine)
        });
        let advice: Vec<&Advice> = first
            .flat_map(|found| &found.finding.advice)
            .filter(|advice| advised.insert(advice.action.clone()))
            .collect();
        if advice.is_empty() {
            return;
        }
        self.heading("To do (nothing was changed)");
        for (at, advice) in advice.into_iter().enumerate() {
            self.wrapped(&format!("  {}. ", at + 1), &advice.action);
            for command in &advice.commands {
                self.line(&format!("       # {command}"));
            }
            if let Some(limits) = &advice.limits {
                self.wrapped("     ", &format!("But: {limits}."));
            }
        }
    }

    fn ruled_out(&mut self, diagnosis: &Diagnosis, all: bool) {
        let Some(period) = diagnosis.periods.first() else { return };
        let flow = period.flows.iter().take(1).flat_map(|flow| &flow.ruled_out);
        let ruled_out: Vec<_> = flow.chain(&period.ruled_out).collect();
        if ruled_out.is_empty() {
            return;
        }
        self.heading("Ruled out");
        let most = if all { usize::MAX } else { SHOWN };
        self.list(&ruled_out, most);
    }

    fn not_seen(&mut self, diagnosis: &Diagnosis, all: bool) {
        let flows = diagnosis.periods.iter().flat_map(|period| {
            let flow = period.flows.iter().take(1).flat_map(|flow| &flow.not_seen);
            flow.chain(&period.not_seen)
        });
        let mut told = BTreeSet::new();
        // A signal that is missing is listed once, with the reason.
        let is_listed = |one: &RuledOut| diagnosis.not_seen.iter().any(|two| two.what == one.by);
        let flows: Vec<_> =
            flows.filter(|one| !is_listed(one) && told.insert((one.cause, &one.by))).collect();
        if flows.is_empty() && diagnosis.not_seen.is_empty() {
            return;
        }
        self.heading("Not seen");
        for unseen in &diagnosis.not_seen {
            let text = format!("{}: {}", foreign(&unseen.what), foreign(&unseen.reason));
            self.wrapped("  - ", &text);
        }
        self.list(&flows, if all { usize::MAX } else { SHOWN / 2 });
    }

    fn observation(&mut self, diagnosis: &Diagnosis) {
        for period in &diagnosis.periods {
            let Some(cpu) = period.observer_cpu else { continue };
            self.line("");
            self.wrapped(
                "",
                &format!(
                    "Observed for {}, a sample each {}, with {} of a core.",
                    words::span(period.observed),
                    words::span(period.sampled_every),
                    words::percent(cpu)
                ),
            );
        }
    }

    fn list(&mut self, causes: &[&RuledOut], most: usize) {
        for one in causes.iter().take(most) {
            match one.words == one.by {
                true => self.wrapped("  - ", one.words),
                false => self.wrapped("  - ", &format!("{}: {}", one.words, one.by)),
            }
        }
        if causes.len() > most {
            let rest = causes.len() - most;
            self.line(&format!("  - and {rest} more (--verbose)"));
        }
    }
}

const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sketch::Sketch;
    use crate::{Question, diagnose};
    use units::{Bytes, Span};

    fn page(wide: usize, all: bool) -> String {
        let sketch = Sketch::new().tcp(|at, tcp| {
            tcp.window_limited = Some(Span::from_millis(900 * at));
            tcp.peer_window = Some(Bytes::new(32_768));
            tcp.bytes_acked = Some(Bytes::new(at * 1_600_000));
        });
        text(&diagnose(sketch.recording(), Question::Flow), wide, all)
    }

    #[test]
    fn the_verdict_its_evidence_the_advice_and_the_others() {
        let page = page(100, false);
        assert!(page.starts_with("The receiver's window is the limit: "), "{page}");
        for part in [
            "10.0.0.1:5000 → 10.0.0.2:5201  writer[7]  12.8 Mbit/s, round trip 20 ms, cubic",
            "time limited by the receiver's window, of the observation: 90 %  (counts from 20 %)",
            "allows at most: 13.1 Mbit/s",
            "To do (nothing was changed)",
            "# sysctl -w net.ipv4.tcp_moderate_rcvbuf=1",
            "Ruled out",
            "more (--verbose)",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn the_price_of_the_observation() {
        let mut recording = Sketch::idle().recording().clone();
        let page = |recording: &crate::Recording| {
            text(&diagnose(recording, Question::Machine), 100, false)
        };
        assert!(page(&recording).contains("Observed for 3 s.\n"));
        recording.periods[0].own_cpu = Some(Span::from_millis(24));
        let page = page(&recording);
        let line = "\nObserved for 3 s, a sample each 1 s, with 0.80 % of a core.\n";
        assert!(page.ends_with(line), "{page}");
    }

    #[test]
    fn lines_fit_and_all_causes_are_shown_on_request() {
        let is_text = |line: &&str| !line.trim_start().starts_with('#');
        let page = page(60, true);
        assert!(page.lines().filter(is_text).all(|line| line.chars().count() <= 60), "{page}");
        assert!(page.contains("lost packets: 0 retransmissions") && !page.contains("--verbose"));
    }
}
