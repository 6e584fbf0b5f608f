use crate::{Node, TcpConfig};
use cc::Algorithm;
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

/// One flow: its ends, its time, and what it carries.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    pub from: Node,
    pub to: Node,
    pub start: Time,
    /// When the application stops; what it has sent by then is still delivered.
    pub stop: Option<Time>,
    pub traffic: Traffic,
    /// Record its window, rate and round-trip time over time.
    pub traced: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    Tcp {
        algorithm: Algorithm,
        demand: Demand,
        config: Arc<TcpConfig>,
    },
    /// TCP from the application to the client of a tunnel, and from its server to the other application.
    Tunnelled {
        /// Its place in [`crate::WorldConfig::tunnels`], whose ends are those of the flow.
        tunnel: usize,
        demand: Demand,
    },
    /// UDP: it never slows down.
    Datagrams {
        rate: Rate,
        /// Of a frame.
        size: Bytes,
        spacing: Spacing,
    },
}

/// What an application has to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Always more.
    Bulk,
    /// So much, then it is done.
    Size(Bytes),
    /// A piece at a time.
    Pieces { size: Bytes, every: Span },
    /// At a rate while it is on. With `random` the times are exponential with these means.
    OnOff { rate: Rate, on: Span, off: Span, random: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    Even,
    Poisson,
}

impl FlowSpec {
    /// From the beginning, for as long as the world lasts.
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

    /// The same with other hosts; nothing changes for datagrams, and in a tunnel.
    pub fn with(mut self, hosts: Arc<TcpConfig>) -> Self {
        if let Traffic::Tcp { config, .. } = &mut self.traffic {
            *config = hosts;
        }
        self
    }

    /// Whether it can be expected to finish by itself.
    pub(crate) fn finishes(&self) -> bool {
        let demand = self.demand();
        matches!(demand, Some(Demand::Size(_))) || self.stop.is_some() && demand.is_some()
    }

    /// The application's demand, if TCP carries it.
    fn demand(&self) -> Option<Demand> {
        match self.traffic {
            Traffic::Tcp { demand, .. } | Traffic::Tunnelled { demand, .. } => Some(demand),
            Traffic::Datagrams { .. } => None,
        }
    }
}
