use thiserror::Error;

/// Why a text is refused, as ovs-ofctl prints it after `ovs-ofctl: `.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TextError(pub String);

/// Makes a [`TextError`] with a formatted text.
macro_rules! refuse {
    ($($part:tt)*) => { $crate::error::TextError(format!($($part)*)) };
}

pub(crate) use refuse;
