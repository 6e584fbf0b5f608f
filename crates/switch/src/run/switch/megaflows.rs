//! The megaflows of all threads: their number, their limit, and their counts for the rules.

use std::sync::atomic::Ordering;

use pipeline::Removal;

use super::{BridgeState, Switch};
use crate::run::worker::WorkerStatistics;

impl Switch {
    /// Returns the sums of all threads' counts.
    pub(in crate::run) fn total_statistics(&self) -> WorkerStatistics {
        let mut total = self.main().statistics();
        for pmd in self.pmds() {
            if let Some(statistics) = pmd.ask(|thread| thread.worker.statistics()) {
                total.add(&statistics);
            }
        }
        total
    }

    /// Returns the number of megaflows of all threads.
    pub(in crate::run) fn megaflow_count(&self) -> usize {
        let mut count = self.main().megaflow_count();
        for pmd in self.pmds() {
            count += pmd.ask(|thread| thread.worker.megaflow_count()).unwrap_or(0);
        }
        count
    }

    /// Removes all megaflows. Later packets make new megaflows.
    pub(in crate::run) fn clear_megaflows(&self) {
        self.main().clear_megaflows();
        for pmd in self.pmds() {
            pmd.ask(|thread| thread.worker.clear_megaflows());
        }
    }

    /// Sets the limit of megaflows per bridge and packet thread.
    pub(in crate::run) fn limit_megaflows(&self, limit: usize) {
        self.megaflow_limit.store(limit, Ordering::Relaxed);
        self.main().limit_megaflows(limit);
        for pmd in self.pmds() {
            pmd.ask(move |thread| thread.worker.limit_megaflows(limit));
        }
    }

    pub(in crate::run) fn megaflow_limit(&self) -> usize {
        self.megaflow_limit.load(Ordering::Relaxed)
    }

    /// Makes every thread do its maintenance, for example after a jump of the clock.
    pub(in crate::run) fn maintain(&self) {
        self.run_bonds();
        self.main().maintain();
        for pmd in self.pmds() {
            pmd.ask(|thread| thread.worker.maintain());
        }
    }

    /// Adds the packet counts of all threads' megaflows to the bridge's rules, including packets
    /// that came through patch ports.
    pub(in crate::run) fn credit(&self, bridge: &BridgeState) {
        let neighbors = bridge.neighbors();
        let indices: Vec<_> =
            neighbors.iter().map(|bridge| bridge.index).chain([bridge.index]).collect();
        indices.iter().for_each(|index| self.main().credit(*index));
        for pmd in self.pmds() {
            let indices = indices.clone();
            pmd.ask(move |thread| indices.iter().for_each(|index| thread.worker.credit(*index)));
        }
    }

    /// Like [`Switch::credit`], for the counters of patch ports. Other ports count frames
    /// themselves.
    pub(in crate::run) fn credit_patches(&self, bridge: &BridgeState) {
        if bridge.ports().iter().any(|port| port.is_patch()) {
            self.credit(bridge);
        }
    }

    /// Removes the rules of a bridge whose timeouts have passed.
    pub(in crate::run) fn expire(&self, bridge: &BridgeState) -> Vec<Removal> {
        let now_ms = self.clock.now_ms();
        let is_due = bridge.tables().next_expiry_ms().is_some_and(|next| next <= now_ms);
        if is_due {
            self.credit(bridge);
        }
        bridge.tables_mut().expire(now_ms)
    }

    /// Like [`Switch::expire`], and also tells the bridge's connections.
    pub(in crate::run) fn expire_and_report(&self, bridge: &BridgeState) {
        for removal in self.expire(bridge) {
            if removal.rule.flags.send_flow_removed {
                bridge.rule_expired(removal);
            }
        }
        bridge.waker.wake();
    }
}
