use super::Subject;
use serde::Serialize;

/// The begin or the end of a verdict. Each event is a JSON document on a line of its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// The version of this document.
    pub weir_event: u32,
    pub event: Happening,
    /// Seconds since 1970, to the millisecond. The command that prints the event sets the time.
    pub time: f64,
    #[serde(flatten)]
    pub subject: Subject,
    /// The verdict when the event began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// The time from the first to the last observation that showed the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Happening {
    Begin,
    End,
    /// The observer stopped while the verdict stood.
    Stop,
}

impl Event {
    pub(super) fn begins(subject: &Subject, sentence: &str) -> Self {
        Self {
            weir_event: 1,
            event: Happening::Begin,
            time: 0.0,
            subject: subject.clone(),
            sentence: Some(units::foreign(sentence).up_to(LONGEST).to_string()),
            seconds: None,
        }
    }

    pub(super) fn ends(subject: &Subject, lasted: units::Span) -> Self {
        let seconds = Some(lasted.secs_f64());
        Self { event: Happening::End, sentence: None, seconds, ..Self::begins(subject, "") }
    }

    pub(super) fn stops(subject: &Subject, lasted: units::Span) -> Self {
        Self { event: Happening::Stop, ..Self::ends(subject, lasted) }
    }

    /// Returns the document on one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

const LONGEST: usize = 500;
