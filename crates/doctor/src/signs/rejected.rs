//! Signs of ICMP messages that refuse packets of this machine.

use crate::view::View;

/// Returns the number of ICMP messages, over IPv4 and IPv6, about packets of this machine that do
/// not reach their destination.
pub(crate) fn unreachable(view: &View<'_>) -> u64 {
    let counts = ["IcmpInDestUnreachs", "Icmp6InDestUnreachs"];
    counts.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add)
}

/// Whether ICMP messages ended attempts to connect. The kernel gives a handshake up at such a
/// message (`tcp_v4_err`), and counts the attempt as failed. Messages about datagrams, or about the
/// MTU of a hop, end no attempt.
pub(crate) fn ends_attempts(view: &View<'_>) -> bool {
    unreachable(view) > 0 && view.counter("TcpAttemptFails").is_none_or(|failed| failed > 0)
}
