use crate::UsageError;
use link::{Settings, Trace};
use std::io::Read;

/// Parses one setting. Reads the file that `trace` names, so that the process that receives the
/// settings needs no access to the file.
pub(crate) fn set(settings: &mut Settings, key: &str, value: &str) -> Result<(), UsageError> {
    settings.set(key, value, read_trace)
}

pub fn set_pair(settings: &mut Settings, pair: &str) -> Result<(), UsageError> {
    let (key, value) = Settings::pair(pair)?;
    set(settings, key, value)
}

fn read_trace(path: &str) -> Result<Trace, UsageError> {
    let unreadable = |source| UsageError::Unreadable { file: path.to_owned(), source };
    let file = host::open_regular_file(path.as_ref()).map_err(unreadable)?;
    let mut text = String::new();
    // A device file has no length. A limit keeps the file from filling the memory.
    let length = file.take(LARGEST_TRACE + 1).read_to_string(&mut text).map_err(unreadable)?;
    if length as u64 > LARGEST_TRACE {
        let problem =
            format!("{path} has more than {LARGEST_TRACE} bytes: shorten it; a trace repeats");
        return Err(UsageError::value("trace", problem));
    }
    Trace::parse(&text).map_err(|error| UsageError::value("trace", format!("{path}: {error}")))
}

/// Maximum length of a trace: a quarter of the control socket's limit for a message, enough for
/// some hours of a fast link.
const LARGEST_TRACE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_trace_is_read_from_its_file() {
        let mut settings = Settings::default();
        let missing = set_pair(&mut settings, "trace=/no/such/file").unwrap_err().to_string();
        assert!(missing.contains("; check the path"), "{missing}");
        let endless = set_pair(&mut settings, "trace=/dev/zero").unwrap_err().to_string();
        assert!(endless.contains("/dev/zero"), "{endless}");
        assert!(set_pair(&mut settings, "trace").unwrap_err().to_string().contains("KEY=VALUE"));
        assert!(settings.is_empty());
    }
}
