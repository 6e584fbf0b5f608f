//! What a role tells while it works.

mod facts;

pub use facts::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Hears what happens, in order, from one thread.
pub trait Audience {
    fn event(&mut self, event: &Event<'_>);
}

#[derive(Debug)]
pub enum Event<'a> {
    /// The server waits for clients.
    Listening(&'a Listening),
    /// The connection stands and the test is agreed.
    Started(&'a Started),
    /// The path was measured idle, before the load.
    Idle(&'a Latency),
    Interval(&'a Interval),
    Ended(&'a Ended),
    /// The test came to no good end; what was measured until then has been told.
    Failed(&'a crate::PerfError),
}

/// A call to stop, from a signal or from whoever runs the test.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops when `flag` becomes true.
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    pub fn call(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_called(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
