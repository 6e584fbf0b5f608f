use super::{ALPHA, C, time_to_plateau};
use units::{Span, Time};

/// An epoch of congestion avoidance (RFC 9438, 4.2 to 4.5).
#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch {
    start: Time,
    /// The time from the start until the cubic curve returns to its plateau, in seconds.
    pub(super) k: f64,
    pub(super) plateau: f64,
    /// The window in segments that Reno would have reached since the start.
    pub(super) w_est: f64,
}

impl Epoch {
    pub(super) fn new(now: Time, window: f64, w_max: f64) -> Self {
        // If HyStart++ ended slow start without a loss, the plateau is the current window.
        let plateau = w_max.max(window);
        Self { start: now, k: time_to_plateau(plateau, window), plateau, w_est: window }
    }

    pub(super) fn pause(&mut self, idle: Span) {
        self.start += idle;
    }

    /// Returns the window after `segments` were acknowledged.
    pub(super) fn grown(
        &mut self,
        now: Time,
        window: f64,
        cwnd_prior: f64,
        segments: f64,
        rtt: Span,
    ) -> f64 {
        let alpha = if self.w_est >= cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * segments / window;
        let t = now.since(self.start).secs_f64();
        if self.cubic(t) < self.w_est {
            return window.max(self.w_est);
        }
        let target = self.cubic(t + rtt.secs_f64()).clamp(window, 1.5 * window);
        window + (target - window) / window * segments
    }

    fn cubic(&self, t: f64) -> f64 {
        C * (t - self.k).powi(3) + self.plateau
    }
}
