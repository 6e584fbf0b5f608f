use crate::recording::{CoreTimes, Sample};
use std::collections::BTreeMap;
use units::Span;

/// Shares of a core's time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CoreUse {
    pub user: f64,
    pub system: f64,
    pub irq: f64,
    pub softirq: f64,
    pub iowait: f64,
    pub steal: f64,
}

impl CoreUse {
    /// Returns the share that is neither idle nor stolen.
    pub fn busy(&self) -> f64 {
        (self.user + self.system + self.irq + self.softirq).min(1.0)
    }

    /// Returns the share of interrupts and softirqs.
    pub fn interrupts(&self) -> f64 {
        self.irq + self.softirq
    }

    fn between(later: &CoreTimes, earlier: &CoreTimes) -> Option<Self> {
        // Saturates, because iowait may decrease (proc(5)), and idle time too when a core goes
        // offline and comes back.
        let part = |of: fn(&CoreTimes) -> Span| (of(later) - of(earlier)).secs_f64();
        let [user, system, idle, iowait, irq, softirq, steal] = [
            part(|t| t.user),
            part(|t| t.system),
            part(|t| t.idle),
            part(|t| t.iowait),
            part(|t| t.irq),
            part(|t| t.softirq),
            part(|t| t.steal),
        ];
        let sum = user + system + idle + iowait + irq + softirq + steal;
        (sum > 0.0).then(|| Self {
            user: user / sum,
            system: system / sum,
            irq: irq / sum,
            softirq: softirq / sum,
            iowait: iowait / sum,
            steal: steal / sum,
        })
    }
}

/// Returns cores that are in both samples and whose clock advanced.
pub(super) fn between(first: &Sample, last: &Sample) -> BTreeMap<usize, CoreUse> {
    let both = last.cores.iter().filter_map(|(core, later)| {
        Some((*core, CoreUse::between(later, first.cores.get(core)?)?))
    });
    both.collect()
}
