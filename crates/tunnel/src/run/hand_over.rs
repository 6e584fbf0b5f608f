//! The hand-over of a running end to another process: the new process takes over, and the former
//! process ends.

use super::endpoints::StatusEndpoints;
use super::{RunError, lock};
use crate::config::Settings;
use crate::hand_over::{HandOver, Handed, PROCESS, TakeOverError, TakenOver};
use crate::health::Supervisor;
use crate::status::{self, Answer, Directory, Facts, SharedSocket};
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Makes a new process take over from a running end.
#[derive(Debug, Clone, Copy)]
pub struct TakeOver {
    /// Maximum time for which the former process may carry its last sessions.
    pub within: Duration,
    /// The process to take over from; `None` for the only end of this user in the role.
    pub from: Option<u32>,
}

/// The process from which this process takes over; `None` without such a process.
#[derive(Debug, Default)]
pub(super) struct Former {
    taken: Option<TakenOver>,
    /// Earlier processes from which `taken`'s process took over. `taken`'s process may exit before
    /// these processes.
    earlier: Vec<OwnedFd>,
    nothing: Handed,
}

impl Former {
    /// If `take_over` is given, takes over the sockets of the end that runs on this machine in this
    /// role.
    pub(super) async fn find(
        role: &str,
        settings: &Settings,
        take_over: Option<TakeOver>,
        say: &impl Fn(String),
    ) -> Result<Self, RunError> {
        let Some(take_over) = take_over else { return Ok(Self::default()) };
        let mut taken = sockets_of_running(role, settings, take_over).await?;
        if taken.is_none() {
            say(format!("no {role} runs here: starting without --take-over"));
        }
        let earlier = taken.as_mut().map(|taken| taken.handed.take_processes());
        Ok(Self { taken, earlier: earlier.unwrap_or_default(), nothing: Handed::default() })
    }

    pub(super) fn sockets(&mut self) -> &mut Handed {
        self.taken.as_mut().map_or(&mut self.nothing, |taken| &mut taken.handed)
    }

    /// Completes the take-over: this process serves, and the former process carries only its last
    /// sessions.
    pub(super) fn started(
        &mut self,
        supervisor: &Supervisor,
        endpoints: &StatusEndpoints,
    ) -> Result<(), RunError> {
        let Some(taken) = &mut self.taken else { return Ok(()) };
        // Name the new main process to the supervisor before the former process may exit.
        supervisor.tell(&format!("MAINPID={}\nREADY=1", std::process::id()));
        if let Err(error) = taken.started() {
            // The former process goes on. Name the former process as the main process again:
            // otherwise the exit of this process would end the service.
            supervisor.tell(&format!("MAINPID={}", taken.process.pid()));
            return Err(error.into());
        }
        endpoints.own();
        tracing::info!(process = taken.process.pid(), "taken over from another process");
        Ok(())
    }

    /// Sends SIGHUP to the former processes that still run, so that they reload their files too.
    pub(super) fn hang_up(&self) {
        for process in &self.earlier {
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::HUP);
        }
        if let Some(taken) = &self.taken {
            let _ = taken.process.hang_up();
        }
    }

    /// Returns copies of the descriptors of former processes, oldest first, for the process that
    /// takes over from this process.
    fn processes(&self) -> io::Result<Vec<OwnedFd>> {
        let earlier = self.earlier.iter().map(OwnedFd::try_clone);
        let taken = self.taken.iter().map(|taken| taken.process.descriptor());
        let mut all = earlier.chain(taken).collect::<io::Result<Vec<_>>>()?;
        all.drain(..all.len().saturating_sub(MOST_PROCESSES));
        Ok(all)
    }
}

/// Takes the sockets of the end that runs on this machine in this role; `None` if no end runs and
/// the caller names no process.
async fn sockets_of_running(
    role: &str,
    settings: &Settings,
    TakeOver { within, from }: TakeOver,
) -> Result<Option<TakenOver>, RunError> {
    let files = match &settings.status_socket {
        Some(path) => vec![status::at(path)?],
        None => Directory::of_user().sockets()?,
    };
    let mut found = Vec::new();
    for file in files {
        match status::ask(&file, None).await {
            Ok(Some(Answer { status, .. })) if status.role == role && !status.is_draining => {
                if from.is_none_or(|from| from == status.pid) {
                    found.push(file);
                }
            }
            Ok(_) => {}
            Err(error) if error.is_gone() => {}
            Err(error) if settings.status_socket.is_some() => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "an end does not answer"),
        }
    }
    let taken = match &found[..] {
        [] => None,
        [one] => status::take_over(one, within)?,
        several => return Err(TakeOverError::Several(several.len()).into()),
    };
    match from {
        // Without the named process's sockets, this process would serve beside the named process.
        Some(pid) if taken.is_none() => {
            Err(TakeOverError::NotHere { pid, role: role.to_owned() }.into())
        }
        _ => Ok(taken),
    }
}

/// The state of an end that can hand its sockets over.
pub(super) struct Handing<T> {
    pub(super) end: Weak<T>,
    pub(super) facts: Arc<Mutex<Facts>>,
    pub(super) supervisor: Arc<Supervisor>,
    /// Sockets of status and metrics, in addition to the end's own sockets.
    pub(super) sockets: Mutex<Vec<SharedSocket>>,
    /// Cancelled once another process has the sockets.
    pub(super) handed: CancellationToken,
    pub(super) begin: fn(&T) -> io::Result<Handed>,
    pub(super) take_back: fn(&T),
    /// Whether a hand-over to another process is in progress or complete.
    is_under_way: AtomicBool,
    completed: watch::Sender<Option<Instant>>,
    /// The former processes from which this process took over.
    formers: Vec<OwnedFd>,
}

/// Reports to a process that it has handed over its sockets, and when it has to end.
pub(super) struct Left {
    completed: watch::Receiver<Option<Instant>>,
    since: Option<Instant>,
}

/// The functions that hand over the sockets of an end, and that take them back.
type Steps<T> = (fn(&T) -> io::Result<Handed>, fn(&T));

impl<T> Handing<T> {
    pub(super) fn new(
        end: Weak<T>,
        facts: &Arc<Mutex<Facts>>,
        supervisor: &Arc<Supervisor>,
        (begin, take_back): Steps<T>,
        former: &Former,
    ) -> (Self, Left) {
        let (completed, receiver) = watch::channel(None);
        let formers = former.processes().unwrap_or_else(|error| {
            tracing::warn!(%error, "a later process does not reload the former ones");
            Vec::new()
        });
        let handing = Self {
            end,
            facts: Arc::clone(facts),
            supervisor: Arc::clone(supervisor),
            sockets: Mutex::default(),
            handed: CancellationToken::new(),
            begin,
            take_back,
            is_under_way: AtomicBool::new(false),
            completed,
            formers,
        };
        (handing, Left { completed: receiver, since: None })
    }
}

impl<T: Send + Sync> HandOver for Handing<T> {
    fn begin(&self) -> Result<Handed, String> {
        if lock(&self.facts).drain_until.is_some() {
            return Err("this end accepts no new sessions".to_owned());
        }
        let Some(end) = self.end.upgrade() else {
            return Err("this end is shutting down".to_owned());
        };
        // Refuse a second hand-over: otherwise two processes would get the sockets.
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return Err("another process is taking over".to_owned());
        }
        let all = || {
            let mut more = Vec::new();
            for (name, file, owner) in &*lock(&self.sockets) {
                more.push((name.clone(), file.try_clone()?, owner.clone()));
            }
            for process in &self.formers {
                more.push((PROCESS.to_owned(), process.try_clone()?, None));
            }
            let mut handed = (self.begin)(&end)?;
            for (name, file, owner) in more {
                match owner {
                    Some(owner) => handed.add_path(name, file, &owner),
                    None => handed.add(name, file),
                }
            }
            Ok(handed)
        };
        all().map_err(|error: io::Error| {
            self.is_under_way.store(false, Ordering::Release);
            format!("its sockets cannot be copied: {error}")
        })
    }

    fn give_up(&self) {
        if let Some(end) = self.end.upgrade() {
            (self.take_back)(&end);
        }
        self.is_under_way.store(false, Ordering::Release);
        // The other process may have told the supervisor that it is the main process.
        self.supervisor.tell(&format!("MAINPID={}", std::process::id()));
    }

    fn complete(&self, handed: Handed, within: Duration) {
        handed.give();
        self.supervisor.fall_silent();
        self.handed.cancel();
        lock(&self.sockets).clear();
        let until = Instant::now() + within;
        lock(&self.facts).drain_until = Some(until);
        self.completed.send_replace(Some(until));
    }
}

impl Left {
    /// Calls `leave` once another process has taken over. Returns when `is_over` has been true for
    /// a moment, or when the time limit is over. `is_over` gets the time since the take-over. The
    /// caller may drop the future and call again.
    pub(super) async fn over(&mut self, leave: impl Fn(), is_over: impl Fn(Duration) -> bool) {
        let until = match self.completed.wait_for(Option::is_some).await {
            Ok(until) => *until,
            Err(_) => return pending().await,
        };
        let since = *self.since.get_or_insert_with(|| {
            leave();
            Instant::now()
        });
        // Check several times, because a connection accepted shortly before has no tunnel yet.
        let mut looks = 0;
        while looks < LOOKS && until.is_some_and(|until| Instant::now() < until) {
            tokio::time::sleep(LOOK).await;
            looks = if is_over(since.elapsed()) { looks + 1 } else { 0 };
        }
    }
}

/// Time that clients need to move to the new process. Clients of earlier versions do not move.
pub(super) const SETTLED: Duration = Duration::from_secs(15);
/// Maximum number of former processes that carry sessions (`MOST_FORMERS` of the transport).
const MOST_PROCESSES: usize = 8;
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_former_process_ends_with_its_last_session_or_at_its_timeout() {
        for (hours, most) in [(1, 3), (0, u64::MAX)] {
            let (sender, completed) = watch::channel(None);
            let mut left = Left { completed, since: None };
            let (begun, sessions) = (Cell::new(0), Cell::new(most));
            let leave = || begun.set(begun.get() + 1);
            let is_over = |_| sessions.replace(sessions.get().saturating_sub(1)) == 0;
            let early = left.over(leave, is_over);
            assert!(tokio::time::timeout(LOOK, early).await.is_err() && begun.get() == 0);
            sender.send_replace(Some(Instant::now() + Duration::from_secs(hours * 3600)));
            // A reload interrupts the wait.
            let _ = tokio::time::timeout(LOOK, left.over(leave, is_over)).await;
            left.over(leave, is_over).await;
            assert_eq!(begun.get(), 1);
        }
    }
}
