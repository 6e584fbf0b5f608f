/// The reason why a text is not a valid quantity. The message gives a valid example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{text}` is not a {quantity}: write a number and a unit, for example {example}")]
    NotANumber { text: String, quantity: &'static str, example: &'static str },
    #[error("`{text}` has no unit: a {quantity} is written like {example}")]
    NoUnit { text: String, quantity: &'static str, example: &'static str },
    #[error("`{unit}` in `{text}` is not a unit of a {quantity}: use one of {known}")]
    UnknownUnit { text: String, unit: String, quantity: &'static str, known: &'static str },
    #[error("`{text}` is a share without a percent sign: write {choice}")]
    BareShare { text: String, choice: String },
    #[error("`{text}` is neither on nor off: write on or off")]
    NoSwitch { text: String },
    #[error("`{text}` is out of range for a {quantity}: {range}")]
    OutOfRange { text: String, quantity: &'static str, range: &'static str },
}
