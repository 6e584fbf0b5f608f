use super::{LocalOptions, Over, Task};
use crate::PerfError;
use crate::event::Stop;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The connection to the second process. A guard thread ends the second process when the time is
/// over or the user stops the measurement. Every read and write here then ends, too.
#[derive(Debug)]
pub(super) struct Channel {
    /// Input and output. Both files are closed before this process waits for the second process to
    /// exit.
    ways: Option<(File, File)>,
    done: Option<mpsc::Sender<()>>,
    guard: Option<JoinHandle<Guarded>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Guarded {
    Ended,
    Stopped,
    Overdue,
}

impl Channel {
    pub(super) fn open(options: &LocalOptions, task: Task, stop: &Stop) -> Result<Self, PerfError> {
        let failed = |error| PerfError::system(format!("opening a {}", options.over), error);
        let (ours, theirs) = ends(options.over).map_err(failed)?;
        let mut command = Command::new(&options.program);
        command.args([
            "perf",
            "local-end",
            task.word(),
            "--size",
            &options.size.count().to_string(),
        ]);
        if let Some(cpu) = options.affinity[1] {
            command.args(["--affinity", &cpu.to_string()]);
        }
        command.stdin(theirs.0).stdout(theirs.1);
        let program = options.program.display();
        let child = command
            .spawn()
            .map_err(|error| PerfError::system(format!("starting {program}"), error))?;
        // The command holds the second process's ends of the pipes open.
        drop(command);
        if let Some(cpu) = options.affinity[0] {
            pin(cpu)?;
        }
        let (done, is_done) = mpsc::channel();
        let (stop, deadline) =
            (stop.clone(), Instant::now() + options.time.as_duration() + PATIENCE);
        let guard = thread::Builder::new()
            .name("guard".to_owned())
            .spawn(move || guard(child, &is_done, &stop, deadline))
            .map_err(|error| PerfError::system("starting a thread", error))?;
        Ok(Self { ways: Some(ours), done: Some(done), guard: Some(guard) })
    }

    pub(super) fn exchange(&mut self, message: &mut [u8]) -> Result<(), PerfError> {
        let Some((input, output)) = &mut self.ways else { return Err(PerfError::Interrupted) };
        let done = output.write_all(message).and_then(|()| input.read_exact(message));
        done.map_err(|error| self.broken(error))
    }

    pub(super) fn read(&mut self, block: &mut [u8]) -> Result<usize, PerfError> {
        loop {
            let Some((input, _)) = &mut self.ways else { return Err(PerfError::Interrupted) };
            match input.read(block) {
                Ok(0) => return Err(self.broken(ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<(), PerfError> {
        match self.end() {
            Guarded::Ended => Ok(()),
            other => Err(reason(&other)),
        }
    }

    fn end(&mut self) -> Guarded {
        self.ways = None;
        self.done = None;
        let guard = self.guard.take().and_then(|guard| guard.join().ok());
        guard.unwrap_or(Guarded::Ended)
    }

    /// Ends the second process and returns the reason why it no longer responds.
    fn broken(&mut self, error: io::Error) -> PerfError {
        match self.end() {
            Guarded::Ended => PerfError::system("talking to the second process", error),
            other => reason(&other),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.end();
    }
}

fn reason(ended: &Guarded) -> PerfError {
    match ended {
        Guarded::Overdue => PerfError::Silent {
            peer: "the second process".to_owned(),
            within: PATIENCE,
            doing: "the measurement ran",
        },
        _ => PerfError::Interrupted,
    }
}

/// Waits until the measurement ends, its time is over, or the user stops it. Then ends the second
/// process.
fn guard(
    mut child: Child,
    is_done: &mpsc::Receiver<()>,
    stop: &Stop,
    deadline: Instant,
) -> Guarded {
    let ended = loop {
        match is_done.recv_timeout(LOOK) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break Guarded::Ended,
            Err(RecvTimeoutError::Timeout) if stop.is_called() => break Guarded::Stopped,
            Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => break Guarded::Overdue,
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    ended
}

/// Opens the transport: returns input and output of this process, then input and output of the
/// second process.
fn ends(over: Over) -> io::Result<((File, File), (Stdio, Stdio))> {
    let both = |end: OwnedFd| -> io::Result<(OwnedFd, OwnedFd)> { Ok((end.try_clone()?, end)) };
    let files = |(a, b): (OwnedFd, OwnedFd)| (File::from(a), File::from(b));
    let stdio = |(a, b): (OwnedFd, OwnedFd)| (Stdio::from(a), Stdio::from(b));
    Ok(match over {
        Over::Unix => {
            let (ours, theirs) = UnixStream::pair()?;
            (files(both(ours.into())?), stdio(both(theirs.into())?))
        }
        Over::Pipe => {
            let (input, far_output) = io::pipe()?;
            let (far_input, output) = io::pipe()?;
            let theirs = (far_input.into(), far_output.into());
            (files((input.into(), output.into())), stdio(theirs))
        }
        Over::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let ours = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
            let own = ours.local_addr()?;
            // Another process may connect first: accept only the second process.
            let theirs = loop {
                let (theirs, peer) = listener.accept()?;
                if peer == own {
                    break theirs;
                }
            };
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            (files(both(ours.into())?), stdio(both(theirs.into())?))
        }
    })
}

pub(super) fn pin(cpu: usize) -> Result<(), PerfError> {
    let wrong = || {
        PerfError::Usage(format!("--affinity {cpu}: there is no such CPU, or it may not be used"))
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(wrong());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|_| wrong())
}

const LOOK: Duration = Duration::from_millis(20);
/// Time after the planned end of the measurement at which the second process counts as hung.
const PATIENCE: Duration = Duration::from_secs(5);
