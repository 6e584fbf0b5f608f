//! Captures from files in libpcap's format, and built-in captures.

mod builtin;
mod conversation;
mod file;

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use units::Span;

use crate::GenError;

pub(crate) use builtin::{tcp_conversation, udp_frame};
pub use file::CaptureWriter;

/// Frames, each with the time since the first frame.
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

    /// Finds the capture that a profile names. Searches next to the profile, up to three folders
    /// above it (where TRex's `cap2/…` names point), in the current directory, and among the
    /// built-in captures.
    pub fn find(name: &str, profile: Option<&Path>) -> Result<Self, GenError> {
        for path in candidates(name, profile) {
            match read(&path, LONGEST_FILE) {
                Ok(bytes) => return Self::parse(&path.display().to_string(), &bytes),
                Err(GenError::Unreadable { reason, .. })
                    if matches!(reason.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        Self::built_in(name).ok_or_else(|| {
            let base = name.rsplit('/').next().unwrap_or(name);
            let base = base.strip_suffix(".pcap").unwrap_or(base);
            let hint = units::did_you_mean(base, Self::built_in_names());
            GenError::Capture {
                file: units::foreign(name).to_string(),
                problem: format!(
                    "there is no such capture next to the profile or built in{hint}: put the file \
                     there, or choose one of `weir gen --captures`"
                ),
            }
        })
    }

    pub fn built_in(name: &str) -> Option<Self> {
        builtin::capture(name.rsplit('/').next().unwrap_or(name))
    }

    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        builtin::names()
    }
}

pub(crate) fn read(path: &Path, longest: u64) -> Result<Vec<u8>, GenError> {
    let file = || path.display().to_string();
    let unreadable = |reason| GenError::Unreadable { file: file(), reason };
    let opened = host::open_regular_file(path).map_err(unreadable)?;
    if opened.metadata().map_err(unreadable)?.len() > longest {
        let problem = format!("the file has more than {} MiB: shorten it", longest >> 20);
        return Err(GenError::Capture { file: file(), problem });
    }
    let mut bytes = Vec::new();
    opened.take(longest).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn candidates(name: &str, profile: Option<&Path>) -> Vec<PathBuf> {
    let folder = profile.and_then(Path::parent);
    let mut candidates = Vec::new();
    // Searches only the folders above a profile, not the folders above the working directory.
    let above = folder.into_iter().flat_map(|folder| folder.ancestors().take(FOLDERS));
    candidates.extend(above.map(|folder| folder.join(name)));
    candidates.push(PathBuf::from(name));
    candidates
}

const FOLDERS: usize = 4;
const LONGEST_FILE: u64 = 1 << 30;
