//! The packet threads of a switch: the CPU of each thread, and the receive queues that each thread
//! polls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::bridge::BridgeState;
use super::super::config::{Config, RxqAffinity};
use super::super::error::SwitchError;
use super::super::pmd::{Pmd, Queue};
use super::super::ports::SwitchPort;
use super::super::worker::Worker;
use super::Switch;

impl Switch {
    /// Starts and ends packet threads, so that each of these CPUs has a packet thread.
    pub(super) fn set_cpus(self: &Arc<Self>, cpus: &[usize]) -> Result<(), SwitchError> {
        let former = self.pmds();
        let mut pmds = Vec::new();
        let is_busy = self.busy_poll.load(Ordering::Relaxed);
        for cpu in cpus {
            if let Some(pmd) = former.iter().find(|pmd| pmd.core == *cpu) {
                pmd.tell(move |thread| thread.set_busy_polling(is_busy));
                pmds.push(pmd.clone());
                continue;
            }
            let (clock, ports) = (self.clock.clone(), self.ports.clone());
            let conntrack = self.conntrack.clone();
            let on_failure =
                Arc::new(|bridge: &BridgeState, port: &SwitchPort, error: &port::PortError| {
                    tracing::warn!("port {}: {error}; the other ports go on", port.name);
                    bridge.port_changed(port);
                });
            let limit = self.megaflow_limit();
            let worker = move || {
                let mut worker = Worker::new(clock, ports, conntrack);
                worker.limit_megaflows(limit);
                worker
            };
            pmds.push(Pmd::start(*cpu, worker, is_busy, on_failure)?);
        }
        self.conntrack.set_threads(cpus.len());
        *self.pmds.write() = pmds;
        for pmd in former.iter().filter(|pmd| !cpus.contains(&pmd.core)) {
            pmd.stop();
        }
        Ok(())
    }

    /// Assigns the receive queues anew, while no other thread assigns queues.
    pub(in crate::run) fn rebalance(&self) {
        let _changes = self.changes.lock();
        self.assign_queues();
    }

    /// Assigns each receive queue to a packet thread: to the thread of its affinity, or otherwise
    /// to the thread with the least load. As in Open vSwitch, a thread with queues by affinity gets
    /// no other queues. The caller must hold the lock of changes, because two assignments at the
    /// same time could give a queue to two threads.
    pub(super) fn assign_queues(&self) {
        let pmds = self.pmds();
        let loads = self.loads(&pmds);
        let mut shares: Vec<Vec<Queue>> = pmds.iter().map(|_| Vec::new()).collect();
        let mut free = Vec::new();
        for bridge in self.bridges() {
            for port in bridge.ports() {
                let affinity = self.affinity(&bridge.name, &port.name);
                for queue in 0..port.queues() {
                    let cpu = affinity.as_ref().and_then(|affinity| affinity.cpu(queue));
                    let place = pmds.iter().position(|pmd| Some(pmd.core) == cpu);
                    match place {
                        Some(place) => shares[place].push(Queue::new(
                            bridge.clone(),
                            port.clone(),
                            queue,
                            true,
                        )),
                        None => free.push((bridge.clone(), port.clone(), queue)),
                    }
                }
            }
        }
        let is_isolated: Vec<bool> = shares.iter().map(|share| !share.is_empty()).collect();
        let all_isolated = is_isolated.iter().all(|isolated| *isolated);
        let mut load = vec![0; pmds.len()];
        let cost = |port: &SwitchPort, queue: usize| {
            1 + loads.get(&(port.index.0, queue)).copied().unwrap_or(0)
        };
        free.sort_by_key(|(_, port, queue)| std::cmp::Reverse(cost(port, *queue)));
        for (bridge, port, queue) in free {
            let candidates = (0..pmds.len()).filter(|place| all_isolated || !is_isolated[*place]);
            let Some(place) = candidates.min_by_key(|place| load[*place]) else { continue };
            load[place] += cost(&port, queue);
            shares[place].push(Queue::new(bridge, port, queue, false));
        }
        // A queue leaves its former thread before its new thread polls the queue. Otherwise later
        // frames of a flow could overtake the frames that the former thread still processes.
        for (pmd, share) in pmds.iter().zip(&shares) {
            let stay: Vec<_> =
                share.iter().map(|queue| (queue.port.clone(), queue.queue)).collect();
            pmd.ask(move |thread| thread.retain(&stay));
        }
        for (pmd, share) in pmds.iter().zip(shares) {
            pmd.tell(move |thread| thread.assign(share));
        }
    }

    /// Returns the cycles of each queue in the last minute, by port index and queue.
    fn loads(&self, pmds: &[Arc<Pmd>]) -> HashMap<(u16, usize), u64> {
        let mut loads = HashMap::new();
        for pmd in pmds {
            let queues = pmd.ask(|thread| {
                let load = |queue: &Queue| ((queue.port.index.0, queue.queue), queue.recent());
                thread.queues.iter().map(load).collect::<Vec<_>>()
            });
            loads.extend(queues.into_iter().flatten());
        }
        loads
    }

    fn affinity(&self, bridge: &str, port: &str) -> Option<RxqAffinity> {
        let settings = self.settings();
        settings.bridge.get(bridge)?.port.get(port)?.rxq_affinity.clone()
    }
}

/// Returns the CPUs of the packet threads. Without a setting, returns the first CPU that this
/// process may use.
pub(super) fn cpus(config: &Config) -> Result<Vec<usize>, SwitchError> {
    let available = host::online_cpus();
    let Some(cpus) = &config.pmd_cpus else {
        return Ok(available.first().copied().into_iter().collect());
    };
    match cpus.iter().find(|cpu| !available.contains(cpu)) {
        Some(cpu) => {
            let available: Vec<_> = available.iter().map(usize::to_string).collect();
            Err(SwitchError::NoCpu { cpu: *cpu, available: available.join(", ") })
        }
        None => Ok(cpus.clone()),
    }
}
