use doctor::saved::CAPTURES;
use std::path::{Path, PathBuf};

/// The object that doctor judges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Machine,
    /// A host with a test server, `weir perf server` or iperf3 -s.
    Host(String),
    Recording(PathBuf),
    /// A recording that is built into the program.
    Example(String),
}

impl Subject {
    /// Whether doctor judges a recording instead of observing this machine.
    pub(super) fn is_recording(&self) -> bool {
        matches!(self, Self::Recording(_) | Self::Example(_))
    }

    /// Interprets the argument. The name of an existing file or directory, or a name that looks
    /// like a path, is a recording.
    pub(super) fn of(argument: Option<&str>) -> Self {
        let Some(text) = argument else { return Self::Machine };
        let path = Path::new(text);
        if path.is_dir() {
            let saved = [RECORDING, RESULTS, doctor::saved::JOURNAL].map(|name| path.join(name));
            if let Some(file) = saved.into_iter().find(|file| file.is_file()) {
                return Self::Recording(file);
            }
            if text.contains('/') {
                return Self::Recording(path.join(RECORDING));
            }
        }
        let is_capture =
            path.extension().is_some_and(|name| CAPTURES.iter().any(|one| name == *one));
        let looks_like_a_file = text.contains('/') || text.ends_with(".json") || is_capture;
        match looks_like_a_file || (path.exists() && !path.is_dir()) {
            true => Self::Recording(path.to_owned()),
            false => Self::Host(text.to_owned()),
        }
    }
}

/// Name of the recording's file in the directory of a report.
pub(super) const RECORDING: &str = "recording.json";
/// Name of the file with the results of `weir perf` or of a lab.
const RESULTS: &str = "results.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_recordings_are_distinguished() {
        assert_eq!(Subject::of(None), Subject::Machine);
        for host in ["server.example", "10.0.0.2", "fe80::1%eth0", "src"] {
            assert_eq!(Subject::of(Some(host)), Subject::Host(host.to_owned()));
        }
        for file in ["missing.json", "missing.pcapng", "/etc/hostname", "./slow"] {
            assert_eq!(Subject::of(Some(file)), Subject::Recording(file.into()));
        }
        assert_eq!(Subject::of(Some("/etc")), Subject::Recording("/etc/recording.json".into()));
    }
}
