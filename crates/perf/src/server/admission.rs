use super::refusal::{self, Refusal};
use crate::PerfError;
use crate::accounts::{Authenticator, REFUSED_AFTER};
use crate::control::{Control, Parameters, ready};
use crate::event::Stop;
use rustix::event::PollFlags;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

/// Admits a client with an account. Refuses any other client [`REFUSED_AFTER`] after the client's
/// parameters arrived. A client that waits for its refusal holds no session.
pub(super) fn admit(
    authenticator: &Authenticator<'_>,
    control: &Control,
    parameters: &mut Parameters,
    stop: &Stop,
) -> Result<(), Refusal> {
    let answer_at = Instant::now() + REFUSED_AFTER;
    let peer = control.peer();
    let token = parameters.authtoken.take();
    let denied = match authenticator.admit(token.as_deref(), SystemTime::now()) {
        Ok(user) => {
            tracing::info!("{peer} is {user}");
            return Ok(());
        }
        Err(denied) => denied,
    };
    let error = PerfError::Usage(format!("{peer} was refused: {denied}"));
    while !stop.is_called() {
        let left = answer_at.saturating_duration_since(Instant::now());
        // If the connection is closed in both directions, stop waiting. A client that closed only
        // its own direction still reads, and must not get the refusal earlier.
        let is_closed = |within| ready(control.socket().as_fd(), PollFlags::empty(), within);
        if left.is_zero() || is_closed(left.min(POLL_INTERVAL))? {
            break;
        }
    }
    Err(Refusal::new(refusal::AUTHORIZATION, error))
}

/// Maximum delay before the thread notices a call to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
