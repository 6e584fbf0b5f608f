//! CAQM on hosts with an unchanged kernel. If both ends of a connection agree, data packets carry
//! requests for increases of the window in tags. Acknowledgements return the part of each request
//! that the ports on the path granted.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`network`] | the parameters that all hosts and ports of a network share |
//! | [`mod@reference`] | the names of these parameters in the reference kernel |
//! | [`interface`] | the interfaces at which tags are added and removed |
//! | [`programs`] | the kernel's programs for the algorithm, the negotiation and the tags |
//! | [`installation`] | switches CAQM on and off, and changes a running installation |
//! | [`status`], [`view`] | the installation, the traffic counters, and its connections |

mod display;
pub mod installation;
pub mod interface;
mod kernel_calls;
pub mod network;
pub mod programs;
pub mod reference;
pub mod status;
pub mod view;

pub use interface::InterfaceName;
pub use network::{Negotiation, Network};
pub use status::CaqmStatus;

/// The name by which sockets choose CAQM.
pub const NAME: &str = "caqm";
