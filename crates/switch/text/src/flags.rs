//! Flags in the forms `+new-est`, `new|trk`, `0x3/0x7`.

use std::fmt::Write;

use super::error::{TextError, refuse};
use super::number::scan;

/// Names of flags by bit number. `kind`: the noun for these flags in error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlagNames {
    pub kind: &'static str,
    pub names: &'static [&'static str],
}

pub(crate) const TCP_FLAGS: FlagNames = FlagNames {
    kind: "TCP",
    names: &[
        "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
    ],
};

pub(crate) const CT_STATE: FlagNames = FlagNames {
    kind: "ct_state",
    names: &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"],
};

/// Reads `ct_state` flags by name, separated by spaces or commas: `trk,est`.
pub fn parse_connection_state(text: &str) -> Result<u16, TextError> {
    let mut state = 0;
    for name in text.split([',', ' ', '|']).filter(|name| !name.is_empty()) {
        let bit = CT_STATE.names.iter().position(|known| *known == name);
        state |=
            1 << bit.ok_or_else(|| refuse!("{name}: unknown connection tracking state flag"))?;
    }
    if state & TRACKED == 0 {
        return Err(refuse!("{text}: a tracked packet has the flag trk"));
    }
    Ok(state)
}

#[must_use]
pub fn print_connection_state(state: u16) -> String {
    let mut out = String::new();
    CT_STATE.print_list(&mut out, state.into());
    out
}

const TRACKED: u16 = 1 << 5;

impl FlagNames {
    pub(crate) fn all(self) -> u64 {
        (1 << self.names.len()) - 1
    }

    /// Reads the value and the mask. Without a mask, all bits must match.
    pub(crate) fn parse(self, text: &str) -> Result<(u128, u128), TextError> {
        if let Some((value, rest)) = scan(text, 0)
            && let Some((mask, _)) = rest.strip_prefix('/').and_then(|rest| scan(rest, 0))
        {
            let (value, mask) = (value & 0xffff_ffff, mask & 0xffff_ffff);
            if (value | mask) & !self.all() != 0 {
                return Err(self.unknown(text));
            }
            return Ok((value.into(), mask.into()));
        }
        if text.starts_with(['+', '-']) { self.parse_signed(text) } else { self.parse_list(text) }
    }

    fn parse_signed(self, text: &str) -> Result<(u128, u128), TextError> {
        let (mut value, mut mask) = (0, 0);
        let mut rest = text;
        while !rest.is_empty() {
            let set = rest.starts_with('+');
            if !set && !rest.starts_with('-') {
                return Err(refuse!(
                    "{rest}: {} must be preceded by '+' (for SET) or '-' (NOT SET)",
                    self.kind
                ));
            }
            rest = &rest[1..];
            let ends = |after: &str| after.is_empty() || after.starts_with(['+', '-']);
            let (bit, after) = self.named(rest, ends).ok_or_else(|| self.unknown(rest))?;
            if mask & bit != 0 {
                return Err(refuse!("{rest}: Each {} flag can be specified only once", self.kind));
            }
            mask |= bit;
            value |= if set { bit } else { 0 };
            rest = after;
        }
        Ok((value, mask))
    }

    fn parse_list(self, text: &str) -> Result<(u128, u128), TextError> {
        let mut value = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (bits, after) = if let Some((bits, after)) = scan(rest, 0) {
                if bits & !self.all() != 0 {
                    return Err(self.unknown(text));
                }
                (bits.into(), after)
            } else {
                let ends = |after: &str| after.is_empty() || after.starts_with('|');
                self.named(rest, ends).ok_or_else(|| self.unknown(text))?
            };
            value |= bits;
            rest = after.strip_prefix('|').unwrap_or(after);
        }
        Ok((value, u128::MAX))
    }

    fn named(self, text: &str, ends: impl Fn(&str) -> bool) -> Option<(u128, &str)> {
        self.names.iter().enumerate().find_map(|(index, name)| {
            let after = text.strip_prefix(name)?;
            ends(after).then_some((1 << index, after))
        })
    }

    fn unknown(self, text: &str) -> TextError {
        refuse!("{text}: unknown {} flag(s)", self.kind)
    }

    /// Prints `syn|ack` if the mask has all flags, otherwise `+syn-ack`.
    pub(crate) fn print(self, out: &mut String, value: u128, mask: u128) {
        let all = u128::from(self.all());
        if mask & all == all {
            return self.print_list(out, value);
        }
        if mask == 0 {
            out.push_str("0/0");
        }
        for bit in (0..128).filter(|bit| mask >> bit & 1 != 0) {
            out.push(if value >> bit & 1 != 0 { '+' } else { '-' });
            out.push_str(self.names.get(bit).copied().unwrap_or("[Unknown]"));
        }
    }

    pub(crate) fn print_list(self, out: &mut String, value: u128) {
        if value == 0 {
            out.push('0');
            return;
        }
        let start = out.len();
        for (bit, name) in self.names.iter().enumerate() {
            if value >> bit & 1 != 0 {
                if out.len() > start {
                    out.push('|');
                }
                out.push_str(name);
            }
        }
        let unknown = value & !u128::from(self.all());
        if unknown != 0 {
            let separator = if out.len() > start { "|" } else { "" };
            let _ = write!(out, "{separator}0x{unknown:x}");
        }
    }
}
