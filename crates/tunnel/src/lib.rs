//! TCP, UNIX and UDP carried over QUIC across lossy and long paths.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | what a tunnel is told by its file |
//! | [`identity`] | keys, pins, certificates: who is at the other end |
//! | [`access`] | which identity may reach which target, checked on the resolved address |

pub mod access;
pub mod config;
pub mod identity;
mod target;

pub use target::{HostPort, Target, TargetError};
