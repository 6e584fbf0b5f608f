use super::{C, time_to_plateau};
use units::{Span, Time};

/// Congestion avoidance as in Linux: the window grows by a whole segment for each `price`
/// acknowledged segments, and time counts in jiffies.
#[derive(Debug, Clone, Default)]
pub(super) struct Linux {
    epoch: Option<Epoch>,
    price: f64,
    /// The jiffy and the window for which `price` was computed.
    priced: Option<(u64, f64)>,
    /// Segments acknowledged since the window last grew.
    counted: f64,
    /// Segments acknowledged since the friendly window last grew.
    friendly_counted: f64,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    /// The start of the epoch, in jiffies.
    start: u64,
    /// The time from the start to the plateau, in seconds.
    k: f64,
    plateau: f64,
    /// The window that Reno would have reached since the epoch began, in whole segments.
    friendly: f64,
}

impl Linux {
    pub(super) fn end_epoch(&mut self) {
        self.epoch = None;
        self.counted = 0.0;
    }

    pub(super) fn pause(&mut self, idle: Span) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle.nanos() / JIFFY.nanos();
        }
    }

    /// Returns the window after `segments` were acknowledged.
    pub(super) fn grown(
        &mut self,
        now: Time,
        window: f64,
        w_max: f64,
        segments: f64,
        min_rtt: Span,
    ) -> f64 {
        self.reprice(now.nanos() / JIFFY.nanos(), window, w_max, segments, min_rtt);
        let mut grown = window;
        // Segments counted at a higher `price` add at most one segment (`tcp_cong_avoid_ai`).
        if self.counted >= self.price {
            self.counted = 0.0;
            grown += 1.0;
        }
        self.counted += segments;
        if self.counted >= self.price {
            let more = (self.counted / self.price).floor();
            self.counted -= more * self.price;
            grown += more;
        }
        grown
    }

    /// Computes the price as `bictcp_update` does. The price of a jiffy is fixed, even if the
    /// window grows. If a round trip is shorter than a jiffy, Linux's CUBIC grows only because of
    /// the fixed price.
    fn reprice(&mut self, now: u64, window: f64, w_max: f64, segments: f64, min_rtt: Span) {
        self.friendly_counted += segments;
        let at = self.priced.map(|(at, _)| at);
        if self.priced.is_some_and(|(at, of)| of == window && now - at <= PRICED_FOR) {
            return;
        }
        if self.epoch.is_none() || at != Some(now) {
            self.priced = Some((now, window));
            self.price = self.price_at(now, window, w_max, segments, min_rtt);
        }
        let Some(epoch) = &mut self.epoch else { return };
        let each = (window * FRIENDLY_PRICE).floor();
        while self.friendly_counted > each {
            self.friendly_counted -= each;
            epoch.friendly += 1.0;
        }
        if epoch.friendly > window {
            self.price = self.price.min((window / (epoch.friendly - window)).floor());
        }
        self.price = self.price.max(CHEAPEST);
    }

    fn price_at(&mut self, now: u64, window: f64, w_max: f64, segments: f64, rtt: Span) -> f64 {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.friendly_counted = segments;
                *self.epoch.insert(Epoch {
                    start: now,
                    k: time_to_plateau(w_max, window) * ROOT,
                    plateau: w_max.max(window),
                    friendly: window,
                })
            }
        };
        let jiffies = now.saturating_sub(epoch.start) + rtt.nanos().div_ceil(JIFFY.nanos());
        let t = jiffies as f64 * JIFFY.secs_f64();
        // Truncate the distance from the plateau to whole segments. Below the plateau this raises
        // the target by up to a segment.
        let distance = (C * (t - epoch.k).abs().powi(3)).floor();
        let target = if t < epoch.k { epoch.plateau - distance } else { epoch.plateau + distance };
        let price =
            if target > window { (window / (target - window)).floor() } else { 100.0 * window };
        // Cap the price on an unknown path, so that the window soon reaches the path's capacity.
        if w_max == 0.0 { price.min(DEAREST_AT_FIRST) } else { price }
    }
}

/// The length of a jiffy with CONFIG_HZ=250.
const JIFFY: Span = Span::from_millis(4);
/// Jiffies for which a price holds: HZ / 32.
const PRICED_FOR: u64 = 7;
/// The factor of the kernel's `cubic_root`, which divides by three as 341/1024.
const ROOT: f64 = 0.999;
/// The price of the friendly window, in windows: 8 (1 + β) / 3 (1 − β) in eighths, as the kernel
/// rounds it.
const FRIENDLY_PRICE: f64 = 15.0 / 8.0;
const DEAREST_AT_FIRST: f64 = 20.0;
/// The minimum price, which lets the window grow by at most a half in a round trip.
const CHEAPEST: f64 = 2.0;
