//! Signs of packets that this machine refuses to send.

use crate::recording::Connection;

/// Whether the timer of window probes runs although the window is open and nothing is in flight: the
/// kernel got an error for the last packet, and keeps the data.
pub(crate) fn is_refused(connection: &Connection) -> bool {
    let window = connection.tcp.peer_window.zip(connection.tcp.mss);
    connection.probing
        && connection.tcp.unacked.is_none_or(|flying| flying == 0)
        && window.is_some_and(|(window, mss)| window >= mss)
}
