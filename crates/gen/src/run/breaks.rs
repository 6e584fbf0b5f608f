use std::time::Duration;

use units::{Span, Time};

use super::monotonic;

/// Sleeps of a real-time thread. Without these sleeps, the kernel would stop the thread for 50 ms
/// in every second: the kernel's fair server (kernel/sched/deadline.c) then runs the tasks for
/// which the thread leaves no CPU time.
pub(super) struct Breaks {
    real_time: bool,
    last: Time,
}

impl Breaks {
    /// Makes the thread a real-time thread, if the job requests this and the system permits it.
    pub(super) fn begin(real_time: bool) -> Self {
        host::precise_timers();
        Self { real_time: real_time && host::real_time().is_ok(), last: monotonic() }
    }

    /// Records that the thread has slept for another reason.
    pub(super) fn slept(&mut self) {
        self.last = monotonic();
    }

    /// Sleeps if the last sleep was at least `every` ago. Returns whether the thread slept.
    pub(super) fn take(&mut self, every: Span, now: &mut Time) -> bool {
        if !self.real_time || now.since(self.last) < every {
            return false;
        }
        std::thread::sleep(BREAK);
        *now = monotonic();
        self.last = *now;
        true
    }
}

const BREAK: Duration = Duration::from_micros(50);
