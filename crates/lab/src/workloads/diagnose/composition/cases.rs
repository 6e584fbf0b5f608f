//! The cases of compositions. Each case draws its quantities so that the fault is the limit: the
//! rate that the fault allows is far below the rate of the path.

mod hosts;
mod paths;

use super::draft::{Dice, Draft};

/// A kind of composition: a fault or a healthy case.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The place of the fault: `sender`, `path forward`, `path back`, `receiver`, `middle box`.
    pub(super) place: &'static str,
    pub(super) draw: fn(&mut Dice) -> Draft,
}

const fn kind(name: &'static str, place: &'static str, draw: fn(&mut Dice) -> Draft) -> Kind {
    Kind { name, place, draw }
}

pub(super) const FAULTS: &[Kind] = &[
    kind("full-path", FORWARD, paths::full_path),
    kind("deep-queue", FORWARD, paths::deep_queue),
    kind("tiny-queue", FORWARD, paths::tiny_queue),
    kind("random-loss", FORWARD, paths::random_loss),
    kind("bursts-of-loss", FORWARD, paths::bursts_of_loss),
    kind("reordering", FORWARD, paths::reordering),
    kind("shared-path", FORWARD, paths::shared_path),
    kind("own-datagrams", SENDER, paths::own_datagrams),
    kind("thin-way-back", BACK, paths::thin_way_back),
    kind("full-way-back", BACK, paths::full_way_back),
    kind("policer", MIDDLE, paths::policer),
    kind("black-hole", MIDDLE, paths::black_hole),
    kind("filter-of-handshakes", MIDDLE, paths::filter_of_handshakes),
    kind("shaper", SENDER, hosts::shaper),
    kind("send-buffer", SENDER, hosts::send_buffer),
    kind("pacing", SENDER, hosts::pacing),
    kind("route-window", SENDER, hosts::route_window),
    kind("initial-window", SENDER, hosts::initial_window),
    kind("short-connections", SENDER, hosts::short_connections),
    kind("requests", SENDER, hosts::requests),
    kind("slow-application", SENDER, hosts::slow_application),
    kind("quota-of-sender", SENDER, hosts::quota_of_sender),
    kind("output-limit", SENDER, hosts::output_limit),
    kind("local-ports", SENDER, hosts::local_ports),
    kind("input-filter", SENDER, hosts::input_filter),
    kind("receive-buffer", RECEIVER, hosts::receive_buffer),
    kind("no-window-scaling", RECEIVER, hosts::no_window_scaling),
    kind("slow-reader", RECEIVER, hosts::slow_reader),
    kind("never-reads", RECEIVER, hosts::never_reads),
    kind("quota-of-receiver", RECEIVER, hosts::quota_of_receiver),
    kind("slow-answers", RECEIVER, hosts::slow_answers),
    kind("accept-queue", RECEIVER, hosts::accept_queue),
    kind("nobody-listens", RECEIVER, hosts::nobody_listens),
];

pub(super) const HEALTHY: &[Kind] = &[
    kind("healthy-idle", NOWHERE, hosts::idle),
    kind("healthy-paced", NOWHERE, paths::paced),
    kind("healthy-ack-loss", NOWHERE, paths::acknowledgements_lost),
    kind("healthy-requests", NOWHERE, hosts::rare_requests),
    kind("healthy-connections", NOWHERE, hosts::rare_connections),
    kind("healthy-datagrams", NOWHERE, hosts::datagrams),
    kind("healthy-receiver", NOWHERE, paths::paced_at_receiver),
    kind("healthy-busy-neighbour", NOWHERE, hosts::busy_neighbour),
    kind("healthy-full-link", NOWHERE, hosts::full_link),
];

const SENDER: &str = "sender";
const FORWARD: &str = "path forward";
const BACK: &str = "path back";
const MIDDLE: &str = "middle box";
const RECEIVER: &str = "receiver";
const NOWHERE: &str = "healthy";
