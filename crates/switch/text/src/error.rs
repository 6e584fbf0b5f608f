use thiserror::Error;

/// The reason for which a text is refused, in the words that ovs-ofctl prints after `ovs-ofctl: `.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TextError(pub String);

/// Builds a [`TextError`] from a format string.
macro_rules! refuse {
    ($($part:tt)*) => { $crate::error::TextError(format!($($part)*)) };
}

pub(crate) use refuse;
