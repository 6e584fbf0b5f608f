//! Runs CAQM in the kernel for one step, at the interfaces of its hosts and under a unique name.

use crate::bench::machine::{MachineStep, Testbed};
use crate::model::{Failure, Measurement};
use accel::caqm::programs::Unpinned;
use accel::caqm::{InterfaceName, NAME, Network};
use host::Namespace;
use sim::CaqmHosts;
use std::os::fd::{AsFd as _, AsRawFd as _};
use units::Bytes;

/// CAQM in the kernel, for one step. The kernel removes CAQM when this process ends or dies.
#[derive(Debug)]
pub(super) struct Spoken {
    beside: Unpinned,
    /// Keeps the descriptors of the namespaces open, because the interfaces' names refer to these
    /// descriptors.
    _namespaces: Vec<Namespace>,
}

impl Spoken {
    /// Loads CAQM. `None` if the system uses another algorithm. `product`: the bandwidth-delay
    /// product of the link, if it is known.
    pub(super) fn start(
        step: &MachineStep<'_>,
        testbed: &Testbed,
        senders: &[String],
        product: Option<Bytes>,
    ) -> Result<Option<Self>, Failure> {
        if step.system.congestion.as_ref().is_none_or(|name| name.get_ref() != NAME) {
            return Ok(None);
        }
        let refused = |error: accel::AccelError| Failure::Workload(format!("{NAME}: {error}"));
        let names = senders.iter().chain([&step.ends.to]);
        let namespaces = names.map(|name| testbed.namespace(name));
        let namespaces = namespaces.collect::<Result<Vec<_>, _>>()?;
        let settings = step.lab.system_at(step.axes, step.system, product);
        let hosts = settings.map_err(|error| Failure::Workload(error.to_string()))?.caqm;
        // Each host of a lab with CAQM has one link. Leave out a host that does not use CAQM.
        let of_senders = senders.iter().map(|_| hosts.sender);
        let speaks = of_senders.chain([hosts.receiver]);
        let speaking = namespaces.iter().zip(speaks).filter(|(_, it)| *it);
        let place = |(namespace, _): (&Namespace, bool)| InterfaceName {
            namespace: Some(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd())),
            interface: "eth0".to_owned(),
        };
        let interfaces: Vec<_> = speaking.map(place).collect();
        let name = format!("weir_{}", std::process::id());
        let beside = Unpinned::start(&name, &network_of(&hosts), &interfaces).map_err(refused)?;
        Ok(Some(Self { beside, _namespaces: namespaces }))
    }

    /// Returns the name under which sockets choose the algorithm.
    pub(super) fn name(&self) -> &str {
        self.beside.name()
    }

    /// Records the tagged traffic: whether offloads carry the tags, and how many CPUs remove the
    /// tags.
    pub(super) fn account(&self, result: &mut Measurement) -> Result<(), Failure> {
        let totals = self.beside.totals();
        let totals = totals.map_err(|error| Failure::Workload(format!("{NAME}: {error}")))?;
        let sum = totals.sum();
        let mut count = |name: &str, value: u64| result.record(name, Some(value as f64));
        count("caqm_negotiated", sum.negotiated);
        count("caqm_gave_up", sum.gave_up);
        count("caqm_tagged_segments", sum.sent_segments);
        count("caqm_tagged_packets", sum.sent_packets);
        count("caqm_tagged_super", sum.sent_super);
        count("caqm_untagged_segments", sum.heard_segments);
        count("caqm_untagged_packets", sum.heard_packets);
        count("caqm_untagged_super", sum.heard_super);
        count("caqm_answers", sum.heard_answers);
        let working = totals.cpus.iter().filter(|cpu| cpu.heard_packets > 0).count();
        count("caqm_cpus", working as u64);
        Ok(())
    }
}

fn network_of(hosts: &CaqmHosts) -> Network {
    Network {
        settings: hosts.settings,
        cc_type: hosts.kind.into(),
        tpid: hosts.tpid,
        trusts_path: hosts.trusts_path,
        ..Network::default()
    }
}
