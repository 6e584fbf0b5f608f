use std::collections::BTreeMap;
use std::net::SocketAddr;

use units::{Rate, Share, Span};

use super::{Probe, Sample};
use crate::ProbeError;
use crate::cpu::{CoreTimes, CpuSnapshot};
use crate::interface::InterfaceSnapshot;
use crate::process::{CpuTime, KsoftirqdSnapshot, Processes};
use crate::qdisc::QdiscSnapshot;
use crate::snmp::SnmpSnapshot;
use crate::softnet::SoftnetSnapshot;
use crate::tcp::{self, Filter, Queues, TcpInfo};

/// The use of each core, and of all cores (`all`) or the chosen cores (`chosen`). The kernel counts
/// in ticks of 10 ms, so at an interval of 100 ms a value is accurate to ten percent of a core.
#[derive(Debug, Default)]
pub struct CpuProbe {
    chosen: Option<Vec<usize>>,
    before: Option<CpuSnapshot>,
}

impl CpuProbe {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a probe that also sums over these cores.
    pub fn over(cores: impl IntoIterator<Item = usize>) -> Self {
        Self { chosen: Some(cores.into_iter().collect()), before: None }
    }
}

impl Probe for CpuProbe {
    fn name(&self) -> &str {
        "cpu"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = CpuSnapshot::read()?;
        if let Some(before) = &self.before {
            let spent = now.since(before);
            put_cores(sample, "all", &spent.total);
            for (core, times) in &spent.cores {
                put_cores(sample, &format!("cpu{core}"), times);
            }
            if let Some(chosen) = &self.chosen {
                put_cores(sample, "chosen", &spent.over(chosen.iter().copied()));
            }
        }
        self.before = Some(now);
        Ok(())
    }
}

/// The CPU time of processes in percent of one core.
#[derive(Debug)]
pub struct ProcessProbe {
    label: String,
    before: Processes,
    begun: bool,
}

impl ProcessProbe {
    /// Samples these processes; see [`Processes::tree`] for a whole tree.
    pub fn new(label: impl Into<String>, processes: Processes) -> Self {
        Self { label: label.into(), before: processes, begun: false }
    }

    pub fn tree(label: impl Into<String>, root: u32) -> Result<Self, ProbeError> {
        Ok(Self::new(label, Processes::tree(root)?))
    }
}

impl Probe for ProcessProbe {
    fn name(&self) -> &str {
        &self.label
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = self.before.again()?;
        // The first reading covers no whole interval.
        if std::mem::replace(&mut self.begun, true) {
            let spent = now.since(&self.before);
            put_cpu_time(sample, &self.label, &spent.sum(), spent.elapsed);
        }
        self.before = now;
        Ok(())
    }
}

/// The CPU time of the kernel's `ksoftirqd` threads, per core and in total.
#[derive(Debug)]
pub struct KsoftirqdProbe {
    before: KsoftirqdSnapshot,
    begun: bool,
}

impl KsoftirqdProbe {
    pub fn new() -> Result<Self, ProbeError> {
        Ok(Self { before: KsoftirqdSnapshot::read()?, begun: false })
    }
}

impl Probe for KsoftirqdProbe {
    fn name(&self) -> &str {
        "ksoftirqd"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = self.before.again()?;
        if std::mem::replace(&mut self.begun, true) {
            let spent = now.since(&self.before);
            put_cpu_time(sample, "ksoftirqd", &spent.sum(), spent.elapsed);
            for (core, time) in &spent.cores {
                put_cpu_time(sample, &format!("ksoftirqd/{core}"), time, spent.elapsed);
            }
        }
        self.before = now;
        Ok(())
    }
}

/// TCP connections, each under `local>remote`.
#[derive(Debug)]
pub struct TcpProbe {
    chosen: Chosen,
    before: BTreeMap<u64, (units::Time, TcpInfo)>,
}

#[derive(Debug)]
enum Chosen {
    Filtered(Filter),
    Ends(SocketAddr, SocketAddr),
}

impl TcpProbe {
    pub fn new(filter: Filter) -> Self {
        Self::of(Chosen::Filtered(filter))
    }

    /// Samples a single connection, at lower cost.
    pub fn connection(local: SocketAddr, remote: SocketAddr) -> Self {
        Self::of(Chosen::Ends(local, remote))
    }

    fn of(chosen: Chosen) -> Self {
        Self { chosen, before: BTreeMap::new() }
    }
}

impl Probe for TcpProbe {
    fn name(&self) -> &str {
        "tcp"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let sockets = match &self.chosen {
            Chosen::Filtered(filter) => tcp::sockets(filter)?,
            Chosen::Ends(local, remote) => tcp::connection(*local, *remote)?.into_iter().collect(),
        };
        let now = crate::clock::now();
        let mut seen = BTreeMap::new();
        for socket in sockets {
            let Some(info) = socket.info else { continue };
            let subject = format!("{}>{}", socket.local, socket.remote);
            let mut put = |metric, value| sample.put_known(metric, &subject, value);
            let micros = |span: Option<Span>| span.map(Span::micros_f64);
            put("cwnd_segments", info.snd_cwnd.map(f64::from));
            put("rtt_us", micros(info.rtt));
            put("min_rtt_us", micros(info.min_rtt));
            put("delivery_rate_mbit_s", info.delivery_rate.map(Rate::mbit_per_second));
            put("pacing_rate_mbit_s", limited(info.pacing_rate));
            if let Queues::Data { receive, send } = socket.queues {
                put("receive_queue_kbyte", Some(receive.count() as f64 / 1e3));
                put("send_queue_kbyte", Some(send.count() as f64 / 1e3));
            }
            if let Some((at, before)) = self.before.get(&socket.cookie) {
                let spent = info.since(before, now.since(*at));
                let percent = |share: Option<Share>| share.map(Share::percent);
                put("acked_mbit_s", spent.goodput().map(Rate::mbit_per_second));
                put("received_mbit_s", spent.receive_rate().map(Rate::mbit_per_second));
                put("retransmits", spent.retrans.map(f64::from));
                put("busy_percent", percent(spent.busy_share()));
                put("rwnd_limited_percent", percent(spent.rwnd_limited_share()));
                put("sndbuf_limited_percent", percent(spent.sndbuf_limited_share()));
            }
            seen.insert(socket.cookie, (now, info));
        }
        self.before = seen;
        Ok(())
    }
}

/// Queueing disciplines, each under its interface's index, type and handle.
#[derive(Debug, Default)]
pub struct QdiscProbe {
    before: Option<QdiscSnapshot>,
}

impl QdiscProbe {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Probe for QdiscProbe {
    fn name(&self) -> &str {
        "qdisc"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = QdiscSnapshot::read()?;
        // Without an earlier reading there are queue lengths, but no counts.
        let spent = self.before.as_ref().map(|before| now.since(before));
        for qdisc in &now.qdiscs {
            let subject = format!("{} {} {}", qdisc.interface, qdisc.kind, qdisc.handle);
            sample.put("queue_kbyte", &subject, qdisc.backlog.count() as f64 / 1e3);
            sample.put("queue_packets", &subject, qdisc.queued.into());
        }
        for qdisc in spent.iter().flat_map(|spent| &spent.qdiscs) {
            let subject = format!("{} {} {}", qdisc.interface, qdisc.kind, qdisc.handle);
            let counters = &qdisc.counters;
            sample.put("queue_sent_packets", &subject, counters.packets as f64);
            sample.put("queue_drops", &subject, counters.drops as f64);
            sample.put("queue_overlimits", &subject, counters.overlimits as f64);
        }
        self.before = Some(now);
        Ok(())
    }
}

/// Rates and drops of every interface.
#[derive(Debug, Default)]
pub struct InterfaceProbe {
    before: Option<InterfaceSnapshot>,
}

impl InterfaceProbe {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Probe for InterfaceProbe {
    fn name(&self) -> &str {
        "interface"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = InterfaceSnapshot::read()?;
        if let Some(before) = &self.before {
            let spent = now.since(before);
            for (name, counters) in &spent.interfaces {
                if let Some((received, sent)) = spent.rates(name) {
                    sample.put("interface_receive_mbit_s", name, received.mbit_per_second());
                    sample.put("interface_send_mbit_s", name, sent.mbit_per_second());
                }
                let drops = counters.received.drops + counters.sent.drops;
                sample.put("interface_drops", name, drops as f64);
            }
        }
        self.before = Some(now);
        Ok(())
    }
}

/// Packets that each core's backlog accepted, dropped and left for later.
#[derive(Debug, Default)]
pub struct SoftnetProbe {
    before: Option<SoftnetSnapshot>,
}

impl SoftnetProbe {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Probe for SoftnetProbe {
    fn name(&self) -> &str {
        "softnet"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = SoftnetSnapshot::read()?;
        if let Some(before) = &self.before {
            for (core, counted) in now.since(before).cores {
                let subject = format!("cpu{core}");
                sample.put("softnet_processed", &subject, counted.processed as f64);
                sample.put("softnet_drops", &subject, counted.dropped as f64);
                sample.put("softnet_squeezes", &subject, counted.time_squeeze as f64);
            }
        }
        self.before = Some(now);
        Ok(())
    }
}

/// The chosen counters of IP, TCP and UDP, under the metric `count`.
#[derive(Debug)]
pub struct SnmpProbe {
    names: Vec<String>,
    before: Option<SnmpSnapshot>,
}

impl SnmpProbe {
    /// Creates a probe. Names are as in [`crate::snmp`]; names that this kernel lacks give no
    /// series.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), before: None }
    }
}

impl Probe for SnmpProbe {
    fn name(&self) -> &str {
        "snmp"
    }

    fn read(&mut self, sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        let now = SnmpSnapshot::read()?;
        if let Some(before) = &self.before {
            let spent = now.since(before);
            for name in &self.names {
                let count = spent.count(name).map(|count| count as f64);
                sample.put_known("count", name, count);
            }
        }
        self.before = Some(now);
        Ok(())
    }
}

fn put_cores(sample: &mut Sample<'_>, subject: &str, times: &CoreTimes) {
    let Some(shares) = times.shares() else { return };
    sample.put("idle_percent", subject, shares.idle.percent());
    sample.put("cpu_busy_percent", subject, shares.busy.percent());
    sample.put("cpu_user_percent", subject, shares.user.percent());
    sample.put("cpu_system_percent", subject, shares.system.percent());
    sample.put("cpu_softirq_percent", subject, shares.softirq.percent());
    sample.put("cpu_steal_percent", subject, shares.steal.percent());
}

fn put_cpu_time(sample: &mut Sample<'_>, subject: &str, time: &CpuTime, elapsed: Span) {
    let percent = time.cores_over(elapsed).map(|cores| cores * 100.0);
    sample.put_known("cpu_percent", subject, percent);
}

/// Returns a rate to plot; `None` for the kernel's "no limit".
fn limited(rate: Option<Rate>) -> Option<f64> {
    rate.filter(|rate| rate.bits_per_second() < u64::MAX).map(Rate::mbit_per_second)
}
