//! Limits the log lines about a server that cannot be reached: several connections retry again and
//! again, and all fail for the same reason.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The failures of one server.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Option<Told>>);

#[derive(Debug)]
struct Told {
    reason: String,
    at: Instant,
    omitted: u64,
    /// Whether the server ended a connection that this client had already counted as established.
    is_refusal: bool,
}

impl Failures {
    /// Returns `Some` if this failure gets a log line, because its reason is new or a minute has
    /// passed. The value is the number of failures since the last line.
    pub(super) fn line(&self, now: Instant, reason: &str) -> Option<u64> {
        self.tell(now, reason, false)
    }

    /// Like [`Self::line`], for a server that refused this client after the client's handshake.
    pub(super) fn refusal(&self, now: Instant, reason: &str) -> Option<u64> {
        self.tell(now, reason, true)
    }

    fn tell(&self, now: Instant, reason: &str, is_refusal: bool) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = told.as_mut()
            && told.reason == reason
            && now.saturating_duration_since(told.at) < AGAIN
        {
            told.omitted += 1;
            return None;
        }
        let omitted = told.as_ref().map_or(0, |told| told.omitted);
        *told = Some(Told { reason: reason.to_owned(), at: now, omitted: 0, is_refusal });
        Some(omitted)
    }

    /// Returns the reason for which the last attempt failed; `None` after a success.
    pub(super) fn reason(&self) -> Option<String> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.as_ref().map(|told| told.reason.clone())
    }

    /// Forgets the last reason after a handshake, so that the next failure gets a log line. Keeps a
    /// refusal: a client completes its handshake before the server checks the client's certificate.
    /// Returns whether the last reason is a refusal.
    pub(super) fn forget_unless_refused(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_refused = told.as_ref().is_some_and(|told| told.is_refusal);
        if !is_refused {
            *told = None;
        }
        is_refused
    }

    /// Forgets the last reason once the server has kept a connection.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

const AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_failure_is_logged_once_a_minute_and_after_a_connection() {
        let (failures, begin) = (Failures::default(), Instant::now());
        let line = |seconds, reason| failures.line(begin + Duration::from_secs(seconds), reason);
        assert_eq!(line(0, "silent"), Some(0));
        assert_eq!((line(1, "silent"), line(59, "silent")), (None, None));
        assert_eq!(line(60, "silent"), Some(2));
        assert_eq!(line(61, "refused"), Some(0));
        assert_eq!(line(62, "refused"), None);
        assert!(!failures.forget_unless_refused());
        assert_eq!(line(63, "refused"), Some(0));
    }

    #[test]
    fn a_refusal_is_logged_once_a_minute_although_each_handshake_succeeds() {
        let (failures, begin) = (Failures::default(), Instant::now());
        let refusal = |seconds| failures.refusal(begin + Duration::from_secs(seconds), "unknown");
        assert_eq!(refusal(0), Some(0));
        assert!(failures.forget_unless_refused());
        assert_eq!(refusal(1), None);
        assert_eq!(failures.reason().as_deref(), Some("unknown"));
        failures.forget();
        assert_eq!((failures.reason(), refusal(2)), (None, Some(0)));
    }
}
