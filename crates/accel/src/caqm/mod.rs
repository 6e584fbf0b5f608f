//! CAQM's hosts in an unchanged kernel: connections whose both ends agreed ask in a tag for every increase of their
//! window, and answer what the ports on the way left of it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`network`] | the parameters that all hosts and ports of a network share |
//! | [`place`] | the interfaces at which tags are put on and taken off |
//! | [`programs`] | the algorithm, the negotiation and the tags, in the kernel |
//! | [`installation`] | on, off, changed while it runs |
//! | [`status`], [`view`] | what is installed, what passed, and how each connection fares |

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

/// As sockets choose it.
pub const NAME: &str = "caqm";
