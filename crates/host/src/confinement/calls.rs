//! The system calls of a confined program, as an allow-list.
//!
//! Any other call returns EPERM, and the kernel logs the call (a record of type 1326 with the
//! call's number). The list holds for glibc and musl, on x86_64 and aarch64.

#![allow(unsafe_code)]

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// A group of system calls that not every program makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Sends SIGHUP to processes whose descriptors the program already has.
    HangUp,
    /// Pins the program's own threads to CPUs.
    Pin,
    /// Asks the kernel for routes and for addresses of interfaces (NETLINK_ROUTE).
    Routes,
    /// Asks the kernel for the users of sockets (NETLINK_SOCK_DIAG).
    Sockets,
    /// Opens ports: packet sockets, AF_XDP sockets with their BPF program, TAP devices. Reads the
    /// properties of the ports' interfaces.
    Ports,
    /// Enters other network namespaces.
    Networks,
    /// Makes the calling thread a real-time thread.
    RealTime,
    /// Watches the kernel and all processes by perf events and BPF programs.
    Watch,
    /// Opens files to read them. Creates, changes and removes no file.
    ReadOnly,
}

/// Refuses all system calls except the allowed calls, in this thread and in threads that it starts
/// later.
pub(super) fn allow_only(more: &[Calls]) -> io::Result<()> {
    // A filter on the arguments of clone3(2) is impossible, because they are in memory. With ENOSYS
    // the C library uses clone(2). The kernel takes the stricter answer of the two filters.
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(absent, SeccompAction::Allow, unknown, AS_FAST)?;
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    install(rules(more).map_err(io::Error::other)?, refuse, SeccompAction::Allow, AS_FAST | LOGGED)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(more: &[Calls]) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules =
        ALWAYS.iter().chain(OF_MACHINE).map(|call| (*call, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;
    // A confined program starts threads, but no process and no namespace.
    rules.insert(libc::SYS_clone, vec![all([masked(0, thread | NEW_NAMESPACES, thread)?])?]);
    // Signals to this process alone. musl's abort(3) gives tkill(2) the number of a thread, which
    // is the process's number on the first thread alone. Elsewhere this abort(3) ends by SIGSEGV.
    for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
        rules.insert(call, vec![all([equal(0, own)?])?]);
    }
    rules.insert(libc::SYS_prlimit64, vec![all([equal(0, 0)?])?]);
    rules.insert(libc::SYS_prctl, any_of(0, &PRCTLS)?);
    // A descriptor's owner gets a signal of the program's choice when data arrives.
    let mut safe = Vec::new();
    for command in [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX] {
        safe.push(differs(1, command.unsigned_abs())?);
    }
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(safe)?]);
    rules.insert(libc::SYS_setsockopt, options()?);
    let mut sockets = Vec::new();
    for (family, kind) in FAMILIES.iter().flat_map(|family| KINDS.map(|kind| (*family, kind))) {
        sockets.push(all([equal(0, family)?, masked(1, KIND, kind)?])?);
    }
    let mut controls = IOCTLS.to_vec();
    let netlink =
        |protocol: i32| all([equal(0, AF_NETLINK)?, equal(2, u64::from(protocol.unsigned_abs()))?]);
    for group in more {
        match group {
            Calls::HangUp => {
                let hang_up = equal(1, u64::from(libc::SIGHUP.unsigned_abs()))?;
                rules.insert(libc::SYS_pidfd_send_signal, vec![all([hang_up])?]);
            }
            Calls::Pin => {
                rules.insert(libc::SYS_sched_setaffinity, vec![all([equal(0, 0)?])?]);
            }
            Calls::Routes => sockets.push(netlink(libc::NETLINK_ROUTE)?),
            Calls::Sockets => sockets.push(netlink(libc::NETLINK_SOCK_DIAG)?),
            Calls::Networks => {
                let network = equal(1, u64::from(libc::CLONE_NEWNET.unsigned_abs()))?;
                rules.insert(libc::SYS_setns, vec![all([network])?]);
            }
            Calls::RealTime => {
                rules.insert(libc::SYS_sched_setscheduler, vec![all([equal(0, 0)?])?]);
            }
            Calls::Watch => {
                sockets.push(netlink(libc::NETLINK_GENERIC)?);
                controls.push(0x8946); // SIOCETHTOOL
                rules.insert(libc::SYS_perf_event_open, Vec::new());
                rules.insert(libc::SYS_bpf, any_of(0, &WATCH_BPF)?);
            }
            Calls::ReadOnly => {
                for call in CHANGES {
                    rules.remove(call);
                }
                rules.insert(libc::SYS_openat, vec![all([masked(2, WRITING, 0)?])?]);
                #[cfg(target_arch = "x86_64")]
                rules.insert(libc::SYS_open, vec![all([masked(1, WRITING, 0)?])?]);
            }
            Calls::Ports => {
                sockets.extend(any_of(0, &[libc::AF_PACKET as u64, libc::AF_XDP as u64])?);
                sockets.push(netlink(libc::NETLINK_GENERIC)?);
                controls.extend(PORT_IOCTLS);
                rules.insert(libc::SYS_bpf, any_of(0, &PORT_BPF)?);
            }
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_ioctl, any_of(1, &controls)?);
    Ok(rules)
}

/// Options of sockets, except options that change the rules of iptables, arptables and ebtables.
fn options() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let (ip, ipv6) = (libc::SOL_IP.unsigned_abs(), libc::SOL_IPV6.unsigned_abs());
    let below = SeccompCmpOp::Lt;
    let below = SeccompCondition::new(2, SeccompCmpArgLen::Dword, below, FIRST_OF_TABLES.into())?;
    let (replace, counters) = (differs(2, FIRST_OF_TABLES)?, differs(2, FIRST_OF_TABLES + 1)?);
    Ok(vec![
        all([differs(1, ip)?, differs(1, ipv6)?])?,
        all([equal(1, ip.into())?, below])?,
        all([equal(1, ipv6.into())?, replace, counters])?,
    ])
}

fn all<const N: usize>(
    conditions: [SeccompCondition; N],
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values.iter().map(|value| all([equal(argument, *value)?])).collect()
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn differs(argument: u8, value: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    let operator = SeccompCmpOp::Ne;
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value))
}

fn masked(
    argument: u8,
    mask: u64,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
}

fn install(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let here = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, here).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    let code = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel copies `len` instructions from `filter`, which outlives the call, and does
    // not write to them. seccompiler's instructions have the layout of the kernel's sock_filter.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            flags,
            &raw const code,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Before Linux 5.16 a filter also turned on protections against speculation, which slow the
/// program down. The protections are for programs that run foreign code.
const AS_FAST: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
/// The kernel logs the refused calls.
const LOGGED: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_LOG;

const NEW_NAMESPACES: u64 = 0x7e02_0080;

/// Options of prctl(2): names of threads, names of memory (glibc's malloc), timer slack, and the
/// auxiliary vector (rustix reads the length of a tick from that vector).
const PRCTLS: [u64; 6] = [
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_TIMERSLACK as u64,
    libc::PR_GET_TIMERSLACK as u64,
    0x5356_4d41, // PR_SET_VMA
    0x4155_5856, // PR_GET_AUXV
];

const FAMILIES: [u64; 3] = [libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64];
/// Types of sockets: not SOCK_RAW, whose packets have headers of the program's choice.
const KINDS: [u64; 3] =
    [libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64, libc::SOCK_SEQPACKET as u64];
/// The bits of a socket's type without its flags.
const KIND: u64 = 0xf;
const AF_NETLINK: u64 = libc::AF_NETLINK as u64;
/// include/uapi/asm-generic/fcntl.h
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// The first option of iptables at SOL_IP and at SOL_IPV6: replace the rules. The second option
/// adds counters. At SOL_IP, arptables and ebtables have higher options, and IP has none.
const FIRST_OF_TABLES: u32 = 64;

/// Commands of ioctl(2): non-blocking and inherited descriptors, unread and unsent bytes, whether a
/// descriptor is a terminal and its size, names of interfaces. TIOCSTI, which types into a
/// terminal, is not among these commands.
#[allow(clippy::unnecessary_cast, reason = "musl has another type")]
const IOCTLS: [u64; 12] = [
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::FIONCLEX as u64,
    libc::FIONREAD as u64,
    libc::TIOCOUTQ as u64,
    0x894b, // SIOCOUTQNSD
    libc::TCGETS as u64,
    0x802c_542a, // TCGETS2, which newer C libraries use
    libc::TIOCGWINSZ as u64,
    0x8910, // SIOCGIFNAME
    0x8933, // SIOCGIFINDEX
    0x8921, // SIOCGIFMTU
];

/// Commands of ioctl(2) for ports: flags, address and MTU of an interface, its link, and the device
/// of a TAP port.
const PORT_IOCTLS: [u64; 8] = [
    0x8913,      // SIOCGIFFLAGS
    0x8914,      // SIOCSIFFLAGS
    0x8927,      // SIOCGIFHWADDR
    0x8922,      // SIOCSIFMTU
    0x8924,      // SIOCSIFHWADDR
    0x8946,      // SIOCETHTOOL
    0x4004_54ca, // TUNSETIFF
    0x4004_54d0, // TUNSETOFFLOAD
];

/// Commands of bpf(2) for a program that redirects packets to AF_XDP sockets: BPF_MAP_CREATE,
/// BPF_MAP_UPDATE_ELEM, BPF_PROG_LOAD, BPF_LINK_CREATE. No command opens a program or a map of
/// another process.
const PORT_BPF: [u64; 4] = [0, 2, 5, 28];

/// Commands of bpf(2) that load, run and read programs, and open pinned objects: none that deletes
/// from a map, pins an object or detaches a program (include/uapi/linux/bpf.h).
const WATCH_BPF: [u64; 22] =
    [0, 1, 2, 4, 5, 7, 11, 12, 13, 14, 15, 17, 18, 19, 22, 23, 24, 28, 30, 31, 33, 35];

/// Flags of open(2) with which a file is written or made.
const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

/// Calls of [`ALWAYS`] and [`OF_MACHINE`] that change or remove files. openat2(2) has its flags in
/// memory, where no filter reads them.
const CHANGES: &[i64] = &[
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
];

/// System calls that any program which carries bytes between sockets and files may make. Calls with
/// a condition on their arguments are in [`rules`].
const ALWAYS: &[i64] = &[
    // Bytes.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_lseek,
    libc::SYS_flock,
    // Files, within the directories that Landlock permits.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_umask,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_memfd_create,
    // Sockets.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_restart_syscall,
    // Clocks.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // Threads.
    libc::SYS_clone3, // The other filter answers ENOSYS.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // Facts about this process and the machine.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
];

/// Older forms of calls in [`ALWAYS`], which only this machine has.
#[cfg(target_arch = "x86_64")]
const OF_MACHINE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];
/// The C library renames files by this call if the machine has no rename(2).
#[cfg(target_arch = "aarch64")]
const OF_MACHINE: &[i64] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OF_MACHINE: &[i64] = &[];
