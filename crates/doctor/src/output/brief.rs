//! The page that is printed by default: the verdict, its evidence and the advice, in a few lines.

use super::page::{rows, wrapped};
use crate::diagnosis::{Confidence, Diagnosis, FlowReport, Found, PeriodReport, VerdictKind};
use crate::recording::Origin;
use crate::rules::{Evidence, row_of};
use crate::words;
use std::fmt::Write;
use units::foreign;

/// Writes a page of at most [`LINES`] lines, `wide` columns wide.
pub(super) fn brief(diagnosis: &Diagnosis, wide: usize) -> String {
    let mut page = Brief { wide, blocks: Vec::new() };
    page.verdict(diagnosis);
    let are_cells = diagnosis.origin == Origin::Saved && diagnosis.periods.len() > 1;
    match are_cells {
        true => page.cells(diagnosis),
        false => page.body(diagnosis),
    }
    page.block(FIRST, vec![last_line(diagnosis, wide)]);
    page.chosen()
}

/// Lines that belong together. Blocks with a lower rank are kept first.
struct Block {
    rank: u32,
    lines: Vec<String>,
}

struct Brief {
    wide: usize,
    blocks: Vec<Block>,
}

impl Brief {
    fn block(&mut self, rank: u32, lines: Vec<String>) {
        self.blocks.push(Block { rank, lines });
    }

    fn wrapped(&mut self, rank: u32, indent: &str, text: &str, most: usize) {
        let mut lines = wrapped(self.wide, indent, text);
        if lines.len() > most {
            lines.truncate(most);
            let last = lines.pop().unwrap_or_default();
            let kept: String = last.chars().take(self.wide - 2).collect();
            lines.push(format!("{} …", kept.trim_end()));
        }
        self.block(rank, lines);
    }

    fn verdict(&mut self, diagnosis: &Diagnosis) {
        self.wrapped(FIRST, "", &diagnosis.verdict.sentence, MOST_OF_VERDICT);
        if let Some(note) = &diagnosis.note {
            let first = note.split_once(". ").map_or(note.as_str(), |(first, _)| first);
            self.wrapped(OTHERS, "", &format!("Recording: {}", foreign(first)), MOST_OF_NOTE);
        }
    }

    fn body(&mut self, diagnosis: &Diagnosis) {
        let verdict = &diagnosis.verdict;
        let is_verdict =
            |found: &&Found| Some(found.cause) == verdict.cause && found.finding.explains.is_some();
        let flows = || diagnosis.periods.iter().flat_map(|period| &period.flows);
        // If there are several connections, the verdict repeats the sentence of its cause.
        let tells = |found: &&Found| is_verdict(found) && repeats(&verdict.sentence, found);
        let of_flow =
            flows().find_map(|flow| Some((flow, flow.causes.iter().find(tells)?))).or_else(|| {
                flows().find_map(|flow| Some((flow, flow.causes.iter().find(is_verdict)?)))
            });
        let of_machine =
            || diagnosis.periods.iter().flat_map(|period| &period.machine).find(is_verdict);
        let flow = of_flow.map(|(flow, _)| flow).or_else(|| flows().next());
        if let Some(flow) = flow {
            self.block(TITLE, title(flow, self.wide));
            for end in &flow.ends {
                self.wrapped(TITLE, "", &end.line(), 2);
            }
        }
        let found = of_flow.map(|(_, found)| found).or_else(of_machine);
        if let Some(found) = found {
            self.found(found, verdict.confidence);
        }
        for period in &diagnosis.periods {
            let is_told =
                flow.is_some_and(|flow| period.flows.iter().any(|other| std::ptr::eq(other, flow)));
            if !is_told && diagnosis.periods.len() > 1 {
                self.period(period);
            }
        }
        let more = flow.into_iter().flat_map(|flow| &flow.causes);
        let more = more.chain(diagnosis.periods.iter().flat_map(|period| &period.machine));
        let is_other = |other: &&Found| {
            other.finding.explains.is_some() && !found.is_some_and(|one| std::ptr::eq(one, *other))
        };
        for (at, other) in more.filter(is_other).take(MOST_OTHERS).enumerate() {
            let share = other.finding.explains.unwrap_or(0.0);
            let share = format!("{} of the missing speed", words::percent(share));
            let text = format!("{} ({share})", other.finding.sentence);
            self.wrapped(OTHERS + at as u32 * LATER, "Also: ", &text, 2);
        }
        let is_drops = |found: &&Found| row_of(found.cause).is_some_and(|row| row.counts_drops);
        let mut machine = diagnosis.periods.iter().flat_map(|period| &period.machine);
        if let Some(drops) = machine.find(is_drops) {
            self.wrapped(OTHERS, "Drops: ", &drops.finding.sentence, 2);
        }
        if let Some(found) = found.filter(|_| verdict.kind != VerdictKind::NotEnoughEvidence) {
            self.advice(found);
        }
        if verdict.kind == VerdictKind::NotEnoughEvidence
            && let Some(unseen) = diagnosis.not_seen.first()
        {
            let text = format!("{}: {}", foreign(&unseen.what), foreign(&unseen.reason));
            self.wrapped(EVIDENCE, "Not seen: ", &text, 2);
        }
    }

    fn found(&mut self, found: &Found, confidence: Confidence) {
        let finding = &found.finding;
        for (at, evidence) in finding.evidence.iter().enumerate() {
            let text = shown(evidence, self.wide.saturating_sub(2));
            self.wrapped(EVIDENCE + at as u32 * LATER, "  ", &text, 2);
        }
        let rate = finding.allows.map(words::rate);
        let is_told = |text: &String| {
            finding.sentence.contains(text) || finding.evidence.iter().any(|e| e.value == *text)
        };
        if let Some(rate) = rate.filter(|rate| !is_told(rate)) {
            self.wrapped(EVIDENCE + LATER, "  ", &format!("allows at most: {rate}"), 1);
        }
        for (at, against) in finding.against.iter().enumerate() {
            let text = match confidence {
                Confidence::Low => format!("against it (the confidence is low): {against}"),
                _ => format!("against it: {against}"),
            };
            self.wrapped(AGAINST + at as u32 * LATER, "  ", &text, 2);
        }
    }

    fn advice(&mut self, found: &Found) {
        for (at, advice) in found.finding.advice.iter().enumerate() {
            let rank = at as u32 * LATER * 2;
            self.wrapped(ACTION + rank, "To do: ", &advice.action, 3);
            for (at, command) in advice.commands.iter().enumerate() {
                let line = format!("  # {command}");
                self.block(COMMAND + rank + at as u32 * LATER, vec![line]);
            }
            if let Some(limits) = &advice.limits {
                self.wrapped(LIMITS + rank, "  But: ", limits, 2);
            }
        }
    }

    /// Adds the other direction of a test, or another period.
    fn period(&mut self, period: &PeriodReport) {
        let Some(flow) = period.flows.first() else { return };
        let cause = flow.causes.iter().find(|found| found.finding.explains.is_some());
        let cause = cause
            .map_or("nothing that was seen limits it", |found| found.finding.sentence.as_str());
        let text = format!("{}: {}; {cause}", foreign(&period.label), words::rate(flow.rate));
        self.wrapped(PERIOD, "", &text, 2);
    }

    fn cells(&mut self, diagnosis: &Diagnosis) {
        let count = diagnosis.periods.len();
        let room = LINES.saturating_sub(self.rows() + 2);
        let shown = if count <= room + 1 { count } else { room };
        for period in diagnosis.periods.iter().take(shown) {
            let Some(flow) = period.flows.first() else { continue };
            let cause = flow.causes.iter().find(|found| found.finding.explains.is_some());
            let cause =
                cause.map_or("no cause that was saved", |found| found.finding.sentence.as_str());
            let rate = words::rate(flow.rate);
            self.wrapped(TITLE, "", &format!("{}, {rate}: {cause}", foreign(&period.label)), 1);
        }
        if count > shown {
            self.block(TITLE, vec![format!("and {} more cells", count - shown)]);
        }
    }

    fn rows(&self) -> usize {
        self.blocks.iter().map(|block| self.rows_of(block)).sum()
    }

    fn rows_of(&self, block: &Block) -> usize {
        block.lines.iter().map(|line| rows(self.wide, line)).sum()
    }

    /// Returns the blocks of the lowest ranks that fit, in their order on the page.
    fn chosen(self) -> String {
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by_key(|at| self.blocks[*at].rank);
        let mut kept = vec![false; self.blocks.len()];
        let mut left = LINES;
        for at in order {
            let rows = self.rows_of(&self.blocks[at]);
            if rows <= left {
                (kept[at], left) = (true, left - rows);
            }
        }
        let mut text = String::new();
        for (block, _) in self.blocks.iter().zip(kept).filter(|(_, kept)| *kept) {
            for line in &block.lines {
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        text
    }
}

/// Whether the verdict contains the finding's sentence, apart from its first letter.
fn repeats(sentence: &str, found: &Found) -> bool {
    let rest: String = found.finding.sentence.chars().skip(1).collect();
    sentence.contains(&rest)
}

/// Writes the connection in one line or two: the ends first, then the processes and the rate.
fn title(flow: &FlowReport, wide: usize) -> Vec<String> {
    let ends = format!("{} → {}", foreign(&flow.from), foreign(&flow.to));
    let mut figures = words::rate(flow.rate);
    if let Some(rtt) = flow.rtt {
        let _ = write!(figures, ", round trip {}", words::span(rtt));
    }
    if let Some(congestion) = &flow.congestion {
        let _ = write!(figures, ", {}", foreign(congestion));
    }
    let whole = match flow.processes.is_empty() {
        true => format!("{ends}  {figures}"),
        false => format!("{ends}  {}  {figures}", foreign(&flow.processes)),
    };
    if whole.chars().count() <= wide {
        return vec![whole];
    }
    let processes = foreign(&flow.processes).to_string();
    let room = wide.saturating_sub(figures.chars().count() + 4);
    let second = match flow.processes.is_empty() || room < 3 {
        true => format!("  {figures}"),
        false => format!("  {}  {figures}", fitted(room, &processes)),
    };
    vec![fitted(wide, &ends), fitted(wide, &second)]
}

/// Writes the evidence in one line. Leaves out the threshold if the line has no room.
fn shown(evidence: &Evidence, room: usize) -> String {
    let threshold = match &evidence.threshold {
        None => String::new(),
        Some(from) if from.starts_with("below") => format!(" (counts {from})"),
        Some(from) => format!(" (counts from {from})"),
    };
    let text = format!("{}: {}", evidence.signal, evidence.value);
    match text.chars().count() + threshold.chars().count() <= room {
        true => text + &threshold,
        false => text,
    }
}

/// Writes the CPU time of the observation, and the option that shows all findings.
fn last_line(diagnosis: &Diagnosis, wide: usize) -> String {
    let observed = diagnosis.periods.iter().find_map(|period| {
        Some(format!(
            "Observed for {} with {} of a core; {VERBOSE}",
            words::span(period.observed),
            words::percent(period.observer_cpu?)
        ))
    });
    let fits = |line: &String| line.chars().count() <= wide;
    observed.filter(fits).unwrap_or_else(|| VERBOSE.to_owned())
}

/// Cuts the middle out of a text that is longer than `most` characters.
fn fitted(most: usize, text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let head: String = letters[..head].iter().collect();
    let tail: String = letters[letters.len() - tail..].iter().collect();
    format!("{head}…{tail}")
}

const VERBOSE: &str = "--verbose shows all causes.";
/// Maximum number of lines of the page.
pub(super) const LINES: usize = 12;
const MOST_OF_VERDICT: usize = 5;
const MOST_OF_NOTE: usize = 2;
const MOST_OTHERS: usize = 2;
/// Ranks: a page without room leaves out the blocks of the highest ranks.
const FIRST: u32 = 0;
const TITLE: u32 = 1;
const EVIDENCE: u32 = 2;
const ACTION: u32 = 3;
const COMMAND: u32 = 4;
const PERIOD: u32 = 5;
const AGAINST: u32 = 6;
const OTHERS: u32 = 8;
const LIMITS: u32 = 15;
/// Number that is added to the rank of each evidence, command or advice after the first of its
/// kind.
const LATER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Verdict;
    use crate::recording::Unseen;
    use crate::rules::{Advice, Finding, TABLE};
    use proptest::prelude::*;
    use units::{Rate, Span};

    fn finding(words: &[String], count: usize) -> Finding {
        let word = |at: usize| words[at % words.len()].clone();
        let mut finding = Finding::new(word(0)).allows(Some(Rate::from_mbit(7)));
        finding.explains = Some(0.7);
        for at in 0..count {
            finding = finding
                .seen_from(word(at), word(at + 1), word(at + 2))
                .against(word(at + 3))
                .advise(
                    Advice::new(word(at)).run(word(at + 1)).run(word(at + 2)).not(word(at + 3)),
                );
        }
        finding
    }

    fn document(words: &[String], count: usize, periods: usize) -> Diagnosis {
        let word = |at: usize| words[at % words.len()].clone();
        let causes = |count: usize| {
            let each = (0..count).map(|at| Found {
                cause: TABLE[at % TABLE.len()].rule.cause,
                seen_at: Vec::new(),
                finding: finding(words, count),
            });
            each.collect::<Vec<_>>()
        };
        let flow = || FlowReport {
            from: word(1),
            to: word(2),
            processes: word(3),
            rate: Rate::from_mbit(16),
            rtt: Some(Span::from_millis(40)),
            congestion: Some(word(4)),
            one_sided: true,
            receives_only: false,
            tested: false,
            opening: false,
            program: word(3),
            group: None,
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            ends: (0..count.min(2)).map(|_| end(&word)).collect(),
            causes: causes(count),
            ruled_out: Vec::new(),
            not_seen: Vec::new(),
        };
        let period = |_| PeriodReport {
            label: word(5),
            observed: Span::from_secs(3),
            sampled_every: Span::from_millis(250),
            observer_cpu: Some(0.008),
            flows: vec![flow(), flow()],
            quiet: 3,
            drops: None,
            machine: causes(count),
            ruled_out: Vec::new(),
            not_seen: Vec::new(),
            is_cut: false,
        };
        Diagnosis {
            weir_doctor: 1,
            verdict: Verdict {
                kind: VerdictKind::Limited,
                cause: Some(TABLE[0].rule.cause),
                sentence: word(0),
                confidence: Confidence::Low,
                causes: Vec::new(),
            },
            periods: (0..periods).map(period).collect(),
            not_seen: vec![Unseen { what: word(6), reason: word(7) }],
            origin: if periods > 2 { Origin::Saved } else { Origin::Measured },
            note: Some(word(8)),
            kernel: String::new(),
        }
    }

    fn end(word: &dyn Fn(usize) -> String) -> crate::diagnosis::EndReport {
        crate::diagnosis::EndReport {
            name: word(1),
            address: ([10, 0, 0, 1], 5201).into(),
            sends: true,
            processes: word(2),
            rate: Rate::from_mbit(16),
            rtt: None,
            window: Some(units::Bytes::new(1 << 20)),
            retransmitted: Some(0.01),
            waiting: Some(units::Bytes::new(9)),
            busiest_core: Some(0.9),
        }
    }

    fn is_command(line: &str) -> bool {
        line.starts_with("  # ")
    }

    proptest! {
        #[test]
        fn the_page_of_any_diagnosis_has_at_most_twelve_rows(
            words in prop::collection::vec("[a-zé:. ]{0,400}", 1..9),
            count in 0usize..5,
            periods in 0usize..30,
            wide in 40usize..130,
        ) {
            let page = brief(&document(&words, count, periods), wide);
            let taken: usize = page.lines().map(|line| rows(wide, line)).sum();
            prop_assert!(taken <= LINES, "{taken} rows: {page}");
            let fits = |line: &str| is_command(line) || line.chars().count() <= wide;
            prop_assert!(page.lines().all(fits), "{page}");
            prop_assert!(page.ends_with("--verbose shows all causes.\n"), "{page}");
        }
    }

    #[test]
    fn a_long_text_is_cut_in_the_middle() {
        assert_eq!(fitted(5, "abcdefgh"), "ab…gh");
        assert_eq!(fitted(8, "abcdefgh"), "abcdefgh");
    }
}
