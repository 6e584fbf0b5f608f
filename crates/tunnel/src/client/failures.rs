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
}

impl Failures {
    /// Returns `Some` if this failure gets a log line, because its reason is new or a minute has
    /// passed. The value is the number of failures since the last line.
    pub(super) fn line(&self, now: Instant, reason: &str) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = told.as_mut()
            && told.reason == reason
            && now.saturating_duration_since(told.at) < AGAIN
        {
            told.omitted += 1;
            return None;
        }
        let omitted = told.as_ref().map_or(0, |told| told.omitted);
        *told = Some(Told { reason: reason.to_owned(), at: now, omitted: 0 });
        Some(omitted)
    }

    /// Returns why the last attempt failed; `None` if it succeeded.
    pub(super) fn reason(&self) -> Option<String> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.as_ref().map(|told| told.reason.clone())
    }

    /// Forgets the last reason after a connection, so that the next failure gets a line.
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
        failures.forget();
        assert_eq!(line(63, "refused"), Some(0));
    }
}
