use crate::LinkError;
use crate::random::Stream;
use crate::text::{Term, terms};
use units::Span;

/// The variation of the propagation delay from packet to packet.
///
/// Written `1ms` or `1ms,uniform` (the delay ± up to 1 ms) or `1ms,normal` (a standard deviation of
/// 1 ms, cut at six standard deviations). With `,reorder`, a packet with a shorter delay may
/// overtake. Without `,reorder` packets keep their order: a packet that would overtake arrives
/// together with the packet before it. `none` means no jitter. A delay never becomes negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// Largest deviation from the delay (uniform), or its standard deviation (normal); at most an
    /// hour. Zero means no jitter.
    pub spread: Span,
    /// Distribution of the deviation.
    pub shape: JitterShape,
    /// Whether a packet may overtake packets that departed before it.
    pub reorder: bool,
}

/// Distribution of a packet's deviation from the propagation delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JitterShape {
    /// All deviations up to the spread, on either side, are equally likely.
    #[default]
    Uniform,
    /// A normal distribution, cut at six standard deviations.
    Normal,
}

impl Jitter {
    /// Every packet has exactly the propagation delay.
    pub const NONE: Self = Self { spread: Span::ZERO, shape: JitterShape::Uniform, reorder: false };

    /// Checks that the spread is at most an hour.
    pub fn validate(&self) -> Result<(), LinkError> {
        if self.spread > LONGEST {
            return Err(LinkError::invalid(
                "jitter",
                format!("of {} is too long: at most {LONGEST}", self.spread),
            ));
        }
        Ok(())
    }

    /// Draws the delay of one packet around `delay`.
    #[inline]
    pub(crate) fn vary(&self, delay: Span, random: &mut Stream) -> Span {
        if self.spread == Span::ZERO {
            return delay;
        }
        let deviation = match self.shape {
            JitterShape::Uniform => random.unit() * 2.0 - 1.0,
            JitterShape::Normal => normal(random),
        };
        let offset = (deviation * self.spread.nanos() as f64).round() as i64;
        Span::from_nanos(delay.nanos().saturating_add_signed(offset))
    }

    /// Returns the shortest delay that [`Self::vary`] can draw around `delay`.
    pub(crate) fn shortest(&self, delay: Span) -> Span {
        match self.shape {
            JitterShape::Uniform => delay - self.spread,
            JitterShape::Normal => delay - self.spread * 6,
        }
    }
}

impl std::str::FromStr for Jitter {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let mut parts = terms(text);
        let spread = match parts.next() {
            Some(Term::Word("none")) => Span::ZERO,
            Some(Term::Word(spread)) => spread.parse()?,
            _ => {
                return Err(LinkError::UnknownForm {
                    what: "jitter",
                    found: text.to_owned(),
                    hint: String::new(),
                    known: "`none`, `1ms`, `1ms,normal` or `1ms,uniform,reorder`",
                });
            }
        };
        let mut jitter = Self { spread, ..Self::NONE };
        for term in parts {
            match term {
                Term::Word("uniform") => jitter.shape = JitterShape::Uniform,
                Term::Word("normal") => jitter.shape = JitterShape::Normal,
                Term::Word("reorder") => jitter.reorder = true,
                other => return Err(other.unknown("jitter", &["uniform", "normal", "reorder"])),
            }
        }
        jitter.validate()?;
        Ok(jitter)
    }
}

impl std::fmt::Display for Jitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::NONE {
            return f.pad("none");
        }
        let shape = match self.shape {
            JitterShape::Uniform => "",
            JitterShape::Normal => ",normal",
        };
        let reorder = if self.reorder { ",reorder" } else { "" };
        f.pad(&format!("{}{shape}{reorder}", self.spread))
    }
}

units::as_text!(Jitter, "a jitter such as \"1ms,normal\"");

/// Draws a normal number: the sum of twelve uniform numbers minus six, which has mean 0 and
/// variance 1. The distribution of the sum lies within 0.2 % of the normal distribution, and no
/// step rounds differently on another platform. Each uniform number takes 16 bits.
fn normal(random: &mut Stream) -> f64 {
    let mut sum = 0;
    for _ in 0..3 {
        let bits = random.bits();
        sum += (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    }
    // Add twelve times half a step, because each number stands for the middle of its interval.
    (sum as f64 + 6.0) / 65536.0 - 6.0
}

const LONGEST: Span = Span::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(jitter: Jitter, delay: Span) -> (f64, f64, f64, f64) {
        let mut random = Stream::new(3, "jitter");
        let values: Vec<f64> =
            (0..200_000).map(|_| jitter.vary(delay, &mut random).millis_f64()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let min = values.iter().copied().fold(f64::MAX, f64::min);
        let max = values.iter().copied().fold(f64::MIN, f64::max);
        (mean, variance.sqrt(), min, max)
    }

    #[test]
    fn uniform_jitter_has_the_configured_mean_and_deviation() {
        let (mean, deviation, min, max) = moments("3ms".parse().unwrap(), Span::from_millis(10));
        assert!((mean - 10.0).abs() < 0.02, "{mean}");
        assert!((deviation - 3.0 / 3f64.sqrt()).abs() < 0.02, "{deviation}");
        assert!((7.0..7.01).contains(&min) && (12.99..=13.0).contains(&max));
    }

    #[test]
    fn normal_jitter_has_the_configured_deviation() {
        let jitter: Jitter = "1ms,normal".parse().unwrap();
        let (mean, deviation, min, max) = moments(jitter, Span::from_millis(10));
        assert!((mean - 10.0).abs() < 0.01, "{mean}");
        assert!((deviation - 1.0).abs() < 0.01, "{deviation}");
        assert!((4.0..6.5).contains(&min) && (13.5..16.0).contains(&max), "{min} {max}");
    }

    #[test]
    fn a_delay_is_never_negative() {
        let (.., min, _) = moments("5ms,normal".parse().unwrap(), Span::from_millis(1));
        assert_eq!(min, 0.0);
    }
}
