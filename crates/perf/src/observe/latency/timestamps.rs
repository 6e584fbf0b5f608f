use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use units::{Span, Time};

#[derive(Debug, Clone, Copy)]
pub(super) struct Receipt {
    pub(super) length: usize,
    /// Time at which the thread read the datagram.
    pub(super) now: Time,
    /// The time that the datagram had been in the kernel when the thread read it. This time is
    /// subtracted from the round trip, because the thread's wait for a core is not part of the
    /// path.
    pub(super) lag: Span,
}

/// Asks the kernel for the timestamps that [`receive`] reads. If the kernel refuses, the lag stays
/// zero.
pub(super) fn ask_for_stamps(socket: &Socket) -> bool {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).is_ok()
}

/// Reads the next datagram; `None` if nothing has arrived.
pub(super) fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<Receipt>> {
    let mut control = nix::cmsg_space!(TimeSpec, [u8; 64]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
        other => other?,
    };
    let stamp = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(at) => Some(nanos(at.tv_sec(), at.tv_nsec())),
        _ => None,
    });
    // The timestamp is a time of the real-time clock. Only its distance from now counts, so a clock
    // that was set while the probe was in flight does no harm.
    let real = real_time();
    let lag = stamp.map_or(0, |stamp| age(real, stamp));
    Ok(Some(Receipt {
        length: message.bytes,
        now: probe::clock::now(),
        lag: Span::from_nanos(lag),
    }))
}

/// Detects that the real-time clock, which gives the timestamps, was set.
#[derive(Debug)]
pub(super) struct ClockJumps {
    /// Lead of the real-time clock over the monotonic clock.
    ahead: i128,
}

impl ClockJumps {
    pub(super) fn none_yet() -> Self {
        Self { ahead: ahead() }
    }

    /// True if the clock was set since the last call: earlier timestamps are then wrong.
    pub(super) fn happened(&mut self) -> bool {
        let before = std::mem::replace(&mut self.ahead, ahead());
        (self.ahead - before).abs() > JUMP
    }
}

fn ahead() -> i128 {
    let steady = probe::clock::now();
    i128::from(real_time()) - i128::from(steady.nanos())
}

fn real_time() -> u64 {
    let real = clock_gettime(ClockId::Realtime);
    nanos(real.tv_sec, real.tv_nsec)
}

/// Returns the age of a timestamp. An age too long for any queue means that the clock was set, and
/// counts as zero.
fn age(now: u64, stamp: u64) -> u64 {
    let age = now.saturating_sub(stamp);
    if age < OLDEST { age } else { 0 }
}

const OLDEST: u64 = 1_000_000_000;
/// Minimum change that counts as a jump, in nanoseconds; slewing (500 ppm at most) makes smaller
/// changes. A thread that loses its core between the two clock readings sees a false jump, which
/// does no harm.
const JUMP: i128 = 1_000_000;

fn nanos(seconds: i64, nanos: i64) -> u64 {
    (seconds.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(nanos.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_kernel_timestamp_is_zero_after_a_clock_step() {
        assert_eq!(age(1_000_500, 1_000_000), 500);
        assert_eq!(age(1_000_000, 1_000_500), 0);
        assert_eq!(age(3_600_000_000_000, 0), 0);
    }
}
