//! Events that a client or a server reports during a test.

mod facts;

pub use facts::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Receives the events, in order, from one thread.
pub trait Audience {
    fn event(&mut self, event: &Event<'_>);
}

#[derive(Debug)]
pub enum Event<'a> {
    Listening(&'a Listening),
    /// The connection is open and the test is agreed.
    Started(&'a Started),
    /// The latency of the idle path was measured, before the load begins.
    Idle(&'a Latency),
    Interval(&'a Interval),
    Ended(&'a Ended),
    /// The test failed; the results so far have been reported.
    Failed(&'a crate::PerfError),
}

/// A call to stop, from a signal or from the caller of the test.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    outer: Option<Arc<Stop>>,
}

impl Stop {
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Self { flag, outer: None }
    }

    /// Returns a separate stop for a part of the work; calling `self` also stops that part.
    pub fn inner(&self) -> Self {
        Self { flag: Arc::default(), outer: Some(Arc::new(self.clone())) }
    }

    pub fn call(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    pub fn is_called(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.outer.as_ref().is_some_and(|o| o.is_called())
    }
}
