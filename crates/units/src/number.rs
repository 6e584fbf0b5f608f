//! The common part of all quantities: a decimal number, then letters.

use crate::UnitError;

/// The name, notation and units of a quantity, for parsing and for error messages.
pub(crate) struct Grammar {
    pub(crate) quantity: &'static str,
    pub(crate) example: &'static str,
    pub(crate) known: &'static str,
    pub(crate) range: &'static str,
    /// Each unit in lower case, with its size in base units.
    pub(crate) units: &'static [(&'static str, f64)],
    /// The size of the unit that a bare number has, if bare numbers are allowed.
    pub(crate) bare: Option<f64>,
}

impl Grammar {
    /// Parses a quantity into base units, rounded to the nearest whole number.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        let number: f64 = digits.replace('_', "").parse().map_err(|_| UnitError::NotANumber {
            text: text.to_owned(),
            quantity: self.quantity,
            example: self.example,
        })?;
        let scale = self.scale(text, unit, number)?;
        let value = (number * scale).round();
        // 2^63 keeps sums and differences of any two quantities within 64 bits.
        if !value.is_finite() || value >= 9.2e18 {
            return Err(UnitError::OutOfRange {
                text: text.to_owned(),
                quantity: self.quantity,
                range: self.range,
            });
        }
        Ok(value as u64)
    }

    fn scale(&self, text: &str, unit: &str, number: f64) -> Result<f64, UnitError> {
        if unit.is_empty() {
            return match self.bare {
                Some(scale) => Ok(scale),
                None if number == 0.0 => Ok(1.0),
                None => Err(UnitError::NoUnit {
                    text: text.to_owned(),
                    quantity: self.quantity,
                    example: self.example,
                }),
            };
        }
        let lower = unit.to_ascii_lowercase();
        self.units.iter().find(|(name, _)| *name == lower).map(|(_, scale)| *scale).ok_or_else(
            || UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                quantity: self.quantity,
                known: self.known,
            },
        )
    }
}

/// Formats `value` in the largest unit that prints it exactly in at most three decimals, or else in
/// the base unit.
pub(crate) fn exact(value: u64, units: &[(&str, u64)]) -> String {
    for (name, scale) in units {
        if value < *scale {
            continue;
        }
        let thousandths = value as u128 * 1000;
        if thousandths.is_multiple_of(*scale as u128) {
            let scaled = thousandths / *scale as u128;
            let (whole, rest) = (scaled / 1000, scaled % 1000);
            let decimals = format!("{rest:03}");
            let decimals = decimals.trim_end_matches('0');
            let point = if decimals.is_empty() { "" } else { "." };
            return format!("{whole}{point}{decimals}{name}");
        }
    }
    let base = units.last().map_or("", |(name, _)| name);
    format!("{value}{base}")
}
