//! Signs of ICMP messages that answer handshakes.

use crate::view::View;

/// Whether ICMP messages ended attempts to connect. The kernel gives a handshake up at such a
/// message (`tcp_v4_err`), and counts the attempt as failed. Messages about datagrams, or about the
/// MTU of a hop, end no attempt.
pub(crate) fn ends_attempts(view: &View<'_>) -> bool {
    let came = view.counter("IcmpInDestUnreachs").unwrap_or(0) > 0;
    came && view.counter("TcpAttemptFails").is_none_or(|failed| failed > 0)
}
