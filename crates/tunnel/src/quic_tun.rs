//! Compatibility with quic-tun (github.com/kungze/quic-tun): users of quic-tun can keep their
//! command lines, files and scripts. Both ends must be Weir, because the ends use Weir's protocol.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | flags, environment and files with quic-tun's keys |
//! | `configuration` | a server's or a client's configuration made from the settings |
//! | [`token`], [`http`] | tokens: texts that tell a server the target of a connection |
//! | [`source`] | the client's side: asks a file or an HTTP server for the token of a connection |
//! | [`classify`] | recognises SPICE and VNC by the first bytes |
//! | `tunnels` | the open tunnels, for `GET /tunnels` |

pub mod classify;
mod configuration;
pub mod http;
pub mod settings;
pub mod source;
pub mod token;
mod tunnels;

pub use configuration::{client_config, server_config};
pub(crate) use tunnels::serve;
pub use tunnels::{Record, Tunnels, TunnelsAt};
