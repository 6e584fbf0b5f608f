use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

/// A descriptor that exists as long as a port. The descriptor becomes readable when the descriptor
/// of the current peer becomes readable.
#[derive(Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

/// A peer's descriptor. The bell watches the descriptor until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    bell: Arc<OwnedFd>,
    fd: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    pub(crate) fn watch(&self, fd: OwnedFd) -> io::Result<Watched> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.0, &fd, data, epoll::EventFlags::IN)?;
        Ok(Watched { bell: self.0.clone(), fd })
    }

    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        self.0.try_clone().ok()
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    /// Removes the descriptor from the watch explicitly: if the peer has the same file open,
    /// closing the descriptor would not end the watch.
    fn drop(&mut self) {
        let _ = epoll::delete(&self.bell, &self.fd);
    }
}
