//! The table of precedence: every cause in the order in which equal causes stand, with the causes
//! that each one silences, and the reason. Only this table knows more than one cause.

use super::Rule;
use crate::recording::Connection;
use crate::signs::siblings::loses_more_than_others;
use crate::view::{End, Flow, View};
use units::Span;

/// A cause and its place among the others.
#[derive(Debug)]
pub struct Row {
    pub rule: Rule,
    /// The reason for its place, and for the causes that it silences.
    pub because: &'static str,
    /// Causes that do not stand beside this one, of the same connection or of the machine.
    silences: &'static [&'static str],
    /// Those that stand neither at a connection nor at the machine, wherever this one was found.
    silences_everywhere: &'static [&'static str],
    /// Causes that do not stand beside this one if the connection has a sign.
    silences_if: Option<(Sign, &'static [&'static str])>,
    /// A connection that it limits still moves data.
    pub moves_data: bool,
    /// A saved result of `weir perf` or of a lab has its signals.
    pub is_saved: bool,
    /// A limit of the application: a verdict if somebody asks about its connection.
    pub is_application: bool,
}

/// The connection that the facts are about; `None` for those of the machine.
pub(super) type Seen<'f, 'a> = Option<(&'f Flow<'a>, &'f View<'a>)>;

type Sign = fn(&Flow<'_>, &View<'_>) -> bool;

/// All causes. The earlier of two that explain as much is named first.
pub const TABLE: &[Row] = &[
    row(super::link::RULE, "A full link passes no more, whatever else is seen.").moves().saved(),
    row(super::duplex::RULE, "Collisions slow the link itself."),
    row(super::link_speed::RULE, "A slow cable is found before the queue that it causes.").moves(),
    row(super::bus::RULE, "The bus is part of the card.").moves(),
    row(super::shaper::RULE, "A full shaper refuses packets, and the kernel counts them as drops of this machine.")
        .silences(&["local-drops"]),
    row(super::policer::RULE, "A policer is named before the datagrams that it takes.")
        .silences(&["local-drops"]),
    row(super::input_filter::RULE, "A filter of this machine takes the answers for which a handshake waits.")
        .everywhere(&["no-answer", "input-filter"]),
    row(super::pacing::RULE, "A limit that a program set is exact."),
    row(super::route_limits::RULE, "A limit that the route sets is exact.").moves(),
    row(super::link_down::RULE, "Nothing passes an interface without a link."),
    row(super::tunnel_program::RULE, "Nothing passes a tunnel without its program."),
    row(super::neighbour::RULE, "Nothing passes without the address of the next hop."),
    row(super::local_drops::RULE, "Packets that never left are no matter of the path."),
    row(super::ecn_refused::RULE, "A second SYN without ECN succeeds: the first one says why.")
        .everywhere(&["no-answer"]),
    row(super::ipv6_broken::RULE, "IPv4 works to the same port: the other protocol is the reason.")
        .everywhere(&["no-answer"]),
    row(super::no_answer::RULE, "A connection that waits explains the SYNs that the machine repeats.")
        .everywhere(&["no-answer"]),
    row(super::black_hole::RULE, "Small segments pass, so the path is there."),
    row(super::stopped::RULE, "A stopped process does nothing else."),
    row(super::steal::RULE, "Time that the hypervisor takes is no work of this machine."),
    row(super::quota::RULE, "A quota stops everything else that the process would do.")
    .silences(&["cpu-contention"]),
    row(super::clock::RULE, "A slow clock makes every other use of the core larger."),
    row(super::contention::RULE, "A process that waits for a core cannot use one."),
    row(super::pinning::RULE, "Two loads on one core are found before the full core."),
    row(super::softirq_core::RULE, "Interrupts on one core are found before the full core."),
    row(super::small_segments::RULE, "Small segments are the reason of the CPU time that they cost.").moves(),
    row(super::offloads::RULE, "Missing offloads are the reason of the CPU time that they cost.").moves(),
    row(super::cpu::RULE, "A full core paces a sender like a bottleneck of the path does, and delays the acknowledgements.")
        .silences(&["path"]).silences_if(is_held_by_no_window, &["loss"]).saved(),
    row(super::memory::RULE, "A machine without memory waits for its disk."),
    row(super::disk::RULE, "A process that waits for its disk does not choose to send less."),
    row(super::short_connections::RULE, "Connections that end at once have no steady rate.").moves(),
    row(super::delayed_ack::RULE, "The sender waits for an acknowledgement, which looks like an idle application or a queue.")
        .silences(&["request-response", "application", "bufferbloat"]).moves(),
    row(super::corked::RULE, "Data that a cork holds back looks like an idle application, or like packets that this machine refuses.")
        .silences(&["request-response", "application", "local-drops"]).moves(),
    row(super::slow_answers::RULE, "An end that waits for the other program has nothing to send.")
        .silences(&["request-response", "application"]).application(),
    row(super::request_response::RULE, "An application that waits for each answer has nothing to send, and the round trip says why.")
        .silences(&["application"]).moves().saved().application(),
    row(super::application::RULE, "It stands where nothing else explains the pauses.")
        .moves().saved().application(),
    row(super::window_scaling::RULE, "Without scaling, no buffer makes the window larger.").moves(),
    row(super::slow_reader::RULE, "A reader that leaves data closes every window.").saved(),
    row(super::receiver_window::RULE, "The window is exact, and the sender is told.").moves().saved(),
    row(super::send_buffer::RULE, "The buffer is exact, and the sender's kernel counts the time.").moves().saved(),
    row(super::queue_drops::RULE, "Drops that this machine counts are the losses of its connections.")
        .silences(&["local-drops"]),
    row(super::damaged::RULE, "Damaged packets are the reason of some losses."),
    row(super::slow_timeouts::RULE, "The timer costs more than the loss that starts it."),
    row(
        super::loss::RULE,
        "Losses are named if a formula says that they explain the rate. Other connections of the same path fill the queue if they lose much less.",
    )
    .silences_if(loses_more_than_others, &["path", "bufferbloat"])
    .saved(),
    row(super::reordering::RULE, "Packets in another order cause retransmissions, as losses do.").moves().saved(),
    row(super::ecn::RULE, "Marks say more about a queue than its delay does.").moves(),
    row(super::own_datagrams::RULE, "This machine fills the path itself: the queue and its losses follow.")
        .silences(&["path", "bufferbloat", "loss"]).moves(),
    row(super::path::RULE, "A queue that never empties passes all that its link carries, and the losses at its end cost nothing.")
        .silences_if(is_queue_never_empty, &["loss"]).moves().saved(),
    row(super::congestion_window::RULE, "It stands where no loss or queue explains the window.").moves().saved(),
    row(super::idle_restart::RULE, "It slows each burst, and not the pauses.").moves(),
    row(super::bufferbloat::RULE, "The queue is named before the bottleneck that it belongs to.").moves().saved(),
    row(super::interface_errors::RULE, "Packets that an interface loses are lost for all."),
    row(super::backlog::RULE, "Packets that a core drops are lost for all."),
    row(super::udp_buffer::RULE, "A cause of datagrams, which limits no connection."),
    row(super::udp_port::RULE, "A cause of datagrams, which limits no connection."),
    row(super::fragments::RULE, "Fragments that wait are no packets that a filter took.")
        .silences(&["input-filter"]),
    row(super::name_service::RULE, "A name comes before the connection."),
    row(super::descriptors::RULE, "A program without descriptors opens and accepts nothing."),
    row(super::local_ports::RULE, "A machine without ports opens nothing."),
    row(super::reverse_path::RULE, "The answers come, and this machine drops them.")
        .everywhere(&["no-answer"]),
    row(super::no_route::RULE, "Packets without a route never leave."),
    row(super::forwarding::RULE, "Packets of others, which limit no connection of this machine."),
    row(super::refused::RULE, "A refusal is an answer."),
    row(super::resets::RULE, "A reset ends a connection that worked."),
    row(super::time_exceeded::RULE, "A router says why no answer comes.")
        .everywhere(&["no-answer"]),
    row(super::test_failed::RULE, "A test that failed says little about the path."),
    row(super::accept_queue::RULE, "A connection that nobody accepts has no reader."),
    row(super::conntrack::RULE, "A full table drops the SYN of each new connection.")
        .everywhere(&["no-answer"]),
    row(super::socket_memory::RULE, "Sockets without memory shrink their windows."),
];

/// The full window of a long path holds a sender more than its CPU does.
fn is_held_by_no_window(flow: &Flow<'_>, _view: &View<'_>) -> bool {
    !flow.sender.as_ref().is_some_and(End::waits_for_window)
}

/// A bottleneck whose queue never empties: its link is used all the time.
fn is_queue_never_empty(flow: &Flow<'_>, _view: &View<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let Some(least) = sender.tcp().min_rtt else { return false };
    let is_queued = |c: &Connection| {
        let queue = c.tcp.rtt.unwrap_or_default() - least;
        queue >= SHORTEST_QUEUE && queue.nanos() >= least.nanos() / 10
    };
    sender.often(is_queued) >= ALWAYS
}

const SHORTEST_QUEUE: Span = Span::from_millis(1);
/// A share of the samples.
const ALWAYS: f64 = 0.9;

/// The row of a cause.
pub(crate) fn of(cause: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.rule.cause == cause)
}

impl Row {
    pub(super) fn silences_cause(&self, cause: &str, seen: Seen<'_, '_>) -> bool {
        let by_sign = self.silences_if.is_some_and(|(has_sign, causes)| {
            causes.contains(&cause) && seen.is_some_and(|(flow, view)| has_sign(flow, view))
        });
        self.silences.contains(&cause) || by_sign
    }

    pub(super) fn silences_cause_everywhere(&self, cause: &str) -> bool {
        self.silences_everywhere.contains(&cause)
    }

    const fn everywhere(self, silences_everywhere: &'static [&'static str]) -> Self {
        Self { silences_everywhere, ..self }
    }

    const fn silences_if(self, sign: Sign, causes: &'static [&'static str]) -> Self {
        Self { silences_if: Some((sign, causes)), ..self }
    }

    const fn silences(self, silences: &'static [&'static str]) -> Self {
        Self { silences, ..self }
    }

    const fn moves(self) -> Self {
        Self { moves_data: true, ..self }
    }

    const fn saved(self) -> Self {
        Self { is_saved: true, ..self }
    }

    const fn application(self) -> Self {
        Self { is_application: true, ..self }
    }
}

const fn row(rule: Rule, because: &'static str) -> Row {
    Row {
        rule,
        because,
        silences: &[],
        silences_everywhere: &[],
        silences_if: None,
        moves_data: false,
        is_saved: false,
        is_application: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_one_row_with_a_reason() {
        for row in TABLE {
            let same = TABLE.iter().filter(|other| other.rule.cause == row.rule.cause);
            assert_eq!(same.count(), 1, "{}", row.rule.cause);
            assert!(row.because.ends_with('.'), "{}", row.rule.cause);
        }
    }

    #[test]
    fn silenced_causes_exist() {
        let by_sign = |row: &'static Row| row.silences_if.map_or(&[][..], |(_, causes)| causes);
        let all = |row: &'static Row| {
            row.silences.iter().chain(row.silences_everywhere).chain(by_sign(row))
        };
        for cause in TABLE.iter().flat_map(all) {
            assert!(of(cause).is_some(), "{cause}");
        }
    }
}
