//! Confines the process of an end. The systemd unit confines the process further; this confinement
//! also protects an end that no unit started.
//!
//! Name look-ups read the system's configuration, and /etc also has files that only root may read.
//! So look-ups run on threads of their own, as the user `nobody`, and only these threads may open
//! files in /etc. The other threads of an end that root started keep root's files, in the end's own
//! directories.

use crate::access::{BoxFuture, Resolve, look_up};
use host::{Calls, ConfinedPaths, Confinement, OtherThreads, Policy, User};
use rustix::thread::CapabilitySet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Confines this thread, and threads that it starts later, permanently. Returns the resolver that
/// the confined end uses. Call this function before other threads start.
pub(crate) fn confine(paths: &ConfinedPaths) -> io::Result<Arc<dyn Resolve>> {
    if rustix::process::geteuid().is_root() {
        for directory in paths.too_wide() {
            tracing::warn!(
                "files of this end lie in {}, so the end may read all of root's files there: move \
                 them to a directory of their own",
                directory.display()
            );
        }
    }
    let (resolver, [end, lookups]) = enforce(paths)?;
    if end.has_files() {
        paths.remember();
    }
    for warning in end.warnings() {
        tracing::warn!("{warning}");
    }
    // The filter of a systemd unit refuses to drop the unit's two capabilities.
    for warning in lookups.warnings() {
        tracing::debug!("look-ups: {warning}");
    }
    // A kernel without Landlock causes no error.
    if end.has_files() || !end.warnings().is_empty() {
        tracing::debug!("{end}");
    } else {
        tracing::warn!("{end}");
    }
    Ok(Arc::new(resolver))
}

/// Confines this thread, and starts the confined threads that look names up.
fn enforce(paths: &ConfinedPaths) -> io::Result<(ConfinedResolver, [Confinement; 2])> {
    let mut files = ConfinedPaths::default();
    // Some distributions link these files to other directories, such as /run/netconfig.
    for file in ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"] {
        files.reads(Path::new(file));
    }
    let (threads, lookups) = OtherThreads::start("lookup", move || {
        if let Err(error) = host::become_user(&User::nobody()) {
            tracing::debug!("name look-ups keep the user of this process: {error}");
        }
        host::confine(&LOOKUPS, &files)
    })?;
    let mut policy = END;
    if paths.has_foreign() {
        policy.capabilities |= CapabilitySet::DAC_OVERRIDE;
    }
    let end = host::confine(&policy, paths);
    Ok((ConfinedResolver(threads), [end, lookups]))
}

/// Looks names up like [`crate::access::SystemResolver`], on threads with rights of their own.
#[derive(Debug)]
struct ConfinedResolver(OtherThreads);

impl Resolve for ConfinedResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            if let Ok(address) = name.parse::<IpAddr>() {
                return Ok(vec![address.to_canonical()]);
            }
            let (answer, found) = tokio::sync::oneshot::channel();
            let name = name.to_owned();
            self.0.run(move || {
                let _ = answer.send(look_up(&name));
            });
            found
                .await
                .unwrap_or_else(|_| Err(io::Error::other("there is no thread for the look-up")))
        })
    }
}

/// The rights of an end.
const END: Policy = Policy {
    // CAP_NET_BIND_SERVICE: a reload opens listeners at ports below 1024. CAP_NET_ADMIN: the
    // receive buffer of a connection's UDP socket may exceed net.core.rmem_max, and a client opens
    // such a socket for each connection.
    capabilities: CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::NET_ADMIN),
    // Libraries that a backtrace opens; the number of CPUs; the server's local ports.
    system: &[
        host::LIBRARIES,
        &[
            "/usr/share/zoneinfo",
            "/sys/fs/cgroup",
            "/proc/self",
            "/proc/sys/net/ipv4/ip_local_port_range",
            "/dev/null",
        ],
    ],
    // A reload reaches the former processes of a hand-over. Routes tell which addresses are this
    // machine's own, sockets which user sends the datagrams of a SOCKS association.
    calls: &[Calls::HangUp, Calls::Routes, Calls::Sockets],
};

/// The rights of the threads that look names up. A name server's answers are parsed there.
const LOOKUPS: Policy = Policy {
    capabilities: CapabilitySet::empty(),
    system: &[
        host::LIBRARIES,
        &[
            // resolv.conf and hosts are replaced by renaming, so a rule for each file would not
            // last.
            "/etc",
            "/run/systemd/resolve",
            "/run/resolvconf",
            "/run/NetworkManager",
            "/run/nscd",
            "/var/lib/sss",
            "/proc/self",
            "/dev/null",
        ],
    ],
    calls: &[Calls::Routes],
};

#[cfg(test)]
mod tests {
    use super::*;
    use host::SocketFile;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use rustix::fs::Mode;
    use std::fs::{self, Permissions};
    use std::io::{ErrorKind, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use testing::Need;

    /// Runs `work` on a thread under the confinement of an end with these paths.
    fn under<T: Send>(
        paths: &ConfinedPaths,
        prepare: impl FnOnce() + Send,
        work: impl FnOnce(&ConfinedResolver) -> T + Send,
    ) -> Option<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                prepare();
                let (resolver, confinements) = enforce(paths).unwrap();
                match confinements.iter().all(Confinement::is_whole) {
                    true => Some(work(&resolver)),
                    false => None,
                }
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn a_confined_thread_reads_only_its_directories_and_starts_no_program() {
        let folder = || tempfile::tempdir().unwrap();
        let (own, other, logs) = (folder(), folder(), folder());
        for folder in [&own, &other] {
            fs::write(folder.path().join("file"), "text").unwrap();
        }
        let mut paths = ConfinedPaths::default();
        paths.reads(&own.path().join("file"));
        paths.binds(&own.path().join("socket"));
        paths.writes(&logs.path().join("access.log"));
        let done = under(
            &paths,
            || {},
            |_| {
                assert_eq!(fs::read(own.path().join("file")).unwrap(), b"text");
                UnixListener::bind(own.path().join("socket")).unwrap();
                fs::remove_file(own.path().join("socket")).unwrap();
                // After a hand-over an end opens another status socket.
                let private = Mode::RUSR | Mode::WUSR;
                let path = own.path().join("socket");
                let status = SocketFile::at(&path).unwrap().listen(Some(private)).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                drop(status);
                assert!(!path.exists());
                denied(fs::read("/etc/passwd"));
                denied(fs::read(other.path().join("file")));
                denied(fs::write(other.path().join("new"), "x"));
                denied(fs::write(own.path().join("new"), "x"));
                let mut log = fs::File::options();
                let log = log.append(true).create(true).open(logs.path().join("access.log"));
                log.unwrap().write_all(b"line").unwrap();
                denied(fs::read(logs.path().join("access.log")));
                denied(std::process::Command::new("/bin/true").status());
                std::thread::spawn(|| denied(fs::read("/etc/passwd"))).join().unwrap();
            },
        );
        if done.is_none() {
            testing::skip_part(Need::Confinement);
        }
    }

    /// The two kinds of threads of an end have different rights; neither may make a forbidden call.
    #[test]
    fn an_end_of_root_is_refused_every_forbidden_call_and_still_listens_at_low_ports() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(Need::Root);
        }
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(own.path().join("file"), "text").unwrap();
        fs::write(other.path().join("file"), "text").unwrap();
        let mut paths = ConfinedPaths::default();
        paths.reads(&own.path().join("file"));
        assert!(!paths.has_foreign());
        let other = other.path().to_owned();
        let done = under(
            &paths,
            || {},
            |resolver| {
                assert_eq!(testing::permitted(&other), Vec::<String>::new());
                let elsewhere = other.clone();
                let of_lookups = on_thread_of(&resolver.0, move || testing::permitted(&elsewhere));
                assert_eq!(of_lookups, Vec::<String>::new());
                assert_eq!(fs::read(own.path().join("file")).unwrap(), b"text");
                let low = (1..1024).rev().find_map(|port| {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
                    match listener {
                        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
                        other => Some(other),
                    }
                });
                low.unwrap().unwrap();
            },
        );
        match done {
            Some(()) => eprintln!(
                "ATTACK confined-calls: {} calls refused to both kinds of threads",
                testing::forbidden_names().count(),
            ),
            None => testing::skip_part(Need::Confinement),
        }
    }

    /// DHCP clients and configuration tools replace the files by renaming.
    #[test]
    fn name_look_ups_read_hosts_and_resolv_conf_again_after_they_are_replaced() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(Need::Root);
        }
        // Root of a container may lack the right to mount.
        if !Need::NetworkNamespaces.is_met() {
            return testing::skip(Need::NetworkNamespaces);
        }
        let etc = tempfile::tempdir().unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(etc.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        // The confined thread cannot write, and asks a thread that keeps its rights.
        let (free, ()) = OtherThreads::start("free", || ()).unwrap();
        let replace = |name: &'static str, text: &'static str| {
            let etc = etc.path().to_owned();
            on_thread_of(&free, move || {
                fs::write(etc.join("new"), text).unwrap();
                fs::rename(etc.join("new"), etc.join(name)).unwrap();
            });
        };
        mode("", 0o755);
        replace("nsswitch.conf", "hosts: files\n");
        replace("hosts", "192.0.2.1 changing.test\n");
        replace("resolv.conf", "# first\n");
        replace("shadow", "root:secret\n");
        mode("shadow", 0o640);
        let hide = || {
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            mount(Some(etc.path()), "/etc", None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        };
        let done = under(&ConfinedPaths::default(), hide, |resolver| {
            let look_up =
                |name: &'static str| on_thread_of(&resolver.0, move || look_up(name).unwrap());
            let read =
                |path: &'static str| on_thread_of(&resolver.0, move || fs::read_to_string(path));
            assert_eq!(look_up("changing.test"), [IpAddr::from([192, 0, 2, 1])]);
            replace("hosts", "192.0.2.2 changing.test\n");
            replace("resolv.conf", "# second\n");
            assert_eq!(look_up("changing.test"), [IpAddr::from([192, 0, 2, 2])]);
            assert_eq!(read("/etc/resolv.conf").unwrap(), "# second\n");
            denied(read("/etc/shadow"));
            // The end's own threads are still root, and have no right to /etc.
            for name in ["hosts", "shadow"] {
                denied(fs::read(Path::new("/etc").join(name)));
            }
        });
        if done.is_none() {
            testing::skip_part(Need::Confinement);
        }
    }

    fn on_thread_of<T: Send + 'static>(
        threads: &OtherThreads,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, result) = mpsc::channel();
        threads.run(move || {
            let _ = sender.send(task());
        });
        result.recv().unwrap()
    }

    fn denied<T: std::fmt::Debug>(result: io::Result<T>) {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
