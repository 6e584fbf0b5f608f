//! Takes from the process of a server the rights that serving does not need.

use super::Server;
use crate::PerfError;
use host::{Calls, ConfinedPaths, Policy, User};
use rustix::thread::CapabilitySet;

/// The user as whom a server serves.
#[derive(Debug, Clone, Default)]
pub enum ServeAs {
    /// The user who started the server; if that is root, `nobody` where the kernel allows the
    /// change.
    #[default]
    Usual,
    User(User),
}

impl ServeAs {
    pub fn named(name: &str) -> Result<Self, PerfError> {
        let user = User::named(name).map_err(|error| PerfError::Usage(error.to_string()))?;
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() != user.uid() {
            return Err(PerfError::Usage(format!(
                "only root can serve as another user: start the server as root, or as {name}"
            )));
        }
        Ok(Self::User(user))
    }
}

impl Server {
    /// Changes the user, and confines this thread and threads that it starts later, permanently.
    /// Call this method before other threads start. All files of the server must be open.
    pub fn confine(&self, serve_as: &ServeAs) -> Result<(), PerfError> {
        let is_root = rustix::process::geteuid().is_root();
        let (mut policy, mut paths) = (POLICY, ConfinedPaths::default());
        if let Some(accounts) = &self.options.accounts {
            // The new user may have no right to follow a symbolic link.
            paths.reads(accounts.users());
        }
        match serve_as {
            ServeAs::Usual if !is_root => {}
            ServeAs::Usual => {
                // Root of a user namespace has no user nobody.
                if let Err(error) = host::become_user(&User::nobody()) {
                    tracing::debug!("{error}");
                }
            }
            ServeAs::User(user) => {
                host::become_user(user).map_err(|error| PerfError::Usage(error.to_string()))?;
            }
        }
        if let Some(accounts) = &self.options.accounts {
            // The server reads the file for each client; the new user may have no right to it.
            paths.reads(accounts.users());
            if paths.has_foreign() {
                policy.capabilities |= CapabilitySet::DAC_READ_SEARCH;
            }
            for directory in paths.too_wide().filter(|_| is_root) {
                tracing::warn!(
                    "the file of users lies in {}, so the server may read all files there: move it \
                     to a directory of its own",
                    directory.display()
                );
            }
        }
        let confinement = host::confine(&policy, &paths);
        for warning in confinement.warnings() {
            tracing::warn!("{warning}");
        }
        tracing::debug!("{confinement}");
        Ok(())
    }
}

const POLICY: Policy = Policy {
    // CAP_NET_BIND_SERVICE: each UDP stream has a socket at the server's port, which may be below
    // 1024. CAP_NET_ADMIN: a client may ask for any congestion control. The server can open no
    // Netlink socket, so the server changes neither routes nor interfaces. CAP_IPC_LOCK: sending
    // without copies pins pages beyond RLIMIT_MEMLOCK.
    capabilities: CapabilitySet::NET_BIND_SERVICE
        .union(CapabilitySet::NET_ADMIN)
        .union(CapabilitySet::IPC_LOCK),
    // /proc has the CPU time of threads and cores, and the names of congestion controls.
    system: &[
        host::LIBRARIES,
        &["/usr/share/zoneinfo", "/sys/devices/system/cpu", "/sys/fs/cgroup", "/proc", "/dev/null"],
    ],
    calls: &[Calls::Pin],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ServerOptions;
    use std::net::Ipv4Addr;

    #[test]
    fn a_server_of_root_is_refused_every_forbidden_call_and_still_opens_low_ports() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(testing::Need::Root);
        }
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("file"), "text").unwrap();
        let options = ServerOptions { port: 0, ..ServerOptions::default() };
        let server = Server::bind(&options).unwrap();
        // Confines only this thread, which ends with the test.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                server.confine(&ServeAs::Usual).unwrap();
                assert_eq!(rustix::process::geteuid().as_raw(), User::nobody().uid());
                assert_eq!(testing::permitted(other.path()), Vec::<String>::new());
                probe::cpu::CpuSnapshot::read().unwrap();
                let low = (1..1024).rev().find_map(|port| {
                    match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
                        other => Some(other),
                    }
                });
                low.unwrap().unwrap();
            });
            thread.join().unwrap();
        });
        eprintln!("ATTACK confined-perf: {} calls refused", testing::forbidden_names().count());
    }
}
