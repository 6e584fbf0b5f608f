//! Calls that a confined program must not make, each tried with arguments that do no harm if the
//! kernel accepts the call.

// The standard library makes none of these calls.
#![allow(unsafe_code)]

use libc::{c_long, c_ulong};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Tries all of [`forbidden_names`] on this thread. Returns the names that the kernel did not
/// refuse, with the kernel's answers. `other` is a directory that this user owns and that the
/// program may not use. The directory has a file `file`.
pub fn permitted(other: &Path) -> Vec<String> {
    let file = other.join("file");
    let path = CString::new(file.as_os_str().as_bytes()).expect("a path without NUL");
    let mut permitted = Vec::new();
    for (name, attempt) in FILES {
        note(name, attempt(other), &mut permitted);
    }
    for (name, attempt) in CALLS {
        // SAFETY: each call has arguments that the kernel refuses, or that change nothing but
        // `path`, which exists for this test. All pointers are null, or to memory that outlives
        // the call.
        let result = match unsafe { attempt(&path) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        };
        note(name, result, &mut permitted);
    }
    permitted
}

/// The names of all calls that [`permitted`] tries, as SECURITY.md writes them.
pub fn forbidden_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name).chain(CALLS.iter().map(|(name, _)| *name))
}

fn note(name: &str, result: io::Result<()>, permitted: &mut Vec<String>) {
    let code = result.as_ref().err().and_then(io::Error::raw_os_error);
    let is_refused = match name {
        // The C library then uses clone(2), whose flags a filter can read.
        "clone3" => code == Some(libc::ENOSYS),
        _ => matches!(code, Some(libc::EPERM | libc::EACCES)),
    };
    if !is_refused {
        permitted.push(format!("{name}: {result:?}"));
    }
}

type OfFiles = (&'static str, fn(&Path) -> io::Result<()>);
type OfCalls = (&'static str, unsafe fn(&CStr) -> c_long);

const FILES: &[OfFiles] = &[
    ("read /etc/shadow", |_| fs::read("/etc/shadow").map(drop)),
    ("read another directory", |other| fs::read(other.join("file")).map(drop)),
    ("write another directory", |other| {
        File::options().append(true).open(other.join("file")).map(drop)
    }),
    ("create in another directory", |other| fs::write(other.join("new"), "")),
    ("remove from another directory", |other| fs::remove_file(other.join("file"))),
    ("read /proc/1/environ", |_| fs::read("/proc/1/environ").map(drop)),
];

const NONE: *const u8 = null();

// Where a process is needed, it is the parent of this process, with signal 0.
const CALLS: &[OfCalls] = &[
    ("chmod", |path| unsafe {
        libc::syscall(libc::SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), 0o644)
    }),
    ("chown", |path| unsafe {
        libc::syscall(libc::SYS_fchownat, libc::AT_FDCWD, path.as_ptr(), -1, -1, 0)
    }),
    ("link", |path| unsafe {
        let (here, new) = (libc::AT_FDCWD, c"/nowhere/link".as_ptr());
        libc::syscall(libc::SYS_linkat, here, path.as_ptr(), here, new, 0)
    }),
    ("mknod", |_| unsafe {
        libc::syscall(
            libc::SYS_mknodat,
            libc::AT_FDCWD,
            c"/nowhere/node".as_ptr(),
            libc::S_IFCHR,
            1,
        )
    }),
    ("name_to_handle_at", |path| unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), NONE, NONE, 0)
    }),
    ("open_by_handle_at", |_| unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, libc::AT_FDCWD, NONE, 0)
    }),
    #[cfg(target_arch = "x86_64")]
    ("iopl", |_| unsafe { libc::syscall(libc::SYS_iopl, 0) }),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", |_| unsafe { libc::syscall(libc::SYS_ioperm, 0, 1, 0) }),
    ("kill", |_| unsafe { libc::syscall(libc::SYS_kill, libc::getppid(), 0) }),
    ("tgkill", |_| unsafe { libc::syscall(libc::SYS_tgkill, libc::getppid(), libc::getppid(), 0) }),
    ("pidfd_open", |_| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getppid(), 0) }),
    ("prlimit64", |_| unsafe {
        libc::syscall(libc::SYS_prlimit64, libc::getppid(), libc::RLIMIT_NOFILE, NONE, NONE)
    }),
    ("sched_setaffinity", |_| unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, libc::getppid(), 0, NONE)
    }),
    ("setpriority", |_| unsafe { libc::syscall(libc::SYS_setpriority, 7, 0, 0) }),
    ("ptrace", |_| unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, 0, NONE, NONE)
    }),
    ("process_vm_readv", |_| unsafe {
        libc::syscall(libc::SYS_process_vm_readv, libc::getppid(), NONE, 0, NONE, 0, 0)
    }),
    ("fcntl F_SETSIG", |_| unsafe { libc::syscall(libc::SYS_fcntl, 0, 10, 0) }),
    ("ioctl TIOCSTI", |_| unsafe { libc::syscall(libc::SYS_ioctl, -1, libc::TIOCSTI, NONE) }),
    ("setsockopt IPT_SO_SET_REPLACE", |_| unsafe {
        libc::syscall(libc::SYS_setsockopt, -1, libc::SOL_IP, 64, NONE, 0)
    }),
    ("setsockopt IP6T_SO_SET_REPLACE", |_| unsafe {
        libc::syscall(libc::SYS_setsockopt, -1, libc::SOL_IPV6, 64, NONE, 0)
    }),
    ("socket AF_PACKET", |_| unsafe {
        libc::syscall(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0)
    }),
    ("socket SOCK_RAW", |_| unsafe {
        libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    }),
    ("socket AF_ALG", |_| unsafe {
        libc::syscall(libc::SYS_socket, libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    ("socket NETLINK_NETFILTER", |_| unsafe {
        let (family, kind) = (libc::AF_NETLINK, libc::SOCK_RAW);
        libc::syscall(libc::SYS_socket, family, kind, libc::NETLINK_NETFILTER)
    }),
    ("execve", |_| unsafe {
        libc::syscall(libc::SYS_execve, c"/nowhere/program".as_ptr(), NONE, NONE)
    }),
    ("fork", |_| unsafe {
        // CLONE_SIGHAND without CLONE_VM is invalid.
        libc::syscall(libc::SYS_clone, libc::CLONE_SIGHAND | libc::SIGCHLD, NONE, NONE, NONE, NONE)
    }),
    ("clone CLONE_NEWUSER", |_| unsafe {
        // CLONE_FS is invalid with a new user namespace.
        let flags = libc::CLONE_NEWUSER | libc::CLONE_FS | libc::SIGCHLD;
        libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE)
    }),
    ("clone3", |_| unsafe { libc::syscall(libc::SYS_clone3, NONE, 0) }),
    ("unshare", |_| unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER) }),
    ("setns", |_| unsafe { libc::syscall(libc::SYS_setns, -1, 0) }),
    ("mount", |_| unsafe { libc::syscall(libc::SYS_mount, NONE, NONE, NONE, 0, NONE) }),
    ("umount2", |_| unsafe { libc::syscall(libc::SYS_umount2, c"/nowhere".as_ptr(), 0) }),
    ("open_tree", |_| unsafe {
        libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c"/nowhere".as_ptr(), 0)
    }),
    ("pivot_root", |_| unsafe { libc::syscall(libc::SYS_pivot_root, NONE, NONE) }),
    ("chroot", |_| unsafe { libc::syscall(libc::SYS_chroot, c"/nowhere".as_ptr()) }),
    ("bpf", |_| unsafe { libc::syscall(libc::SYS_bpf, -1, NONE, 0) }),
    ("perf_event_open", |_| unsafe {
        libc::syscall(libc::SYS_perf_event_open, NONE, 0, -1, -1, 0)
    }),
    ("userfaultfd", |_| unsafe { libc::syscall(libc::SYS_userfaultfd, -1) }),
    ("io_uring_setup", |_| unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, NONE) }),
    ("keyctl", |_| unsafe { libc::syscall(libc::SYS_keyctl, 0, -1, 0) }),
    ("add_key", |_| unsafe { libc::syscall(libc::SYS_add_key, NONE, NONE, NONE, 0, 0) }),
    ("init_module", |_| unsafe { libc::syscall(libc::SYS_init_module, NONE, 0, NONE) }),
    ("kexec_load", |_| unsafe {
        libc::syscall(libc::SYS_kexec_load, 0, c_ulong::from(u32::MAX), NONE, 0)
    }),
    ("reboot", |_| unsafe { libc::syscall(libc::SYS_reboot, 0, 0, 0, NONE) }),
    ("swapon", |_| unsafe { libc::syscall(libc::SYS_swapon, c"/nowhere".as_ptr(), 0) }),
    ("acct", |_| unsafe { libc::syscall(libc::SYS_acct, c"/nowhere".as_ptr()) }),
    ("syslog", |_| unsafe { libc::syscall(libc::SYS_syslog, 10, NONE, 0) }),
    ("clock_settime", |_| unsafe { libc::syscall(libc::SYS_clock_settime, -1, NONE) }),
    ("sethostname", |_| unsafe { libc::syscall(libc::SYS_sethostname, NONE, -1) }),
    ("setuid", |_| unsafe { libc::syscall(libc::SYS_setuid, -1) }),
    ("setgid", |_| unsafe { libc::syscall(libc::SYS_setgid, -1) }),
    ("setgroups", |_| unsafe { libc::syscall(libc::SYS_setgroups, -1, NONE) }),
    ("capset", |_| unsafe { libc::syscall(libc::SYS_capset, NONE, NONE) }),
    ("seccomp", |_| unsafe { libc::syscall(libc::SYS_seccomp, -1, 0, NONE) }),
];
