//! Packet processing on the receiving host: whether other cores process the packets (RPS), and the
//! kernel's counts by core and by the size of packets.

use super::{MachineStep, Testbed};
use crate::model::{Failure, Measurement};
use host::HostError;
use probe::cpu::CpuSnapshot;
use probe::interface::{Counters, InterfaceSnapshot};
use probe::snmp::SnmpSnapshot;
use probe::softirqs::SoftirqSnapshot;
use probe::softnet::SoftnetSnapshot;

/// The settings of the receiving host. `None` leaves a setting unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Receiving {
    /// Whether the workload's CPUs process the packets (RPS). Otherwise the CPU that delivers a
    /// packet also processes the packet.
    pub(crate) rps: Option<bool>,
}

/// The kernel's packet and softirq counts at one moment.
#[derive(Debug)]
pub(crate) struct ReceiveCounts {
    cpu: CpuSnapshot,
    softirqs: SoftirqSnapshot,
    softnet: SoftnetSnapshot,
    ip: SnmpSnapshot,
    receiver: Counters,
    /// The TCP counters of each sending host.
    senders: Vec<Counters>,
}

impl Receiving {
    pub(crate) fn is_set(&self) -> bool {
        self.rps.is_some()
    }

    /// Fails if the kernel refuses to switch RPS on.
    pub(crate) fn apply(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<(), Failure> {
        let Some(rps) = self.rps else { return Ok(()) };
        let to = step.ends.to.as_str();
        let host = testbed.namespace(to)?;
        let cpus: &[usize] = if rps { &step.cpus.to } else { &[] };
        for interface in testbed.interfaces(to) {
            match host::steer_receiving(&host, &interface, cpus) {
                // A kernel that refuses to switch RPS off also refused the testbed's setting, so
                // RPS is off.
                Err(HostError::NotPermitted { .. } | HostError::NotSupported { .. }) if !rps => {}
                done => done?,
            }
        }
        Ok(())
    }
}

impl ReceiveCounts {
    pub(crate) fn read(
        step: &MachineStep<'_>,
        testbed: &Testbed,
        senders: &[String],
    ) -> Result<Self, Failure> {
        let counters = |name: &str| -> Result<Counters, Failure> {
            let host = testbed.namespace(name)?;
            let all = host.run(|| Ok(InterfaceSnapshot::read()))??;
            let first = testbed.interfaces(name).into_iter().next();
            Ok(all.get(&first.unwrap_or_default())?.counters)
        };
        let to = step.ends.to.as_str();
        let senders = senders.iter().map(|name| counters(name));
        Ok(Self {
            senders: senders.collect::<Result<_, _>>()?,
            receiver: counters(to)?,
            ip: testbed.namespace(to)?.run(|| Ok(SnmpSnapshot::read()))??,
            softnet: SoftnetSnapshot::read()?,
            softirqs: SoftirqSnapshot::read()?,
            cpu: CpuSnapshot::read()?,
        })
    }

    /// Records the cores' softirqs and packets, and the size of packets in three places: as sent by
    /// TCP, as arrived, and as taken by IP.
    pub(crate) fn account(&self, earlier: &Self, into: &mut Measurement) {
        let used = self.cpu.since(&earlier.cpu);
        let seconds = used.elapsed.secs_f64();
        if seconds <= 0.0 {
            return;
        }
        for (core, times) in &used.cores {
            let softirq = times.softirq.secs_f64() / seconds * 100.0;
            into.record(&format!("softirq_percent.cpu{core}"), Some(softirq));
        }
        let softirqs = self.softirqs.since(&earlier.softirqs);
        for (core, count) in softirqs.kinds.get("NET_RX").into_iter().flatten() {
            into.record(&format!("net_rx_s.cpu{core}"), Some(*count as f64 / seconds));
        }
        let softnet = self.softnet.since(&earlier.softnet);
        let mut steered = None;
        for (core, counts) in &softnet.cores {
            let rate = counts.processed as f64 / seconds;
            into.record(&format!("core_packets_s.cpu{core}"), Some(rate));
            if let Some(count) = counts.received_rps {
                *steered.get_or_insert(0.0) += count as f64 / seconds;
            }
        }
        into.record("rps_s", steered);
        let sent = self.senders.iter().zip(&earlier.senders).fold((0, 0), |sum, (now, then)| {
            let bytes = now.sent.bytes.count().saturating_sub(then.sent.bytes.count());
            (sum.0 + bytes, sum.1 + now.sent.packets.saturating_sub(then.sent.packets))
        });
        let (now, then) = (&self.receiver.received, &earlier.receiver.received);
        let arrived = (
            now.bytes.count().saturating_sub(then.bytes.count()),
            now.packets.saturating_sub(then.packets),
        );
        let ip = self.ip.since(&earlier.ip);
        let taken = ip.count("IpExtInOctets").zip(ip.count("IpInReceives"));
        into.record("packet_byte.sent", mean(sent));
        into.record("packet_byte.arrived", mean(arrived));
        into.record("packet_byte.merged", taken.and_then(mean));
    }
}

fn mean((bytes, packets): (u64, u64)) -> Option<f64> {
    (packets > 0).then(|| bytes as f64 / packets as f64)
}
