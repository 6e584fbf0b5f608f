//! Tests throttling in a new control group.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use probe::cgroup::{CgroupPaths, Level};

#[test]
fn throttling_by_an_outer_group_is_counted() {
    let Some((outer, inner)) = Group::limited() else {
        return testing::skip(testing::Need::CpuLimit);
    };
    let burner = Burner::start();
    fs::write(inner.0.join("cgroup.procs"), burner.0.id().to_string()).unwrap();
    let paths = CgroupPaths::of(burner.0.id()).unwrap();
    let levels = || Level::all_at(&paths).unwrap();
    let (own, above) = (levels()[0].clone(), levels()[1].clone());
    assert_eq!((own.path, own.quota), (inner.0.clone(), None));
    let quota = above.quota.unwrap();
    assert_eq!((&above.path, quota.granted * 20), (&outer.0, quota.period));

    let before = above.throttling.unwrap();
    loop {
        let now = levels()[1].throttling.unwrap();
        if now.throttled >= before.throttled + 2 && now.time > before.time {
            assert!(now.periods > before.periods);
            break;
        }
        std::thread::yield_now();
    }
}

/// A control group, which is removed when dropped. The group's process must have ended by then.
struct Group(PathBuf);

impl Group {
    /// Creates a group that may use 5 % of a core, and a group without a limit inside it.
    fn limited() -> Option<(Self, Self)> {
        let name = format!("weir-probe-test-{}", std::process::id());
        for root in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"] {
            let path = Path::new(root).join(&name);
            if !Path::new(root).join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let outer = Self(path.clone());
            let limit = |file, value| fs::write(path.join(file), value).is_ok();
            let limited = limit("cpu.cfs_quota_us", "5000") || limit("cpu.max", "5000 100000");
            let inner = path.join("inner");
            if limited && fs::create_dir(&inner).is_ok() {
                return Some((outer, Self(inner)));
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may list a process for a moment after its end.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
        {
            std::thread::yield_now();
        }
    }
}

struct Burner(Child);

impl Burner {
    fn start() -> Self {
        let endless = ["-c", "while :; do :; done"];
        Self(Command::new("sh").args(endless).spawn().unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
