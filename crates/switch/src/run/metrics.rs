//! The switch's metrics for Prometheus
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{Display, Write};

use units::foreign;

use super::commands::ThreadStatistics;
use super::switch::Switch;

/// Returns all metrics of a switch as text.
pub(super) fn exposition(switch: &Switch) -> String {
    let mut text = String::new();
    let threads = super::commands::threads(switch);
    write_threads(&mut text, &threads);
    write_connections(&mut text, switch);
    write_bridges(&mut text, switch);
    text
}

/// A function that reads a metric of a thread.
type Read = fn(&ThreadStatistics) -> u64;

fn write_threads(text: &mut String, threads: &[ThreadStatistics]) {
    for (name, help, read) in THREAD_FIGURES {
        let rows = threads.iter().map(|thread| (format!("thread={}", named(thread)), read(thread)));
        family(text, name, "counter", help, rows);
    }
    for (name, label, help, parts) in THREAD_PARTS {
        let rows = threads.iter().flat_map(|thread| {
            parts.iter().map(move |(part, read)| {
                (format!("thread={},{label}=\"{part}\"", named(thread)), read(thread))
            })
        });
        family(text, name, "counter", help, rows);
    }
    let megaflows = |thread: &ThreadStatistics| {
        (format!("thread={}", named(thread)), thread.worker.megaflows as u64)
    };
    family(
        text,
        "megaflows",
        "gauge",
        "The thread holds this many megaflows.",
        threads.iter().map(megaflows),
    );
    let queues = threads.iter().flat_map(|thread| {
        thread.queues.iter().map(move |queue| {
            let port = label(&queue.port);
            let labels = format!("thread={},port={port},queue=\"{}\"", named(thread), queue.queue);
            (labels, queue.cycles)
        })
    });
    let help = "The thread has spent this many cycles on packets of this receive queue.";
    family(text, "queue_cycles_total", "counter", help, queues);
}

fn write_connections(text: &mut String, switch: &Switch) {
    let table = switch.conntrack();
    let statistics = table.statistics();
    for (name, help, value) in [
        ("connections", "The switch tracks this many connections.", u64::from(table.connections())),
        (
            "connections_limit",
            "The switch tracks at most this many connections.",
            table.max_connections().into(),
        ),
        (
            "connection_memory_bytes",
            "The table of connections takes this much memory.",
            statistics.bytes,
        ),
    ] {
        family(text, name, "gauge", help, std::iter::once((String::new(), value)));
    }
    let help = "This event has happened to connections or their packets this many times.";
    let rows = [
        ("hit", statistics.hits),
        ("created", statistics.created),
        ("expired", statistics.expired),
        ("reclaimed", statistics.reclaimed),
        ("removed", statistics.removed),
        ("invalid", statistics.invalid),
        ("table_full", statistics.full),
        ("zone_full", statistics.zone_full),
        ("ports_exhausted", statistics.exhausted),
        ("clashed", statistics.clashed),
    ];
    let rows = rows.into_iter().map(|(event, count)| (format!("event=\"{event}\""), count));
    family(text, "connection_events_total", "counter", help, rows);
}

fn write_bridges(text: &mut String, switch: &Switch) {
    let bridges = switch.bridges();
    bridges.iter().for_each(|bridge| switch.credit_patches(bridge));
    let rules = bridges.iter().map(|bridge| {
        let tables = bridge.tables().tables();
        let active: u64 = tables.iter().map(|table| u64::from(table.active)).sum();
        (format!("bridge={}", label(&bridge.name)), active)
    });
    family(text, "rules", "gauge", "The bridge has this many rules.", rules.collect::<Vec<_>>());
    let ports: Vec<_> = bridges
        .iter()
        .flat_map(|bridge| {
            let name = label(&bridge.name);
            bridge.ports().into_iter().map(move |port| {
                let labels = format!("bridge={name},port={}", label(&port.name));
                (labels, u64::from(port.is_up()), port.statistics())
            })
        })
        .collect();
    let up = ports.iter().map(|(labels, is_up, _)| (labels.clone(), *is_up));
    family(text, "port_up", "gauge", "The value is 1 if frames may pass the port.", up);
    for (name, help, read) in PORT_FIGURES {
        let rows = ports.iter().map(|(labels, _, statistics)| (labels.clone(), read(statistics)));
        family(text, name, "counter", help, rows);
    }
}

fn family<V: Display>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    rows: impl IntoIterator<Item = (String, V)>,
) {
    let _ = writeln!(text, "# HELP weir_switch_{name} {help}\n# TYPE weir_switch_{name} {kind}");
    for (labels, value) in rows {
        let _ = match labels.as_str() {
            "" => writeln!(text, "weir_switch_{name} {value}"),
            labels => writeln!(text, "weir_switch_{name}{{{labels}}} {value}"),
        };
    }
}

/// Returns the label of a thread: the CPU of a packet thread, or `main`.
fn named(thread: &ThreadStatistics) -> String {
    thread.core.map_or_else(|| "\"main\"".to_owned(), |core| format!("\"{core}\""))
}

/// Quotes a label's value.
fn label(value: &str) -> String {
    let shown = foreign(value).to_string();
    format!("\"{}\"", shown.replace('\\', "\\\\").replace('"', "\\\""))
}

const THREAD_FIGURES: &[(&str, &str, Read)] = &[
    ("received_packets_total", "This many packets have arrived at the thread.", |t| {
        t.worker.datapath.received
    }),
    ("sent_packets_total", "The thread has sent this many packets.", |t| t.worker.sent_frames),
    ("sent_batches_total", "The thread has sent packets in this many batches.", |t| {
        t.worker.sent_batches
    }),
    ("recirculations_total", "Packets have passed the tables again this many times.", |t| {
        t.worker.datapath.recirculated
    }),
    ("megaflow_hits_total", "Megaflows have decided this many passes.", |t| {
        t.worker.datapath.megaflow_hits
    }),
    ("masks_probed_total", "Passes that a megaflow decided have searched this many tables.", |t| {
        t.worker.datapath.masks_probed
    }),
    ("upcalls_total", "The rules were asked for this many passes.", |t| t.worker.datapath.upcalls),
    ("revalidated_total", "This many upcalls were caused by outdated megaflows.", |t| {
        t.worker.datapath.revalidated
    }),
    ("expired_megaflows_total", "This many megaflows were removed because they were idle.", |t| {
        t.worker.datapath.expired
    }),
    ("controller_packets_total", "This many packets were sent to controllers.", |t| {
        t.worker.datapath.packet_ins
    }),
    ("iterations_total", "The thread has made this many turns.", |t| t.iterations),
    ("sleeps_total", "The thread has slept this many times.", |t| t.sleeps),
    (
        "receive_cycles_total",
        "The thread has spent this many cycles on taking frames from ports.",
        |t| t.receive,
    ),
    ("stage_packets_total", "The stages of this many packets were measured.", |t| {
        t.worker.datapath.stages.packets
    }),
];

type Parts = &'static [(&'static str, Read)];

const THREAD_PARTS: &[(&str, &str, &str, Parts)] = &[
    (
        "cycles_total",
        "state",
        "Turns with a packet (busy) and without one (idle) have taken this many cycles.",
        &[("busy", |t| t.busy), ("idle", |t| t.idle)],
    ),
    (
        "stage_cycles_total",
        "stage",
        "The stage has taken this many cycles for the packets of stage_packets_total.",
        &[
            ("parse", |t| t.worker.datapath.stages.parse),
            ("cache", |t| t.worker.datapath.stages.cache),
            ("classifier", |t| t.worker.datapath.stages.classifier),
            ("conntrack", |t| t.worker.datapath.stages.conntrack),
            ("actions", |t| t.worker.datapath.stages.actions),
            ("transmit", |t| t.worker.datapath.stages.transmit),
        ],
    ),
    (
        "dropped_packets_total",
        "reason",
        "This many packets were dropped for this reason.",
        &[
            ("rules", |t| t.worker.datapath.dropped),
            ("meter", |t| t.worker.datapath.dropped_by_meter),
            ("conntrack", |t| t.worker.datapath.dropped_by_tracker),
            ("depth", |t| t.worker.datapath.dropped_by_depth),
        ],
    ),
];

type ReadPort = fn(&flow::request::PortStatistics) -> u64;

const PORT_FIGURES: &[(&str, &str, ReadPort)] = &[
    ("port_received_packets_total", "The port has received this many packets.", |port| {
        port.received_packets
    }),
    ("port_received_bytes_total", "The port has received this many bytes.", |port| {
        port.received_bytes
    }),
    ("port_sent_packets_total", "The port has sent this many packets.", |port| port.sent_packets),
    ("port_sent_bytes_total", "The port has sent this many bytes.", |port| port.sent_bytes),
    ("port_dropped_packets_total", "The port could not send this many packets.", |port| {
        port.sent_dropped.unwrap_or(0)
    }),
];
