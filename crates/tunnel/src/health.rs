//! The health of an end's threads, for its health check and its supervisor.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The health of an end's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Good,
    /// A thread has not run its tasks for some time.
    Stalled,
    /// A task that a socket depends on has panicked. Only a restart helps.
    Failed,
}

/// Reports to systemd, if systemd started this process (sd_notify(3)).
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: Option<std::os::unix::net::UnixDatagram>,
    /// The maximum time between two reports. Without a report in this time, the supervisor kills
    /// this process.
    watchdog: Option<Duration>,
    /// Whether this process reports nothing, because another process now reports for the service.
    is_silent: AtomicBool,
}

impl Supervisor {
    pub(crate) fn of_environment() -> Self {
        let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let is_mine = |pid: String| pid.parse() == Ok(std::process::id());
        let is_mine = std::env::var("WATCHDOG_PID").map_or(true, is_mine);
        let watchdog = watchdog.filter(|_| is_mine).map(Duration::from_micros);
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|path| {
            connected(path.as_bytes())
                .inspect_err(
                    |error| tracing::warn!(%error, "cannot report the state to the supervisor"),
                )
                .ok()
        });
        Self { socket, watchdog, is_silent: AtomicBool::new(false) }
    }

    pub(crate) fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && !self.is_silent.load(Ordering::Relaxed)
        {
            let _ = socket.send(state.as_bytes());
        }
    }

    /// Sends no further reports.
    pub(crate) fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Reports to the supervisor's watchdog as long as this end is healthy. Returns once this end
    /// has failed.
    pub(crate) async fn watch(&self, health: impl Fn() -> Health) {
        let pause = self.watchdog.map_or(LOOK, |period| (period / 3).min(LOOK));
        let mut before = Health::Good;
        loop {
            let now = health();
            match now {
                Health::Good => self.tell("WATCHDOG=1"),
                Health::Stalled if before == Health::Good => {
                    tracing::error!("a thread of this end has stalled");
                }
                Health::Stalled => {}
                Health::Failed => return,
            }
            before = now;
            tokio::time::sleep(pause).await;
        }
    }
}

fn connected(path: &[u8]) -> io::Result<std::os::unix::net::UnixDatagram> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const LOOK: Duration = Duration::from_secs(5);
