//! Signs of connections in an accept queue.

use crate::view::View;
use std::net::SocketAddr;

/// Whether connections to the port of this address wait to be accepted.
pub(crate) fn waits_at(view: &View<'_>, local: SocketAddr) -> bool {
    let mut listeners = view.last().listeners.iter();
    listeners.any(|one| one.local.port() == local.port() && one.waiting > 0)
}
