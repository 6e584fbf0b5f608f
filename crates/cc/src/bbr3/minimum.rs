use crate::Ack;
use units::{Span, Time};

/// The path's own round-trip time: the minimum over ten seconds. A ProbeRTT is due every five
/// seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinimumRtt {
    minimum: Option<(Span, Time)>,
    probed: Option<(Span, Time)>,
}

impl MinimumRtt {
    pub(super) fn new(handshake: Option<Span>, now: Time) -> Self {
        let known = handshake.map(|rtt| (rtt, now));
        Self { minimum: known, probed: known }
    }

    pub(super) fn rtt(&self) -> Option<Span> {
        self.minimum.map(|(rtt, _)| rtt)
    }

    /// Returns true when a ProbeRTT is due.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> bool {
        let older = |known: Option<(Span, Time)>, window: Span| {
            known.is_some_and(|(_, at)| ack.now.since(at) > window)
        };
        let expired = older(self.probed, PROBE_EVERY);
        if let Some(rtt) = ack.rtt
            && (expired || self.probed.is_none_or(|(least, _)| rtt < least))
        {
            self.probed = Some((rtt, ack.now));
        }
        if let Some((probed, at)) = self.probed
            && (older(self.minimum, WINDOW) || self.minimum.is_none_or(|(least, _)| probed < least))
        {
            self.minimum = Some((probed, at));
        }
        expired
    }

    pub(super) fn refreshed(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.probed {
            *at = now;
        }
    }
}

const WINDOW: Span = Span::from_secs(10);
const PROBE_EVERY: Span = Span::from_secs(5);
