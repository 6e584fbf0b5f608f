use crate::EmuError;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use units::Span;

/// The sleep of the emulator's thread: until a time, until a port has a frame, or until [`Wakeup`]
/// is notified. The wake-up sources are registered once, so that a sleep costs one system call for
/// any number of ports, and no memory.
pub(crate) struct Pause {
    epoll: OwnedFd,
    wakeup: Wakeup,
    events: Vec<epoll::Event>,
}

/// Wakes a sleeping emulator. Clones share the same wakeup.
#[derive(Debug, Clone)]
pub(crate) struct Wakeup(Arc<OwnedFd>);

impl Wakeup {
    pub(crate) fn new() -> Result<Self, EmuError> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Self(Arc::new(wakeup.map_err(|e| EmuError::Thread(e.into()))?)))
    }

    /// Wakes the emulator. Fails only after 2^64 notifications that the emulator has not read.
    pub(crate) fn notify(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl Pause {
    pub(crate) fn new<'a>(
        ports: impl Iterator<Item = BorrowedFd<'a>>,
        wakeup: Wakeup,
    ) -> Result<Self, EmuError> {
        let failed = |e: rustix::io::Errno| EmuError::Thread(e.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let watch = |fd: BorrowedFd<'_>, what| {
            let data = epoll::EventData::new_u64(what);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(failed)
        };
        for port in ports {
            watch(port, PORT)?;
        }
        watch(wakeup.0.as_fd(), BELL)?;
        Ok(Self { epoll, wakeup, events: Vec::with_capacity(EVENTS) })
    }

    /// Sleeps for at most `longest`. The caller polls its ports again, even if a signal interrupted
    /// the sleep.
    pub(crate) fn wait(&mut self, longest: Span) {
        let nanos = longest.nanos();
        let timeout = Timespec {
            tv_sec: (nanos / NANOS_PER_SECOND) as i64,
            tv_nsec: (nanos % NANOS_PER_SECOND) as _,
        };
        self.events.clear();
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout));
        if self.events.iter().any(|event| event.data.u64() == BELL) {
            self.wakeup.clear();
        }
    }

    pub(crate) fn sleep(&self, length: Span) {
        let nanos = length.nanos();
        let request = Timespec {
            tv_sec: (nanos / NANOS_PER_SECOND) as i64,
            tv_nsec: (nanos % NANOS_PER_SECOND) as _,
        };
        let _ = rustix::thread::nanosleep(&request);
    }
}

const PORT: u64 = 0;
const BELL: u64 = 1;
/// Maximum number of events of one call; the caller polls all ports after each call.
const EVENTS: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
