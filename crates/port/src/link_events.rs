use std::os::fd::AsFd;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::PortError;

/// The kernel's messages about the interfaces of a namespace: new interfaces, removed interfaces,
/// and changes of their state.
pub struct LinkEvents {
    socket: Socket,
}

impl LinkEvents {
    /// Subscribes to changes in the calling thread's namespace from now on.
    pub fn subscribe() -> Result<Self, PortError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.bind(&SocketAddr::new(0, RTMGRP_LINK))?;
            Ok(socket)
        };
        let socket = open();
        socket
            .map(|socket| Self { socket })
            .map_err(|error| PortError::from_io("asking for changes of interfaces", error))
    }

    /// Waits for a change, at most for `most`. Returns whether there was a change. All messages
    /// that have arrived count as one change.
    pub fn wait(&self, most: Duration) -> bool {
        let fd = self.socket.as_fd();
        let most = Timespec::try_from(most).ok();
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        if !matches!(poll(&mut polled, most.as_ref()), Ok(1..)) {
            return false;
        }
        // An error also counts as a change: the socket's buffer could not hold all messages.
        let mut buffer = Vec::with_capacity(LONGEST_MESSAGE);
        for _ in 0..MOST_MESSAGES {
            buffer.clear();
            if self.socket.recv(&mut buffer, 0).is_err() {
                break;
            }
        }
        true
    }
}

impl std::fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkEvents").finish_non_exhaustive()
    }
}

/// The group of link messages (linux/rtnetlink.h).
const RTMGRP_LINK: u32 = 1;
/// Size of the buffer for a message. The rest of a longer message is lost, which does no harm.
const LONGEST_MESSAGE: usize = 4096;
/// Maximum number of messages per call, so that a flood of changes does not block the caller.
const MOST_MESSAGES: usize = 256;
