//! Parses the connections, messages and the event of one cell.

use super::{EVENT, IDLE, PATIENCE, SIZE};
use crate::model::file::{Document, FileError, bounded};
use crate::workloads::messages::message_size;
use results::Axes;
use units::{Bytes, Span};

/// The connections and messages of a cell, and its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelledSettings {
    pub(super) idle: u32,
    pub(super) busy: u32,
    pub(super) size: Bytes,
    pub(super) event: Event,
    pub(super) patience: Span,
}

/// An event that disturbs the pair of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    None,
    UdpBlocked,
    ServerKilled,
}

impl TunnelledSettings {
    pub(super) fn parse(document: &Document, axes: &Axes, busy: u32) -> Result<Self, FileError> {
        let idle = document.workload_count(axes, IDLE, 0..=MOST_IDLE)?.unwrap_or(0);
        let size = document.workload_key(axes, SIZE, message_size)?.unwrap_or(USUAL_SIZE);
        let event = document.workload_key(axes, EVENT, event)?.unwrap_or(Event::None);
        let patience = document.workload_key(axes, PATIENCE, patience)?;
        Ok(Self { idle, busy, size, event, patience: patience.unwrap_or(USUAL_PATIENCE) })
    }
}

fn event(text: &str) -> Result<Event, String> {
    let found = EVENTS.iter().find(|(name, _)| *name == text);
    found.map(|(_, event)| *event).ok_or_else(|| {
        let known = EVENTS.map(|(name, _)| name);
        format!(
            "there is no event `{text}`{}: {}",
            units::did_you_mean(text, known),
            known.join(", ")
        )
    })
}

fn patience(text: &str) -> Result<Span, String> {
    bounded(text, SHORTEST..=LONGEST, || {
        format!("`patience` is from {} to {}", SHORTEST.shown(), LONGEST.shown())
    })
}

const EVENTS: [(&str, Event); 3] = [
    ("none", Event::None),
    ("udp-blocked", Event::UdpBlocked),
    ("server-killed", Event::ServerKilled),
];
const USUAL_SIZE: Bytes = Bytes::new(1_000);
/// Maximum number of idle connections, as in `crowd`.
const MOST_IDLE: u32 = 20_000;
const USUAL_PATIENCE: Span = Span::from_secs(20);
const SHORTEST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_a_size_and_a_patience_out_of_range_are_refused() {
        assert_eq!(event("udp-blocked"), Ok(Event::UdpBlocked));
        assert!(event("udp-block").unwrap_err().contains("did you mean `udp-blocked`?"));
        assert!(message_size("65KiB").is_err() && message_size("0B").is_err());
        assert_eq!(message_size("64B"), Ok(Bytes::new(64)));
        assert_eq!(patience("15s"), Ok(Span::from_secs(15)));
        assert!(patience("10ms").is_err() && patience("1h").is_err());
    }
}
