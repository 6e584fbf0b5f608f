use crate::model::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A flag that tells all waiting threads that the run is to end. All clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until `moment`. If the run is cancelled first, returns an error soon after the
    /// cancellation.
    pub(crate) fn sleep_until(&self, moment: Instant) -> Result<(), Failure> {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Returns the flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

const LOOK: Duration = Duration::from_millis(50);
