use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use host::{FreedMemory, HostError, MetricsListener, PrivateDirectory};
use port::LinkEvents;

use super::client::CONTROL_SOCKET;
use super::config::{Config, ConfigError, DEFAULT_RUNDIR, OVS_RUNDIR, OvsdbAddress};
use super::confinement;
use super::error::SwitchError;
use super::metrics_thread;
use super::ovsdb::OvsdbThread;
use super::pid_file::PidFile;
use super::switch::Switch;
use super::unixctl_thread::UnixctlThread;
use super::waker::Waker;

/// Callbacks into the process that runs the switch.
#[expect(missing_debug_implementations, reason = "functions have nothing to show")]
pub struct Process {
    /// Reads the settings: at the start, and again for each reload.
    pub settings: Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>,
    /// Sets the log's level: `off`, `error`, `warn`, `info` or `debug`.
    pub set_log_level: Box<dyn Fn(&str) + Send + Sync>,
    /// The file that `settings` reads.
    pub file: Option<PathBuf>,
    /// The rights that the process gives up before its ports open.
    pub confinement: Confinement,
}

/// The rights that a switch gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// No rights.
    Nothing,
    /// Capabilities and system calls that no port needs.
    Calls,
    /// The same rights as `Calls`, and access to files outside the directories of the switch's
    /// settings.
    Files,
}

/// Runs a switch until `stop` is set or a command stops it. Calls `note` with each line that the
/// user should know.
pub fn run(
    process: Process,
    stop: Arc<AtomicBool>,
    mut note: impl FnMut(String),
) -> Result<(), SwitchError> {
    let config = (process.settings)()?;
    config.check()?;
    if config.ovsdb.is_some() && !config.bridge.is_empty() {
        return Err(ConfigError::Value(
            "the database has the bridges: leave --bridge and [bridge] out, or --ovsdb".to_owned(),
        )
        .into());
    }
    let rundir = config.rundir.clone().unwrap_or_else(|| usual_rundir(&config));
    let folder = PrivateDirectory::make_named(&rundir).map_err(|error| refused(&rundir, error))?;
    // Drop the PID file last: once the lock of the file is free, another process may start.
    let _pid_file = PidFile::write(&folder)?;
    let (file, given_up) = (process.file.clone(), process.confinement);
    let switch = Arc::new(Switch::new(folder, stop.clone(), process));
    let listeners = vec![switch.listen(CONTROL_SOCKET)?, switch.listen(&PidFile::socket())?];
    let control = rundir.join(CONTROL_SOCKET);
    let metrics = config.metrics_on.as_deref().map(metrics_thread::bind).transpose()?;
    match given_up {
        Confinement::Nothing => {}
        Confinement::Calls => confinement::confine_calls(),
        Confinement::Files => confinement::confine(&config, &rundir, file.as_deref()),
    }
    let outcome = switch.apply(&config, &mut note).and_then(|()| {
        let waker = Arc::new(Waker::new().map_err(SwitchError::Thread)?);
        let thread = UnixctlThread {
            switch: switch.clone(),
            listeners,
            waker: waker.clone(),
            stop: stop.clone(),
        };
        let builder = std::thread::Builder::new().name("unixctl".to_owned());
        let thread = builder.spawn(|| thread.run()).map_err(SwitchError::Thread)?;
        let metrics = metrics.map(|listener| serve_metrics(&switch, listener, &mut note));
        let metrics = metrics.transpose()?;
        note(format!("control at {}", control.display()));
        let follower = config.ovsdb.as_ref().map(|OvsdbAddress(socket)| {
            note(format!("ovsdb: follows the database at unix:{}", socket.display()));
            follow(&switch, socket, &config, &rundir, &stop)
        });
        let follower = follower.transpose()?;
        let mut rounds = 0_u32;
        let mut freed = FreedMemory::default();
        let links = LinkEvents::subscribe();
        if let Err(error) = &links {
            tracing::warn!("{error}; the switch looks for lost interfaces five times a second");
        }
        while !stop.load(Ordering::Acquire) {
            // Check the links first, because a neighbour may send as soon as a link is up.
            let has_link_changed = links.as_ref().map_or_else(
                |_| {
                    std::thread::sleep(ROUND);
                    false
                },
                |links| links.wait(ROUND),
            );
            rounds = rounds.wrapping_add(1);
            if has_link_changed || rounds.is_multiple_of(ROUNDS_PER_CARE) {
                let must_look = has_link_changed || links.is_err();
                switch.look_after_ports(must_look || rounds.is_multiple_of(ROUNDS_PER_COUNT));
            }
            if rounds.is_multiple_of(ROUNDS_PER_COUNT) {
                switch.count_events();
                freed.tend();
            }
        }
        if let Some((waker, thread)) = follower {
            waker.wake();
            let _ = thread.join();
        }
        waker.wake();
        let _ = thread.join();
        if let Some((waker, thread)) = metrics {
            waker.wake();
            let _ = thread.join();
        }
        Ok(())
    });
    switch.close();
    outcome
}

fn usual_rundir(config: &Config) -> PathBuf {
    if config.ovsdb.is_none() {
        return PathBuf::from(DEFAULT_RUNDIR);
    }
    std::env::var_os("OVS_RUNDIR").map_or_else(|| PathBuf::from(OVS_RUNDIR), PathBuf::from)
}

fn follow(
    switch: &Arc<Switch>,
    socket: &Path,
    config: &Config,
    rundir: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<(Arc<Waker>, JoinHandle<()>), SwitchError> {
    let waker = Arc::new(Waker::new().map_err(SwitchError::Thread)?);
    let thread = OvsdbThread::new(
        switch.clone(),
        socket.to_owned(),
        config.clone(),
        rundir.to_owned(),
        waker.clone(),
        stop.clone(),
    );
    let builder = std::thread::Builder::new().name("ovsdb".to_owned());
    let thread = builder.spawn(|| thread.run()).map_err(SwitchError::Thread)?;
    Ok((waker, thread))
}

fn serve_metrics(
    switch: &Arc<Switch>,
    listener: MetricsListener,
    note: &mut impl FnMut(String),
) -> Result<(Arc<Waker>, JoinHandle<()>), SwitchError> {
    let waker = Arc::new(Waker::new().map_err(SwitchError::Thread)?);
    if let Some(place) = listener.place() {
        note(format!("metrics at {place}"));
    }
    let (switch, end) = (switch.clone(), waker.clone());
    let builder = std::thread::Builder::new().name("metrics".to_owned());
    let thread = builder.spawn(move || metrics_thread::run(&switch, &listener, &end));
    let thread = thread.map_err(SwitchError::Thread)?;
    Ok((waker, thread))
}

fn refused(rundir: &Path, error: HostError) -> SwitchError {
    match error {
        HostError::Io { source: error, .. } => {
            SwitchError::Rundir { path: rundir.to_owned(), error }
        }
        error => error.into(),
    }
}

const ROUND: Duration = Duration::from_millis(20);
const ROUNDS_PER_CARE: u32 = 10;
/// Number of rounds of the main thread between two readings of the event counters: five seconds.
const ROUNDS_PER_COUNT: u32 = 250;
