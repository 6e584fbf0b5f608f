//! CPU use, limits and throttling of control groups, and limits of their sockets' memory, in
//! version 1, in version 2 and with both mounted (Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/cpuacct.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst).

mod paths;
mod socket_limit;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use units::{Share, Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::error::read_text;

pub use paths::{CgroupMounts, CgroupPaths};
pub use socket_limit::{SocketLimit, SocketUse};

/// The groups of a process, from the process's own group to the outermost visible group. A limit of
/// any of these groups applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupSnapshot {
    pub taken: Time,
    /// CPU time used by the process's own group and the groups below it.
    pub used: Option<Span>,
    /// The groups that have the CPU controller, innermost first.
    pub levels: Vec<Level>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub path: PathBuf,
    /// The group's own limit; `None` for a group without a limit.
    pub quota: Option<Quota>,
    pub throttling: Option<Throttling>,
}

impl Level {
    /// Reads the groups that have the CPU controller, innermost first.
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

impl Quota {
    /// Returns the limit in cores: 0.5 is half a core.
    pub fn cores(&self) -> Option<f64> {
        (self.period > Span::ZERO).then(|| self.granted.nanos() as f64 / self.period.nanos() as f64)
    }
}

/// In how many periods, and for how long, the quota ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    pub periods: u64,
    pub throttled: u64,
    /// The throttled time, summed over the cores that had to wait.
    pub time: Span,
}

impl CgroupSnapshot {
    pub fn own() -> Result<Self, ProbeError> {
        Self::at(&CgroupPaths::own()?)
    }

    pub fn of(pid: u32) -> Result<Self, ProbeError> {
        Self::at(&CgroupPaths::of(pid)?)
    }

    pub fn at(paths: &CgroupPaths) -> Result<Self, ProbeError> {
        let (used, levels) = (paths.used()?, Level::all_at(paths)?);
        Ok(Self { taken: clock::now(), used, levels })
    }

    /// Returns the strictest limit: the limit with the fewest cores.
    pub fn tightest(&self) -> Option<(&Level, Quota)> {
        self.levels.iter().filter_map(|level| Some((level, level.quota?))).min_by(
            |(_, a), (_, b)| {
                let cores = |quota: &Quota| quota.cores().unwrap_or(f64::INFINITY);
                cores(a).total_cmp(&cores(b))
            },
        )
    }

    pub fn since(&self, earlier: &Self) -> CgroupUse {
        CgroupUse {
            elapsed: self.taken.since(earlier.taken),
            used: self.used.zip(earlier.used).map(|(later, earlier)| later - earlier),
            levels: self
                .levels
                .iter()
                .filter_map(|level| {
                    let before = earlier.levels.iter().find(|old| old.path == level.path)?;
                    let spent = level.throttling?.since(&before.throttling?);
                    Some((level.path.clone(), spent))
                })
                .collect(),
        }
    }
}

impl Throttling {
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            time: self.time - earlier.time,
        }
    }

    /// Returns the share of periods in which the quota ran out; `None` if no period with work
    /// passed.
    pub fn share(&self) -> Option<Share> {
        (self.periods > 0)
            .then(|| Share::new(self.throttled as f64 / self.periods as f64).unwrap_or(Share::ONE))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupUse {
    pub elapsed: Span,
    pub used: Option<Span>,
    /// The groups, innermost first.
    pub levels: Vec<(PathBuf, Throttling)>,
}

impl CgroupUse {
    pub fn most_throttled(&self) -> Option<(&Path, Throttling)> {
        self.levels
            .iter()
            .max_by_key(|(_, throttling)| (throttling.time, throttling.throttled))
            .map(|(path, throttling)| (path.as_path(), *throttling))
    }
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
        assert_eq!(expected.share(), Share::from_percent(25.0));
        // A group without the CPU controller.
        assert_eq!(parse_throttling("usage_usec 9\nuser_usec 4\n"), None);
        assert_eq!(Throttling::default().share(), None);
    }

    #[test]
    fn cpu_quotas_and_missing_quotas_are_parsed() {
        let half = parse_max("50000 100000\n").unwrap();
        assert_eq!(half.cores(), Some(0.5));
        assert_eq!(parse_max("max 100000\n"), None);
        assert_eq!(parse_max(""), None);
    }

    #[test]
    fn the_groups_of_this_process_are_read() {
        match CgroupSnapshot::own() {
            Ok(earlier) => {
                let later = CgroupSnapshot::own().unwrap();
                assert!(later.used.is_some());
                let spent = later.since(&earlier);
                assert!(spent.used.is_some());
                let _ = (later.tightest(), spent.most_throttled());
            }
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
