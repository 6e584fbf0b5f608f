//! Verdicts over a long time: seconds by cause and by connections, and events when a verdict begins
//! and ends. The number of series is bounded, whatever traffic the machine has.

mod event;
mod metrics;
mod series;

pub use event::{Event, Happening};
pub use series::Subject;

use crate::diagnosis::{Diagnosis, Verdict};
use series::Series;
use std::collections::BTreeMap;
use units::Span;

/// The counters of one observer since its start.
#[derive(Debug)]
pub struct Standing {
    flows: Series,
    /// The time by cause, and by whether the cause is healthy (no fault).
    machine: BTreeMap<(&'static str, bool), Span>,
    verdicts: BTreeMap<(&'static str, &'static str), Span>,
    now: Option<Verdict>,
    /// Verdicts that have begun and not ended.
    active: BTreeMap<Subject, Active>,
    /// Dropped packets by the kernel's reason.
    drops: BTreeMap<String, u64>,
    observations: u64,
    busy: usize,
    watched: Span,
    own_cpu: Span,
}

#[derive(Debug, Clone)]
struct Active {
    begun: Span,
    seen: Span,
    /// Observations in a row that did not show the verdict.
    missed: u32,
}

/// The subjects that one observation shows, with their sentences.
type Shown = BTreeMap<Subject, String>;

impl Standing {
    /// `most`: maximum number of series of connections. Further connections are counted together,
    /// under their cause alone.
    pub fn new(most: usize) -> Self {
        Self {
            flows: Series::new(most),
            machine: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            now: None,
            active: BTreeMap::new(),
            drops: BTreeMap::new(),
            observations: 0,
            busy: 0,
            watched: Span::ZERO,
            own_cpu: Span::ZERO,
        }
    }

    /// Adds an observation that ended at `at` and stands for the time since the last observation.
    /// `own_cpu` is the CPU time of the observer so far. Returns the events.
    pub fn add(&mut self, diagnosis: &Diagnosis, at: Span, own_cpu: Span) -> Vec<Event> {
        let shown = self.count(diagnosis, at.saturating_sub(self.watched));
        self.changes(shown, at, own_cpu)
    }

    /// Adds an observation in which no connection matched.
    pub fn pass(&mut self, at: Span, own_cpu: Span) -> Vec<Event> {
        self.observations += 1;
        (self.busy, self.now) = (0, None);
        self.changes(Shown::new(), at, own_cpu)
    }

    /// Sets the packets that the kernel has dropped since the start, by the kernel's reasons.
    /// Includes packets dropped between two observations.
    pub fn set_drops(&mut self, reasons: BTreeMap<String, u64>) {
        self.drops = reasons;
    }

    fn changes(&mut self, shown: Shown, at: Span, own_cpu: Span) -> Vec<Event> {
        (self.watched, self.own_cpu) = (at, own_cpu);
        let mut events = Vec::new();
        for (subject, sentence) in &shown {
            if let Some(active) = self.active.get_mut(subject) {
                (active.seen, active.missed) = (at, 0);
                continue;
            }
            self.active.insert(subject.clone(), Active { begun: at, seen: at, missed: 0 });
            events.push(Event::begins(subject, sentence));
        }
        self.active.retain(|subject, active| {
            if !shown.contains_key(subject) {
                active.missed += 1;
            }
            let stays = active.missed < MISSED;
            if !stays {
                events.push(Event::ends(subject, active.seen.saturating_sub(active.begun)));
            }
            stays
        });
        events
    }

    /// Ends all verdicts, because the observer stops.
    pub fn finish(&mut self) -> Vec<Event> {
        let active = std::mem::take(&mut self.active).into_iter();
        active
            .map(|(subject, one)| Event::stops(&subject, one.seen.saturating_sub(one.begun)))
            .collect()
    }

    fn count(&mut self, diagnosis: &Diagnosis, time: Span) -> Shown {
        let mut shown = Shown::new();
        self.observations += 1;
        self.busy = diagnosis.periods.iter().map(|period| period.flows.len()).sum();
        let verdict = &diagnosis.verdict;
        let of_verdict = (verdict.kind.name(), verdict.cause.unwrap_or(NONE));
        series::add(&mut self.verdicts, of_verdict, time);
        self.now = Some(verdict.clone());
        for flow in diagnosis.periods.iter().flat_map(|period| &period.flows) {
            let first = flow.causes.iter().find(|found| found.limits_enough());
            let subject = Subject::of_flow(flow, first);
            let subject = self.flows.add(subject, time);
            if let Some(found) = first.filter(|found| !found.finding.healthy) {
                shown.entry(subject).or_insert_with(|| found.finding.sentence.clone());
            }
        }
        let machine = diagnosis.periods.iter().flat_map(|period| &period.machine);
        let mut seen = Vec::new();
        for found in machine.filter(|found| found.limits_enough()) {
            // The time counts once for each cause, even if several periods show the cause.
            if seen.contains(&found.cause) {
                continue;
            }
            seen.push(found.cause);
            let healthy = found.finding.healthy;
            series::add(&mut self.machine, (found.cause, healthy), time);
            if !healthy {
                let subject = Subject::of_machine(found.cause);
                shown.entry(subject).or_insert_with(|| found.finding.sentence.clone());
            }
        }
        shown
    }

    /// Returns the number of series of connections.
    pub fn series(&self) -> usize {
        self.flows.len()
    }

    /// Returns the metrics in Prometheus text format. `since` is the time since the last
    /// observation ended.
    pub fn exposition(&self, up: Span, since: Span) -> String {
        metrics::exposition(self, up, since)
    }
}

/// A verdict has ended when this many observations in a row do not show it. A verdict near the
/// threshold of its rule comes and goes from one observation to the next.
const MISSED: u32 = 3;
/// The label `cause` of the time in which nothing limits a connection or the machine.
const NONE: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sketch::Sketch;
    use crate::{Question, diagnose};

    fn diagnosis(limited: u64, port: u16) -> Diagnosis {
        let sketch = Sketch::new()
            .tcp(move |at, tcp| tcp.window_limited = Some(Span::from_millis(10 * limited * at)));
        let mut recording = sketch.recording().clone();
        let samples = recording.periods.iter_mut().flat_map(|period| &mut period.samples);
        for connection in samples.flat_map(|sample| &mut sample.connections) {
            let octet = (port % 250) as u8;
            connection.remote = ([10, (port / 250) as u8, octet, 9], 443).into();
            for holder in &mut connection.holders {
                holder.group = Some("/system.slice/nginx.service".to_owned());
            }
        }
        diagnose(&recording, Question::Machine)
    }

    fn value(text: &str, series: &str) -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    #[test]
    fn verdicts_begin_count_seconds_and_end_after_three_observations_without_the_verdict() {
        let mut standing = Standing::new(10);
        let mut happened = Vec::new();
        for (second, limited) in [(3, 90), (6, 90), (9, 0), (12, 90), (15, 0), (18, 0), (21, 0)] {
            let own = Span::from_millis(second);
            let events = standing.add(&diagnosis(limited, 7), Span::from_secs(second), own);
            let of_window = events.iter().filter(|one| one.subject.cause == "receiver-window");
            happened.extend(of_window.map(|event| (second, event.event, event.seconds)));
        }
        let ends = (21, Happening::End, Some(9.0));
        assert_eq!(happened, [(3, Happening::Begin, None), ends]);
        let text = standing.exposition(Span::from_secs(22), Span::from_secs(1));
        let series = "weir_doctor_connection_seconds_total{cause=\"receiver-window\",healthy=\"no\",program=\"writer\",destination=\"10.0.7.0/24\",container=\"nginx.service\"}";
        assert_eq!(value(&text, series), Some(9.0), "{text}");
        let verdict =
            "weir_doctor_verdict_seconds_total{kind=\"limited\",cause=\"receiver-window\"}";
        assert_eq!(value(&text, verdict), Some(9.0), "{text}");
        assert_eq!(value(&text, "weir_doctor_observations_total"), Some(7.0), "{text}");
    }

    #[test]
    fn more_destinations_than_the_limit_share_one_series_of_their_cause() {
        let mut standing = Standing::new(3);
        for port in 0..50 {
            standing.add(
                &diagnosis(90, port),
                Span::from_secs(3 * (u64::from(port) + 1)),
                Span::ZERO,
            );
        }
        let text = standing.exposition(Span::from_secs(150), Span::ZERO);
        let lines = text.lines().filter(|line| line.starts_with("weir_doctor_connection_seconds"));
        assert_eq!(lines.count(), 4, "{text}");
        let other = "weir_doctor_connection_seconds_total{cause=\"receiver-window\",healthy=\"no\",program=\"other\",destination=\"other\",container=\"other\"}";
        assert_eq!(value(&text, other), Some(47.0 * 3.0), "{text}");
        assert_eq!(value(&text, "weir_doctor_series_refused_total"), Some(47.0), "{text}");
        assert!(standing.active.len() <= 4, "{:?}", standing.active);
        let ended = standing.finish();
        assert!(!ended.is_empty() && ended.iter().all(|one| one.event == Happening::Stop));
    }

    #[test]
    fn every_line_of_the_exposition_follows_the_format() {
        let mut standing = Standing::new(3);
        standing.add(&diagnosis(90, 1), Span::from_secs(3), Span::ZERO);
        standing.set_drops(BTreeMap::from([("NO_SOCKET".to_owned(), 7)]));
        let text = standing.exposition(Span::from_secs(3), Span::ZERO);
        let drops = value(&text, "weir_doctor_kernel_drops_total{reason=\"NO_SOCKET\"}");
        assert_eq!(drops, Some(7.0), "{text}");
        for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
            let help = line.splitn(4, ' ').nth(3).unwrap();
            let verbs = ["has", "had", "ended", "judged", "are", "sent", "explained", "limited"];
            let has_verb = help.split(' ').any(|word| verbs.contains(&word));
            assert!(help.ends_with('.') && has_verb, "{line}");
        }
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("weir_doctor_"), "{line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            let bare = name.split('{').next().unwrap();
            assert!(text.contains(&format!("# TYPE {bare} ")), "{line}");
        }
    }
}
