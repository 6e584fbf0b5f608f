//! Confines the process of an end. Landlock denies access to files outside the end's directories.
//! seccomp refuses system calls that start programs, mount file systems, load code into the kernel
//! or inspect other processes. The systemd unit confines the process further; Landlock and seccomp
//! also protect an end that no unit started.

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directories that an end uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfinedPaths {
    /// Directories in which the end reads files.
    read: BTreeSet<PathBuf>,
    /// Directories in which the end creates and removes UNIX sockets.
    sockets: BTreeSet<PathBuf>,
    /// Directories in which the end creates and writes files.
    written: BTreeSet<PathBuf>,
}

/// The parts of the confinement that are in force on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confined {
    files: bool,
    calls: bool,
}

impl ConfinedPaths {
    /// Adds the directory of a file that the end reads. If the file is a symbolic link, adds the
    /// directory of the link's target too.
    pub(crate) fn reads(&mut self, file: &Path) {
        self.read.insert(directory_of(file));
        self.read.extend(file.canonicalize().ok().as_deref().map(directory_of));
    }

    /// Adds the directory of a file that the end writes.
    pub(crate) fn writes(&mut self, file: &Path) {
        self.written.insert(directory_of(file));
    }

    /// Adds the directory of a UNIX socket that the end creates.
    pub(crate) fn binds(&mut self, socket: &Path) {
        self.sockets.insert(directory_of(socket));
    }

    /// Adds a directory in which the end may create any socket.
    pub(crate) fn binds_in(&mut self, directory: &Path) {
        self.sockets.insert(resolved(directory.to_owned()));
    }

    /// Returns the first directory of `self` that a process confined to `own` cannot use.
    fn outside<'a>(&'a self, own: &Self) -> Option<&'a Path> {
        fn first<'a>(
            mut all: impl Iterator<Item = &'a PathBuf>,
            own: &[&PathBuf],
        ) -> Option<&'a Path> {
            all.find(|path| !own.iter().any(|own| path.starts_with(own))).map(PathBuf::as_path)
        }
        let sockets: Vec<_> = own.sockets.iter().collect();
        let read: Vec<_> = own.read.iter().chain(&own.sockets).collect();
        let written: Vec<_> = own.written.iter().collect();
        first(self.sockets.iter(), &sockets)
            .or_else(|| first(self.written.iter(), &written))
            .or_else(|| first(self.read.iter(), &read))
    }

    /// Returns the first directory of `self` that this process's confinement excludes.
    pub(crate) fn given_up(&self) -> Option<&Path> {
        self.outside(IN_FORCE.get()?)
    }
}

impl Confined {
    /// Confines this thread, and threads that it starts later, permanently. Call this function
    /// before any thread starts. If the kernel lacks Landlock or seccomp, the process runs without
    /// it.
    pub(crate) fn to(confined_paths: &ConfinedPaths) -> Self {
        let files = confine_files(confined_paths).unwrap_or_else(|error| {
            tracing::warn!(%error, "this process can still open files outside its directories");
            false
        });
        if files {
            let _ = IN_FORCE.set(confined_paths.clone());
        }
        let calls = confine_calls().map(|()| true).unwrap_or_else(|error| {
            tracing::warn!(%error, "this process can still make every system call");
            false
        });
        Self { files, calls }
    }
}

impl Display for Confined {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.files, self.calls) {
            (true, true) => "confined by Landlock and seccomp",
            (true, false) => "confined by Landlock; the kernel took no seccomp filter",
            (false, true) => "confined by seccomp; the kernel has no Landlock",
            (false, false) => "not confined: the kernel has neither Landlock nor seccomp",
        })
    }
}

fn directory_of(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    resolved(whole.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Resolves links, because the kernel compares directories and not paths.
fn resolved(directory: PathBuf) -> PathBuf {
    directory.canonicalize().unwrap_or(directory)
}

fn confine_files(confined_paths: &ConfinedPaths) -> Result<bool, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let bind = AccessFs::MakeSock | AccessFs::RemoveFile;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .create()?;
    for system in SYSTEM.map(PathBuf::from).into_iter().chain(std::env::current_exe()) {
        rules = allow(rules, &system, read)?;
    }
    for directory in &confined_paths.read {
        rules = allow(rules, directory, read)?;
    }
    for directory in &confined_paths.written {
        rules = allow(rules, directory, AccessFs::WriteFile | AccessFs::MakeReg)?;
    }
    for directory in &confined_paths.sockets {
        // Another service may create its directory later, so allow the nearest existing ancestor.
        let exists = directory.ancestors().find(|path| path.is_dir());
        rules = allow(rules, exists.unwrap_or(directory), read | bind)?;
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => rules.add_rule(PathBeneath::new(opened, access)),
        // A path that does not exist needs no permission.
        Err(_) => Ok(rules),
    }
}

fn confine_calls() -> Result<(), seccompiler::Error> {
    let refused = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let here = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, refuse, here)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

/// The directories to which this process is confined.
static IN_FORCE: OnceLock<ConfinedPaths> = OnceLock::new();

/// Directories that every end may read. The C library needs them for name look-ups, a reload for
/// the number of CPUs, a server for its local ports, and a panic for its backtrace.
const SYSTEM: [&str; 15] = [
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/var/lib/sss",
    "/sys/fs/cgroup",
    "/proc/self",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/dev/null",
];

/// System calls that seccomp refuses. An end, which carries bytes between sockets, needs none of
/// them.
const REFUSED: [i64; 41] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_name_to_handle_at,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, ErrorKind, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_first_directory_outside_the_confinement_is_reported() {
        let mut own = ConfinedPaths::default();
        own.reads(Path::new("/etc/weir/tunnel.toml"));
        own.binds(Path::new("/run/weir/a.sock"));
        let mut other = own.clone();
        other.reads(Path::new("/etc/weir/tunnel/server.crt"));
        other.reads(Path::new("/run/weir/ca.pem"));
        assert_eq!(other.outside(&own), None);
        other.reads(Path::new("/root/key"));
        assert_eq!(other.outside(&own), Some(Path::new("/root")));
        other.writes(Path::new("/run/weir/access.log"));
        assert_eq!(other.outside(&own), Some(Path::new("/run/weir")));
        own.writes(Path::new("/run/weir/access.log"));
        assert_eq!(other.outside(&own), Some(Path::new("/root")));
        other.binds_in(Path::new("/etc/weir"));
        assert_eq!(other.outside(&own), Some(Path::new("/etc/weir")));
    }

    #[test]
    fn a_confined_thread_reads_only_its_directories_and_starts_no_program() {
        let folder = || tempfile::tempdir().unwrap();
        let (own, other, logs) = (folder(), folder(), folder());
        for folder in [&own, &other] {
            std::fs::write(folder.path().join("file"), "text").unwrap();
        }
        let mut confined_paths = ConfinedPaths::default();
        confined_paths.reads(&own.path().join("file"));
        confined_paths.binds(&own.path().join("socket"));
        confined_paths.writes(&logs.path().join("access.log"));
        // Confines only this thread, which ends with the test.
        let confined = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let files = confine_files(&confined_paths).unwrap_or(false);
                let calls = confine_calls().is_ok();
                if files {
                    assert_eq!(std::fs::read(own.path().join("file")).unwrap(), b"text");
                    UnixListener::bind(own.path().join("socket")).unwrap();
                    std::fs::remove_file(own.path().join("socket")).unwrap();
                    std::fs::read("/etc/passwd").unwrap();
                    denied(std::fs::read(other.path().join("file")));
                    denied(std::fs::write(other.path().join("new"), "x"));
                    denied(std::fs::write(own.path().join("new"), "x"));
                    let mut log = std::fs::File::options();
                    let log = log.append(true).create(true).open(logs.path().join("access.log"));
                    log.unwrap().write_all(b"line").unwrap();
                    denied(std::fs::read(logs.path().join("access.log")));
                    denied(std::fs::read("/proc/1/environ"));
                }
                if calls {
                    denied(std::process::Command::new("/bin/true").status());
                    denied(
                        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
                            .map_err(io::Error::from),
                    );
                }
                Confined { files, calls }
            });
            thread.join().unwrap()
        });
        if confined != (Confined { files: true, calls: true }) {
            testing::skip_part(testing::Need::Confinement);
        }
    }

    fn denied<T: std::fmt::Debug>(result: io::Result<T>) {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
