//! The table of precedence: every cause in the order in which equal causes stand, the causes that
//! each cause silences, and the reason. Only this table knows more than one cause.

use super::Rule;
use crate::recording::Connection;
use crate::signs::siblings::loses_more_than_others;
use crate::view::{End, Flow, View};
use units::Span;

/// A cause and its place among the others.
#[derive(Debug)]
pub struct Row {
    pub rule: Rule,
    /// The reason for the cause's place, and for the causes that the cause silences.
    pub because: &'static str,
    /// Causes of the same connection, or of the machine, that do not stand beside this cause.
    silences: &'static [&'static str],
    /// Causes that stand at no connection and not at the machine, wherever this cause was found.
    silences_everywhere: &'static [&'static str],
    /// Causes that do not stand beside this cause if the connection has a sign.
    silences_if: Option<(Sign, &'static [&'static str])>,
    /// The least share of the rate that this cause explains while it silences other causes.
    pub(super) silences_from: f64,
    /// A connection that this cause limits still moves data.
    pub moves_data: bool,
    /// A saved result of `weir perf` or of a lab has the signals of this cause.
    pub is_saved: bool,
    /// A capture has the signals of this cause.
    pub is_captured: bool,
    /// The application is the limit: a verdict if somebody asks about the connection.
    pub is_application: bool,
}

/// The connection that the facts are about; `None` for facts about the machine.
pub(super) type Seen<'f, 'a> = Option<(&'f Flow<'a>, &'f View<'a>)>;

type Sign = fn(&Flow<'_>, &View<'_>) -> bool;

/// All causes. Two causes that explain the same share are named in the order of their rows.
pub const TABLE: &[Row] = &[
    row(super::link::RULE, "A full link carries no more data, whatever other causes are seen.").moves().saved(),
    row(super::duplex::RULE, "Collisions slow the link itself."),
    row(super::link_speed::RULE, "A link that runs below the speed of its ends causes the queue before the link.").moves(),
    row(super::bus::RULE, "A slow bus limits the network card itself, whatever the path carries.").moves(),
    row(super::shaper::RULE, "A full shaper refuses packets, which the kernel counts as drops of this machine.")
        .silences(&["local-drops"]),
    row(super::policer::RULE, "A policer drops packets, which the kernel counts as drops of this machine.")
        .silences(&["local-drops"]),
    row(super::input_filter::RULE, "A filter of this machine drops the answers for which a handshake waits.")
        .everywhere(&["no-answer", "input-filter"]),
    row(super::pacing::RULE, "A pace that a program or an administrator set is an exact limit."),
    row(super::route_limits::RULE, "A limit that a route sets is exact.").moves(),
    row(super::initial_window::RULE, "A small initial window is the reason why short connections need many round trips.")
        .everywhere(&["short-connections"]),
    row(super::link_down::RULE, "No packet passes an interface without a link."),
    row(super::tunnel_program::RULE, "No packet passes a tunnel without its program."),
    row(super::neighbour::RULE, "No packet leaves without the link-layer address of the next hop."),
    row(super::local_drops::RULE, "Packets that never left this machine say nothing about the path."),
    row(super::ecn_refused::RULE, "A handshake without ECN succeeds, so the request for ECN explains the missing answer.")
        .everywhere(&["no-answer"]),
    row(super::ipv6_broken::RULE, "Connections of IPv4 to the same port work, so IPv6 explains the missing answer.")
        .everywhere(&["no-answer"]),
    row(super::no_answer::RULE, "A connection that waits explains the SYNs that the machine repeats.")
        .everywhere(&["no-answer"]).captured(),
    row(super::black_hole::RULE, "Small segments arrive, so the peer can be reached.").captured(),
    row(super::stopped::RULE, "A stopped process neither sends nor reads."),
    row(super::steal::RULE, "Processes of this machine cannot use the CPU time that the hypervisor takes."),
    row(super::quota::RULE, "A process that a CPU quota stops looks like a process that waits for a core.")
    .silences(&["cpu-contention"]),
    row(super::clock::RULE, "A core with a slow clock spends a larger share of its time on every program."),
    row(super::contention::RULE, "A process that waits for a core does not fill the core itself."),
    row(super::pinning::RULE, "Two loads on one core are the reason why the core is full."),
    row(super::softirq_core::RULE, "Interrupts on one core are the reason why the core is full."),
    row(super::small_segments::RULE, "Small segments are the reason for the CPU time that they cost.").moves(),
    row(super::offloads::RULE, "Missing offloads are the reason for the CPU time that they cost.").moves(),
    row(super::cpu::RULE, "A full core paces a sender as a bottleneck of the path does, and delays acknowledgements.")
        .silences(&["path"]).silences_if(is_held_by_no_window, &["loss"]).at_any_share().saved(),
    row(super::memory::RULE, "A machine that lacks memory waits for its disk."),
    row(super::disk::RULE, "A process that waits for its disk looks like an idle application."),
    row(super::short_connections::RULE, "Connections that end at once have no steady rate.").moves(),
    row(super::delayed_ack::RULE, "The sender waits for an acknowledgement, which looks like an idle application or a queue.")
        .silences(&["request-response", "application", "bufferbloat"]).moves(),
    row(super::corked::RULE, "Data that a cork holds back looks like an idle application, or like packets that this machine refuses.")
        .silences(&["request-response", "application", "local-drops"]).moves(),
    row(super::slow_answers::RULE, "An end that waits for an answer of the other program has nothing to send.")
        .silences(&["request-response", "application"]).captured().application(),
    row(super::request_response::RULE, "An application that waits for each answer has nothing to send for a round trip.")
        .silences(&["application"]).moves().saved().application(),
    row(super::application::RULE, "The application is the limit where no other cause explains the pauses.")
        .moves().saved().application(),
    row(super::window_scaling::RULE, "Without window scaling, a larger buffer does not enlarge the window.").moves().captured(),
    row(super::slow_reader::RULE, "A program that leaves data unread closes a window of any size.").saved(),
    row(super::receiver_window::RULE, "The receiver's window is an exact limit, which each segment tells the sender.").moves().saved(),
    row(super::send_buffer::RULE, "The send buffer is an exact limit, and the sender's kernel counts the limited time.").moves().saved(),
    row(super::queue_drops::RULE, "Packets that a queue of this machine drops are losses of its connections.")
        .silences(&["local-drops"]),
    row(super::damaged::RULE, "Damaged packets are the reason for some losses."),
    row(super::slow_timeouts::RULE, "A slow retransmission timer costs more time than the loss that starts the timer."),
    row(
        super::loss::RULE,
        "Losses explain the rate by a formula; a connection that loses much more than a faster connection to the same host does not lose by the shared queue.",
    )
    .silences_if(loses_more_than_others, &["path", "bufferbloat"])
    .saved(),
    row(super::reordering::RULE, "Reordered packets cause retransmissions, as losses do.").moves().saved(),
    row(super::ecn::RULE, "Congestion marks say more about a queue than the queue's delay does.").moves().captured(),
    row(super::own_datagrams::RULE, "Datagrams of this machine fill the path, and cause the queue and its losses.")
        .silences(&["path", "bufferbloat", "loss"]).moves(),
    row(super::way_back::RULE, "A queue on the way back looks like a queue before a bottleneck on the way forward.")
        .silences(&["path", "bufferbloat", "loss", "congestion-window"]).moves().captured(),
    row(super::path::RULE, "A queue that never empties keeps its link busy, so losses at that queue cost no rate.")
        .silences_if(is_queue_never_empty, &["loss"]).moves().saved(),
    row(super::congestion_window::RULE, "The congestion window is the limit where no loss or queue explains its size.").moves().saved(),
    row(super::idle_restart::RULE, "A window that starts again slows each burst, and does not cause the pauses.").moves(),
    row(super::bufferbloat::RULE, "A long queue delays packets, and its bottleneck limits the rate.").moves().saved(),
    row(super::kernel_drops::RULE, "The kernel's own reason of a drop explains the counter that another cause reads."),
    row(super::interface_errors::RULE, "Packets that an interface drops are lost for every connection."),
    row(super::backlog::RULE, "Packets that a core drops are lost for every connection."),
    row(super::udp_buffer::RULE, "A full receive buffer of a UDP socket limits no connection."),
    row(super::udp_port::RULE, "Datagrams to a closed UDP port limit no connection."),
    row(super::fragments::RULE, "The counts show fragments that wait like packets that a filter drops.")
        .silences(&["input-filter"]),
    row(super::name_service::RULE, "A program asks for a name before the program opens a connection."),
    row(super::descriptors::RULE, "A program without free file descriptors opens and accepts no connection."),
    row(super::local_ports::RULE, "A machine without free local ports opens no connection."),
    row(super::reverse_path::RULE, "The answers arrive, and the reverse-path check of this machine drops the answers.")
        .everywhere(&["no-answer"]),
    row(super::no_route::RULE, "Packets without a route never leave."),
    row(super::forwarding::RULE, "Packets that this machine does not forward limit none of its own connections."),
    row(super::refused::RULE, "A peer that refuses a connection has answered.").captured(),
    row(super::resets::RULE, "A reset ends a connection that worked.").captured(),
    row(super::time_exceeded::RULE, "A router's message tells why no answer comes.")
        .everywhere(&["no-answer"]),
    row(super::test_failed::RULE, "A test that failed says little about the path."),
    row(super::accept_queue::RULE, "A connection that no program accepts has no reader."),
    row(super::conntrack::RULE, "A full connection table drops the SYN of each new connection.")
        .everywhere(&["no-answer"]),
    row(super::socket_memory::RULE, "Sockets that lack memory get smaller windows."),
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

/// A cause that explains less leaves room for another cause.
const HALF: f64 = 0.5;
const SHORTEST_QUEUE: Span = Span::from_millis(1);
/// Share of the samples with a queue that counts as always.
const ALWAYS: f64 = 0.9;

/// The row of the cause with this name.
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

    const fn at_any_share(self) -> Self {
        Self { silences_from: 0.0, ..self }
    }

    const fn moves(self) -> Self {
        Self { moves_data: true, ..self }
    }

    const fn saved(self) -> Self {
        Self { is_saved: true, is_captured: true, ..self }
    }

    const fn captured(self) -> Self {
        Self { is_captured: true, ..self }
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
        silences_from: HALF,
        moves_data: false,
        is_saved: false,
        is_captured: false,
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
