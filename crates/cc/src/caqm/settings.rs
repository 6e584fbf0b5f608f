use std::fmt;
use std::ops::RangeInclusive;

/// The settings that all hosts and ports of a network share. The core replaces a value outside its
/// bounds by the nearest bound.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaqmSettings {
    /// The growth that a host requests per round trip, in eighths of [`Self::mtu_unit`].
    pub alpha: u32,
    /// Bytes that a refusal takes from the window.
    pub beta: u32,
    /// The smallest window, in segments.
    pub min_cwnd: u32,
    /// The largest window, in segments.
    pub max_cwnd: u32,
    /// Bytes of answers that move the window by one segment.
    pub mtu_unit: u32,
    /// Bytes of a hint's unit on data.
    pub data_hint_unit: u32,
    /// Bytes of a hint's unit on an acknowledgement.
    pub ack_hint_unit: u32,
    /// The round trip that alpha is defined for, in microseconds.
    pub rtt_standard_us: u32,
    /// The growth that a host requests per round trip, times the square root of the window in
    /// segments, in eighths of [`Self::mtu_unit`], if that is more than [`Self::alpha`]. 0 uses
    /// alpha alone, as the reference does.
    pub alpha_root: u32,
    /// Round trips without a refusal after which the window may double again; 0 means never, as in
    /// the reference.
    pub theta: u32,
    /// 1: every loss halves the window, as in the reference. 0: a loss halves the window only if no
    /// refusal announced it.
    pub loss_as_reference: u32,
}

/// A setting outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfBounds {
    pub setting: &'static str,
    pub value: u32,
    pub bounds: RangeInclusive<u32>,
}

impl CaqmSettings {
    /// Returns an error if the core would change any value.
    pub fn validate(&self) -> Result<(), OutOfBounds> {
        let Self { alpha, beta, min_cwnd, max_cwnd, mtu_unit, .. } = *self;
        let Self { data_hint_unit, ack_hint_unit, rtt_standard_us, alpha_root, theta, .. } = *self;
        let all = [
            ("alpha", alpha, 1..=MOST_ALPHA),
            ("alpha_root", alpha_root, 0..=64),
            ("theta", theta, 0..=MOST_THETA),
            ("beta", beta, 1..=MOST_UNIT),
            ("min_cwnd", min_cwnd, 1..=1024),
            ("max_cwnd", max_cwnd, min_cwnd.clamp(1, 1024)..=MOST_WINDOW),
            ("mtu_unit", mtu_unit, 64..=MOST_UNIT),
            ("data_hint_unit", data_hint_unit, 1..=1024),
            ("ack_hint_unit", ack_hint_unit, 1..=1024),
            ("rtt_standard", rtt_standard_us, 1..=1_000_000),
        ];
        let wrong = all.into_iter().find(|(_, value, bounds)| !bounds.contains(value));
        match wrong {
            Some((setting, value, bounds)) => Err(OutOfBounds { setting, value, bounds }),
            None => Ok(()),
        }
    }
}

impl Default for CaqmSettings {
    fn default() -> Self {
        Self {
            alpha: 8,
            beta: 512,
            min_cwnd: 1,
            max_cwnd: MOST_WINDOW,
            mtu_unit: 1024,
            data_hint_unit: 8,
            ack_hint_unit: 64,
            rtt_standard_us: 200,
            alpha_root: 28,
            theta: 10,
            loss_as_reference: 0,
        }
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, value, bounds } = self;
        let (least, most) = (bounds.start(), bounds.end());
        write!(f, "CAQM's {setting} is {value}: choose a value from {least} to {most}")
    }
}

impl std::error::Error for OutOfBounds {}

/// As in `core/caqm.h`.
const MOST_UNIT: u32 = 65_536;
const MOST_WINDOW: u32 = 1 << 20;
const MOST_ALPHA: u32 = 32_767;
const MOST_THETA: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_out_of_bounds_setting_is_reported() {
        let usual = CaqmSettings::default();
        assert_eq!(usual.validate(), Ok(()));
        let wrong = CaqmSettings { alpha: 32_768, ..usual }.validate().unwrap_err();
        assert_eq!(wrong.to_string(), "CAQM's alpha is 32768: choose a value from 1 to 32767");
        assert!(CaqmSettings { theta: 1001, ..usual }.validate().is_err());
        assert!(CaqmSettings { min_cwnd: 10, max_cwnd: 9, ..usual }.validate().is_err());
        assert!(CaqmSettings { rtt_standard_us: 0, ..usual }.validate().is_err());
    }
}
