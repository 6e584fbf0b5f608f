//! Computes the ideal download time of a path.

use link::LinkConfig;
use units::{Bytes, Rate, Span};

/// The properties of a path that determine a download's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Path {
    pub(super) rate: Rate,
    pub(super) round_trip: Span,
    /// Mean share of the frames towards the client that are lost.
    pub(super) loss: f64,
}

impl Path {
    /// Reads the properties from the two directions of a link. `None` if the link has no rate.
    pub(super) fn of(there: &LinkConfig, back: &LinkConfig) -> Option<Self> {
        let rate = there.rate.mean_rate()?;
        let loss = there.loss.mean().fraction();
        let usable = rate.bits_per_second() > 0 && loss < 1.0;
        usable.then_some(Self { rate, round_trip: there.delay + back.delay, loss })
    }

    /// Returns the minimum time from before the connection is opened to the last byte: one round
    /// trip for SYN and SYN-ACK, one round trip for the request and the first byte, and the time to
    /// send the file at the path's goodput. In each of the first round trips, the server sends no
    /// more than the client's window of [`FIRST_WINDOWS`].
    pub(super) fn ideal(&self, file: Bytes) -> Span {
        let (mut left, mut takes) = (file.count() as f64, self.round_trip * 2);
        for window in FIRST_WINDOWS {
            let window = window.count() as f64;
            if left <= window {
                break;
            }
            left -= window;
            takes = takes + Span::from_secs_f64(window / self.goodput()).max(self.round_trip);
        }
        takes + Span::from_secs_f64(left / self.goodput())
    }

    /// Returns the minimum time for a client whose window never limits.
    pub(super) fn ideal_of_path(&self, file: Bytes) -> Span {
        self.round_trip * 2 + Span::from_secs_f64(file.count() as f64 / self.goodput())
    }

    /// Estimates the time of a download. Reno's and CUBIC's loss-limited rate is from Mathis et al.
    /// 1997.
    pub(super) fn expected(&self, file: Bytes, congestion: Option<&str>) -> Span {
        let goodput = match congestion {
            Some("cubic" | "reno") if self.loss > 0.0 => {
                let bound = MATHIS * SEGMENT / (self.round_trip.secs_f64() * self.loss.sqrt());
                self.goodput().min(bound)
            }
            _ => self.goodput(),
        };
        self.round_trip * 4 + Span::from_secs_f64(file.count() as f64 / goodput)
    }

    /// Returns the goodput in bytes of the file per second.
    fn goodput(&self) -> f64 {
        self.rate.bits_per_second() as f64 / 8.0 * (1.0 - self.loss) * SEGMENT / FRAME
    }
}

/// The first windows that a client of Linux advertises with `tcp_rmem`'s default of 131072
/// (net/ipv4/tcp_input.c, `tcp_init_buffer_space` and `tcp_adv_win_scale`: half of the buffer).
/// Over the emulated link Linux 6.18 advertised 64,256 bytes for the first round trip of data,
/// 80,512 for the second, and as much as needed from the third on.
pub(super) const FIRST_WINDOWS: [Bytes; 2] = [Bytes::new(64_256), Bytes::new(80_512)];
/// Sizes of the payload of a segment with timestamps, and of its Ethernet frame without the
/// checksum.
const SEGMENT: f64 = 1448.0;
const FRAME: f64 = 1514.0;
const MATHIS: f64 = 1.22;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate: &str, millis: u64, loss: f64) -> Path {
        let rate = rate.parse().unwrap();
        Path { rate, round_trip: Span::from_millis(millis), loss }
    }

    fn kbyte_s(file: Bytes, took: Span) -> u64 {
        (file.count() as f64 / 1024.0 / took.secs_f64()).round() as u64
    }

    #[test]
    fn the_ideal_time_follows_from_round_trips_rate_and_client_windows() {
        let file = Bytes::new(640 * 1024);
        let slow = path("12.5mbit", 35, 0.0);
        assert_eq!(kbyte_s(file, slow.ideal(file)), 1258);
        assert_eq!(kbyte_s(file, slow.ideal_of_path(file)), 1258);
        // 88 ms at 41.3 Mbit/s are 435 KB: each of the first two windows takes a round trip.
        let long = path("41.3mbit", 88, 0.0);
        assert_eq!(kbyte_s(file, long.ideal_of_path(file)), 2073);
        let all = 4.0 * 0.088 + (655_360.0 - 64_256.0 - 80_512.0) / long.goodput();
        assert!((long.ideal(file).secs_f64() - all).abs() < 1e-6);
        assert_eq!(kbyte_s(file, long.ideal(file)), (640.0 / all).round() as u64);
        // A file that fits into the first window does not wait for the second window.
        let small = Bytes::new(64_256);
        assert_eq!(long.ideal(small), long.ideal_of_path(small));
        let lossy = path("60.1mbit", 39, 0.01);
        assert_eq!(kbyte_s(file, lossy.ideal_of_path(file)), 3762);
    }

    #[test]
    fn loss_bounds_the_ideal_rate_of_cubic_and_not_of_bbr() {
        let (file, lossy) = (Bytes::new(8 << 20), path("60.1mbit", 39, 0.01));
        assert!(lossy.expected(file, Some("cubic")) > lossy.expected(file, Some("bbr")) * 10);
    }
}
