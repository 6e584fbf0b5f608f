use crate::LinkError;
use crate::text::{Term, terms};
use units::{Share, Span};

/// Delays a share of the packets by an extra time, within which later packets overtake them.
/// Written `1%,5ms`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reorder {
    /// The share of packets that are held back; zero means none.
    pub share: Share,
    /// The time for which packets are held back after the propagation delay.
    pub delay: Span,
}

impl Reorder {
    /// No packet is held back.
    pub const NONE: Self = Self { share: Share::ZERO, delay: Span::ZERO };

    /// Checks that a share above 0 has a delay above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        if !self.share.is_zero() && self.delay == Span::ZERO {
            return Err(LinkError::invalid(
                "reorder",
                "holds packets back by 0: give a delay behind the share, for example `1%,5ms`",
            ));
        }
        Ok(())
    }
}

impl std::str::FromStr for Reorder {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let unknown = |found: &str| LinkError::UnknownForm {
            what: "reordering",
            found: found.to_owned(),
            hint: units::did_you_mean(found, ["none"]),
            known: "a share and a delay such as `1%,5ms`, or `none`",
        };
        let parts: Vec<Term<'_>> = terms(text).collect();
        let reorder = match parts[..] {
            [Term::Word("none")] => Self::NONE,
            [Term::Word(share)] => {
                Self { share: share.parse().map_err(|_| unknown(text))?, delay: Span::ZERO }
            }
            [Term::Word(share), Term::Word(delay)] => {
                Self { share: share.parse()?, delay: delay.parse()? }
            }
            _ => return Err(unknown(text)),
        };
        reorder.validate()?;
        Ok(reorder)
    }
}

impl std::fmt::Display for Reorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::NONE {
            return f.pad("none");
        }
        f.pad(&format!("{},{}", self.share, self.delay))
    }
}

units::as_text!(Reorder, "a reordering such as \"1%,5ms\"");
