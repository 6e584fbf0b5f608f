use super::refusal::{self, Refusal};
use crate::PerfError;
use crate::accounts::{Gate, REFUSED_AFTER};
use crate::control::{Control, Parameters, ready};
use crate::event::Stop;
use rustix::event::PollFlags;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

/// Lets a client with an account pass. The refusal of any other leaves [`REFUSED_AFTER`] after its parameters came;
/// it holds no session meanwhile.
pub(super) fn admit(
    gate: &Gate<'_>,
    control: &Control,
    parameters: &mut Parameters,
    stop: &Stop,
) -> Result<(), Refusal> {
    let answer_at = Instant::now() + REFUSED_AFTER;
    let peer = control.peer();
    let token = parameters.authtoken.take();
    let denied = match gate.admit(token.as_deref(), SystemTime::now()) {
        Ok(user) => {
            tracing::info!("{peer} is {user}");
            return Ok(());
        }
        Err(denied) => denied,
    };
    let error = PerfError::Usage(format!("{peer} was refused: {denied}"));
    while !stop.is_called() {
        let left = answer_at.saturating_duration_since(Instant::now());
        // A connection that is closed both ways keeps no thread. A client that closed its own way still
        // listens, and must not hear the refusal earlier.
        let is_closed = |within| ready(control.socket().as_fd(), PollFlags::empty(), within);
        if left.is_zero() || is_closed(left.min(TURN))? {
            break;
        }
    }
    Err(Refusal::new(refusal::AUTHORIZATION, error))
}

/// How long a call to stop may go unheard.
const TURN: Duration = Duration::from_millis(100);
