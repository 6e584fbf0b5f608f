use super::path::{PathConfig, Window, droptail};
use super::{Case, Effort, Layer, Measured};
use cc::Algorithm;
use units::{Bytes, Rate, Span};

/// Measured with Linux 6.18 over the emulated link: the lab `kernel-cells`, goodput in Mbit/s of
/// all flows together, from the third second to the eighth.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = MEASURED.iter().map(Cell::case).collect();
    for (name, every, expected) in [
        ("cubic 100 ms, one in 10000 lost", 10_000, 25.0),
        ("cubic 100 ms, one in 1000 lost", 1_000, 4.93),
    ] {
        cases.push(Case {
            name,
            layer: Layer::Kernel,
            unit: "Mbit/s",
            note: "Linux 6.18 over the emulated link at 600 Mbit/s, loss one way at regular distances",
            tolerance: TOLERANCE,
            measure: Box::new(move |effort| {
                let mut path = link_of(600, 100, Buffer::Deep);
                path.loses_every = Some(every);
                let run = path.run(Algorithm::Cubic, Window::of(effort, 40, 50, 200), effort.seed)?;
                Some(Measured { expected, measured: run.goodput() })
            }),
        });
    }
    cases
}

struct Cell {
    name: &'static str,
    algorithm: Algorithm,
    rate_mbit: u64,
    rtt_ms: u64,
    /// There and back, in per cent.
    loss: [f64; 2],
    buffer: Buffer,
    flows: usize,
    goodput: f64,
}

#[derive(Clone, Copy)]
enum Buffer {
    /// The larger of a bandwidth-delay product and 256 KiB.
    Deep,
    /// A fifth of a bandwidth-delay product.
    Shallow,
}

impl Cell {
    fn case(&'static self) -> Case {
        Case {
            name: self.name,
            layer: Layer::Kernel,
            unit: "Mbit/s",
            note: "Linux 6.18 over the emulated link (lab kernel-cells); here 50 µs more round trip for two hosts",
            tolerance: TOLERANCE,
            measure: Box::new(|effort| self.measure(effort)),
        }
    }

    /// The mean of enough runs like the measured ones for a reliable figure.
    fn measure(&self, effort: Effort) -> Option<Measured> {
        let mut path = link_of(self.rate_mbit, self.rtt_ms, self.buffer);
        path.loss = self.loss.map(|percent| percent / 100.0);
        path.flows = self.flows;
        // Without losses, or where they have no effect, all runs are alike.
        let least = if self.loss == [0.0; 2] || self.goodput > 500.0 { 1 } else { 2 };
        let runs = effort.seconds(2_700, 6_000) / (self.goodput as u64).max(1);
        let runs = runs.clamp(least, 64);
        let mut sum = 0.0;
        for run in 0..runs {
            sum += path.run(self.algorithm, Window::seconds(2, 6), effort.seed + run)?.goodput();
        }
        Some(Measured { expected: self.goodput, measured: sum / runs as f64 })
    }
}

fn link_of(rate_mbit: u64, rtt_ms: u64, buffer: Buffer) -> PathConfig {
    let rtt = Span::from_millis(rtt_ms);
    let mut path = PathConfig::new(Rate::from_mbit(rate_mbit), rtt);
    path.queue = droptail(match buffer {
        Buffer::Deep => path.bdp().max(Bytes::kib(256)),
        Buffer::Shallow => Bytes::new(path.bdp().count() / 5),
    });
    path.rtt = rtt + HOSTS;
    path.symmetric = true;
    path.hosts.coalesce = Some(READS_AFTER);
    path
}

macro_rules! measured {
    ($($name:literal $algorithm:ident $rate:literal $rtt:literal $loss:tt $buffer:ident $flows:literal $goodput:literal;)*) => {
        [$(Cell {
            name: $name,
            algorithm: Algorithm::$algorithm,
            rate_mbit: $rate,
            rtt_ms: $rtt,
            loss: $loss,
            buffer: Buffer::$buffer,
            flows: $flows,
            goodput: $goodput,
        },)*]
    };
}

/// Algorithm, Mbit/s, ms, loss there and back in per cent, buffer, flows, Mbit/s. The last is the
/// mean of runs whose losses differ, or the median if nothing is lost, with its 95 % interval.
static MEASURED: [Cell; 45] = measured! {
    "cubic 1 ms 0 %" Cubic 600 1 [0.0, 0.0] Deep 1 549.0; // 6 runs, ± 3.3 %
    "bbr 1 ms 0 %" Bbr 600 1 [0.0, 0.0] Deep 1 572.0; // one run
    "reno 1 ms 0 %" Reno 600 1 [0.0, 0.0] Deep 1 554.0; // 6 runs, ± 3.2 %
    "cubic 1 ms 0.1 %" Cubic 600 1 [0.1, 0.1] Deep 1 362.0; // 5 runs, ± 5.5 %
    "bbr 1 ms 0.1 %" Bbr 600 1 [0.1, 0.1] Deep 1 568.0; // one run
    "reno 1 ms 0.1 %" Reno 600 1 [0.1, 0.1] Deep 1 321.0; // 5 runs, ± 3.4 %
    "cubic 1 ms 0.5 %" Cubic 600 1 [0.5, 0.5] Deep 1 130.0; // 5 runs, ± 5.7 %
    "bbr 1 ms 0.5 %" Bbr 600 1 [0.5, 0.5] Deep 1 570.0; // 2 runs, ± 0.9 %
    "reno 1 ms 0.5 %" Reno 600 1 [0.5, 0.5] Deep 1 165.0; // 5 runs, ± 4.2 %
    "cubic 1 ms 1 %" Cubic 600 1 [1.0, 1.0] Deep 1 80.8; // 5 runs, ± 1.0 %
    "bbr 1 ms 1 %" Bbr 600 1 [1.0, 1.0] Deep 1 567.0; // one run
    "reno 1 ms 1 %" Reno 600 1 [1.0, 1.0] Deep 1 114.0; // 5 runs, ± 6.6 %
    "cubic 1 ms 5 %" Cubic 600 1 [5.0, 5.0] Deep 8 78.4; // 5 runs, ± 8.4 %
    "bbr 1 ms 5 %" Bbr 600 1 [5.0, 5.0] Deep 8 540.0; // one run
    "reno 1 ms 5 %" Reno 600 1 [5.0, 5.0] Deep 8 135.0; // 5 runs, ± 7.1 %
    "cubic 20 ms 0 %" Cubic 600 20 [0.0, 0.0] Deep 1 574.0; // 9 runs, ± 0.9 %
    "bbr 20 ms 0 %" Bbr 600 20 [0.0, 0.0] Deep 1 570.0; // one run
    "reno 20 ms 0 %" Reno 600 20 [0.0, 0.0] Deep 1 550.0; // 9 runs, ± 13.7 %
    "cubic 20 ms 0.1 %" Cubic 600 20 [0.1, 0.1] Deep 8 175.0; // 3 runs, ± 20.3 %
    "bbr 20 ms 0.1 %" Bbr 600 20 [0.1, 0.1] Deep 8 571.0; // one run
    "reno 20 ms 0.1 %" Reno 600 20 [0.1, 0.1] Deep 8 180.0; // 3 runs, ± 23.4 %
    "cubic 20 ms 1 %" Cubic 600 20 [1.0, 1.0] Deep 8 47.0; // 3 runs, ± 4.7 %
    "bbr 20 ms 1 %" Bbr 600 20 [1.0, 1.0] Deep 8 555.0; // 2 runs, ± 29.4 %
    "reno 20 ms 1 %" Reno 600 20 [1.0, 1.0] Deep 8 52.9; // 3 runs, ± 8.1 %
    "cubic 20 ms 5 %" Cubic 600 20 [5.0, 5.0] Deep 16 31.1; // 3 runs, ± 6.8 %
    "bbr 20 ms 5 %" Bbr 600 20 [5.0, 5.0] Deep 16 544.0; // 2 runs, ± 1.2 %
    "reno 20 ms 5 %" Reno 600 20 [5.0, 5.0] Deep 16 39.3; // 3 runs, ± 4.7 %
    "cubic 100 ms 1 %" Cubic 600 100 [1.0, 1.0] Deep 32 49.2; // 3 runs, ± 9.1 %
    "bbr 100 ms 1 %" Bbr 600 100 [1.0, 1.0] Deep 32 589.0; // 2 runs, ± 6.5 %
    "reno 100 ms 1 %" Reno 600 100 [1.0, 1.0] Deep 32 45.3; // 3 runs, ± 11.0 %
    "cubic 100 ms 5 %" Cubic 600 100 [5.0, 5.0] Deep 32 15.0; // 3 runs, ± 9.6 %
    "bbr 100 ms 5 %" Bbr 600 100 [5.0, 5.0] Deep 32 578.0; // 2 runs, ± 10.8 %
    "reno 100 ms 5 %" Reno 600 100 [5.0, 5.0] Deep 32 16.5; // 3 runs, ± 14.2 %
    "cubic 100 Mbit/s 10 ms 1 % there" Cubic 100 10 [1.0, 0.0] Deep 4 45.9; // 3 runs, ± 11.0 %
    "bbr 100 Mbit/s 10 ms 1 % there" Bbr 100 10 [1.0, 0.0] Deep 4 94.7; // 2 runs, ± 0.1 %
    "reno 100 Mbit/s 10 ms 1 % there" Reno 100 10 [1.0, 0.0] Deep 4 52.2; // 3 runs, ± 11.9 %
    "cubic 100 Mbit/s 20 ms shallow" Cubic 100 20 [0.0, 0.0] Shallow 1 82.1; // 13 runs, ± 3.5 %
    "bbr 100 Mbit/s 20 ms shallow" Bbr 100 20 [0.0, 0.0] Shallow 1 94.4; // 2 runs, ± 0.5 %
    "reno 100 Mbit/s 20 ms shallow" Reno 100 20 [0.0, 0.0] Shallow 1 74.7; // 13 runs, ± 3.2 %
    "cubic 100 Mbit/s 50 ms shallow" Cubic 100 50 [0.0, 0.0] Shallow 1 65.0; // 8 runs, ± 4.7 %
    "bbr 100 Mbit/s 50 ms shallow" Bbr 100 50 [0.0, 0.0] Shallow 1 93.8; // 2 runs, ± 5.1 %
    "reno 100 Mbit/s 50 ms shallow" Reno 100 50 [0.0, 0.0] Shallow 1 74.3; // 18 runs, ± 2.3 %
    "cubic 100 Mbit/s 50 ms 3 % there" Cubic 100 50 [3.0, 0.0] Deep 16 20.3; // 3 runs, ± 2.1 %
    "bbr 100 Mbit/s 50 ms 3 % there" Bbr 100 50 [3.0, 0.0] Deep 16 92.6; // 2 runs, ± 1.5 %
    "reno 100 Mbit/s 50 ms 3 % there" Reno 100 50 [3.0, 0.0] Deep 16 23.4; // 3 runs, ± 6.7 %
};
const TOLERANCE: f64 = 0.10;
/// The time that two hosts and the emulation add to a round trip at low rates: the lab's median of
/// TCP's smoothed RTT is 1.165 ms for 1 ms at 1 % loss, and here too.
const HOSTS: Span = Span::from_micros(50);
/// The time until the application reads: Linux sends an ACK then if the receive buffer is as large
/// as the window (`__tcp_ack_snd_check`). Its hosts send 0.40 to 0.50 ACKs for each segment of a
/// burst.
const READS_AFTER: Span = Span::from_micros(15);
