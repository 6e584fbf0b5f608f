use super::refusals::Cause;
use crate::transport::{
    CONNECTION_LIMIT, Lost, MEMORY_LIMIT, PEER_IS_SILENT, SERVER_HAS_ENDED, SERVER_SHUTS_DOWN,
    SESSION_ENDED, TUNNEL_LIMIT,
};
use std::time::Duration;

/// Computes the pause before the next attempt to connect. The pause doubles while servers refuse
/// this client or do not answer.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    /// Returns the pause after the loss of a connection that lasted for `lifetime`. In TLS 1.3 a
    /// client learns only after its handshake that the server refuses its key, so an early end may
    /// be a refusal. The end is not a refusal if the server restarted or became silent, or if its
    /// operator ended the session.
    pub(super) fn after_connection(&mut self, lifetime: Duration, why: &Lost) -> Duration {
        if lifetime >= SETTLED {
            self.next = FIRST_PAUSE;
            return Duration::ZERO;
        }
        if cause(why).is_none() {
            self.next = FIRST_PAUSE;
        }
        self.pause(LONGEST_PAUSE)
    }

    /// Returns the pause after an attempt in which no server could be reached. The pause stays
    /// short for a silent server, which may start at any moment: the attempts send at most two
    /// packets a second.
    pub(super) fn after_failure(&mut self, why: &Lost) -> Duration {
        self.pause(if *why == Lost::Silent { LONGEST_ABSENCE } else { LONGEST_PAUSE })
    }

    fn pause(&mut self, longest: Duration) -> Duration {
        let pause = self.next.min(longest);
        self.next = (pause * 2).min(LONGEST_PAUSE);
        // Randomise the pause, so that not all clients of a restarted server return at once.
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// Returns the cause of the refusal, if an early end for this reason may be a refusal. Returns
/// `None` if the server may accept this client at once.
pub(super) fn cause(why: &Lost) -> Option<Cause> {
    match why {
        Lost::Restarted | Lost::Silent => None,
        Lost::ByPeer(reason) => match reason.as_str() {
            SERVER_SHUTS_DOWN | SERVER_HAS_ENDED | SESSION_ENDED | PEER_IS_SILENT => None,
            CONNECTION_LIMIT | TUNNEL_LIMIT | MEMORY_LIMIT => Some(Cause::Limit),
            _ => Some(Cause::Key),
        },
        Lost::Here | Lost::Violation(_) => Some(Cause::Key),
        Lost::Untrusted(_) | Lost::Refused(_) | Lost::Failed(_) => Some(Cause::Key),
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_ABSENCE: Duration = Duration::from_millis(500);
/// Minimum lifetime from which a connection counts as accepted by the server.
const SETTLED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_are_no_refusals_do_not_lengthen_the_pause() {
        let ends = [
            Lost::Restarted,
            Lost::Silent,
            Lost::ByPeer(SERVER_SHUTS_DOWN.to_owned()),
            Lost::ByPeer(SERVER_HAS_ENDED.to_owned()),
            Lost::ByPeer(SESSION_ENDED.to_owned()),
        ];
        for why in ends {
            let mut backoff = Backoff::new();
            for _ in 0..20 {
                let pause = backoff.after_connection(Duration::from_secs(1), &why);
                assert!(pause <= FIRST_PAUSE, "{why}: {pause:?}");
            }
        }
    }

    #[test]
    fn refusals_after_the_handshake_lengthen_the_pause() {
        let ends = [
            (Lost::ByPeer("this identity is not let in".to_owned()), Cause::Key),
            (Lost::Refused("the server knows no such client".to_owned()), Cause::Key),
            (Lost::Failed("the cryptographic handshake failed: error 116".to_owned()), Cause::Key),
            (Lost::ByPeer(CONNECTION_LIMIT.to_owned()), Cause::Limit),
        ];
        for (why, expected) in ends {
            assert_eq!(cause(&why), Some(expected), "{why}");
            let mut backoff = Backoff::new();
            let pauses: Vec<_> = (0..20)
                .map(|_| backoff.after_connection(Duration::from_millis(30), &why))
                .collect();
            assert!(pauses[19] >= LONGEST_PAUSE / 2, "{why}: {pauses:?}");
            assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{why}: {pauses:?}");
            assert_eq!(backoff.after_connection(SETTLED, &why), Duration::ZERO);
            assert!(backoff.after_failure(&Lost::Silent) <= FIRST_PAUSE);
        }
    }

    #[test]
    fn a_silent_server_is_tried_at_least_twice_a_second() {
        let mut backoff = Backoff::new();
        for _ in 0..20 {
            assert!(backoff.after_failure(&Lost::Silent) <= LONGEST_ABSENCE);
        }
    }
}
