//! Commands for packet threads: counts, cycles and queues.

use std::fmt::Write;
use std::sync::Arc;

use datapath::Statistics;

use super::{Command, Outcome};
use crate::run::pmd::{PmdThread, QueueUsage};
use crate::run::switch::Switch;
use crate::run::worker::WorkerStatistics;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "dpif-netdev/pmd-perf-show",
        usage: "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]",
        fewest: 0,
        most: 8,
        run: perf,
    },
    Command {
        name: "dpif-netdev/pmd-rxq-rebalance",
        usage: "[dp]",
        fewest: 0,
        most: 1,
        run: rebalance,
    },
    Command {
        name: "dpif-netdev/pmd-rxq-show",
        usage: "[-pmd core] [dp]",
        fewest: 0,
        most: 5,
        run: queues,
    },
    Command {
        name: "dpif-netdev/pmd-stats-clear",
        usage: "[-pmd core] [dp]",
        fewest: 0,
        most: 3,
        run: clear,
    },
    Command {
        name: "dpif-netdev/pmd-stats-show",
        usage: "[-pmd core] [dp]",
        fewest: 0,
        most: 3,
        run: statistics,
    },
];

/// The statistics of a packet thread or of the main thread.
pub(in crate::run) struct ThreadStatistics {
    /// `None` for the main thread.
    pub(in crate::run) core: Option<usize>,
    pub(in crate::run) worker: WorkerStatistics,
    pub(in crate::run) idle: u64,
    pub(in crate::run) busy: u64,
    pub(in crate::run) iterations: u64,
    pub(in crate::run) sleeps: u64,
    pub(in crate::run) receive: u64,
    /// Cycles in the last minute; `recently_busy` counts only the cycles of iterations with a
    /// packet.
    pub(in crate::run) recent: u64,
    pub(in crate::run) recently_busy: u64,
    pub(in crate::run) queues: Vec<QueueUsage>,
}

/// Returns the statistics of all packet threads, and the statistics of the main thread last.
pub(in crate::run) fn all(switch: &Switch) -> Vec<ThreadStatistics> {
    let read = |thread: &mut PmdThread| ThreadStatistics {
        core: None,
        worker: thread.worker.statistics(),
        idle: thread.idle,
        busy: thread.busy,
        iterations: thread.iterations,
        sleeps: thread.sleeps,
        receive: thread.receiving,
        recent: thread.recent(),
        recently_busy: thread.recently_busy(),
        queues: thread.usage(),
    };
    let mut threads: Vec<_> = switch
        .pmds()
        .iter()
        .filter_map(|pmd| {
            let core = Some(pmd.core);
            pmd.ask(read).map(|statistics| ThreadStatistics { core, ..statistics })
        })
        .collect();
    threads.push(ThreadStatistics {
        core: None,
        worker: switch.main().statistics(),
        idle: 0,
        busy: 0,
        iterations: 0,
        sleeps: 0,
        receive: 0,
        recent: 0,
        recently_busy: 0,
        queues: Vec::new(),
    });
    threads
}

/// Returns the threads that `-pmd CORE` selects.
fn chosen(switch: &Switch, arguments: &[String]) -> Result<Vec<ThreadStatistics>, String> {
    let core = core(arguments)?;
    let mut threads = all(switch);
    threads.retain(|thread| core.is_none() || thread.core == core);
    Ok(threads)
}

fn core(arguments: &[String]) -> Result<Option<usize>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == "-pmd") else {
        return Ok(None);
    };
    let core = arguments.get(at + 1).and_then(|text| text.parse().ok());
    core.map(Some).ok_or_else(|| "invalid core_id".to_owned())
}

fn title(core: Option<usize>) -> String {
    match core {
        Some(core) => format!("pmd thread numa_id 0 core_id {core}:\n"),
        None => "main thread:\n".to_owned(),
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn statistics(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let mut text = String::new();
    for thread in chosen(switch, arguments)? {
        let Statistics { received, recirculated, megaflow_hits, masks_probed, upcalls, .. } =
            thread.worker.datapath;
        text.push_str(&title(thread.core));
        let _ = write!(
            text,
            "  packets received: {received}\n  packet recirculations: {recirculated}\n  \
             avg. datapath passes per packet: {:.2}\n  phwol hits: 0\n  mfex opt hits: 0\n  \
             simple match hits: 0\n  emc hits: 0\n  smc hits: 0\n  megaflow hits: {megaflow_hits}\n  \
             avg. subtable lookups per megaflow hit: {:.2}\n  \
             miss with success upcall: {upcalls}\n  miss with failed upcall: 0\n  \
             avg. packets per output batch: {:.2}\n",
            ratio(received + recirculated, received),
            ratio(masks_probed, megaflow_hits),
            ratio(thread.worker.sent_frames, thread.worker.sent_batches),
        );
        let total = thread.idle + thread.busy;
        if total == 0 {
            continue;
        }
        let _ = write!(
            text,
            "  idle cycles: {} ({:.2}%)\n  processing cycles: {} ({:.2}%)\n",
            thread.idle,
            100.0 * ratio(thread.idle, total),
            thread.busy,
            100.0 * ratio(thread.busy, total),
        );
        if received == 0 {
            continue;
        }
        let _ = write!(
            text,
            "  avg cycles per packet: {:.2} ({total}/{received})\n  \
             avg processing cycles per packet: {:.2} ({}/{received})\n",
            ratio(total, received),
            ratio(thread.busy, received),
            thread.busy,
        );
    }
    Ok(text)
}

fn clear(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let core = core(arguments)?;
    // Add the events so far to the counters of `coverage/show`, which this command does not clear.
    switch.count_events();
    for pmd in switch.pmds() {
        if core.is_none_or(|core| core == pmd.core) {
            pmd.ask(PmdThread::clear_statistics);
        }
    }
    if core.is_none() {
        switch.main().clear_statistics();
    }
    switch.restart_measurement();
    Ok(String::new())
}

fn queues(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let threads = chosen(switch, arguments)?;
    Ok(threads.iter().map(queues_of).collect())
}

fn queues_of(thread: &ThreadStatistics) -> String {
    let Some(core) = thread.core else { return String::new() };
    let total = thread.recent;
    let is_isolated = thread.queues.iter().any(|queue| queue.is_pinned);
    let mut text = format!("pmd thread numa_id 0 core_id {core}:\n  isolated : {is_isolated}\n");
    let mut queues: Vec<_> = thread.queues.iter().collect();
    queues.sort_by(|a, b| (&a.port, a.queue).cmp(&(&b.port, b.queue)));
    let mut used = 0;
    for queue in &queues {
        let state = if queue.is_up { "(enabled) " } else { "(disabled)" };
        let _ = write!(
            text,
            "  port: {:<16}  queue-id: {:2} {state}  pmd usage: ",
            queue.port, queue.queue
        );
        used += queue.recent;
        let _ = match percent(queue.recent, total) {
            Some(percent) => writeln!(text, "{percent:2} %"),
            None => writeln!(text, "NOT AVAIL"),
        };
    }
    if !queues.is_empty() {
        // The overhead: cycles in busy iterations that belong to no queue, such as polls of empty
        // queues.
        let overhead = thread.recently_busy.saturating_sub(used);
        let _ = match percent(overhead, total) {
            Some(percent) => writeln!(text, "  overhead: {percent:2} %"),
            None => writeln!(text, "  overhead: NOT AVAIL"),
        };
    }
    text
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    (whole > 0).then(|| (100.0 * ratio(part, whole)).round() as u64)
}

fn rebalance(switch: &Arc<Switch>, _: &[String]) -> Outcome {
    switch.rebalance();
    Ok("pmd rxq rebalance requested.\n".to_owned())
}

fn perf(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let (seconds, per_second) = switch.measurement();
    let mut text = format!("Measurement duration: {seconds:.3} s\n");
    for thread in chosen(switch, arguments)? {
        let Some(core) = thread.core else { continue };
        let statistics = &thread.worker.datapath;
        let used = thread.idle + thread.busy;
        let microseconds = |cycles: f64| cycles * 1e6 / per_second;
        let _ = write!(
            text,
            "\npmd thread numa_id 0 core_id {core}:\n\n  \
             Iterations:         {:12}  ({:.2} us/it)\n  \
             - Used TSC cycles:  {used:12}  ({:5.1} % of total cycles)\n  \
             - idle iterations:  {:12}  ({:5.1} % of used cycles)\n  \
             - busy iterations:  {:12}  ({:5.1} % of used cycles)\n  \
             - sleep iterations: {:12}  ({:5.1} % of iterations)\n",
            thread.iterations,
            microseconds(ratio(used, thread.iterations)),
            100.0 * used as f64 / (per_second * seconds).max(1.0),
            thread.iterations.saturating_sub(statistics.batches),
            100.0 * ratio(thread.idle, used),
            statistics.batches,
            100.0 * ratio(thread.busy, used),
            thread.sleeps,
            100.0 * ratio(thread.sleeps, thread.iterations),
        );
        write_packets(&mut text, &thread, seconds);
        write_stages(&mut text, &thread);
    }
    Ok(text)
}

fn write_packets(text: &mut String, thread: &ThreadStatistics, seconds: f64) {
    let statistics = &thread.worker.datapath;
    let received = statistics.received;
    let passes = received + statistics.recirculated;
    if received == 0 {
        let _ = writeln!(text, "  Rx packets:         {:12}", 0);
    } else {
        let share = |part: u64| 100.0 * ratio(part, passes);
        let _ = write!(
            text,
            "  Rx packets:         {received:12}  ({:.0} Kpps, {:.0} cycles/pkt)\n  \
             Datapath passes:    {passes:12}  ({:.2} passes/pkt)\n  \
             - PHWOL hits:       {:12}  (  0.0 %)\n  \
             - MFEX Opt hits:    {:12}  (  0.0 %)\n  \
             - Simple Match hits:{:12}  (  0.0 %)\n  \
             - EMC hits:         {:12}  (  0.0 %)\n  \
             - SMC hits:         {:12}  (  0.0 %)\n  \
             - Megaflow hits:    {:12}  ({:5.1} %, {:.2} subtbl lookups/hit)\n  \
             - Upcalls:          {:12}  ({:5.1} %)\n  \
             - Lost upcalls:     {:12}  (  0.0 %)\n",
            received as f64 / 1000.0 / seconds,
            ratio(thread.busy, received),
            ratio(passes, received),
            0,
            0,
            0,
            0,
            0,
            statistics.megaflow_hits,
            share(statistics.megaflow_hits),
            ratio(statistics.masks_probed, statistics.megaflow_hits),
            statistics.upcalls,
            share(statistics.upcalls),
            0,
        );
    }
    if thread.worker.sent_frames == 0 {
        let _ = writeln!(text, "  Tx packets:         {:12}", 0);
        return;
    }
    let _ = write!(
        text,
        "  Tx packets:         {:12}  ({:.0} Kpps)\n  \
         Tx batches:         {:12}  ({:.2} pkts/batch)\n",
        thread.worker.sent_frames,
        thread.worker.sent_frames as f64 / 1000.0 / seconds,
        thread.worker.sent_batches,
        ratio(thread.worker.sent_frames, thread.worker.sent_batches),
    );
}

/// Writes the cycles of each processing stage, which Open vSwitch does not show.
fn write_stages(text: &mut String, thread: &ThreadStatistics) {
    let stages = &thread.worker.datapath.stages;
    if stages.packets == 0 {
        return;
    }
    let _ = writeln!(text, "  Cycles per packet by stage:");
    let received = thread.worker.datapath.received;
    let _ = writeln!(text, "  - receive:          {:12.1}", ratio(thread.receive, received));
    for (name, cycles) in [
        ("parse", stages.parse),
        ("cache", stages.cache),
        ("classifier", stages.classifier),
        ("conntrack", stages.conntrack),
        ("actions", stages.actions),
        ("transmit", stages.transmit),
    ] {
        let name = format!("{name}:");
        let _ = writeln!(text, "  - {name:<17} {:12.1}", ratio(cycles, stages.packets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread was busy for an hour, and then received no packets for a minute.
    #[test]
    fn a_thread_that_has_become_idle_has_no_overhead() {
        let queue = QueueUsage {
            port: "p1".to_owned(),
            queue: 0,
            is_up: true,
            is_pinned: false,
            cycles: 9_000_000_000,
            recent: 0,
        };
        let thread = ThreadStatistics {
            core: Some(3),
            worker: WorkerStatistics::default(),
            idle: 60_000_000,
            busy: 10_000_000_000,
            iterations: 1,
            sleeps: 1,
            receive: 0,
            recent: 60_000_000,
            recently_busy: 0,
            queues: vec![queue.clone()],
        };
        let text = queues_of(&thread);
        assert!(text.contains("pmd usage:  0 %\n  overhead:  0 %\n"), "{text}");
        let queue = QueueUsage { recent: 30_000_000, ..queue };
        let busy = ThreadStatistics { recently_busy: 36_000_000, queues: vec![queue], ..thread };
        let text = queues_of(&busy);
        assert!(text.contains("pmd usage: 50 %\n  overhead: 10 %\n"), "{text}");
    }
}
