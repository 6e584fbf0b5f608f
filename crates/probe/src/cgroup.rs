//! CPU limits and throttling of control groups, and limits of their sockets' memory, in
//! version 1, in version 2 and with both mounted (Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/memory.rst, scheduler/sched-bwc.rst).

mod paths;
mod socket_limit;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use units::Span;

use crate::ProbeError;
use crate::error::read_text;

pub use paths::{CgroupMounts, CgroupPaths};
pub use socket_limit::{SocketLimit, SocketUse};

/// A group of a process that has the CPU controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub path: PathBuf,
    /// The group's own limit; `None` for a group without a limit.
    pub quota: Option<Quota>,
    pub throttling: Option<Throttling>,
}

impl Level {
    /// Reads the groups of a process that have the CPU controller, from the process's own group to
    /// the outermost visible group. A limit of any of these groups applies.
    pub fn all_at(paths: &CgroupPaths) -> Result<Vec<Self>, ProbeError> {
        let mut levels = Vec::new();
        for (path, version) in paths.levels() {
            // A group that was removed since then has no counters.
            if let Some(stat) = optional(&path.join("cpu.stat"))? {
                let throttling = parse_throttling(&stat);
                levels.push(Self { throttling, quota: version.quota(&path)?, path });
            }
        }
        Ok(levels)
    }
}

/// CPU time granted per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub granted: Span,
    pub period: Span,
}

/// In how many periods, and for how long, the quota ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    pub periods: u64,
    pub throttled: u64,
    /// The throttled time, summed over the cores that had to wait.
    pub time: Span,
}

/// Parses `cpu.stat`. Version 1 counts nanoseconds as `throttled_time`, version 2 microseconds as
/// `throttled_usec`. Returns `None` if the group has no CPU controller.
fn parse_throttling(stat: &str) -> Option<Throttling> {
    let value = |name: &str| keyed(stat, name);
    Some(Throttling {
        periods: value("nr_periods")?,
        throttled: value("nr_throttled")?,
        time: match value("throttled_time") {
            Some(nanos) => Span::from_nanos(nanos),
            None => Span::from_micros(value("throttled_usec")?),
        },
    })
}

/// Parses `cpu.max`, such as `max 100000` or `50000 100000`.
fn parse_max(text: &str) -> Option<Quota> {
    let (granted, period) = text.trim().split_once(' ')?;
    Some(Quota {
        granted: Span::from_micros(granted.parse().ok()?),
        period: Span::from_micros(period.parse().ok()?),
    })
}

fn keyed(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
}

fn optional(path: &Path) -> Result<Option<String>, ProbeError> {
    match read_text(path) {
        Err(ProbeError::Read { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                || source.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(None)
        }
        text => text.map(Some),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    One,
    Two,
}

impl Version {
    fn quota(self, path: &Path) -> Result<Option<Quota>, ProbeError> {
        if self == Self::Two {
            // The outermost group has no cpu.max.
            return Ok(optional(&path.join("cpu.max"))?.and_then(|text| parse_max(&text)));
        }
        let micros = |name| {
            let text = optional(&path.join(name))?;
            // Without a limit, the file contains -1, which does not fit into a u64.
            Ok::<_, ProbeError>(text.and_then(|text| text.trim().parse().ok()))
        };
        let granted = micros("cpu.cfs_quota_us")?;
        let period = micros("cpu.cfs_period_us")?;
        Ok(granted.zip(period).map(|(granted, period)| Quota {
            granted: Span::from_micros(granted),
            period: Span::from_micros(period),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn throttling_is_parsed_in_both_cgroup_versions() {
        let one = "nr_periods 20\nnr_throttled 5\nthrottled_time 7000000\nnr_bursts 0\n";
        let two = "usage_usec 9\nnr_periods 20\nnr_throttled 5\nthrottled_usec 7000\n";
        let expected = Throttling { periods: 20, throttled: 5, time: Span::from_millis(7) };
        assert_eq!(parse_throttling(one), Some(expected));
        assert_eq!(parse_throttling(two), Some(expected));
        // A group without the CPU controller.
        assert_eq!(parse_throttling("usage_usec 9\nuser_usec 4\n"), None);
    }

    #[test]
    fn cpu_quotas_and_missing_quotas_are_parsed() {
        let (granted, period) = (Span::from_millis(50), Span::from_millis(100));
        assert_eq!(parse_max("50000 100000\n"), Some(Quota { granted, period }));
        assert_eq!(parse_max("max 100000\n"), None);
        assert_eq!(parse_max(""), None);
    }

    #[test]
    fn the_groups_of_this_process_are_read() {
        match CgroupPaths::own().and_then(|paths| Level::all_at(&paths)) {
            Ok(levels) => assert!(levels.iter().all(|level| level.path.is_dir())),
            Err(error) if error.is_not_supported() => {
                testing::skip_because(testing::Need::CpuLimit, error);
            }
            Err(error) => panic!("{error}"),
        }
    }

    proptest! {
        #[test]
        fn the_parsers_of_control_group_files_never_panic(text in "([a-z_]{0,14} -?[0-9]{0,21}\n){0,5}") {
            let _ = (parse_throttling(&text), parse_max(&text));
        }
    }
}
