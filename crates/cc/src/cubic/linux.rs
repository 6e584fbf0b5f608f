use super::{C, time_to_plateau};
use units::{Span, Time};

/// Congestion avoidance as Linux does it: the window grows by a whole segment for each `price`
/// acknowledged.
#[derive(Debug, Clone, Default)]
pub(super) struct Linux {
    epoch: Option<Epoch>,
    price: f64,
    /// When the price was computed, and for which window.
    priced: Option<(Time, f64)>,
    /// Acknowledged since the window last grew.
    counted: f64,
    /// Acknowledged since the friendly window last grew.
    friendly_counted: f64,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Time,
    k: f64,
    plateau: f64,
    /// What Reno would have reached, in whole segments.
    friendly: f64,
}

impl Linux {
    pub(super) fn end_epoch(&mut self) {
        self.epoch = None;
        self.counted = 0.0;
    }

    pub(super) fn pause(&mut self, idle: Span) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    /// The window after `segments` were acknowledged.
    pub(super) fn grown(
        &mut self,
        now: Time,
        window: f64,
        w_max: f64,
        segments: f64,
        min_rtt: Span,
    ) -> f64 {
        self.friendly_counted += segments;
        let fresh = self.priced.is_some_and(|(at, of)| of == window && now.since(at) < PRICED_FOR);
        if !fresh {
            self.priced = Some((now, window));
            self.price = self.price_at(now, window, w_max, segments, min_rtt);
        }
        let mut grown = window;
        // What was counted at a higher price buys one segment, no more (`tcp_cong_avoid_ai`).
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

    fn price_at(
        &mut self,
        now: Time,
        window: f64,
        w_max: f64,
        segments: f64,
        min_rtt: Span,
    ) -> f64 {
        let epoch = match &mut self.epoch {
            Some(epoch) => epoch,
            None => {
                self.friendly_counted = segments;
                self.epoch.insert(Epoch {
                    start: now,
                    k: time_to_plateau(w_max, window),
                    plateau: w_max.max(window),
                    friendly: window,
                })
            }
        };
        let t = (now.since(epoch.start) + min_rtt).secs_f64();
        let target = (C * (t - epoch.k).powi(3) + epoch.plateau).floor();
        let mut price =
            if target > window { (window / (target - window)).floor() } else { 100.0 * window };
        // Where nothing is known of the path it must not take for ever to find out.
        if w_max == 0.0 {
            price = price.min(DEAREST_AT_FIRST);
        }
        let each = (window * FRIENDLY_PRICE).floor();
        while self.friendly_counted > each {
            self.friendly_counted -= each;
            epoch.friendly += 1.0;
        }
        if epoch.friendly > window {
            price = price.min((window / (epoch.friendly - window)).floor());
        }
        price.max(CHEAPEST)
    }
}

/// 1/32 of a second in ticks of 4 ms (CONFIG_HZ=250): more than seven of them.
const PRICED_FOR: Span = Span::from_millis(32);
/// In windows: 8 (1 + β) / 3 (1 − β) in eighths, as the kernel rounds it.
const FRIENDLY_PRICE: f64 = 15.0 / 8.0;
const DEAREST_AT_FIRST: f64 = 20.0;
/// At most half as much again in a round trip.
const CHEAPEST: f64 = 2.0;
