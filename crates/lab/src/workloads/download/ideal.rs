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

    /// Returns the minimum time for a client whose window never limits the server.
    pub(super) fn ideal_of_path(&self, file: Bytes) -> Span {
        self.round_trip * 2 + Span::from_secs_f64(file.count() as f64 / self.goodput())
    }

    /// Returns the minimum time of a sender that knows nothing of the path, and the number of round
    /// trips that this sender spends below the path's rate. The sender begins with
    /// [`FIRST_SEGMENTS`] and doubles in each round trip until the path is full, as BBR and CUBIC
    /// do. The client's window never limits, because each window of [`FIRST_WINDOWS`] is larger.
    pub(super) fn doubling(&self, file: Bytes) -> (Span, u32) {
        let (mut left, mut takes, mut rounds) = (file.count() as f64, self.round_trip * 2, 0);
        let full = self.goodput() * self.round_trip.secs_f64();
        let mut window = FIRST_SEGMENTS * SEGMENT;
        while window < full && left > window {
            left -= window;
            window *= 2.0;
            takes = takes + self.round_trip;
            rounds += 1;
        }
        (takes + Span::from_secs_f64(left / self.goodput()), rounds)
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
/// The first window of Linux and of BBR (RFC 6928).
const FIRST_SEGMENTS: f64 = 10.0;
const MATHIS: f64 = 1.22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::builtin::BUILTIN;
    use link::Loss;

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

    #[test]
    fn a_doubling_sender_spends_a_round_trip_for_each_window_below_the_path() {
        let file = Bytes::new(640 * 1024);
        // 35 ms at 12.5 Mbit/s are 36 segments: windows of 10 and 20 segments are too small.
        let slow = path("12.5mbit", 35, 0.0);
        let (takes, rounds) = slow.doubling(file);
        assert_eq!(rounds, 2);
        let expected = 4.0 * 0.035 + (655_360.0 - 30.0 * SEGMENT) / slow.goodput();
        assert!((takes.secs_f64() - expected).abs() < 1e-6);
        // A path of ten segments is full from the start.
        let short = path("6.3mbit", 19, 0.0);
        assert_eq!(short.doubling(file), (short.ideal_of_path(file), 0));
        // A file of one window needs no second window.
        let small = Bytes::new(14_480);
        assert_eq!(slow.doubling(small), (slow.ideal(small), 0));
    }

    /// The page's table is computed and not measured. A failure prints the row that the page should
    /// have.
    #[test]
    fn the_page_on_tcpa_has_what_an_ideal_sender_can_gain_on_each_path() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/tcpa.md");
        let page = std::fs::read_to_string(page).unwrap();
        let paths = paths_of_the_lab();
        assert_eq!(paths.len(), 12);
        for (name, path) in &paths {
            let row = row(name, path);
            assert!(page.contains(&row), "docs/internals/tcpa.md lacks this row:\n{row}");
        }
    }

    fn row(name: &str, path: &Path) -> String {
        let rtt = path.round_trip.secs_f64();
        let full = path.goodput() * rtt / SEGMENT;
        let (_, rounds) = path.doubling(Bytes::new(640 * 1024));
        let of = |file: u64| {
            let file = Bytes::new(file);
            let (doubling, ideal) = (path.doubling(file).0.secs_f64(), path.ideal(file).secs_f64());
            format!("{:.1} / {:.1} = {:.2}", doubling / rtt, ideal / rtt, doubling / ideal)
        };
        let files = [of(640 * 1024), of(8 << 20), of(25 << 20)].join(" | ");
        let rate = path.rate.mbit_per_second();
        format!("| {name} | {rate:.1} | {:.0} | {full:.0} | {rounds} | {files} |", rtt * 1e3)
    }

    /// Returns the paths of labs/tcpa.toml with their names.
    fn paths_of_the_lab() -> Vec<(String, Path)> {
        let lab = BUILTIN.iter().find(|lab| lab.name == "tcpa").unwrap();
        let lab: toml::Table = toml::from_str(lab.text).unwrap();
        let text = |table: &toml::Table, key: &str| {
            table.get(key).and_then(toml::Value::as_str).unwrap().to_owned()
        };
        let links = lab.get("link").and_then(toml::Value::as_array).unwrap().iter();
        let of = |link: &toml::Value| {
            let link = link.as_table().unwrap();
            let forward = link.get("forward").and_then(toml::Value::as_table).unwrap();
            let loss = forward.get("loss").and_then(toml::Value::as_str);
            let loss = loss.map_or(Loss::NONE, |loss| loss.parse().unwrap());
            let path = Path {
                rate: text(forward, "rate").parse().unwrap(),
                round_trip: text(link, "rtt").parse().unwrap(),
                loss: loss.mean().fraction(),
            };
            (text(link, "name"), path)
        };
        links.map(of).collect()
    }
}
