use super::{Counter as Width, Header};
use crate::options::TestOptions;
use crate::stream::{Budget, Counter, Ending, Lifecycle, OverBudgetPacer, Pace, option, payload};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use rustix::thread::ClockId;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use units::{Bytes, Span};

/// Numbers datagrams and sends them at the test's pace. If the kernel can segment (UDP_SEGMENT), a
/// call sends several datagrams, because the call is the main cost.
#[derive(Debug)]
pub(crate) struct UdpSender {
    width: Width,
    block: usize,
    datagrams: Vec<u8>,
    most: u64,
    segments: bool,
    pace: Option<Pace>,
    refusals: Refusals,
}

impl UdpSender {
    pub(crate) fn new(options: &TestOptions, socket: &UdpSocket) -> Self {
        let block = options.block_bytes();
        let burst = burst(options);
        let pace = Pace::of(options, burst.saturating_sub(LATENESS).max(burst / 2));
        let fitting = (MOST_BYTES / block).clamp(1, MOST_SEGMENTS) as u64;
        // Add one, because another datagram is due after a late timer.
        let wanted = pace.as_ref().map_or(fitting, |pace| pace.blocks_in(burst) + 1).min(fitting);
        let segments = wanted > 1
            && u16::try_from(block)
                .is_ok_and(|block| option::set_segment(socket.as_fd(), block).is_ok());
        let most = if segments { wanted } else { 1 };
        Self {
            width: Width::of(options.udp_wide_counters),
            block,
            datagrams: payload(options, block * most as usize),
            most,
            segments,
            pace,
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn run(
        &mut self,
        socket: &UdpSocket,
        lifecycle: &Lifecycle,
        budget: &Budget,
        sent: &Counter,
    ) -> Option<Ending> {
        if let Some(pace) = &mut self.pace {
            pace.begin(lifecycle.started());
        }
        let mut over_budget = OverBudgetPacer::default();
        let mut gone = 0u64;
        while lifecycle.may_send() {
            let due = self.pace.as_ref().map_or(u64::MAX, |pace| pace.wait(gone, lifecycle));
            if due == 0 {
                continue;
            }
            let mut count = budget.claim(due.min(self.most));
            if count == 0 {
                if !over_budget.is_due(None) {
                    continue;
                }
                count = 1;
            }
            while count > 0 {
                if !lifecycle.may_send() {
                    return None;
                }
                let now = count.min(self.most);
                self.number(gone, now);
                let bytes = &self.datagrams[..now as usize * self.block];
                match send(socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(_) => {
                        gone += now;
                        count -= now;
                        sent.add(now);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // The interface's queue is full. The next attempt reuses the sequence numbers.
                    Err(Errno::NOBUFS | Errno::NOMEM) => std::thread::sleep(QUEUE_REST),
                    Err(Errno::CONNREFUSED) => {
                        if self.refusals.is_final() {
                            return Some(Ending::Refused);
                        }
                    }
                    Err(_) if self.segments => self.do_without_segments(socket),
                    Err(Errno::MSGSIZE) => return Some(Ending::TooLarge { fits: fits(socket) }),
                    Err(errno) => return Some(Ending::of(errno)),
                }
            }
        }
        None
    }

    /// Writes the headers of the next `count` datagrams. `gone`: number of datagrams sent before.
    fn number(&mut self, gone: u64, count: u64) {
        let clock = rustix::time::clock_gettime(ClockId::Monotonic);
        let now = Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32);
        let datagrams = self.datagrams.chunks_exact_mut(self.block);
        for (number, datagram) in (gone + 1..).zip(datagrams.take(count as usize)) {
            Header::new(now, number).write(datagram, self.width);
        }
    }

    /// Switches to sending each datagram with its own call, in IP fragments if necessary, because
    /// the device cannot segment or a datagram exceeds its MTU.
    fn do_without_segments(&mut self, socket: &UdpSocket) {
        let _ = option::set_segment(socket.as_fd(), 0);
        self.segments = false;
        self.most = 1;
    }
}

/// Returns the length of a burst: the datagrams that are due in the time of a burst are sent back
/// to back, because a wakeup costs several times as much as a datagram. At four times the rate,
/// bursts are twice as frequent and twice as large: 6 kB at 100 Mbit/s (iperf3's timer allows 13
/// kB), 18 kB at 1 Gbit/s. A slow sender waits no longer than iperf3's timer, and mostly sends
/// single datagrams.
fn burst(options: &TestOptions) -> Span {
    let iperf3s = TestOptions::default().pacing_timer;
    if options.pacing_timer > iperf3s {
        return options.pacing_timer;
    }
    let Some(rate) = options.rate.filter(|rate| rate.bits_per_second() > 0) else {
        return SHORTEST_BURST;
    };
    let taken = Span::from_secs_f64((BURST_BIT_SECONDS / rate.bits_per_second() as f64).sqrt());
    taken.max(SHORTEST_BURST).min(options.pacing_timer)
}

/// Returns the maximum payload for the path MTU that the kernel knows for this connected socket.
fn fits(socket: &UdpSocket) -> Option<Bytes> {
    let (mtu, headers) = match socket.peer_addr().ok()?.ip().to_canonical() {
        IpAddr::V4(_) => (sockopt::ip_mtu(socket), 20 + 8),
        IpAddr::V6(_) => (sockopt::ipv6_mtu(socket), 40 + 8),
    };
    Some(Bytes::new(u64::from(mtu.ok()?).saturating_sub(headers)))
}

/// Tracks ICMP port-unreachable errors. An error may be forged or temporary, so the stream ends
/// only if errors continue to arrive.
#[derive(Debug, Default)]
struct Refusals {
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Refusals {
    fn is_final(&mut self) -> bool {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last > PERSISTENCE) {
            self.first = Some(now);
        }
        self.last = Some(now);
        self.first.is_some_and(|first| now - first > PERSISTENCE)
    }
}

/// This constant divided by the rate is the square of a burst's length: a burst lasts 500 µs at 80
/// Mbit/s.
const BURST_BIT_SECONDS: f64 = 20.0;
const SHORTEST_BURST: Span = Span::from_micros(100);
/// Maximum delay of a timer. The pacing quantum is shorter than a burst by this time.
const LATENESS: Span = Span::from_micros(50);
const QUEUE_REST: Duration = Duration::from_micros(100);
const PERSISTENCE: Duration = Duration::from_secs(2);
/// Limits of a call: the maximum payload in an IP packet, and UDP_MAX_SEGMENTS (linux/udp.h) of
/// kernels before 6.9.
const MOST_BYTES: usize = 65_507;
const MOST_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rate;

    fn at(rate: Rate, pacing_timer: Option<Span>) -> Span {
        let defaults = TestOptions::default();
        let pacing_timer = pacing_timer.unwrap_or(defaults.pacing_timer);
        burst(&TestOptions { rate: Some(rate), pacing_timer, ..defaults })
    }

    #[test]
    fn a_udp_burst_lasts_at_most_a_millisecond() {
        assert_eq!(at(Rate::from_mbit(1), None), Span::from_millis(1));
        assert_eq!(at(Rate::from_mbit(80), None), Span::from_micros(500));
        assert_eq!(at(Rate::from_mbit(320), None), Span::from_micros(250));
        assert_eq!(at(Rate::from_mbit(40_000), None), SHORTEST_BURST);
        assert_eq!(burst(&TestOptions::default()), SHORTEST_BURST);
    }

    #[test]
    fn a_requested_pacing_timer_is_kept() {
        let rate = Rate::from_mbit(100);
        for asked in [Span::from_micros(20), Span::from_micros(200), Span::from_millis(10)] {
            assert_eq!(at(rate, Some(asked)), asked);
        }
    }
}
