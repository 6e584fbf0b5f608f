//! The carrier of a system's flows: a kernel's TCP, or a tunnel.

use crate::model::file::{SystemKind, SystemSpec};
use cc::Algorithm;
use sim::{Congestion, Demand, FlowSpec, Node, TcpConfig, Traffic, TunnelSpec};
use std::sync::Arc;
use units::{Bytes, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp(Algorithm),
    Tunnel(Congestion),
}

/// The end nodes of a flow, and its round-trip time without queueing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) round_trip: Span,
}

impl Carrier {
    /// Returns the carrier of the system's flows.
    pub(crate) fn of(system: &SystemSpec) -> Result<Self, String> {
        let name = system.congestion.as_ref().map_or("", |name| name.get_ref().as_str());
        if system.kind == SystemKind::Tunnel {
            return name.parse().map(Self::Tunnel).map_err(|error| format!("{error}"));
        }
        let algorithm = name.parse().map(Self::Tcp);
        algorithm.map_err(|_| format!("the simulator has no algorithm `{name}`"))
    }

    /// Returns the name of the carrier in results.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(algorithm) => algorithm.name().to_owned(),
            Self::Tunnel(congestion) => congestion.to_string(),
        }
    }

    /// Builds a flow under test, or a competing flow. [`tunnels`] adds the tunnel of a tunnelled
    /// flow.
    pub(crate) fn flow(
        self,
        way: Way,
        demand: Demand,
        hosts: &Arc<TcpConfig>,
        is_beside: bool,
    ) -> FlowSpec {
        match self {
            Self::Tcp(algorithm) => {
                FlowSpec::tcp(way.from, way.to, algorithm, demand, Arc::clone(hosts))
            }
            Self::Tunnel(_) => {
                FlowSpec::tunnelled(way.from, way.to, usize::from(is_beside), demand)
            }
        }
    }
}

/// Builds one tunnel for each pair of hosts, separately for flows under test and for competing
/// flows. A tunnel connects with its first flow.
pub(crate) fn tunnels(carrier: Carrier, flows: &mut [FlowSpec], mtu: Bytes) -> Vec<TunnelSpec> {
    let Carrier::Tunnel(congestion) = carrier else { return Vec::new() };
    let mut keys = Vec::new();
    let mut tunnels: Vec<TunnelSpec> = Vec::new();
    for flow in flows {
        let Traffic::Tunnelled { tunnel, .. } = &mut flow.traffic else { continue };
        let key = (flow.from, flow.to, *tunnel);
        *tunnel = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            let spec = TunnelSpec::new(flow.from, flow.to, congestion);
            tunnels.push(TunnelSpec { start: flow.start, mtu, ..spec });
            keys.len() - 1
        });
        let start = &mut tunnels[*tunnel].start;
        *start = flow.start.min(*start);
    }
    tunnels
}
