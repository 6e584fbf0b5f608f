//! A control group with a CPU quota, of cgroup version 1 or 2.

use crate::model::Failure;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use units::Share;

/// A control group that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct QuotaGroup {
    directory: PathBuf,
}

impl QuotaGroup {
    /// Creates a group whose processes may use this share of one CPU.
    pub(super) fn create(name: &str, share: Share) -> Result<Self, Failure> {
        let (mount, version) = controller().ok_or_else(|| {
            Failure::Workload(
                "no mounted cgroup file system has the CPU controller: CPU quotas need one"
                    .to_owned(),
            )
        })?;
        sweep(&mount);
        let directory = mount.join(format!("{PREFIX}{}-{name}", std::process::id()));
        let failed = |what: &str, error: std::io::Error| {
            Failure::io(&format!("{what} {}", directory.display()), &error)
        };
        std::fs::create_dir(&directory).map_err(|error| failed("making the group", error))?;
        let group = Self { directory: directory.clone() };
        let granted = (PERIOD_US as f64 * share.fraction()) as u64;
        let settings = match version {
            Version::One => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", granted.to_string()),
            ],
            Version::Two => vec![("cpu.max", format!("{granted} {PERIOD_US}"))],
        };
        for (file, value) in settings {
            std::fs::write(directory.join(file), value)
                .map_err(|error| failed(&format!("setting {file} of"), error))?;
        }
        Ok(group)
    }

    /// Returns the group's file into which a process writes 0 to enter the group.
    pub(super) fn door(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // The processes were killed, but the kernel removes the processes from the group only some
        // time later.
        let deadline = Instant::now() + EMPTY_WITHIN;
        while std::fs::remove_dir(&self.directory).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Finds the mount that has the CPU controller.
fn controller() -> Option<(PathBuf, Version)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let found = mounts_in(&mounts);
    let one = found.iter().find(|(_, version)| *version == Version::One);
    let two = || {
        found.iter().find(|(point, version)| {
            let controllers = std::fs::read_to_string(point.join("cgroup.subtree_control"));
            *version == Version::Two
                && controllers.is_ok_and(|text| text.split_whitespace().any(|word| word == "cpu"))
        })
    };
    one.or_else(two).cloned()
}

/// Finds the cgroup mounts of version 1 with the controller `cpu`, and of version 2 (proc(5):
/// mountinfo).
fn mounts_in(text: &str) -> Vec<(PathBuf, Version)> {
    let of_line = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(left.split(' ').nth(4)?);
        let mut right = right.split(' ');
        let kind = right.next()?;
        let options = right.nth(1).unwrap_or_default();
        match kind {
            "cgroup" if options.split(',').any(|word| word == "cpu") => Some((point, Version::One)),
            "cgroup2" => Some((point, Version::Two)),
            _ => None,
        }
    };
    text.lines().filter_map(of_line).collect()
}

/// Removes the control groups that killed labs left behind.
fn sweep(mount: &Path) {
    for entry in std::fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if let Some(owner) = owner
            && !Path::new("/proc").join(owner).exists()
        {
            // The removal fails while a process still runs in the group.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

const PREFIX: &str = "weir-lab-";
const PERIOD_US: u64 = 100_000;
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_cgroup_versions_are_found() {
        let text = "31 23 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                    32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                    33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected =
            [("/sys/fs/cgroup/cpu", Version::One), ("/sys/fs/cgroup/unified", Version::Two)];
        assert_eq!(mounts_in(text), expected.map(|(point, version)| (point.into(), version)));
        assert!(mounts_in("nonsense - cgroup").is_empty());
    }
}
