use crate::options::Family;
use rustix::io::Errno;
use std::io;
use std::time::Duration;
use units::{Bytes, Span, foreign};

/// The reason why a measurement failed. The message is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    #[error("{0}")]
    Usage(String),
    #[error("{host} has no address{}", address_words(*.family, .reason.as_deref()))]
    NoAddress { host: String, family: Option<Family>, reason: Option<String> },
    #[error(
        "nobody listens at {peer}: start `weir perf server` or `iperf3 -s` there, or name its port with --port"
    )]
    Refused { peer: String },
    #[error("no answer from {peer} within {} s: the host is down, or a firewall drops what is sent there", .within.as_secs_f64())]
    NoAnswer { peer: String, within: Duration },
    #[error("no way to {peer}: {reason}{}", remedy(.reason))]
    Unreachable { peer: String, reason: io::Error },
    #[error("{peer} was told to try again later: {reason}")]
    Postponed { peer: String, reason: String },
    #[error("{peer} is busy with another test: try again later")]
    Busy { peer: String },
    #[error("{peer} refused: {}", foreign(.reason))]
    Denied { peer: String, reason: String },
    #[error("{peer} does not speak iperf3's protocol: {}", foreign(.saw))]
    NotIperf { peer: String, saw: String },
    #[error("{peer} said nothing for {} s while {doing}", .within.as_secs_f64())]
    Silent { peer: String, within: Duration, doing: &'static str },
    #[error("the file from {peer} did not arrive within {:.1} s: {} came, the last of it {} before", .within.as_secs_f64(), .came.shown(), .silent.shown())]
    Incomplete { peer: String, within: Duration, came: Bytes, silent: Span },
    #[error("{peer} closed the connection while {doing}: read the messages of the program there")]
    Gone { peer: String, doing: &'static str },
    #[error("{peer} ended the test")]
    EndedByPeer { peer: String },
    #[error("{peer} failed: {}", foreign(.reason))]
    PeerFailed { peer: String, reason: String },
    /// A local failure that the peer did not cause.
    #[error("the test with {peer} broke: {failure}")]
    Broken { peer: String, failure: crate::stream::StreamFailure },
    /// A stock iperf3 cannot do what the user asked for.
    #[error("{peer} is a stock iperf3, and {wanted} needs `weir perf server` at the far end")]
    NeedsWeir { peer: String, wanted: String },
    #[error("{what}: {source}{}", remedy(.source))]
    System { what: String, source: io::Error },
    #[error(transparent)]
    Probe(#[from] probe::ProbeError),
    #[error("interrupted")]
    Interrupted,
}

impl PerfError {
    pub fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System { what: what.into(), source }
    }

    /// True if the user's options are wrong; false if the measurement failed.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            // An address of --bind that this machine does not have.
            Self::System { source, .. } => source.kind() == io::ErrorKind::AddrNotAvailable,
            _ => false,
        }
    }
}

/// Returns advice for errors whose system message does not tell what to do.
fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            ": let this program open more with `ulimit -n`, or do with fewer streams or tests at once"
        }
        Some(Errno::NFILE) => ": raise this machine's fs.file-max",
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => {
            ": check the address, and the route to it with `ip route get`"
        }
        _ => "",
    }
}

/// Returns the words behind "HOST has no address". `reason`: the resolver's error; `None` if the
/// host has addresses of the other family only.
fn address_words(family: Option<Family>, reason: Option<&str>) -> String {
    match (reason, family) {
        (Some(reason), _) => {
            // The standard library's own words, which say no more than the sentence.
            let reason = reason.trim_start_matches("failed to lookup address information: ");
            format!(": {reason}; check the name and the name servers")
        }
        (None, Some(Family::V4)) => " in IPv4: leave out -4, or name another host".to_owned(),
        (None, Some(Family::V6)) => " in IPv6: leave out -6, or name another host".to_owned(),
        (None, None) => ": check the name and the name servers".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_file_limit_is_reported_with_a_remedy() {
        let reported =
            |errno: Errno| PerfError::system("opening a socket", errno.into()).to_string();
        let text = reported(Errno::MFILE);
        assert!(text.starts_with("opening a socket: Too many open files"), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
        assert!(reported(Errno::NFILE).contains("fs.file-max"));
        assert!(!reported(Errno::NODEV).contains("ulimit"));
        let reason = Errno::HOSTUNREACH.into();
        let text = PerfError::Unreachable { peer: "far".to_owned(), reason }.to_string();
        assert!(text.ends_with("with `ip route get`"), "{text}");
    }

    #[test]
    fn a_host_without_an_address_is_reported_with_the_resolvers_reason() {
        let reported = |family, reason: Option<&str>| {
            let (host, reason) = ("far".to_owned(), reason.map(str::to_owned));
            PerfError::NoAddress { host, family, reason }.to_string()
        };
        let failed = "failed to lookup address information: Temporary failure in name resolution";
        assert_eq!(
            reported(Some(Family::V4), Some(failed)),
            "far has no address: Temporary failure in name resolution; check the name and the name servers"
        );
        let text = reported(Some(Family::V4), None);
        assert_eq!(text, "far has no address in IPv4: leave out -4, or name another host");
        assert!(reported(None, None).ends_with("no address: check the name and the name servers"));
    }
}
