//! The control connection of iperf3: the messages of both sides and their encoding.

mod connection;
mod cookie;
mod lenient;
mod message;
mod parameters;
mod results;
mod state;

pub use connection::Control;
pub(crate) use connection::{is_transient, ready};
pub use cookie::Cookie;
pub use message::{LONGEST, LONGEST_PARAMETERS, Message, MessageError};
pub(crate) use parameters::{PERIODS_WISH, SERIES_WISH};
pub use parameters::{Parameters, ParametersError};
pub use results::{Results, StreamResult, count};
pub use state::State;
