//! The protocols in which applications name their own targets to a client: SOCKS5 and HTTP's
//! CONNECT. Pure: these modules neither wait nor do I/O.

pub mod connect;
pub mod socks5;
mod users;

pub use users::{Users, UsersError};
