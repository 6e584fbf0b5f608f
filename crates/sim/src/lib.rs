//! A packet-level network simulator in virtual time.
//!
//! A [`World`] is a [`Topology`] of [`link::Link`]s, the same model that the emulator runs, and the
//! [flows](FlowSpec) over it. The ends of a flow run TCP as Linux does, with the algorithms of
//! [`cc`]. A flow may go through a [tunnel](TunnelSpec) with the ends of [`quic`]. A world is one
//! thread without a clock and without I/O; many worlds may run side by side. Time is in whole
//! nanoseconds, and every random stream has a name and is derived from one seed: the same world
//! always has the same [`Outcome`].
//!
//! ```
//! use link::LinkConfig;
//! use sim::{Dumbbell, End, FlowSpec, World, WorldConfig};
//!
//! let access = LinkConfig { delay: "5ms".parse()?, ..LinkConfig::default() };
//! let bottleneck = LinkConfig {
//!     rate: "10mbit".parse()?,
//!     queue: "droptail:50KB".parse()?,
//!     ..LinkConfig::default()
//! };
//! let shape = Dumbbell::new(&[access], &bottleneck, &LinkConfig::default());
//! let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], cc::Algorithm::Reno);
//! let outcome = World::new(&shape.topology, vec![flow], WorldConfig::default())?.run();
//! assert_eq!(outcome.end, End::TimeUp);
//! assert!(outcome.flows[0].goodput > "9mbit".parse()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod arrivals;
mod conditions;
mod config;
mod connection;
mod error;
mod event;
mod flow;
mod line;
mod outcome;
mod packet;
mod random;
mod routes;
mod shapes;
mod source;
mod tcp;
mod topology;
mod trace;
mod tunnel;
pub mod validate;
mod wheel;
mod world;

pub use arrivals::{Arrivals, Sizes, Times};
pub use conditions::{Conditions, Policer};
pub use config::{CaqmHosts, Ecn, Flaw, Opening, ReceiveWindow, TcpConfig};
pub use error::SimError;
pub use flow::{Demand, FlowSpec, Spacing, Traffic};
pub use outcome::{
    End, FlowCount, FlowOutcome, FlowPoint, LinkOutcome, Outcome, PacketBalance, QueuePoint,
    TunnelCount, TunnelOutcome, jain,
};
pub use quic::Congestion;
pub use shapes::{Dumbbell, FatTree, Incast, ParkingLot};
pub use topology::{LinkId, Node, Topology};
pub use trace::Trace;
pub use tunnel::TunnelSpec;
pub use world::{FIRST_DATA_WITHIN, World, WorldConfig};
