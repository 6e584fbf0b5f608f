use crate::{Node, TcpConfig};
use cc::Algorithm;
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

/// One flow: its ends, its times, and its traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    /// The node that sends the data.
    pub from: Node,
    /// The node that receives the data.
    pub to: Node,
    /// The time at which the flow begins: TCP connects, or the flow of datagrams starts.
    pub start: Time,
    /// The time at which the application stops; data sent by then is still delivered.
    pub stop: Option<Time>,
    /// The protocol and the data.
    pub traffic: Traffic,
    /// Whether the world records the flow's window, rate and round-trip time over time.
    pub traced: bool,
}

/// The protocol of a flow, and the data that it carries.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// A TCP connection from one end to the other.
    Tcp {
        /// The sender's congestion control.
        algorithm: Algorithm,
        /// The data that the sending application writes.
        demand: Demand,
        /// The behaviour of both hosts.
        config: Arc<TcpConfig>,
    },
    /// TCP from the application to a tunnel's client, and from the tunnel's server to the other
    /// application.
    Tunnelled {
        /// The index in [`crate::WorldConfig::tunnels`] of a tunnel with the ends of the flow.
        tunnel: usize,
        /// The data that the sending application writes.
        demand: Demand,
    },
    /// UDP, which never slows down.
    Datagrams {
        /// The rate of frames, headers included; above 0.
        rate: Rate,
        /// The size of a frame.
        size: Bytes,
        /// The times between frames.
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
    /// This amount of data, after which the flow is done.
    Size(Bytes),
    /// A write of the same size in each interval.
    Pieces {
        /// The data that the application writes at once; above 0.
        size: Bytes,
        /// The time between two writes; above 0.
        every: Span,
    },
    /// Data at a rate during on periods. With `random`, the periods are exponential with these
    /// means.
    OnOff {
        /// The rate at which the application writes during an on period; above 0.
        rate: Rate,
        /// The length, or the mean length, of an on period; above 0.
        on: Span,
        /// The length, or the mean length, of an off period.
        off: Span,
        /// Whether each length is drawn from an exponential distribution. Otherwise all lengths are
        /// equal.
        random: bool,
    },
}

/// The times between the frames of a flow of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Equal times.
    Even,
    /// Exponential times with the same mean: a Poisson process.
    Poisson,
}

impl FlowSpec {
    /// Creates an unlimited TCP flow from the beginning to the end of the world.
    pub fn bulk(from: Node, to: Node, algorithm: Algorithm) -> Self {
        Self::tcp(from, to, algorithm, Demand::Bulk, Arc::default())
    }

    /// Creates a TCP flow of `size` bytes from the beginning of the world, with hosts as in
    /// [`TcpConfig::default`].
    pub fn sized(from: Node, to: Node, algorithm: Algorithm, size: Bytes) -> Self {
        Self::tcp(from, to, algorithm, Demand::Size(size), Arc::default())
    }

    /// Creates a TCP flow from the beginning of the world, with hosts that behave like `config`.
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

    /// Creates a flow through the tunnel of this index in [`crate::WorldConfig::tunnels`], from the
    /// beginning of the world.
    pub fn tunnelled(from: Node, to: Node, tunnel: usize, demand: Demand) -> Self {
        let traffic = Traffic::Tunnelled { tunnel, demand };
        Self { from, to, start: Time::ZERO, stop: None, traffic, traced: false }
    }

    /// Creates a flow of UDP frames of `size`, headers included, from the beginning to the end of
    /// the world.
    pub fn datagrams(from: Node, to: Node, rate: Rate, size: Bytes, spacing: Spacing) -> Self {
        let traffic = Traffic::Datagrams { rate, size, spacing };
        Self { from, to, start: Time::ZERO, stop: None, traffic, traced: false }
    }

    /// Sets the start of the flow.
    pub fn starting(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Sets the time at which the application stops.
    pub fn stopping(self, stop: Time) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Makes the world record the flow over time in
    /// [`FlowOutcome::trace`](crate::FlowOutcome::trace).
    pub fn traced(self) -> Self {
        Self { traced: true, ..self }
    }

    /// Sets the hosts' configuration; flows of datagrams and tunnelled flows keep their
    /// configuration.
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

    /// Returns the application's demand, if TCP carries it.
    fn demand(&self) -> Option<Demand> {
        match self.traffic {
            Traffic::Tcp { demand, .. } | Traffic::Tunnelled { demand, .. } => Some(demand),
            Traffic::Datagrams { .. } => None,
        }
    }
}
