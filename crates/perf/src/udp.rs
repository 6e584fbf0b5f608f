//! UDP streams: the header of a datagram, the opening exchange, exact counting of arrivals.

mod arrivals;
mod header;
mod opening;
mod receiver;
mod sender;

pub use arrivals::{Arrival, Arrivals, WINDOW};
pub use header::{Counter, Header};
pub use opening::{Hello, Opening, answer, is_answer, is_hello};

pub(crate) use receiver::UdpReceiver;
pub(crate) use sender::UdpSender;

use crate::PerfError;
use crate::options::TestOptions;

/// Checks that a datagram of this size has room for its header and does not exceed UDP's maximum.
pub fn check_block(options: &TestOptions) -> Result<(), PerfError> {
    let block = options.block_bytes();
    if (LEAST_BLOCK..=MOST_BLOCK).contains(&block) {
        return Ok(());
    }
    Err(PerfError::Usage(format!(
        "datagrams of {block} bytes were requested: between {LEAST_BLOCK} (the header) and {MOST_BLOCK} are possible"
    )))
}

/// Minimum size of a datagram: iperf3 requires room for the header with a wide counter in any case.
const LEAST_BLOCK: usize = 16;
const MOST_BLOCK: usize = 65_507;
