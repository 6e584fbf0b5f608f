//! Figures beside the verdict: the rate that the doctor saw, the busiest core by kind, the
//! retransmissions and the lost datagrams of both hosts.

use super::case::Case;
use super::scene::Scene;
use super::verdict::Told;
use crate::model::{Failure, Measurement};
use probe::cpu::CpuSnapshot;
use probe::interface::InterfaceSnapshot;
use probe::snmp::SnmpSnapshot;
use units::{Bytes, Time};

/// The counters of both hosts at one time.
#[derive(Debug)]
pub(super) struct Counters {
    cpu: CpuSnapshot,
    sender: HostCounters,
    receiver: HostCounters,
}

#[derive(Debug)]
struct HostCounters {
    snmp: SnmpSnapshot,
    /// Number of errors and drops at the host's interfaces.
    faulty: u64,
    /// Bytes that the host's interfaces to the other host received.
    received: Bytes,
    taken: Time,
}

impl Counters {
    pub(super) fn read(scene: &Scene<'_>) -> Result<Self, Failure> {
        let [sender, receiver] = scene.hosts();
        let host = |namespace: &host::Namespace| -> Result<HostCounters, Failure> {
            namespace.run(|| Ok(HostCounters::read()))?
        };
        Ok(Self { cpu: CpuSnapshot::read()?, sender: host(sender)?, receiver: host(receiver)? })
    }

    /// Records the changes of the counters since `earlier`.
    pub(super) fn account(
        &self,
        earlier: &Self,
        case: &Case,
        told: &Told,
        result: &mut Measurement,
    ) {
        result.record("goodput_mbit_s", told.rate.map(|rate| rate.mbit_per_second()));
        let used = self.cpu.since(&earlier.cpu);
        let is_chosen = |core: usize| case.core.is_none_or(|chosen| chosen as usize == core);
        let chosen = used.cores.iter().filter(|(core, _)| is_chosen(**core));
        let shares = chosen.filter_map(|(_, times)| times.shares());
        let busiest = shares.max_by(|a, b| a.busy.fraction().total_cmp(&b.busy.fraction()));
        if let Some(core) = busiest {
            result.record("core_percent.user", Some(core.user.percent()));
            result.record("core_percent.system", Some(core.system.percent()));
            result.record("core_percent.softirq", Some(core.softirq.percent()));
            result.record("core_percent.idle", Some(core.idle.percent()));
        }
        let count = |now: &HostCounters, then: &HostCounters, name: &str| {
            Some(now.snmp.value(name)?.saturating_sub(then.snmp.value(name)?) as f64)
        };
        let sent = |name| count(&self.sender, &earlier.sender, name);
        let received = |name| count(&self.receiver, &earlier.receiver, name);
        let share = |part: Option<f64>, whole: Option<f64>| {
            let whole = whole.filter(|whole| *whole > FEW)?;
            Some((part? / whole * 100.0).clamp(0.0, 100.0))
        };
        result.record("retransmit_percent", share(sent("TcpRetransSegs"), sent("TcpOutSegs")));
        let datagrams = sent("UdpOutDatagrams");
        let lost = datagrams.zip(received("UdpInDatagrams")).map(|(out, came)| out - came);
        result.record("loss_percent", share(lost, datagrams));
        let faulty =
            |now: &HostCounters, then: &HostCounters| now.faulty.saturating_sub(then.faulty);
        let faulty =
            faulty(&self.sender, &earlier.sender) + faulty(&self.receiver, &earlier.receiver);
        result.record("drops", Some(faulty as f64));
    }
}

impl Counters {
    /// Returns the rate of the bytes that arrived at the receiver's interfaces since `earlier`, in
    /// Mbit/s.
    pub(super) fn carried_since(&self, earlier: &Self) -> f64 {
        let (now, then) = (&self.receiver, &earlier.receiver);
        let seconds = now.taken.since(then.taken).secs_f64();
        now.received.count().saturating_sub(then.received.count()) as f64 * 8e-6 / seconds.max(1e-3)
    }
}

impl HostCounters {
    fn read() -> Result<Self, Failure> {
        let interfaces = InterfaceSnapshot::read()?;
        let faulty = interfaces.interfaces.values().map(|interface| {
            let counters = [interface.counters.received, interface.counters.sent];
            counters.iter().map(|one| one.errors + one.drops).sum::<u64>()
        });
        let cables = interfaces.interfaces.iter().filter(|(name, _)| *name != LOOPBACK);
        let received = cables.map(|(_, one)| one.counters.received.bytes.count()).sum();
        Ok(Self {
            snmp: SnmpSnapshot::read()?,
            faulty: faulty.sum(),
            received: Bytes::new(received),
            taken: interfaces.taken,
        })
    }
}

const LOOPBACK: &str = "lo";
/// Minimum number of packets of which a share is recorded.
const FEW: f64 = 100.0;
