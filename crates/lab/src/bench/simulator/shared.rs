//! Values that several cells need. The first cell that needs a value computes the value.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Numbers by name. If two threads request the same number at once, the second thread waits for the
/// first thread.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<HashMap<String, Arc<OnceLock<Option<f64>>>>>);

impl Shared {
    /// Returns the number called `name`. Calls `make` if the number does not exist yet.
    pub(crate) fn number(&self, name: String, make: impl FnOnce() -> Option<f64>) -> Option<f64> {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = Arc::clone(known.entry(name).or_default());
        drop(known);
        *place.get_or_init(make)
    }
}
