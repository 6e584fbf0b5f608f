//! The causes. Each cause has a file, and a row of [`TABLE`]. A rule is pure: from one flow, or
//! from the machine, the rule tells whether its cause holds, and which number decides. A rule
//! refers to no other cause. If several causes hold, the table decides which of them stand, how
//! much each explains, and in which order verdicts stand.
//!
//! A new cause needs a file, and a module and a row here. The rows stand in the order in which
//! causes that explain the same share are named.
//!
//! Thresholds are constants of the files. Thresholds marked "measured" were calibrated on virtual
//! machines with two cores; thresholds without the mark are starting values.

mod finding;
mod precedence;
mod rank;
mod rule;
mod settle;

#[cfg(test)]
mod checks;
#[cfg(test)]
pub(crate) mod sketch;

mod accept_queue;
mod application;
mod backlog;
mod black_hole;
mod bufferbloat;
mod bus;
mod clock;
mod congestion_window;
mod conntrack;
mod contention;
mod corked;
mod cpu;
mod damaged;
mod delayed_ack;
mod descriptors;
mod disk;
mod duplex;
mod ecn;
mod ecn_refused;
mod forwarding;
mod fragments;
mod idle_restart;
mod initial_window;
mod input_filter;
mod interface_errors;
mod ipv6_broken;
mod kernel_drops;
mod link;
mod link_down;
mod link_speed;
mod local_drops;
mod local_ports;
mod loss;
mod memory;
mod name_service;
mod neighbour;
mod no_answer;
mod no_route;
mod offloads;
mod own_datagrams;
mod pacing;
mod path;
mod pinning;
mod policer;
mod queue_drops;
mod quota;
mod receiver_window;
mod refused;
mod reordering;
mod request_response;
mod resets;
mod reverse_path;
mod route_limits;
mod send_buffer;
mod shaper;
mod short_connections;
mod slow_answers;
mod slow_reader;
mod slow_timeouts;
mod small_segments;
mod socket_memory;
mod softirq_core;
mod steal;
mod stopped;
mod test_failed;
mod time_exceeded;
mod tunnel_program;
mod udp_buffer;
mod udp_port;
mod way_back;
mod window_scaling;

pub use finding::{Advice, Evidence, Finding, Outcome};
pub use precedence::Row;
pub use rank::Case;
pub use rule::Rule;
pub(crate) use settle::{Answer, Side, joined, settled};

use precedence::{is_bottleneck_busy, is_held_by_no_window, row};
use rank::{NEVER, always, measured};

use crate::signs::send_buffer::is_in_flight;
use crate::signs::siblings::loses_more_than_others;

/// Every cause, its rank, the causes that it silences, and the reason.
pub const TABLE: &[Row] = &[
    row(
        link::RULE,
        measured(),
        "A full link carries no more data, whatever other causes are seen.",
    )
    .moves()
    .saved(),
    row(duplex::RULE, always(0.9), "Collisions slow the link itself."),
    row(
        link_speed::RULE,
        measured(),
        "A link that runs below the speed of its ends causes the queue before the link.",
    )
    .moves(),
    row(
        bus::RULE,
        measured(),
        "A slow bus limits the network card itself, whatever the path carries.",
    )
    .moves(),
    row(
        shaper::RULE,
        measured().at_least(0.5),
        "A full shaper refuses packets, which the kernel counts as drops of this machine.",
    )
    .on_machine(always(0.7))
    .cases(&[(shaper::EACH_FLOW, measured().at_most(0.98))])
    .silences(&["local-drops"]),
    row(
        policer::RULE,
        always(0.98),
        "A policer drops packets, which the kernel counts as drops of this machine.",
    )
    .on_machine(always(0.6))
    .silences(&["local-drops"]),
    row(
        input_filter::RULE,
        always(0.98),
        "A filter of this machine drops the answers for which a handshake waits.",
    )
    .on_machine(always(0.55))
    .cases(&[(input_filter::LOSES, always(0.97))])
    .everywhere(&["no-answer", "input-filter"]),
    row(
        pacing::RULE,
        measured().at_most(0.98),
        "A pace that a program or an administrator set is an exact limit.",
    ),
    row(route_limits::RULE, measured().at_most(0.97), "A limit that a route sets is exact.")
        .cases(&[(route_limits::RECEIVES, always(0.97))])
        .moves(),
    row(
        initial_window::RULE,
        always(1.0),
        "A small initial window is the reason why short connections need many round trips.",
    )
    .cases(&[(initial_window::SEVERAL_HOSTS, always(0.5))])
    .everywhere(&["short-connections"]),
    row(link_down::RULE, always(1.0), "No packet passes an interface without a link."),
    row(tunnel_program::RULE, always(1.0), "No packet passes a tunnel without its program."),
    row(
        neighbour::RULE,
        always(1.0),
        "No packet leaves without the link-layer address of the next hop.",
    )
    .on_machine(always(0.7)),
    row(
        local_drops::RULE,
        always(0.96),
        "Packets that never left this machine say nothing about the path.",
    )
    .on_machine(measured().times(0.2).plus(0.5)),
    // Ranks above the repeated handshakes of `no-answer`.
    row(
        ecn_refused::RULE,
        always(0.7),
        "A handshake without ECN succeeds, so the request for ECN explains the missing \
         answer.",
    )
    .everywhere(&["no-answer"]),
    row(
        ipv6_broken::RULE,
        always(0.96),
        "Connections of IPv4 to the same port work, so IPv6 explains the missing answer.",
    )
    .on_machine(always(0.55))
    .everywhere(&["no-answer"]),
    row(
        no_answer::RULE,
        always(0.95),
        "A connection that waits explains the SYNs that the machine repeats.",
    )
    .cases(&[
        (no_answer::FALLS_SILENT, always(0.97)),
        // Ranks below the causes that explain why the first SYN is dropped.
        (no_answer::REPEATS_SYNS, always(0.5)),
    ])
    .everywhere(&["no-answer"])
    .captured(),
    row(black_hole::RULE, always(0.97), "Small segments arrive, so the peer can be reached.")
        .cases(&[(black_hole::NOTHING, always(0.9))])
        .captured(),
    row(stopped::RULE, always(1.0), "A stopped process neither sends nor reads.")
        .closes_window()
        .cases(&[(stopped::AGAIN_AND_AGAIN, measured().plus(0.5))]),
    row(
        steal::RULE,
        measured().times(2.0).at_most(0.99),
        "Processes of this machine cannot use the CPU time that the hypervisor takes.",
    ),
    // A quota stops everything else that the process would do.
    row(
        quota::RULE,
        always(1.0),
        "A process that a CPU quota stops looks like a process that waits for a core.",
    )
    .closes_window()
    .cases(&[(quota::HIDDEN, always(0.95))])
    .silences(&["cpu-contention"]),
    row(
        clock::RULE,
        always(0.98),
        "A core with a slow clock spends a larger share of its time on every program.",
    ),
    row(
        contention::RULE,
        measured(),
        "A process that waits for a core does not fill the core itself.",
    )
    .closes_window(),
    row(pinning::RULE, always(0.97), "Two loads on one core are the reason why the core is full."),
    row(
        softirq_core::RULE,
        measured().at_most(0.97),
        "Interrupts on one core are the reason why the core is full.",
    ),
    row(
        small_segments::RULE,
        always(1.0).beside("cpu"),
        "Small segments are the reason for the CPU time that they cost.",
    )
    .cases(&[(small_segments::HEADERS_COST, always(0.98))])
    .moves(),
    row(
        offloads::RULE,
        always(1.0),
        "Missing offloads are the reason for the CPU time that they cost.",
    )
    .cases(&[
        // Ranks below the only core that may be used: offloads only reduce the CPU time per byte.
        (offloads::CONFINED, always(0.5)),
    ])
    .moves(),
    row(
        cpu::RULE,
        measured(),
        "A full core paces a sender as a bottleneck of the path does, and delays \
         acknowledgements.",
    )
    .closes_window()
    .silences(&["path"])
    .silences_if(is_held_by_no_window, &["loss"])
    .at_any_share()
    .of_direction()
    .saved(),
    // Ranks above the disk: a thread waits for memory in the same state as for the disk.
    row(memory::RULE, always(1.0), "A machine that lacks memory waits for its disk.")
        .closes_window()
        .on_machine(always(0.5)),
    row(
        disk::RULE,
        measured(),
        "A process that waits for its disk looks like an idle application.",
    )
    .closes_window()
    .cases(&[
        // Ranks above the slow application: the disk is its reason. The reason of a thread that
        // mostly sleeps is another.
        (disk::ALL, measured().plus(0.5).at_most(1.0)),
    ]),
    row(short_connections::RULE, always(1.0), "Connections that end at once have no steady rate.")
        .moves(),
    row(
        delayed_ack::RULE,
        measured().plus(0.5),
        "The sender waits for an acknowledgement, which looks like an idle application or a \
         queue.",
    )
    .silences(&["request-response", "application", "bufferbloat"])
    .moves(),
    row(
        corked::RULE,
        measured().plus(0.5),
        "Data that a cork holds back looks like an idle application, or like packets that \
         this machine refuses.",
    )
    .silences(&["request-response", "application", "local-drops"])
    .moves(),
    row(
        slow_answers::RULE,
        measured().plus(0.3).at_most(0.9),
        "An end that waits for an answer of the other program has nothing to send.",
    )
    .cases(&[(slow_answers::UNANSWERED, always(0.9)), (slow_answers::SHORT, always(0.9))])
    .silences(&["request-response", "application"])
    .captured()
    .application(),
    row(
        request_response::RULE,
        measured().plus(0.3).at_most(1.0),
        "An application that waits for each answer has nothing to send for a round trip.",
    )
    .silences(&["application"])
    .moves()
    .saved()
    .application(),
    row(
        application::RULE,
        measured(),
        "The application is the limit where no other cause explains the pauses.",
    )
    .cases(&[(application::FAR, always(0.6))])
    .moves()
    .saved()
    .application(),
    row(
        window_scaling::RULE,
        measured().at_least(0.7),
        "Without window scaling, a larger buffer does not enlarge the window.",
    )
    .cases(&[(window_scaling::UNCOUNTED, always(0.8))])
    .moves()
    .captured(),
    row(
        slow_reader::RULE,
        measured(),
        "A program that leaves data unread closes a window of any size.",
    )
    .judged_at_receiver()
    .closes_window()
    .cases(&[
        (slow_reader::UNREAD, measured().at_least(0.9)),
        (slow_reader::MOVES, measured().at_least(0.9)),
        (slow_reader::STALLED, measured().at_least(0.95)),
    ])
    .saved(),
    row(
        receiver_window::RULE,
        measured(),
        "The receiver's window is an exact limit, which each segment tells the sender.",
    )
    .cases(&[
        // A window that gives the whole rate explains nearly all.
        (receiver_window::EXACT, measured().at_least(0.9)),
        (receiver_window::ARRIVES, measured().at_most(0.95)),
    ])
    .moves()
    .saved(),
    row(
        send_buffer::RULE,
        measured(),
        "The send buffer is an exact limit, and the sender's kernel counts the limited time. A \
         buffer that is in flight as a whole leaves no room for what the application writes.",
    )
    .silences_if(is_in_flight, &["application"])
    .moves()
    .saved(),
    row(
        queue_drops::RULE,
        always(0.98),
        "Packets that a queue of this machine drops are losses of its connections.",
    )
    .on_machine(always(0.6))
    .silences(&["local-drops"]),
    // Ranks above the losses that the damage causes.
    row(damaged::RULE, always(0.97), "Damaged packets are the reason for some losses.")
        .on_machine(always(0.7)),
    row(
        slow_timeouts::RULE,
        always(0.98),
        "A slow retransmission timer costs more time than the loss that starts the timer.",
    ),
    row(
        loss::RULE,
        measured().times(0.4).plus(0.55),
        "Losses explain the rate by a formula; a connection that loses much more than a \
         faster connection to the same host does not lose by the shared queue. A program that \
         waits for a retransmitted message has nothing to send.",
    )
    .cases(&[
        (loss::WAITS, measured().times(0.4).plus(0.6).at_most(0.9)),
        // Ranks above the round trips of the same messages if the losses cost more time.
        (loss::REQUESTS, measured().times(0.4).plus(0.6).at_most(0.9)),
        // Losses of this size are a limit unless another cause explains more.
        (loss::HEAVILY, always(0.6)),
        (loss::EARLIER, always(0.8)),
        (loss::FAR, always(0.8)),
        (loss::GAPS, always(0.75)),
    ])
    .silences(&["application"])
    .silences_if(loses_more_than_others, &["path", "bufferbloat"])
    .saved(),
    row(
        reordering::RULE,
        measured().times(5.0).plus(0.6).at_most(0.95),
        "Reordered packets cause retransmissions, as losses do.",
    )
    .cases(&[
        (reordering::EARLIER, always(0.78)),
        // Ranks beside the losses that keep the window small now.
        (reordering::SINCE_BEGIN, always(0.5)),
    ])
    .moves()
    .saved(),
    // Ranks above `path`: the marks announce the queue of `path` earlier.
    row(
        ecn::RULE,
        always(0.9),
        "Congestion marks say more about a queue than the queue's delay does.",
    )
    .moves()
    .captured(),
    // Ranks above the queue and the losses that the datagrams cause.
    row(
        own_datagrams::RULE,
        always(0.95),
        "Datagrams of this machine fill the path, and cause the queue and its losses.",
    )
    .cases(&[
        // Losses without a queue do not show whose packets fill the path: a path may lose packets
        // at any rate. The rank is too low to silence other causes.
        (own_datagrams::BY_LOSSES, always(0.45)),
    ])
    .silences(&["path", "bufferbloat", "loss"])
    .moves(),
    // Ranks above `path`, for which a queue on the return path looks like a queue on the forward
    // path.
    row(
        way_back::RULE,
        always(0.9),
        "A queue on the way back looks like a queue before a bottleneck on the way forward.",
    )
    .silences(&["path", "bufferbloat", "loss", "congestion-window"])
    .moves()
    .captured(),
    row(
        path::RULE,
        measured().times(0.35).plus(0.5).at_most(0.85),
        "A queue that never empties keeps its link busy, so losses at that queue cost no \
         rate. An AQM that keeps its queue short loses packets at a full link, too.",
    )
    .cases(&[
        (path::TOLD, always(0.75)),
        (path::ARRIVALS, always(0.6)),
        (path::PACE, always(0.6)),
        // Ranks below every other cause of a connection that holds.
        (path::CHANGES, always(0.4)),
    ])
    .silences_if(is_bottleneck_busy, &["loss"])
    .moves()
    .saved(),
    row(
        congestion_window::RULE,
        measured().times(0.75),
        "The congestion window is the limit where no loss or queue explains its size.",
    )
    .moves()
    .saved(),
    // Ranks below the pauses of an application that seldom sends.
    row(
        idle_restart::RULE,
        measured().at_least(0.9),
        "A window that starts again slows each burst, and does not cause the pauses.",
    )
    .moves(),
    // Ranks above `path`: the bottleneck of the long queue is used as it should be.
    row(
        bufferbloat::RULE,
        always(0.9),
        "A long queue delays packets, and its bottleneck limits the rate.",
    )
    .moves()
    .saved(),
    row(
        kernel_drops::RULE,
        NEVER,
        "The kernel's own reason of a drop explains the counter that another cause reads.",
    )
    .drops(),
    row(
        interface_errors::RULE,
        always(0.7),
        "Packets that an interface drops are lost for every connection.",
    )
    .cases(&[(interface_errors::FLAPS, always(0.9))]),
    row(
        backlog::RULE,
        always(0.98).beside("loss"),
        "Packets that a core drops are lost for every connection.",
    )
    .on_machine(always(0.6)),
    row(
        udp_buffer::RULE,
        measured().times(0.5).plus(0.5),
        "A full receive buffer of a UDP socket limits no connection.",
    ),
    row(udp_port::RULE, always(0.6), "Datagrams to a closed UDP port limit no connection.")
        .cases(&[(udp_port::REFUSED, always(0.5))]),
    row(
        fragments::RULE,
        always(0.65),
        "The counts show fragments that wait like packets that a filter drops.",
    )
    .silences(&["input-filter"]),
    row(
        name_service::RULE,
        always(0.6),
        "A program asks for a name before the program opens a connection.",
    ),
    row(
        descriptors::RULE,
        always(0.85),
        "A program without free file descriptors opens and accepts no connection.",
    ),
    row(local_ports::RULE, always(0.8), "A machine without free local ports opens no connection."),
    row(
        reverse_path::RULE,
        always(0.75),
        "The answers arrive, and the reverse-path check of this machine drops the answers.",
    )
    .everywhere(&["no-answer"]),
    row(no_route::RULE, always(0.98), "Packets without a route never leave.")
        .on_machine(always(0.65))
        .cases(&[(no_route::UNREACHABLE, always(0.9))]),
    row(
        forwarding::RULE,
        always(0.6),
        "Packets that this machine does not forward limit none of its own connections.",
    ),
    row(
        refused::RULE,
        measured().times(0.3).plus(0.5),
        "A peer that refuses a connection has answered.",
    )
    .cases(&[(refused::TEST, always(1.0))])
    .captured(),
    row(resets::RULE, measured().times(0.3).plus(0.5), "A reset ends a connection that worked.")
        .captured(),
    row(time_exceeded::RULE, always(0.9), "A router's message tells why no answer comes.")
        .everywhere(&["no-answer"]),
    row(test_failed::RULE, always(0.9), "A test that failed says little about the path."),
    row(accept_queue::RULE, always(0.6), "A connection that no program accepts has no reader.")
        .cases(&[
            // A queue that overflows ranks above a standing queue and above SYN cookies.
            (accept_queue::STANDS, always(0.5)),
            (accept_queue::COOKIES, always(0.4)),
        ]),
    row(
        conntrack::RULE,
        always(0.6),
        "A full connection table drops the SYN of each new connection, also of this machine's own.",
    )
    .everywhere(&["no-answer", "local-drops"]),
    // Ranks above the window and the losses that the lack of memory causes.
    row(socket_memory::RULE, always(0.97), "Sockets that lack memory get smaller windows.")
        .on_machine(always(0.6))
        .cases(&[(socket_memory::DROPS, always(0.97).beside("loss"))])
        .silences(&["receiver-window"]),
];

/// Returns the row of the cause with this name.
pub(crate) fn row_of(cause: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.rule.cause == cause)
}

/// Returns a cause in words, as in "the receiver's window".
pub fn words_of(cause: &str) -> Option<&'static str> {
    row_of(cause).map(|row| row.rule.words)
}
