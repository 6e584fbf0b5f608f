use crate::recording::Refusal;
use perf::PerfError;
use std::io;

/// Returns the kind of failure that ended a test.
pub(super) fn of(error: &PerfError) -> Refusal {
    match error {
        PerfError::NoAddress { .. } => Refusal::Unknown,
        PerfError::Refused { .. } => Refusal::Refused,
        PerfError::NoAnswer { .. } => Refusal::Silent,
        PerfError::Unreachable { reason, .. } => of_system(reason).unwrap_or(Refusal::Unreachable),
        PerfError::Busy { .. } | PerfError::Denied { .. } => Refusal::Busy,
        PerfError::NotIperf { .. } => Refusal::Foreign,
        PerfError::System { source, .. } => of_system(source).unwrap_or(Refusal::Local),
        PerfError::Silent { .. }
        | PerfError::Incomplete { .. }
        | PerfError::Gone { .. }
        | PerfError::EndedByPeer { .. }
        | PerfError::PeerFailed { .. }
        | PerfError::Broken { .. } => Refusal::Broken,
        _ => Refusal::Local,
    }
}

fn of_system(error: &io::Error) -> Option<Refusal> {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => Some(Refusal::NoPort),
        io::ErrorKind::ConnectionRefused => Some(Refusal::Refused),
        io::ErrorKind::TimedOut => Some(Refusal::Silent),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            Some(Refusal::Unreachable)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_map_to_refusals() {
        let system = |kind: io::ErrorKind| of(&PerfError::system("connecting", kind.into()));
        assert_eq!(system(io::ErrorKind::AddrNotAvailable), Refusal::NoPort);
        assert_eq!(system(io::ErrorKind::HostUnreachable), Refusal::Unreachable);
        assert_eq!(system(io::ErrorKind::PermissionDenied), Refusal::Local);
        let peer = "x".to_owned();
        assert_eq!(of(&PerfError::Refused { peer }), Refusal::Refused);
    }
}
