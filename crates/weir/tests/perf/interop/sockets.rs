//! The sockets of a process under test, with their options.

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::{Domain, SockRef, Type};
use std::os::fd::RawFd;

/// The state at one moment of a test.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Whether client and server are Weir's.
    pub(crate) ours: [bool; 2],
    /// The client's sockets connected to the server's port: the control connection and the streams.
    pub(crate) client: Vec<Socket>,
    pub(crate) server: Vec<Socket>,
    /// The CPUs on which each thread of the client may run, as the kernel lists CPUs.
    pub(crate) client_cpus: Vec<String>,
    pub(crate) server_cpus: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Socket {
    pub(crate) datagrams: bool,
    pub(crate) local: String,
    pub(crate) remote: String,
    pub(crate) mss: u32,
    pub(crate) tos: u32,
    pub(crate) nodelay: bool,
    pub(crate) congestion: String,
    pub(crate) send_buffer: usize,
    pub(crate) receive_buffer: usize,
}

impl Seen {
    /// Reads the current sockets of both processes, without sockets that close during the reading.
    pub(crate) fn now(client: u32, server: u32) -> Self {
        Self {
            client: sockets(client),
            server: sockets(server),
            ours: [false; 2],
            client_cpus: cpus(client),
            server_cpus: cpus(server),
        }
    }

    /// Checks that at least one socket of each end meets the condition.
    pub(crate) fn at_both(&self, what: &str, is: impl Fn(&Socket) -> bool) -> Result<(), String> {
        self.at([true; 2], what, is)
    }

    /// Checks that at least one socket of each Weir end meets the condition.
    pub(crate) fn at_ours(&self, what: &str, is: impl Fn(&Socket) -> bool) -> Result<(), String> {
        self.at(self.ours, what, is)
    }

    fn at(&self, ends: [bool; 2], what: &str, is: impl Fn(&Socket) -> bool) -> Result<(), String> {
        for (asked, end, sockets) in
            [(ends[0], "client", &self.client), (ends[1], "server", &self.server)]
        {
            if asked && !sockets.iter().any(&is) {
                return Err(format!("no socket of the {end} has {what}: {sockets:?}"));
            }
        }
        Ok(())
    }
}

fn sockets(pid: u32) -> Vec<Socket> {
    let look = || {
        let descriptor = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let numbers = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            target.to_str()?.starts_with("socket:").then(|| entry.file_name())
        });
        let found = numbers.filter_map(|name| {
            let number: RawFd = name.to_str()?.parse().ok()?;
            let copy = pidfd_getfd(&descriptor, number, PidfdGetfdFlags::empty()).ok()?;
            socket(&SockRef::from(&copy))
        });
        Some(found.collect())
    };
    look().unwrap_or_default()
}

/// Reads the socket's options; `None` for a socket that is no internet socket, or is not connected.
fn socket(socket: &SockRef<'_>) -> Option<Socket> {
    let local = socket.local_addr().ok()?.as_socket()?;
    let remote = socket.peer_addr().ok()?.as_socket()?;
    let datagrams = socket.r#type().ok()? == Type::DGRAM;
    let six = socket.domain().ok()? == Domain::IPV6 && !mapped(local.ip());
    let tos = if six { socket.tclass_v6() } else { socket.tos_v4() };
    let congestion = socket.tcp_congestion().unwrap_or_default();
    Some(Socket {
        datagrams,
        local: local.to_string(),
        remote: remote.to_string(),
        mss: socket.tcp_mss().unwrap_or(0),
        tos: tos.unwrap_or(0),
        nodelay: socket.tcp_nodelay().unwrap_or(false),
        congestion: String::from_utf8_lossy(&congestion).trim_end_matches('\0').to_owned(),
        send_buffer: socket.send_buffer_size().unwrap_or(0),
        receive_buffer: socket.recv_buffer_size().unwrap_or(0),
    })
}

fn mapped(ip: std::net::IpAddr) -> bool {
    matches!(ip, std::net::IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

fn cpus(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let status = |entry: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(entry.ok()?.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    };
    threads.into_iter().flatten().filter_map(status).collect()
}
