//! CAQM on hosts with an unchanged kernel. If both ends of a connection agree, data packets carry a
//! request for each increase of the window in a tag. Acknowledgements return what the ports on the
//! path left of it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`network`] | the parameters that all hosts and ports of a network share |
//! | [`place`] | the interfaces at which tags are added and removed |
//! | [`programs`] | the algorithm, the negotiation and the tags, in the kernel |
//! | [`installation`] | on, off, changed while it runs |
//! | [`status`], [`view`] | the installation, the traffic counters, and its connections |

pub mod installation;
mod kernel_calls;
pub mod network;
pub mod place;
pub mod programs;
pub mod status;
mod tell;
pub mod view;

pub use network::Network;
pub use place::Place;
pub use status::CaqmStatus;

/// The name by which sockets choose it.
pub const NAME: &str = "caqm";
