//! The mounts of this process, and mounts that another `/sys` hides from it: `ip netns exec` mounts
//! a `/sys` that shows the network namespace (ip-netns(8)).

use crate::{AccelError, namespaces};
use std::fs;
use std::path::{Path, PathBuf};

/// The content of `/proc/PID/mountinfo` (proc(5)).
#[derive(Debug)]
pub(crate) struct MountTable {
    mounts: Vec<Mount>,
}

#[derive(Debug)]
struct Mount {
    /// Major and minor number of the file system.
    device: String,
    point: PathBuf,
    kind: String,
}

impl MountTable {
    pub(crate) fn own() -> Self {
        Self::of("self")
    }

    /// Returns the mount point of this type of file system. The last mount hides earlier mounts.
    pub(crate) fn point_of(&self, kind: &str) -> Option<&Path> {
        self.mounts.iter().rfind(|mount| mount.kind == kind).map(|mount| mount.point.as_path())
    }

    /// Reads the mounts of a process; none if its table is unreadable.
    fn of(process: &str) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mount = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ');
            let device = left.nth(2)?.to_owned();
            let point = PathBuf::from(left.nth(1)?.replace("\\040", " "));
            Some(Mount { device, point, kind: right.split(' ').next()?.to_owned() })
        };
        Self { mounts: text.lines().filter_map(mount).collect() }
    }

    /// Whether `whole` has this kind of file system below a `/sys` that differs from this
    /// process's. A file system that this process's namespace has unmounted is not hidden: this
    /// process's `/sys` is the same.
    fn hides(&self, whole: &Self, kind: &str, below: &str) -> bool {
        let is_another = match (self.sys(), whole.sys()) {
            // The kernel has a sysfs for each network namespace (fs/sysfs/mount.c). A new mount of
            // the same sysfs has nothing mounted below it.
            (Some(here), Some(there)) => here.device != there.device || self.is_bare(),
            _ => false,
        };
        let mut mounts = whole.mounts.iter();
        is_another && mounts.any(|mount| mount.kind == kind && mount.point.starts_with(below))
    }

    fn is_bare(&self) -> bool {
        let mut points = self.mounts.iter().map(|mount| &mount.point);
        points.all(|point| point == Path::new(SYS) || !point.starts_with(SYS))
    }

    fn sys(&self) -> Option<&Mount> {
        self.mounts.iter().rfind(|mount| mount.point == Path::new(SYS))
    }
}

/// Returns the error for a BPF file system that is missing here, if the first process has one at
/// that path.
pub(crate) fn hidden_bpf(path: &str) -> Option<AccelError> {
    let what = "the BPF file system";
    is_hidden("bpf", path).then(|| hidden(what, "cannot tell whether it is on"))
}

/// Returns the error for control groups of version 2 that are missing here, if the first process
/// has them.
pub(crate) fn hidden_cgroups() -> Option<AccelError> {
    let what = "the control groups of version 2";
    is_hidden("cgroup2", SYS).then(|| hidden(what, "cannot select connections"))
}

fn is_hidden(kind: &str, below: &str) -> bool {
    MountTable::own().hides(&MountTable::of(FIRST_PROCESS), kind, below)
}

fn hidden(what: &'static str, effect: &'static str) -> AccelError {
    AccelError::HiddenMount { what, effect, namespace: namespaces::path_here() }
}

const SYS: &str = "/sys";
const FIRST_PROCESS: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "23 27 0:22 / /sys rw shared:7 - sysfs sysfs rw\n\
                         33 23 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
                         34 23 0:31 / /sys/fs/bpf rw,nosuid shared:10 - bpf bpf rw\n";

    fn hides(own: &str, first: &str, kind: &str) -> bool {
        MountTable::parse(own).hides(&MountTable::parse(first), kind, SYS)
    }

    #[test]
    fn the_cgroup2_mount_is_found_beside_cgroup_version_1() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n\
                      33 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let unified = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(MountTable::parse(mounts).point_of("cgroup2"), Some(unified));
        assert_eq!(MountTable::parse("nonsense\n").point_of("cgroup2"), None);
    }

    #[test]
    fn another_mount_on_sys_hides_the_mounts_below_it() {
        let fresh = "68 65 0:40 / /sys rw - sysfs near rw\n";
        assert!(hides(fresh, FIRST, "bpf") && hides(fresh, FIRST, "cgroup2"));
        // The new `/sys` may also lie over the first `/sys`, or show the same namespace.
        assert!(hides(&format!("{FIRST}{fresh}"), FIRST, "bpf"));
        assert!(hides("68 65 0:22 / /sys rw - sysfs near rw\n", FIRST, "bpf"));
    }

    #[test]
    fn a_mount_that_exists_nowhere_or_was_unmounted_is_not_hidden() {
        let sys = "46 43 0:22 / /sys rw - sysfs sysfs rw\n\
                   47 46 0:29 / /sys/kernel/tracing rw - tracefs tracefs rw\n";
        let fresh = "68 65 0:40 / /sys rw - sysfs near rw\n";
        assert!(!hides(sys, FIRST, "bpf"), "unmounted");
        assert!(!hides(fresh, sys, "bpf"), "nowhere");
        assert!(!hides("", FIRST, "bpf") && !hides(fresh, "", "bpf"), "no table");
    }
}
