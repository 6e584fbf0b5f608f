//! Captures: from files in libpcap's format, and those that are built in.

mod builtin;
mod conversation;
mod file;

use std::path::{Path, PathBuf};

use units::Span;

use crate::GenError;

pub(crate) use builtin::udp_frame;
pub use file::CaptureWriter;

/// Frames with the time since the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capture {
    pub packets: Vec<CapturedPacket>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    pub at: Span,
    pub bytes: Vec<u8>,
}

impl Capture {
    /// Reads a capture in libpcap's format: microseconds or nanoseconds, either byte order.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, GenError> {
        file::parse(file, bytes)
    }

    /// The capture that a profile names: next to the profile, in the current directory, one folder
    /// above the profile (where TRex's `cap2/…` names point), or built in under TRex's name.
    pub fn find(name: &str, profile: Option<&Path>) -> Result<Self, GenError> {
        for path in candidates(name, profile) {
            match std::fs::read(&path) {
                Ok(bytes) => return Self::parse(&path.display().to_string(), &bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
                Err(reason) => {
                    return Err(GenError::Unreadable { file: path.display().to_string(), reason });
                }
            }
        }
        Self::built_in(name).ok_or_else(|| {
            let base = name.rsplit('/').next().unwrap_or(name);
            let base = base.strip_suffix(".pcap").unwrap_or(base);
            let hint = crate::profile::nearest(base, Self::built_in_names());
            GenError::Capture {
                file: units::foreign(name).to_string(),
                problem: format!(
                    "there is no such capture next to the profile or built in{hint}: put the file \
                     there, or choose one of `weir gen --captures`"
                ),
            }
        })
    }

    /// A capture that is made by code, under the name that it has in TRex.
    pub fn built_in(name: &str) -> Option<Self> {
        builtin::capture(name.rsplit('/').next().unwrap_or(name))
    }

    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        builtin::names()
    }
}

fn candidates(name: &str, profile: Option<&Path>) -> Vec<PathBuf> {
    let folder = profile.and_then(Path::parent);
    let mut candidates = Vec::new();
    if let Some(folder) = folder {
        candidates.push(folder.join(name));
        if let Some(above) = folder.parent() {
            candidates.push(above.join(name));
        }
    }
    candidates.push(PathBuf::from(name));
    candidates
}
