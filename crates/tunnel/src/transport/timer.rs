use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer with microsecond resolution. The runtime's own timer has milliseconds, which at 600
/// Mbit/s are fifty packets.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    armed: Option<Instant>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Deprecated because an owner may close a descriptor without tokio's knowledge; an
        // `OwnedFd` cannot.
        #[expect(deprecated)]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Self { descriptor, armed: None })
    }

    /// Ready once `due` has passed. Until then it registers the task's waker.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, due: Option<Instant>) -> Poll<()> {
        let Some(due) = due else { return Poll::Pending };
        let now = Instant::now();
        if due <= now {
            return Poll::Ready(());
        }
        if self.armed != Some(due) {
            let left = due - now;
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let setting = Itimerspec { it_interval: zero, it_value: value };
            let flags = TimerfdTimerFlags::empty();
            if timerfd_settime(self.descriptor.get_ref(), flags, &setting).is_err() {
                return Poll::Ready(());
            }
            self.armed = Some(due);
        }
        // Setting the timer discards an unread expiry, so the descriptor's readiness may be stale.
        while let Poll::Ready(Ok(mut guard)) = self.descriptor.poll_read_ready(context) {
            let mut count = [0; 8];
            let expired = rustix::io::read(self.descriptor.get_ref(), &mut count).is_ok();
            guard.clear_ready();
            if expired {
                self.armed = None;
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
