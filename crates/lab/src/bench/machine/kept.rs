use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A value that a workload keeps from one step to the next of the same cell, such as running
/// programs and loaded tables. The workload decides whether the next step can use the value.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<Box<dyn Any + Send>>>);

impl Kept {
    /// Takes out the value that an earlier step has kept, if the value is a `T`. A value of another
    /// type is dropped.
    pub(crate) fn take<T: Any + Send>(&self) -> Option<T> {
        let kept = self.lock().take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    pub(crate) fn put<T: Any + Send>(&self, value: T) {
        *self.lock() = Some(Box::new(value));
    }

    /// Drops the kept value, which ends the programs of the value.
    pub(crate) fn clear(&self) {
        let kept = self.lock().take();
        drop(kept);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
