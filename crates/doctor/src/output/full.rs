use super::page::Page;
use crate::diagnosis::{
    Confidence, Diagnosis, FlowReport, Found, PeriodReport, RuledOut, VerdictKind,
};
use crate::rules::Advice;
use crate::words;
use std::collections::BTreeSet;
use std::fmt::Write;
use units::foreign;

/// Writes every cause with its evidence, every advice, and every cause that was ruled out or not
/// seen.
pub(super) fn full(diagnosis: &Diagnosis, wide: usize) -> String {
    let mut page = Page::new(wide);
    page.wrapped("", &diagnosis.verdict.sentence);
    if diagnosis.verdict.kind == VerdictKind::Limited
        && diagnosis.verdict.confidence == Confidence::Low
    {
        page.wrapped("", "The confidence is low: see what speaks against it.");
    }
    if let Some(note) = &diagnosis.note {
        page.wrapped("", &format!("Recording: {}", foreign(note)));
    }
    for period in &diagnosis.periods {
        page.period(period, diagnosis.periods.len() > 1);
    }
    page.advice(diagnosis, &mut BTreeSet::new());
    page.ruled_out(diagnosis);
    page.not_seen(diagnosis);
    page.observation(diagnosis);
    page.text
}

impl Page {
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
            let is_of_both = period.flows.iter().any(|flow| !flow.ends.is_empty());
            self.heading(match is_of_both {
                true => "Out of order on the two machines",
                false => "Out of order on this machine",
            });
            for found in &period.machine {
                self.found(found, "  - ");
            }
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
        for end in &flow.ends {
            self.wrapped("  ", &end.line());
        }
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

    fn ruled_out(&mut self, diagnosis: &Diagnosis) {
        let Some(period) = diagnosis.periods.first() else { return };
        let flow = period.flows.iter().take(1).flat_map(|flow| &flow.ruled_out);
        let ruled_out: Vec<_> = flow.chain(&period.ruled_out).collect();
        if ruled_out.is_empty() {
            return;
        }
        self.heading("Ruled out");
        self.list(&ruled_out);
    }

    fn not_seen(&mut self, diagnosis: &Diagnosis) {
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
        self.list(&flows);
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

    fn list(&mut self, causes: &[&RuledOut]) {
        for one in causes {
            match one.words == one.by {
                true => self.wrapped("  - ", one.words),
                false => self.wrapped("  - ", &format!("{}: {}", one.words, one.by)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::output::text;
    use crate::rules::sketch::Sketch;
    use crate::{Question, diagnose};
    use units::{Bytes, Span};

    fn limited_by_window() -> Sketch {
        Sketch::closed_window().tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 1_600_000)))
    }

    fn page(wide: usize, all: bool) -> String {
        text(&diagnose(limited_by_window().recording(), Question::Flow), wide, all)
    }

    #[test]
    fn twelve_lines_have_the_verdict_the_evidence_and_the_advice() {
        let expected = "\
The receiver's window is the limit: it offers 32.8 kB for a round trip of 20 ms.
10.0.0.1:5000 → 10.0.0.2:5201  writer[7]  12.8 Mbit/s, round trip 20 ms, cubic
  time limited by the receiver's window: 90 % of the observation
  window / round trip: 13.1 Mbit/s
  window: 32.8 kB
To do: Let the receiver's kernel use larger buffers, and remove SO_RCVBUF from
       the receiving program on 10.0.0.2
  # sysctl -w net.ipv4.tcp_rmem='4096 131072 8388608'   (on 10.0.0.2)
  # sysctl -w net.ipv4.tcp_moderate_rcvbuf=1   (on 10.0.0.2)
  But: A program that sets SO_RCVBUF keeps its size (iperf3 -w is such a
       setting), whatever tcp_rmem is
--verbose shows all causes.
";
        assert_eq!(page(80, false), expected);
    }

    #[test]
    fn a_note_is_shown_up_to_the_end_of_its_first_sentence() {
        let mut recording = Sketch::idle().recording().clone();
        let first = "A board with one core of 1 GHz and a 1000 Mbit/s PHY receives from iperf3";
        recording.note = Some(format!("{first}. {}", "Figures of its report. ".repeat(20)));
        let page = text(&diagnose(&recording, Question::Machine), 80, false).replace('\n', " ");
        assert!(page.contains(&format!("Recording: {first} ")), "{page}");
        assert!(!page.contains('…') && !page.contains("Figures"), "{page}");
    }

    #[test]
    fn the_full_page_also_has_the_causes_that_are_ruled_out() {
        let page = page(100, true);
        assert!(page.starts_with("The receiver's window is the limit: "), "{page}");
        for part in [
            "10.0.0.1:5000 → 10.0.0.2:5201  writer[7]  12.8 Mbit/s, round trip 20 ms, cubic",
            "time limited by the receiver's window: 90 % of the observation  (counts from 20 %)",
            "allows at most: 13.1 Mbit/s",
            "To do (nothing was changed)",
            "# sysctl -w net.ipv4.tcp_moderate_rcvbuf=1",
            "Ruled out",
            "lost packets: 0 retransmissions",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("--verbose"), "{page}");
    }

    #[test]
    fn the_last_line_has_the_cpu_time_of_the_observation() {
        let mut recording = Sketch::idle().recording().clone();
        let page = |recording: &crate::Recording, all: bool| {
            text(&diagnose(recording, Question::Machine), 100, all)
        };
        assert!(page(&recording, true).contains("Observed for 3 s.\n"));
        recording.periods[0].own_cpu = Some(Span::from_millis(24));
        let all = page(&recording, true);
        let line = "\nObserved for 3 s, a sample each 1 s, with 0.80 % of a core.\n";
        assert!(all.ends_with(line), "{all}");
        let brief = page(&recording, false);
        let line = "\nObserved for 3 s with 0.80 % of a core; --verbose shows all causes.\n";
        assert!(brief.ends_with(line), "{brief}");
        let mut judged = diagnose(&recording, Question::Machine);
        judged.add_own_cpu(Span::from_millis(6));
        let brief = text(&judged, 100, false);
        assert!(brief.contains("Observed for 3 s with 1.0 % of a core;"), "{brief}");
    }

    #[test]
    fn lines_fit_the_width() {
        let is_text = |line: &&str| !line.trim_start().starts_with('#');
        let page = page(60, true);
        assert!(page.lines().filter(is_text).all(|line| line.chars().count() <= 60), "{page}");
    }
}
