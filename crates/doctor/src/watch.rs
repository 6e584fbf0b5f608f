//! Verdicts over time: reports only changes.

use crate::diagnosis::{Confidence, Diagnosis, VerdictKind};
use units::{Span, foreign};

/// The verdict that was reported last.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    last: Option<(VerdictKind, Option<&'static str>, Vec<&'static str>)>,
}

impl Changes {
    /// Returns a line about a diagnosis if its verdict, or the faults of the machine, differ from
    /// the previous diagnosis.
    pub fn news(&mut self, at: Span, diagnosis: &Diagnosis) -> Option<String> {
        let verdict = &diagnosis.verdict;
        let mut machine: Vec<_> = diagnosis
            .periods
            .iter()
            .flat_map(|period| &period.machine)
            .map(|found| found.cause)
            .collect();
        machine.sort_unstable();
        machine.dedup();
        let now = (verdict.kind, verdict.cause, machine);
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        let others: Vec<_> =
            now.2.iter().filter(|cause| Some(**cause) != verdict.cause).copied().collect();
        let also = match others.as_slice() {
            [] => String::new(),
            others => format!(" Also out of order: {}.", others.join(", ")),
        };
        let doubt = match verdict.confidence {
            Confidence::Low if verdict.kind == VerdictKind::Limited => " (low confidence)",
            _ => "",
        };
        self.last = Some(now);
        let seconds = at.secs_f64().round() as u64;
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        Some(format!("+{clock}  {}{doubt}{also}", foreign(&verdict.sentence).up_to(LONGEST)))
    }
}

const LONGEST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sketch::Sketch;
    use crate::{Question, diagnose};

    fn diagnosis(limited: u64) -> Diagnosis {
        let sketch = Sketch::new().tcp(move |at, tcp| {
            tcp.window_limited = Some(Span::from_millis(10 * limited * at));
        });
        diagnose(sketch.recording(), Question::Machine)
    }

    #[test]
    fn only_a_changed_verdict_is_reported() {
        let mut changes = Changes::default();
        let first = changes.news(Span::ZERO, &diagnosis(90)).unwrap();
        assert!(first.starts_with("+00:00:00  The receiver's window is the limit"), "{first}");
        assert_eq!(changes.news(Span::from_secs(3), &diagnosis(80)), None);
        let next = changes.news(Span::from_secs(3_723), &diagnosis(0)).unwrap();
        assert!(next.starts_with("+01:02:03  "), "{next}");
    }
}
