use probe::tcp::TcpUse;
use serde::Serialize;
use units::{Share, Span};

/// The limits that kept a sender waiting, as shares of the elapsed time. The sum of the shares is
/// 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LimitedBy {
    /// The application gave nothing to send.
    pub application: Share,
    /// The receiver's window was full.
    pub receive_window: Share,
    /// The local send buffer was too small to fill the window.
    pub send_buffer: Share,
    /// Busy time without any of the limits above, while the samples show a saturated link. Zero in
    /// [`Self::of`]: only the samples of a whole test show a saturated link.
    pub full_link: Share,
    /// Busy time without any of the limits above: limited by congestion control, the path, or this
    /// host.
    pub congestion: Share,
}

impl LimitedBy {
    /// Computes the shares; `None` if the kernel does not report the times, or no time has passed.
    pub fn of(used: &TcpUse) -> Option<Self> {
        // The kernel counts these times in ticks (tcp_get_info_chrono_stats, net/ipv4/tcp.c). Over
        // a short time, `busy` may slightly exceed the elapsed time, and a limited time may exceed
        // `busy`.
        let busy = used.busy?;
        let elapsed = used.elapsed.max(busy);
        let rwnd = used.rwnd_limited?.min(busy);
        let sndbuf = used.sndbuf_limited?.min(busy - rwnd);
        let share = |part: Span| Share::new(part.nanos() as f64 / elapsed.nanos() as f64);
        Some(Self {
            application: share(elapsed - busy)?,
            receive_window: share(rwnd)?,
            send_buffer: share(sndbuf)?,
            full_link: Share::default(),
            congestion: share(busy - rwnd - sndbuf)?,
        })
    }

    pub(super) fn percents(&self) -> [f64; 4] {
        [self.application, self.receive_window, self.send_buffer, self.congestion]
            .map(Share::percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn used(elapsed: u64, busy: u64, rwnd: u64, sndbuf: u64) -> TcpUse {
        let info = |busy, rwnd, sndbuf| {
            let mut bytes = [0_u8; 200];
            for (offset, value) in [(168, busy), (176, rwnd), (184, sndbuf)] {
                bytes[offset..offset + 8].copy_from_slice(&u64::to_ne_bytes(value));
            }
            probe::tcp::TcpInfo::from_bytes(&bytes)
        };
        info(busy, rwnd, sndbuf).since(&info(0, 0, 0), Span::from_micros(elapsed))
    }

    #[test]
    fn tcp_busy_time_contains_the_waits_for_window_and_buffer() {
        let limited = LimitedBy::of(&used(1000, 600, 100, 200)).unwrap();
        let near = |share: Share, percent: f64| (share.percent() - percent).abs() < 1e-9;
        assert!(near(limited.application, 40.0));
        assert!(near(limited.receive_window, 10.0));
        assert!(near(limited.send_buffer, 20.0));
        assert!(near(limited.congestion, 30.0));
        assert_eq!(LimitedBy::of(&used(0, 0, 0, 0)), None);
        assert_eq!(LimitedBy::of(&TcpUse::default()), None);
    }

    proptest! {
        #[test]
        fn the_shares_of_limits_add_up_to_one_for_any_kernel_counts(
            elapsed in 1_u64..1 << 40,
            busy in 0_u64..1 << 40,
            rwnd in 0_u64..1 << 40,
            sndbuf in 0_u64..1 << 40,
        ) {
            let limited = LimitedBy::of(&used(elapsed, busy, rwnd, sndbuf)).unwrap();
            prop_assert!((limited.percents().iter().sum::<f64>() - 100.0).abs() < 1e-6);
        }
    }
}
