//! The access log: one line with a JSON object per tunnel that has ended.
//!
//! A thread writes the lines. If the thread falls behind, for example because the disk is full or a
//! pipe is slow, lines are dropped and counted, so that no tunnel waits.

use crate::counters::Counters;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use units::foreign;
use x509_cert::der::DateTime;

/// The destination of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogAt {
    /// Standard output, written as `-`.
    StandardOutput,
    File(PathBuf),
}

/// The reason for which a tunnel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// The application and the target have finished.
    Finished,
    /// The application or the target has reset its connection.
    Reset,
    /// The connection to the peer was lost, or the peer closed the connection.
    Lost,
    /// This end closed the connection to the peer.
    Closed,
    Kicked,
    Shutdown,
    /// The rules no longer allow the tunnel.
    NotAllowed,
    OverQuota,
    /// Memory was short, and the tunnel's reader was stuck or its rate limit held the tunnel back.
    Memory,
    /// The other end has refused the tunnel.
    Refused,
    /// The other end did not answer.
    NoAnswer,
    /// No datagram has passed for the idle time.
    Idle,
    /// Any other error.
    Failed,
}

/// A tunnel that has ended.
#[derive(Debug, Serialize)]
pub(crate) struct Ended<'a> {
    /// The time at which the tunnel ended, in UTC.
    pub(crate) time: String,
    pub(crate) identity: &'a str,
    pub(crate) peer: SocketAddr,
    pub(crate) session: u64,
    /// `forward`: the peer has opened the tunnel. `reverse`: the tunnel goes to the peer.
    pub(crate) direction: &'static str,
    pub(crate) target: &'a str,
    /// The identity that has used a service of this peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<&'a str>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) seconds: f64,
    pub(crate) reason: End,
}

/// The access log of a server. Dropping this value waits up to a second for the last lines.
#[derive(Debug)]
pub(crate) struct AccessLog {
    is_on: AtomicBool,
    counters: Arc<Counters>,
    thread: Mutex<Option<Thread>>,
}

/// The thread that writes the log.
#[derive(Debug)]
struct Thread {
    queue: SyncSender<Message>,
    next: Arc<NextSink>,
    ended: Receiver<Infallible>,
}

enum Message {
    Line(String),
    /// Tells the thread to switch to the sink in `NextSink`.
    Look,
}

/// A sink that the thread has not switched to yet.
type NextSink = Mutex<Option<Sink>>;

#[derive(Debug)]
enum Sink {
    Nowhere,
    StandardOutput,
    File(File),
}

struct Writer {
    lines: Receiver<Message>,
    next: Arc<NextSink>,
    counters: Arc<Counters>,
    sink: Sink,
    /// Whether the last write failed.
    is_failing: bool,
    /// Whether the last line in the file is incomplete.
    is_torn: bool,
    lost: u64,
    _ended: SyncSender<Infallible>,
}

impl AccessLog {
    /// Creates a log without a destination, which ignores lines.
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        let (is_on, thread) = (AtomicBool::new(false), Mutex::new(None));
        Self { is_on, counters: Arc::clone(counters), thread }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Opens the destination, even if the destination has not changed, so that a renamed file gets
    /// no more lines. On an error, the present destination stays.
    pub(crate) fn open(&self, at: Option<&AccessLogAt>) -> io::Result<()> {
        let sink = match at {
            None => Sink::Nowhere,
            Some(AccessLogAt::StandardOutput) => Sink::StandardOutput,
            Some(AccessLogAt::File(path)) => Sink::File(opened(path)?),
        };
        let mut thread = lock(&self.thread);
        match &*thread {
            Some(thread) => {
                *lock(&thread.next) = Some(sink);
                // If the queue is full, the thread is busy, and will look for a new sink anyway.
                let _ = thread.queue.try_send(Message::Look);
            }
            None if at.is_none() => {}
            None => *thread = Some(Thread::start(sink, &self.counters)?),
        }
        self.is_on.store(at.is_some(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn write(&self, ended: &Ended<'_>) {
        let Ok(mut line) = serde_json::to_string(ended) else { return };
        line.push('\n');
        let thread = lock(&self.thread);
        let queued = thread.as_ref().map(|thread| thread.queue.try_send(Message::Line(line)));
        if !matches!(queued, Some(Ok(()))) {
            self.counters.access_lines_dropped.increment();
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let Some(Thread { queue, ended, .. }) = lock(&self.thread).take() else { return };
        drop(queue);
        let _ = ended.recv_timeout(FAREWELL);
    }
}

impl Thread {
    fn start(sink: Sink, counters: &Arc<Counters>) -> io::Result<Self> {
        let (queue, lines) = sync_channel(MOST_WAITING);
        let (is_over, ended) = sync_channel(0);
        let next = Arc::<NextSink>::default();
        let writer = Writer {
            lines,
            next: Arc::clone(&next),
            counters: Arc::clone(counters),
            sink,
            is_failing: false,
            is_torn: false,
            lost: 0,
            _ended: is_over,
        };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run())?;
        Ok(Self { queue, next, ended })
    }
}

impl Writer {
    /// Runs until the log is dropped.
    fn run(mut self) {
        while let Ok(message) = self.lines.recv() {
            let mut batch = String::new();
            let mut next = Some(message);
            while let Some(message) = next {
                if let Message::Line(line) = message {
                    batch += &line;
                }
                next = if batch.len() < BATCH { self.lines.try_recv().ok() } else { None };
            }
            if let Some(sink) = lock(&self.next).take() {
                (self.sink, self.is_torn) = (sink, false);
            }
            self.write(&batch);
        }
    }

    fn write(&mut self, batch: &str) {
        if batch.is_empty() {
            return;
        }
        if self.is_torn && self.sink.write(b"\n").0 > 0 {
            self.is_torn = false;
        }
        let (count, error) = self.sink.write(batch.as_bytes());
        let (done, rest) = batch.as_bytes().split_at(count);
        if count > 0 {
            self.is_torn = done.last() != Some(&b'\n');
        }
        match error {
            None if self.is_failing => {
                self.is_failing = false;
                let lost = std::mem::take(&mut self.lost);
                tracing::info!(lost, "the access log is written again");
            }
            None => {}
            Some(error) => {
                let lost = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.lost += lost;
                self.counters.access_lines_dropped.add(lost);
                if !self.is_failing {
                    self.is_failing = true;
                    tracing::warn!(
                        %error,
                        "the access log cannot be written: its lines are lost until it can be; free \
                         some space, or change access-log and reload"
                    );
                }
            }
        }
    }
}

impl Sink {
    /// Returns the number of written bytes, and the error if the write was incomplete.
    fn write(&mut self, mut bytes: &[u8]) -> (usize, Option<io::Error>) {
        let all = bytes.len();
        while !bytes.is_empty() {
            let written = match self {
                Self::Nowhere => Ok(bytes.len()),
                Self::StandardOutput => {
                    rustix::io::write(rustix::stdio::stdout(), bytes).map_err(io::Error::from)
                }
                Self::File(file) => file.write(bytes),
            };
            match written {
                Ok(0) => return (all - bytes.len(), Some(io::ErrorKind::WriteZero.into())),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (all - bytes.len(), Some(error)),
            }
        }
        (all, None)
    }
}

/// Opens a file for appending. Accepts only a regular file of this user. A file of another type
/// could make the writer wait. Through a link or a file of another user, the other user could
/// redirect the lines.
fn opened(path: &std::path::Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP);
    let file = File::from(file.map_err(|error| match error {
        rustix::io::Errno::LOOP => io::Error::other("a symbolic link"),
        error => io::Error::from(error),
    })?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    match metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(file),
        false => Err(io::Error::other("a file of another user")),
    }
}

/// Returns the present time in UTC, such as `2026-11-21T14:03:09.123Z`.
pub(crate) fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = Duration::from_secs(now.as_secs());
    let Ok(date) = DateTime::from_unix_duration(seconds) else { return String::new() };
    let date = date.to_string();
    format!("{}.{:03}Z", date.trim_end_matches('Z'), now.subsec_millis())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Display for AccessLogAt {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::StandardOutput => f.write_str("-"),
            Self::File(path) => write!(f, "{}", foreign(path.display())),
        }
    }
}

/// Maximum number of lines in the queue to the thread. A line has some hundred bytes.
const MOST_WAITING: usize = 4096;
/// Maximum size of one write, in bytes.
const BATCH: usize = 64 << 10;
/// Maximum time to wait for the thread to write the last lines.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    fn ended(target: &str) -> Ended<'_> {
        Ended {
            time: now(),
            identity: "laptop",
            peer: ([203, 0, 113, 7], 4711).into(),
            session: 17,
            direction: "forward",
            target,
            user: None,
            bytes_in: 3,
            bytes_out: 5,
            seconds: 1.25,
            reason: End::NotAllowed,
        }
    }

    /// Returns the number of complete lines in a file that is being written.
    fn count(path: &Path) -> usize {
        std::fs::read(path).unwrap().iter().filter(|byte| **byte == b'\n').count()
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_access_log_line_is_a_json_object_and_a_reopened_log_leaves_the_renamed_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let counters = Arc::new(Counters::default());
        let log = AccessLog::new(&counters);
        assert!(!log.is_on());
        let at = AccessLogAt::File(path.clone());
        log.open(Some(&at)).unwrap();
        log.write(&ended("tcp:10.0.0.5:22"));
        while count(&path) < 1 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &old).unwrap();
        log.open(Some(&at)).unwrap();
        (0..100).for_each(|_| log.write(&ended("\"\n")));
        // If a destination cannot be opened, the log keeps its present destination.
        assert!(log.open(Some(&AccessLogAt::File(folder.path().to_owned()))).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let refused = log.open(Some(&AccessLogAt::File(link))).unwrap_err().to_string();
        assert!(refused.contains("a symbolic link"), "{refused}");
        assert!(log.is_on());
        while count(&path) < 100 {
            std::thread::yield_now();
        }
        drop(log);
        assert_eq!((lines(&old).len(), lines(&path).len()), (1, 100));
        let line = &lines(&old)[0];
        assert_eq!(line["identity"], "laptop");
        assert_eq!(
            (&line["peer"], &line["reason"]),
            (&"203.0.113.7:4711".into(), &"not-allowed".into())
        );
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{time}");
        assert_eq!(counters.access_lines_dropped.count(), 0);
    }

    #[test]
    fn access_log_lines_lost_on_a_full_disk_are_counted_and_later_lines_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let (counters, next) = (Arc::new(Counters::default()), Arc::<NextSink>::default());
        let (_queue, lines_in) = sync_channel(1);
        let (is_over, _ended) = sync_channel(0);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = Writer {
            lines: lines_in,
            next,
            counters: Arc::clone(&counters),
            sink: Sink::File(full),
            is_failing: false,
            is_torn: false,
            lost: 0,
            _ended: is_over,
        };
        writer.write("{}\n{}\n");
        writer.write("{}\n");
        assert_eq!((counters.access_lines_dropped.count(), writer.is_failing), (3, true));
        let path = folder.path().join("log");
        writer.sink = Sink::File(opened(&path).unwrap());
        writer.is_torn = true;
        writer.write("{}\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\n{}\n");
        assert!(!writer.is_failing && !writer.is_torn && writer.lost == 0);
    }

    #[test]
    fn an_access_log_to_a_pipe_without_a_reader_drops_lines_and_never_waits() {
        let counters = Arc::new(Counters::default());
        let log = AccessLog::new(&counters);
        let (queue, waiting) = sync_channel(2);
        let (_is_over, ended_at) = sync_channel(0);
        *lock(&log.thread) = Some(Thread { queue, next: Arc::default(), ended: ended_at });
        (0..5).for_each(|_| log.write(&ended("unix:/run/app")));
        assert_eq!(counters.access_lines_dropped.count(), 3);
        drop(waiting);
    }
}
