//! A port as an argument: a number, not a name such as `https`.

/// Parses a port; 0 stands for any free port.
pub(crate) fn or_any(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| WRITE.to_owned())
}

pub(crate) fn named(text: &str) -> Result<u16, String> {
    or_any(text).ok().filter(|port| *port > 0).ok_or_else(|| WRITE.to_owned())
}

const WRITE: &str = "write a number from 1 to 65535";
