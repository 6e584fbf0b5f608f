/// The reason why a text is not a valid quantity. The message gives a valid example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No valid number precedes the unit.
    #[error("`{text}` is not a {quantity}: write a number and a unit, for example {example}")]
    NotANumber {
        /// The whole text as the caller passed it.
        text: String,
        /// Noun for the expected quantity, such as `rate`.
        quantity: &'static str,
        /// Valid spellings of this quantity, such as `600mbit or 2.5gbit`.
        example: &'static str,
    },
    /// A bare number other than 0, for a quantity whose numbers need a unit.
    #[error("`{text}` has no unit: a {quantity} is written like {example}")]
    NoUnit {
        /// The whole text as the caller passed it.
        text: String,
        /// Noun for the expected quantity, such as `rate`.
        quantity: &'static str,
        /// Valid spellings of this quantity, such as `600mbit or 2.5gbit`.
        example: &'static str,
    },
    /// The letters after the number are none of the quantity's units.
    #[error("`{unit}` in `{text}` is not a unit of a {quantity}: use one of {known}")]
    UnknownUnit {
        /// The whole text as the caller passed it.
        text: String,
        /// Everything after the number, without surrounding white space.
        unit: String,
        /// Noun for the expected quantity, such as `rate`.
        quantity: &'static str,
        /// The usual units of this quantity, separated by commas.
        known: &'static str,
    },
    /// A bare number other than 0 for a [`Share`](crate::Share): `0.5` could be 0.5% or 50%.
    #[error("`{text}` is a share without a percent sign: write {choice}")]
    BareShare {
        /// The whole text as the caller passed it.
        text: String,
        /// The possible readings with a percent sign, such as `0.5% or 50%`.
        choice: String,
    },
    /// The text is none of the spellings of a [`Switch`](crate::Switch).
    #[error("`{text}` is neither on nor off: write on or off")]
    NoSwitch {
        /// The whole text as the caller passed it.
        text: String,
    },
    /// A number with a valid unit, but outside the bounds of the quantity.
    #[error("`{text}` is out of range for a {quantity}: {range}")]
    OutOfRange {
        /// The whole text as the caller passed it.
        text: String,
        /// Noun for the expected quantity, such as `rate`.
        quantity: &'static str,
        /// The bounds of this quantity, such as `at most 9 EB`.
        range: &'static str,
    },
}
