//! The drain of a running end: no new sessions and tunnels, and an end with the last tunnel.

use super::lock;
use crate::status::{Facts, Reply};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Sends requests to drain to the end's main task.
pub(super) struct Drain {
    facts: Arc<Mutex<Facts>>,
    until: watch::Sender<Option<Instant>>,
}

/// The receiver of drain requests, in the end's main task.
pub(super) struct Requested(watch::Receiver<Option<Instant>>);

impl Drain {
    pub(super) fn new(facts: Arc<Mutex<Facts>>) -> (Self, Requested) {
        let (until, requested) = watch::channel(None);
        (Self { facts, until }, Requested(requested))
    }

    /// Begins a drain, or changes the time limit of a running drain.
    pub(super) fn within(&self, seconds: f64, tunnels: u64) -> Reply {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        lock(&self.facts).drain_until = Some(until);
        self.until.send_replace(Some(until));
        Reply::Draining { tunnels }
    }
}

impl Requested {
    /// Calls `begin` once a drain is requested. Returns once `tunnels` returns 0 or the time is
    /// over. The caller may drop the future and call again.
    pub(super) async fn over(&mut self, begin: impl Fn(), tunnels: impl Fn() -> u64) {
        let requested = self.0.wait_for(Option::is_some).await.is_ok();
        if !requested {
            return pending().await;
        }
        begin();
        loop {
            let until = *self.0.borrow();
            if tunnels() == 0 || until.is_none_or(|until| Instant::now() >= until) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_drain_ends_with_the_last_tunnel_or_at_its_timeout() {
        let until = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        for (limit, most) in [(until(3600), 3), (until(0), u64::MAX)] {
            let (sender, receiver) = watch::channel(None);
            let (begun, left) = (Cell::new(0), Cell::new(most));
            let begin = || begun.set(begun.get() + 1);
            let tunnels = || left.replace(left.get().saturating_sub(1));
            let mut requested = Requested(receiver);
            let mut over = std::pin::pin!(requested.over(begin, tunnels));
            let early = tokio::time::timeout(Duration::from_millis(1), &mut over).await;
            assert!(early.is_err() && begun.get() == 0);
            sender.send_replace(limit);
            over.await;
            assert_eq!(begun.get(), 1);
        }
    }
}
