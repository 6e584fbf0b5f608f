use super::{Arrival, Counter, Header};
use crate::options::TestOptions;
use crate::stream::{Ending, Lifecycle};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use rustix::io::Errno;
use rustix::thread::ClockId;
use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use units::Time;

/// Reads datagrams in batches, each with the time at which the kernel received it. Without this
/// time, the delay in the socket's queue would count as jitter.
#[derive(Debug)]
pub(crate) struct UdpReceiver {
    counter: Counter,
    room: Vec<u8>,
    /// Buffer size for a datagram.
    slot: usize,
    batch: Vec<Arrival>,
    /// True if the kernel timestamps each datagram.
    is_stamped: bool,
}

impl UdpReceiver {
    pub(crate) fn new(options: &TestOptions, socket: &UdpSocket) -> Self {
        let counter = Counter::of(options.udp_wide_counters);
        // With `skip_receive_copy`, read only the headers; the kernel reports each datagram's
        // length.
        let slot = if options.skip_receive_copy {
            counter.header_bytes()
        } else {
            options.block_bytes().max(counter.header_bytes())
        };
        // Without timestamps, a datagram's time is the time of the read, as in iperf3.
        let is_stamped = setsockopt(socket, ReceiveTimestampns, &true).is_ok();
        let room = vec![0; slot * BATCH];
        Self { counter, room, slot, batch: Vec::with_capacity(BATCH), is_stamped }
    }

    /// Reads until the lifecycle ends. After a cut, reads until the queue has no datagram that
    /// arrived before the cut.
    pub(crate) fn run(
        &mut self,
        socket: &UdpSocket,
        lifecycle: &Lifecycle,
        mut count: impl FnMut(&[Arrival]),
    ) -> Option<Ending> {
        let mut headers = MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(TimeSpec)));
        while !lifecycle.is_over() {
            match self.receive(socket, &mut headers) {
                Ok(()) => {
                    let cut = lifecycle.cut_at();
                    self.leave_out_later(cut);
                    if cut.is_some() && self.batch.is_empty() {
                        return None;
                    }
                    count(&self.batch);
                }
                Err(Errno::AGAIN) if lifecycle.cut_at().is_some() => return None,
                // CONNREFUSED: an ICMP error for the datagram that opened the stream.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => {}
                Err(errno) => return (!lifecycle.is_over()).then(|| Ending::of(errno)),
            }
        }
        None
    }

    /// Drops datagrams that arrived after the cut, and the zero-length result of a read that only
    /// the shutdown of the socket woke.
    fn leave_out_later(&mut self, cut: Option<Time>) {
        let Some(cut) = cut else { return };
        let cut = i64::try_from(cut.nanos()).unwrap_or(i64::MAX);
        let is_stamped = self.is_stamped;
        let is_in_time = |arrival: &Arrival| !is_stamped || arrival.nanos <= cut;
        self.batch.retain(|arrival| arrival.bytes > 0 && is_in_time(arrival));
    }

    fn receive(&mut self, socket: &UdpSocket, headers: &mut MultiHeaders<()>) -> Result<(), Errno> {
        self.batch.clear();
        let mut slots: Vec<_> =
            self.room.chunks_exact_mut(self.slot).map(|slot| [IoSliceMut::new(slot)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE | MsgFlags::MSG_TRUNC;
        let messages = recvmmsg(socket.as_raw_fd(), headers, slots.iter_mut(), flags, None)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        let clocks = Clocks::read();
        for message in messages {
            let taken = message.cmsgs().into_iter().flatten().find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(at) => Some(clocks.steady(at)),
                _ => None,
            });
            let start = message.iovs().next().unwrap_or_default();
            self.batch.push(Arrival {
                header: Header::read(start, self.counter),
                bytes: message.bytes as u64,
                nanos: taken.unwrap_or(clocks.steady),
            });
        }
        Ok(())
    }
}

/// Readings of the monotonic and the real-time clock. The kernel's timestamps are times of the
/// real-time clock, which may jump.
struct Clocks {
    steady: i64,
    real: i64,
}

impl Clocks {
    fn read() -> Self {
        let nanos = |clock| {
            let time = rustix::time::clock_gettime(clock);
            time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
        };
        Self { steady: nanos(ClockId::Monotonic), real: nanos(ClockId::Realtime) }
    }

    /// Converts a timestamp to the monotonic clock. An age too long for any queue means that the
    /// real-time clock jumped, and counts as zero.
    fn steady(&self, stamp: TimeSpec) -> i64 {
        let stamp = stamp.tv_sec().saturating_mul(1_000_000_000).saturating_add(stamp.tv_nsec());
        let age = self.real.saturating_sub(stamp);
        self.steady - if (0..OLDEST).contains(&age) { age } else { 0 }
    }
}

const BATCH: usize = 64;
const OLDEST: i64 = 1_000_000_000;
