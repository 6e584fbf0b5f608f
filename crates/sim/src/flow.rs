use crate::{Node, TcpConfig};
use cc::Algorithm;
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

/// One flow: its ends, its times, and its traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    pub from: Node,
    pub to: Node,
    pub start: Time,
    /// The time at which the application stops; data sent by then is still delivered.
    pub stop: Option<Time>,
    pub traffic: Traffic,
    /// Whether the world records the flow's window, rate and round-trip time over time.
    pub traced: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    Tcp {
        algorithm: Algorithm,
        demand: Demand,
        config: Arc<TcpConfig>,
    },
    /// TCP from the application to a tunnel's client, and from the tunnel's server to the other
    /// application.
    Tunnelled {
        /// The index in [`crate::WorldConfig::tunnels`] of a tunnel with the ends of the flow.
        tunnel: usize,
        demand: Demand,
    },
    /// UDP, which never slows down.
    Datagrams {
        rate: Rate,
        /// The size of a frame.
        size: Bytes,
        spacing: Spacing,
    },
}

/// The data that an application sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Unlimited data.
    Bulk,
    /// Unlimited data, beginning when all flows with this demand are connected.
    BulkTogether,
    /// This much data, after which the flow is done.
    Size(Bytes),
    /// A piece in each interval.
    Pieces { size: Bytes, every: Span },
    /// Data at a rate during on periods. With `random`, the periods are exponential with these
    /// means.
    OnOff { rate: Rate, on: Span, off: Span, random: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    Even,
    Poisson,
}

impl FlowSpec {
    /// A flow from the beginning to the end of the world.
    pub fn bulk(from: Node, to: Node, algorithm: Algorithm) -> Self {
        Self::tcp(from, to, algorithm, Demand::Bulk, Arc::default())
    }

    pub fn sized(from: Node, to: Node, algorithm: Algorithm, size: Bytes) -> Self {
        Self::tcp(from, to, algorithm, Demand::Size(size), Arc::default())
    }

    pub fn tcp(
        from: Node,
        to: Node,
        algorithm: Algorithm,
        demand: Demand,
        config: Arc<TcpConfig>,
    ) -> Self {
        let traffic = Traffic::Tcp { algorithm, demand, config };
        Self { from, to, start: Time::ZERO, stop: None, traffic, traced: false }
    }

    pub fn tunnelled(from: Node, to: Node, tunnel: usize, demand: Demand) -> Self {
        let traffic = Traffic::Tunnelled { tunnel, demand };
        Self { from, to, start: Time::ZERO, stop: None, traffic, traced: false }
    }

    pub fn datagrams(from: Node, to: Node, rate: Rate, size: Bytes, spacing: Spacing) -> Self {
        let traffic = Traffic::Datagrams { rate, size, spacing };
        Self { from, to, start: Time::ZERO, stop: None, traffic, traced: false }
    }

    pub fn starting(self, start: Time) -> Self {
        Self { start, ..self }
    }

    pub fn stopping(self, stop: Time) -> Self {
        Self { stop: Some(stop), ..self }
    }

    pub fn traced(self) -> Self {
        Self { traced: true, ..self }
    }

    /// Sets the hosts' configuration; datagrams and tunnelled flows do not change.
    pub fn with(mut self, hosts: Arc<TcpConfig>) -> Self {
        if let Traffic::Tcp { config, .. } = &mut self.traffic {
            *config = hosts;
        }
        self
    }

    /// Whether the flow must finish before the world ends.
    pub(crate) fn finishes(&self) -> bool {
        let demand = self.demand();
        matches!(demand, Some(Demand::Size(_))) || self.stop.is_some() && demand.is_some()
    }

    pub(crate) fn begins_together(&self) -> bool {
        self.demand() == Some(Demand::BulkTogether)
    }

    /// The application's demand, if TCP carries it.
    fn demand(&self) -> Option<Demand> {
        match self.traffic {
            Traffic::Tcp { demand, .. } | Traffic::Tunnelled { demand, .. } => Some(demand),
            Traffic::Datagrams { .. } => None,
        }
    }
}
