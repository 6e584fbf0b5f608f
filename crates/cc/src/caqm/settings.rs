use std::fmt;
use std::ops::RangeInclusive;
use units::Span;

/// Declares the settings with their defaults, in the order of `struct caqm_params` of
/// `core/caqm.h`.
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $usual:expr,)*) => {
        /// The settings that all hosts and ports of a network share. CAQM replaces a value outside
        /// its bounds by the nearest bound.
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct CaqmSettings { $($(#[$doc])* pub $field: u32,)* }

        impl CaqmSettings {
            /// Returns the words of `struct caqm_params` of `core/caqm.h`.
            pub fn to_words(&self) -> [u32; 11] {
                [$(self.$field,)*]
            }

            /// Reads the words of [`Self::to_words`]. Checks no bounds.
            pub fn from_words(words: [u32; 11]) -> Self {
                let [$($field,)*] = words;
                Self { $($field,)* }
            }
        }

        impl Default for CaqmSettings {
            fn default() -> Self {
                Self { $($field: $usual,)* }
            }
        }
    };
}

settings! {
    /// The growth that a host requests per round trip, in eighths of [`Self::mtu_unit`].
    alpha: 8,
    /// Bytes that a refusal takes from the window.
    beta: 512,
    /// The smallest window, in segments.
    min_cwnd: 1,
    /// The largest window, in segments.
    max_cwnd: MOST_WINDOW,
    /// Bytes of answers that move the window by one segment.
    mtu_unit: 1024,
    /// Bytes of a hint's unit on data.
    data_hint_unit: 8,
    /// Bytes of a hint's unit on an acknowledgement.
    ack_hint_unit: 64,
    /// The round trip that alpha is defined for, in microseconds.
    rtt_standard_us: 200,
    /// The growth that a host requests per round trip, times the square root of the window in
    /// segments, in eighths of [`Self::mtu_unit`], if that is more than [`Self::alpha`]. 0 uses
    /// alpha alone, as the reference does.
    alpha_root: 28,
    /// Round trips without a refusal after which the window may double again; 0 means never, as in
    /// the reference.
    theta: 10,
    /// Index in [`Self::LOSS_LAWS`]. 1: every loss halves the window, as in the reference. 0: a
    /// loss halves the window only if no refusal announced the loss.
    loss_as_reference: 0,
}

/// A setting outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfBounds {
    /// The parameter's name, as in [`CaqmParameter::name`].
    pub setting: &'static str,
    /// The invalid value.
    pub value: u32,
    /// The range of valid values.
    pub bounds: RangeInclusive<u32>,
}

/// A parameter with its value and the values that CAQM accepts. The name is the reference kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaqmParameter {
    /// The name in the reference kernel, for example `alpha`.
    pub name: &'static str,
    /// The present value, in the unit of its field in [`CaqmSettings`].
    pub value: u32,
    /// The values that CAQM accepts unchanged.
    pub bounds: RangeInclusive<u32>,
}

impl CaqmSettings {
    /// The names of the values of `loss_as_reference`, by index.
    pub const LOSS_LAWS: [&str; 2] = ["announced", "reference"];

    /// Returns an error if the core would change any value.
    pub fn validate(&self) -> Result<(), OutOfBounds> {
        let wrong = self.parameters().into_iter().find(|one| !one.bounds.contains(&one.value));
        match wrong {
            Some(CaqmParameter { name, value, bounds }) => {
                Err(OutOfBounds { setting: name, value, bounds })
            }
            None => Ok(()),
        }
    }

    /// Returns every parameter with bounds. `rtt_standard` is in microseconds.
    pub fn parameters(&self) -> [CaqmParameter; 10] {
        let largest_min = MOST_MIN_WINDOW;
        [
            ("alpha", self.alpha, 1..=MOST_ALPHA),
            ("alpha_root", self.alpha_root, 0..=MOST_ROOT),
            ("theta", self.theta, 0..=MOST_THETA),
            ("beta", self.beta, 1..=MOST_UNIT),
            ("min_cwnd", self.min_cwnd, 1..=largest_min),
            ("max_cwnd", self.max_cwnd, self.min_cwnd.clamp(1, largest_min)..=MOST_WINDOW),
            ("mtu_unit", self.mtu_unit, 64..=MOST_UNIT),
            ("data_hint_unit", self.data_hint_unit, 1..=MOST_HINT_UNIT),
            ("ack_hint_unit", self.ack_hint_unit, 1..=MOST_HINT_UNIT),
            ("rtt_standard", self.rtt_standard_us, 1..=MOST_RTT_US),
        ]
        .map(|(name, value, bounds)| CaqmParameter { name, value, bounds })
    }

    /// Returns the value of the parameter with this name.
    pub fn parameter_mut(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "alpha" => &mut self.alpha,
            "alpha_root" => &mut self.alpha_root,
            "theta" => &mut self.theta,
            "beta" => &mut self.beta,
            "min_cwnd" => &mut self.min_cwnd,
            "max_cwnd" => &mut self.max_cwnd,
            "mtu_unit" => &mut self.mtu_unit,
            "data_hint_unit" => &mut self.data_hint_unit,
            "ack_hint_unit" => &mut self.ack_hint_unit,
            "rtt_standard" => &mut self.rtt_standard_us,
            _ => return None,
        })
    }

    /// Rounds down to microseconds. A value above the bounds is rounded up and stays above them.
    pub fn set_rtt_standard(&mut self, rtt: Span) {
        let nanos = rtt.nanos();
        let is_above = rtt > Span::from_micros(MOST_RTT_US.into());
        let micros = if is_above { nanos.div_ceil(1000) } else { nanos / 1000 };
        self.rtt_standard_us = u32::try_from(micros).unwrap_or(u32::MAX);
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

/// Bounds of the settings, as in `caqm_init` of `core/caqm.h`.
const MOST_UNIT: u32 = 65_536;
const MOST_HINT_UNIT: u32 = 1024;
const MOST_MIN_WINDOW: u32 = 1024;
const MOST_RTT_US: u32 = 1_000_000;
const MOST_WINDOW: u32 = 1 << 20;
const MOST_ALPHA: u32 = 32_767;
const MOST_ROOT: u32 = 64;
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
        for (nanos, is_valid) in
            [(999, false), (1999, true), (1_000_000_000, true), (1_000_000_001, false)]
        {
            let mut settings = usual;
            settings.set_rtt_standard(Span::from_nanos(nanos));
            assert_eq!(settings.validate().is_ok(), is_valid, "{nanos}");
        }
    }

    #[test]
    fn each_parameter_is_found_by_its_name_and_keeps_its_word() {
        let mut settings = CaqmSettings::default();
        for (number, parameter) in settings.parameters().iter().enumerate() {
            *settings.parameter_mut(parameter.name).unwrap() = 100 + number as u32;
        }
        let values = settings.parameters().map(|parameter| parameter.value);
        assert_eq!(values, std::array::from_fn(|number| 100 + number as u32));
        assert_eq!(CaqmSettings::from_words(settings.to_words()), settings);
    }
}
