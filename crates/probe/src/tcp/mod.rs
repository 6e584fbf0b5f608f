//! The kernel's data about TCP: `tcp_info`, all sockets of a namespace, congestion control.

mod congestion;
mod diag;
mod ended;
mod info;
mod of_socket;
mod sockets;
pub mod table;

pub use congestion::{CongestionInfo, Refused, congestion_control_of, set_congestion_control};
pub use diag::{Diag, Ends, RawSocket};
pub use ended::{EndedSockets, Notices};
pub use info::{CongestionState, TcpInfo, TcpState, TcpUse};
pub use of_socket::of_socket;
pub use sockets::{Filter, Memory, Queues, TcpSocket, Timer, connection, has_port, sockets};
