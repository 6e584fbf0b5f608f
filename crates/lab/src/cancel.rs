use crate::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tells everything that waits that the run is to end. Cloned handles are the same one.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Fails soon after it is cancelled, if that is earlier.
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

    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

const LOOK: Duration = Duration::from_millis(50);
