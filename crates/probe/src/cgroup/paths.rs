use std::path::{Path, PathBuf};

use super::{Version, keyed, optional};
use crate::ProbeError;
use crate::error::read_text;
use crate::process::ended;

/// The location of a process's control groups in the file system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupPaths {
    /// The mount that has the CPU controller, and the group within it.
    cpu: Option<(PathBuf, PathBuf, Version)>,
    /// The directory of the freezer controller, or of version 2.
    freezer: Option<(PathBuf, Version)>,
    /// The mount that has the memory controller, and the group within it.
    memory: Option<(PathBuf, PathBuf, Version)>,
}

impl CgroupPaths {
    pub fn own() -> Result<Self, ProbeError> {
        Self::of(std::process::id())
    }

    pub fn of(pid: u32) -> Result<Self, ProbeError> {
        Self::of_mounted(pid, &CgroupMounts::read()?)
    }

    /// Returns the same as [`Self::of`], for a caller that reads the mounts once for many
    /// processes.
    pub fn of_mounted(pid: u32, mounts: &CgroupMounts) -> Result<Self, ProbeError> {
        let groups = read_text(format!("/proc/{pid}/cgroup")).map_err(|error| ended(pid, error))?;
        let paths = Self::of_groups(&groups, mounts);
        if paths == Self::default() {
            return Err(ProbeError::NotSupported {
                feature: "control groups",
                hint: "no cgroup file system is mounted that holds this process",
            });
        }
        Ok(paths)
    }

    /// Parses `/proc/PID/cgroup` and `/proc/self/mountinfo` (proc(5)).
    pub fn parse(groups: &str, mounts: &str) -> Self {
        Self::of_groups(groups, &CgroupMounts::parse(mounts))
    }

    fn of_groups(groups: &str, CgroupMounts(mounts): &CgroupMounts) -> Self {
        let mut paths = Self::default();
        for line in groups.lines() {
            let mut words = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (words.next(), words.next()) else {
                continue;
            };
            if controllers.is_empty() {
                let Some(mount) = mounts.iter().find(|mount| mount.version == Version::Two) else {
                    continue;
                };
                // If version 1 is mounted as well, version 2 has only the controllers that version
                // 1 does not use.
                if let Some(within) = mount.within(path) {
                    let group = (mount.point.clone(), within.clone(), Version::Two);
                    paths.memory.get_or_insert(group.clone());
                    paths.cpu.get_or_insert(group);
                    paths.freezer.get_or_insert((mount.point.join(within), Version::Two));
                }
                continue;
            }
            for controller in controllers.split(',') {
                let mount = mounts.iter().find(|mount| mount.has(controller));
                let Some((mount, within)) = mount.and_then(|m| Some((m, m.within(path)?))) else {
                    continue;
                };
                match controller {
                    "cpu" => paths.cpu = Some((mount.point.clone(), within, Version::One)),
                    "memory" => paths.memory = Some((mount.point.clone(), within, Version::One)),
                    "freezer" => {
                        paths.freezer = Some((mount.point.join(within), Version::One));
                    }
                    _ => {}
                }
            }
        }
        paths
    }

    /// Whether a group that contains this process is frozen; `None` if no group can be frozen.
    pub fn is_frozen(&self) -> Result<Option<bool>, ProbeError> {
        let Some((path, version)) = &self.freezer else { return Ok(None) };
        // The file of either version also covers the groups above. The outermost group has neither
        // file.
        Ok(match version {
            Version::One => {
                optional(&path.join("freezer.state"))?.map(|state| state.trim() == "FROZEN")
            }
            Version::Two => optional(&path.join("cgroup.events"))?
                .and_then(|text| keyed(&text, "frozen"))
                .map(|frozen| frozen == 1),
        })
    }

    /// Returns the directories of the CPU controller's groups that contain this process, innermost
    /// first.
    pub(super) fn levels(&self) -> impl Iterator<Item = (PathBuf, Version)> {
        upwards(&self.cpu)
    }

    /// Returns the directories of the memory controller's groups that contain this process,
    /// innermost first.
    pub(super) fn memory_levels(&self) -> impl Iterator<Item = (PathBuf, Version)> {
        upwards(&self.memory)
    }
}

fn upwards(
    group: &Option<(PathBuf, PathBuf, Version)>,
) -> impl Iterator<Item = (PathBuf, Version)> {
    group.iter().flat_map(|(mount, within, version)| {
        within.ancestors().map(move |group| match group.as_os_str().is_empty() {
            true => (mount.clone(), *version),
            false => (mount.join(group), *version),
        })
    })
}

/// The file systems of control groups that this process sees.
#[derive(Debug, Clone, Default)]
pub struct CgroupMounts(Vec<Mount>);

impl CgroupMounts {
    pub fn read() -> Result<Self, ProbeError> {
        Ok(Self::parse(&read_text("/proc/self/mountinfo")?))
    }

    fn parse(mounts: &str) -> Self {
        Self(mounts.lines().filter_map(Mount::parse).collect())
    }
}

#[derive(Debug, Clone)]
struct Mount {
    version: Version,
    point: PathBuf,
    /// The mounted directory of the hierarchy.
    root: PathBuf,
    options: String,
}

impl Mount {
    /// Parses a line such as `32 31 0:29 ROOT POINT rw,relatime … - TYPE SOURCE rw,cpu`.
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        Some(Self {
            version: match right.next()? {
                "cgroup" => Version::One,
                "cgroup2" => Version::Two,
                _ => return None,
            },
            root: unescaped(left.next()?).into(),
            point: unescaped(left.next()?).into(),
            options: right.nth(1)?.to_owned(),
        })
    }

    fn has(&self, controller: &str) -> bool {
        self.version == Version::One && self.options.split(',').any(|word| word == controller)
    }

    /// Returns the group's path relative to the mount point. Returns `None` if the mount does not
    /// show the group: a bind mount of another group, or a group outside of the cgroup namespace
    /// (`/..`).
    fn within(&self, group: &str) -> Option<PathBuf> {
        let within = Path::new(group).strip_prefix(&self.root).ok()?;
        let plain = within.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| within.to_owned())
    }
}

/// Decodes the octal numbers that mountinfo writes for blanks, tabs, newlines and backslashes.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn levels(groups: &str, mounts: &str) -> Vec<String> {
        CgroupPaths::parse(groups, mounts)
            .levels()
            .map(|(path, _)| path.display().to_string())
            .collect()
    }

    #[test]
    fn the_cpu_controller_is_found_in_version_1_beside_version_2() {
        let groups = "4:memory:/m\n2:cpuacct:/a/b\n1:cpu:/a/b\n0::/elsewhere\n";
        let expected = ["/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu"];
        assert_eq!(levels(groups, HYBRID), expected);
        let paths = CgroupPaths::parse(groups, HYBRID);
        let reordered = "0::/elsewhere\n1:cpu:/a/b\n2:cpuacct:/a/b\n4:memory:/m\n";
        assert_eq!(CgroupPaths::parse(reordered, HYBRID), paths);
    }

    #[test]
    fn the_freezer_group_is_found_in_both_versions() {
        let freezer = |groups: &str, mounts: &str| CgroupPaths::parse(groups, mounts).freezer;
        let two = Some((PathBuf::from("/sys/fs/cgroup/unified/x"), Version::Two));
        assert_eq!(freezer("1:cpu:/a\n0::/x\n", HYBRID), two);
        let mounts = format!("{HYBRID}36 31 0:33 / /cg/freezer rw - cgroup cgroup rw,freezer\n");
        let one = Some((PathBuf::from("/cg/freezer/box"), Version::One));
        assert_eq!(freezer("0::/x\n3:freezer:/box\n", &mounts), one);
        assert_eq!(freezer("3:freezer:/box\n0::/x\n", &mounts), one);
        assert_eq!(CgroupPaths::default().is_frozen().unwrap(), None);
    }

    #[test]
    fn the_groups_that_limit_memory_are_found_in_both_versions() {
        let memory = |groups: &str, mounts: &str| -> Vec<(PathBuf, Version)> {
            CgroupPaths::parse(groups, mounts).memory_levels().collect()
        };
        let one = |path: &str| (PathBuf::from(path), Version::One);
        let own = [one("/sys/fs/cgroup/memory/m"), one("/sys/fs/cgroup/memory")];
        assert_eq!(memory("4:memory:/m\n0::/elsewhere\n", HYBRID), own);
        assert_eq!(memory("0::/elsewhere\n4:memory:/m\n", HYBRID), own);
        let two = |path: &str| (PathBuf::from(path), Version::Two);
        let unified = [two("/sys/fs/cgroup/unified/x"), two("/sys/fs/cgroup/unified")];
        assert_eq!(memory("0::/x\n", HYBRID), unified);
    }

    #[test]
    fn jointly_mounted_controllers_of_version_1_are_found() {
        let mounts = "9 8 0:1 / /cg/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "3:cpu,cpuacct:/docker/x\n";
        assert_eq!(
            levels(groups, mounts),
            ["/cg/cpu,cpuacct/docker/x", "/cg/cpu,cpuacct/docker", "/cg/cpu,cpuacct"]
        );
    }

    #[test]
    fn cgroup_version_2_is_found_alone_and_behind_bind_mounts() {
        let mounts = "9 8 0:1 / /sys/fs/cgroup rw shared:7 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            levels("0::/user.slice/x\n", mounts),
            ["/sys/fs/cgroup/user.slice/x", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
        );
        let bound = "9 8 0:1 /docker/7 /a\\040b ro - cgroup2 none rw\n";
        assert_eq!(levels("0::/docker/7/y\n", bound), ["/a b/y", "/a b"]);
        assert_eq!(levels("0::/other\n", bound), [""; 0]);
        assert_eq!(levels("0::/../up\n", mounts), [""; 0]);
        assert_eq!(levels("0::/x\n", ""), [""; 0]);
    }

    proptest! {
        #[test]
        fn the_parsers_of_groups_and_mounts_never_panic(groups in "([0-9]:?[a-z,]{0,9}:?/?[a-z/.]{0,9}\n){0,4}", mounts in "(.{0,30}( - cgroup2? )?.{0,9}\n){0,4}") {
            let _ = CgroupPaths::parse(&groups, &mounts).levels().count();
        }
    }
}
