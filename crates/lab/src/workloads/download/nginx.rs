//! The web server: Debian's nginx with a private configuration, confined to the server's namespace.

use crate::bench::machine::{MachineStep, Started, await_listener, is_installed};
use crate::model::Failure;
use host::Namespace;
use perf::download::Checksum;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use units::Bytes;

/// A running web server and its file.
#[derive(Debug)]
pub(super) struct Nginx {
    program: Started,
    expected: Expected,
    /// Holds the file and everything that nginx writes. Removed with the server.
    _folder: TempDir,
}

/// The size and the checksum of the content that a client must receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) size: Bytes,
    pub(super) checksum: u64,
}

/// Finds nginx on this machine.
pub(in crate::workloads) fn find() -> Option<PathBuf> {
    // An ordinary user's PATH has no sbin on Debian.
    let places = ["nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"];
    places.into_iter().find(|place| is_installed(place)).map(PathBuf::from)
}

impl Nginx {
    pub(super) fn start(
        step: &MachineStep<'_>,
        inside: &Namespace,
        size: Bytes,
    ) -> Result<Self, Failure> {
        let program = find().ok_or_else(|| Failure::Workload(NOT_INSTALLED.to_owned()))?;
        let folder = tempfile::Builder::new()
            .prefix("nginx-")
            .tempdir_in(step.programs)
            .map_err(|error| Failure::io("making a folder for nginx", &error))?;
        let expected = furnish(folder.path(), size, step.lab.seed)
            .map_err(|error| Failure::io("writing nginx's files", &error))?;
        let prefix = format!("{}/", folder.path().display());
        let program = program.display().to_string();
        let words = ["-e", "stderr", "-p", &prefix, "-c", CONFIGURATION_FILE];
        let argv = [program.as_str()].into_iter().chain(words).map(str::to_owned).collect();
        let mut program = Started::new(inside, argv, &step.cpus.from, step)?;
        await_listener(inside, PORT, &mut program, step)?;
        Ok(Self { program, expected, _folder: folder })
    }

    /// Sets the algorithm of the listening socket, which all new connections inherit. The default
    /// of a namespace does not suffice: a namespace may choose fewer algorithms
    /// (net/ipv4/tcp_cong.c, `tcp_set_default_congestion_control`).
    pub(super) fn choose(&self, inside: &Namespace, congestion: &str) -> Result<(), Failure> {
        let filter = probe::tcp::Filter::listening().local_port(PORT);
        let listening = inside.run(|| Ok(probe::tcp::sockets(&filter)))??;
        for socket in &listening {
            let held = self
                .descriptor(socket.inode)
                .map_err(|error| Failure::io("reaching the socket nginx listens at", &error))?;
            probe::tcp::set_congestion_control(&held, congestion)
                .map_err(|refused| Failure::Workload(refused.to_string()))?;
        }
        match listening.is_empty() {
            true => Err(Failure::Workload("nginx does not listen any more".to_owned())),
            false => Ok(()),
        }
    }

    pub(super) fn expected(&self) -> Expected {
        self.expected
    }

    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Checks that nginx is still running. An exit of nginx explains the clients' errors.
    pub(super) fn still_there(&mut self) -> Result<(), Failure> {
        match self.program.wait(Duration::ZERO)? {
            None => Ok(()),
            Some(status) => Err(self.program.early_end(status)),
        }
    }

    /// Duplicates nginx's descriptor of the socket with this inode number into this process.
    fn descriptor(&self, inode: u32) -> io::Result<OwnedFd> {
        let pid = self.program.pid();
        let wanted = format!("socket:[{inode}]");
        let open = fs::read_dir(format!("/proc/{pid}/fd"))?;
        let number = open.flatten().find_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            (target == Path::new(&wanted)).then(|| entry.file_name().to_str()?.parse().ok())?
        });
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
    }
}

/// Returns the server's configuration, and the checksum of the first bytes of its file. The rest of
/// the file follows from the same seed.
pub(super) fn inputs(size: Bytes, seed: u64) -> [(String, String); 2] {
    let mut checksum = Checksum::default();
    checksum.add(&body(size.min(ENOUGH_TO_TELL), seed));
    [
        ("configuration of nginx".to_owned(), CONFIGURATION.to_owned()),
        (format!("served file of {size}"), format!("{:?}", checksum.value())),
    ]
}

/// Returns random bytes that no cache, compression or zero page on the path can shrink.
fn body(size: Bytes, seed: u64) -> Vec<u8> {
    let mut body = vec![0; size.count() as usize];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut body);
    body
}

/// Writes the configuration of nginx, and the file for the clients.
fn furnish(folder: &Path, size: Bytes, seed: u64) -> io::Result<Expected> {
    fs::write(folder.join(CONFIGURATION_FILE), CONFIGURATION)?;
    fs::create_dir(folder.join("www"))?;
    let body = body(size, seed);
    fs::write(folder.join("www").join(FILE), &body)?;
    let mut checksum = Checksum::default();
    checksum.add(&body);
    Ok(Expected { size, checksum: checksum.value() })
}

pub(super) const PORT: u16 = 80;
pub(super) const FILE: &str = "file";
pub(in crate::workloads) const NOT_INSTALLED: &str =
    "nginx is not installed: scripts/setup installs it, or `apt install nginx`";
const ENOUGH_TO_TELL: Bytes = Bytes::new(1 << 20);
const CONFIGURATION_FILE: &str = "nginx.conf";
/// Debian's configuration with other paths. `user root`: a user namespace has no other user, and
/// only root may read the folder.
const CONFIGURATION: &str = "\
daemon off;
user root;
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {
    worker_connections 768;
}
http {
    sendfile on;
    tcp_nopush on;
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 80;
        root www;
    }
}
";
