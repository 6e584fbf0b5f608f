//! Limits of the memory that the sockets of a control group may take (cgroup-v1/memory.rst,
//! "tcp"; cgroup-v2.rst, `memory.events`).

use std::path::{Path, PathBuf};

use units::Bytes;

use super::{CgroupPaths, Version, keyed, optional};
use crate::ProbeError;

/// A group that limits the memory of its sockets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketLimit {
    path: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketUse {
    /// The limit; `None` in version 2, where sockets count towards the group's limit of all memory,
    /// if that limit is not set.
    pub most: Option<Bytes>,
    /// The used memory, which only version 1 reports cheaply.
    pub used: Option<Bytes>,
    /// How often the limit refused memory to a socket.
    pub refused: u64,
}

impl CgroupPaths {
    /// Returns the groups of this process that limit the memory of sockets, innermost first.
    pub fn socket_limits(&self) -> Result<Vec<SocketLimit>, ProbeError> {
        let mut limits = Vec::new();
        for (path, version) in self.memory_levels() {
            let limit = SocketLimit { path, version };
            if limit.read()?.is_some() {
                limits.push(limit);
            }
        }
        Ok(limits)
    }
}

impl SocketLimit {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the group's use. Returns `None` if the group has no limit or is gone, or if the kernel
    /// does not count refusals.
    pub fn read(&self) -> Result<Option<SocketUse>, ProbeError> {
        parse(self.version, |name| optional(&self.path.join(name)))
    }
}

fn parse(
    version: Version,
    file: impl Fn(&str) -> Result<Option<String>, ProbeError>,
) -> Result<Option<SocketUse>, ProbeError> {
    let number = |name: &str| Ok::<_, ProbeError>(file(name)?.and_then(|text| count(&text)));
    match version {
        Version::One => {
            let most = number("memory.kmem.tcp.limit_in_bytes")?;
            let Some(most) = most.filter(|most| *most < UNLIMITED) else { return Ok(None) };
            Ok(Some(SocketUse {
                most: Some(Bytes::new(most)),
                used: number("memory.kmem.tcp.usage_in_bytes")?.map(Bytes::new),
                refused: number("memory.kmem.tcp.failcnt")?.unwrap_or(0),
            }))
        }
        Version::Two => {
            let events = file("memory.events")?;
            let Some(refused) = events.and_then(|text| keyed(&text, "sock_throttled")) else {
                return Ok(None);
            };
            let limits = [number("memory.high")?, number("memory.max")?];
            let most = limits.into_iter().flatten().min();
            Ok(Some(SocketUse { most: most.map(Bytes::new), used: None, refused }))
        }
    }
}

/// Parses a number; returns `None` for `max`.
fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Version 1 shows an absent limit as the largest number of pages.
const UNLIMITED: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    fn group(version: Version, files: &[(&str, &str)]) -> Option<SocketUse> {
        let file = |name: &str| {
            let found = files.iter().find(|(own, _)| *own == name);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        };
        parse(version, file).unwrap()
    }

    #[test]
    fn the_socket_limit_of_version_1_is_read() {
        let files = [
            ("memory.kmem.tcp.limit_in_bytes", "262144\n"),
            ("memory.kmem.tcp.usage_in_bytes", "200704\n"),
            ("memory.kmem.tcp.failcnt", "31\n"),
        ];
        let expected = SocketUse {
            most: Some(Bytes::new(262_144)),
            used: Some(Bytes::new(200_704)),
            refused: 31,
        };
        assert_eq!(group(Version::One, &files), Some(expected));
        let unlimited = [("memory.kmem.tcp.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(group(Version::One, &unlimited), None);
        assert_eq!(group(Version::One, &[]), None);
    }

    #[test]
    fn the_socket_limit_of_version_2_is_read() {
        let files = |events| {
            [("memory.events", events), ("memory.high", "max\n"), ("memory.max", "67108864\n")]
        };
        let found = group(Version::Two, &files("low 0\nmax 4\nsock_throttled 9\n")).unwrap();
        assert_eq!((found.most, found.refused), (Some(Bytes::new(64 << 20)), 9));
        // Linux before 6.18 does not count refusals.
        assert_eq!(group(Version::Two, &files("low 0\nmax 4\noom 0\n")), None);
    }

    #[test]
    fn the_socket_limits_of_this_process_are_read() {
        match CgroupPaths::own().and_then(|paths| paths.socket_limits()) {
            Ok(limits) => limits.iter().for_each(|limit| assert!(limit.path().is_absolute())),
            Err(error) if error.is_not_supported() => {
                testing::skip_because(testing::Need::CgroupV2, error);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
