use units::{Span, Time};

/// The clock of Linux's timers. A timer is set in whole ticks and fires at a tick, never early. The
/// later a timer, the wider its slot of the wheel (`calc_wheel_index` in `kernel/time/timer.c`).
/// Without ticks a timer fires on time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(pub(crate) Span);

impl Ticks {
    /// Returns the span in whole ticks, rounded up (`usecs_to_jiffies`).
    pub(crate) fn whole(self, span: Span) -> Span {
        match self.0.nanos() {
            0 => span,
            tick => Span::from_nanos(span.nanos().div_ceil(tick).saturating_mul(tick)),
        }
    }

    /// Returns the time at which a timer fires that is set at `now` for `span`.
    pub(crate) fn after(self, now: Time, span: Span) -> Time {
        let tick = self.0.nanos();
        if tick == 0 {
            return now + span;
        }
        let wait = span.nanos().div_ceil(tick).max(1);
        let expires = now.nanos() / tick + wait;
        let mut shift = 0;
        while shift < WIDEST && wait >= SLOTS << shift {
            shift += LEVEL;
        }
        let slot = ((expires >> shift) + 1) << shift;
        Time::from_nanos(slot.saturating_mul(tick))
    }
}

/// LVL_SIZE - 1: the range of a level of the wheel, in its own slots.
const SLOTS: u64 = 63;
/// LVL_CLK_SHIFT: a level's slots are eight times as wide as the slots of the previous level.
const LEVEL: u32 = 3;
const WIDEST: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const HZ_250: Ticks = Ticks(Span::from_millis(4));

    fn fires(now_us: u64, millis: u64) -> u64 {
        let now = Time::ZERO + Span::from_micros(now_us);
        HZ_250.after(now, Span::from_millis(millis)).nanos() / 1_000_000
    }

    #[test]
    fn a_timer_fires_one_tick_late_at_most() {
        assert_eq!(fires(0, 4), 8);
        assert_eq!(fires(3_999, 4), 8);
        assert_eq!(fires(3_999, 3), 8);
        assert_eq!(fires(4_000, 201), 4 + 204 + 4);
    }

    /// From 63 ticks on, slots are eight ticks wide: 32 ms.
    #[test]
    fn a_distant_timer_fires_at_its_wide_slot() {
        assert_eq!(fires(0, 300), 320);
        assert_eq!(fires(20_000, 300), 320 + 32);
        assert_eq!(fires(0, 248), 252);
        assert_eq!(fires(0, 252), 256);
        assert_eq!(fires(4_000, 252), 288);
    }

    #[test]
    fn without_ticks_a_timer_fires_on_time() {
        let ticks = Ticks(Span::ZERO);
        let now = Time::ZERO + Span::from_micros(17);
        assert_eq!(ticks.after(now, Span::from_micros(5)).nanos(), 22_000);
        assert_eq!(ticks.whole(Span::from_micros(5)), Span::from_micros(5));
        assert_eq!(HZ_250.whole(Span::from_micros(201_200)), Span::from_millis(204));
    }
}
