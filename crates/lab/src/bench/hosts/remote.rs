//! A host whose agent is at the other end of a channel.

use super::channel::Channel;
use super::message::{self, Answer, Ask, CableOrder, Facts, Hello, PROTOCOL, Wanted};
use super::seam::{Captured, Change, End, LabHost, Order, Stream, Task};
use crate::bench::machine::Emulation;
use crate::model::{Cancel, ClockReading, Failure};
use host::Sysctl;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

#[derive(Debug)]
pub(super) struct RemoteHost {
    name: String,
    weir: String,
    channel: Arc<Mutex<Channel>>,
    /// Cancels the wait for every reply except the reply to an undo.
    cancel: Cancel,
}

impl RemoteHost {
    /// Starts the agent with `command`. `sha256`: the checksum of this program.
    pub(super) fn connect(
        name: &str,
        command: Command,
        sha256: &str,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let channel = Channel::open(name, command)?;
        let channel = Arc::new(Mutex::new(channel));
        let (name, cancel) = (name.to_owned(), cancel.clone());
        let mut host = Self { name, weir: String::new(), channel, cancel };
        let hello = match host.ask(&Ask::Hello { protocol: PROTOCOL }, PATIENCE)? {
            Answer::Hello(hello) => hello.checked().map_err(|reason| host.lost(&reason))?,
            _ => return Err(host.strange()),
        };
        let Hello { protocol, version, sha256: theirs, weir } = hello;
        if protocol != PROTOCOL || theirs != sha256 {
            return Err(host.lost(&format!(
                "another weir is there ({}): remove it with weir lab hosts clean",
                units::foreign(version)
            )));
        }
        host.weir = weir;
        Ok(host)
    }

    pub(super) fn facts(&self, wanted: Wanted) -> Result<Facts, Failure> {
        match self.ask(&Ask::Facts(wanted), PATIENCE)? {
            Answer::Facts(facts) => Ok(facts.bounded()),
            _ => Err(self.strange()),
        }
    }

    /// Measures how far the host's clock is ahead of this machine's clock. The error is at most
    /// half of the shortest of `rounds` round trips.
    pub(super) fn clock(&self, rounds: usize) -> Result<ClockReading, Failure> {
        // A step of this machine's clock must not look like a step of the host's clock.
        static BASE: OnceLock<(SystemTime, Instant)> = OnceLock::new();
        let (wall, steady) = BASE.get_or_init(|| (SystemTime::now(), Instant::now()));
        let start = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = || (start + steady.elapsed()).as_secs_f64();
        let mut best: Option<ClockReading> = None;
        for _ in 0..rounds {
            let before = now();
            let Answer::Clock { nanos } = self.ask(&Ask::Clock, PATIENCE)? else {
                return Err(self.strange());
            };
            let after = now();
            let error_s = ((after - before) / 2.0).max(0.0);
            let ahead_s = nanos as f64 * 1e-9 - f64::midpoint(before, after);
            if best.is_none_or(|best| error_s < best.error_s) {
                best = Some(ClockReading { ahead_s, error_s });
            }
        }
        best.ok_or_else(|| self.strange())
    }

    /// Starts emulated links on the host.
    pub(super) fn emulate(&self, cables: &[CableOrder]) -> Result<(), Failure> {
        let ask = Ask::Emulate { cables: cables.to_vec() };
        if message::encode(&ask).is_err() {
            let text = "the traces of the links are too long to send: shorten them to 1 MiB in all";
            return Err(Failure::Workload(format!("{}: {text}", self.name)));
        }
        self.done(&ask, PATIENCE)
    }

    /// Ends the emulated links on the host, and returns their figures.
    pub(super) fn end_emulation(&self) -> Result<Emulation, Failure> {
        match self.ask(&Ask::EndEmulation, PATIENCE)? {
            Answer::Emulated(seen) => Ok(*seen),
            _ => Err(self.strange()),
        }
    }

    /// Tells the agent that the next request comes within this time.
    pub(super) fn lease(&self, time: Duration) -> Result<(), Failure> {
        self.done(&Ask::Lease { seconds: time.as_secs() }, PATIENCE)
    }

    /// Writes a file into the folder of the agent's session, and returns the path on the host.
    pub(super) fn put(&self, name: &str, text: &str) -> Result<String, Failure> {
        let mut rest = text;
        let mut append = false;
        loop {
            let mut length = rest.len().min(LONGEST_PIECE);
            while !rest.is_char_boundary(length) {
                length -= 1;
            }
            let (piece, more) = rest.split_at(length);
            let ask = Ask::Put { name: name.to_owned(), text: piece.to_owned(), append };
            let Answer::Placed { path } = self.ask(&ask, PATIENCE)? else {
                return Err(self.strange());
            };
            if more.is_empty() {
                return Ok(path);
            }
            (rest, append) = (more, true);
        }
    }

    /// Reads a piece of a file in the folder of the agent's session. Returns an empty text at the
    /// end of the file, or if the file does not exist.
    pub(super) fn read(&self, name: &str, from: u64) -> Result<String, Failure> {
        match self.ask(&Ask::Read { name: name.to_owned(), from }, PATIENCE)? {
            Answer::Read { text } => Ok(text),
            _ => Err(self.strange()),
        }
    }

    fn ask(&self, ask: &Ask, patience: Duration) -> Result<Answer, Failure> {
        lock(&self.channel).ask(ask, patience, &self.cancel)
    }

    fn done(&self, ask: &Ask, patience: Duration) -> Result<(), Failure> {
        match self.ask(ask, patience)? {
            Answer::Done => Ok(()),
            _ => Err(self.strange()),
        }
    }

    fn lost(&self, reason: &str) -> Failure {
        Failure::HostLost { host: self.name.clone(), reason: reason.to_owned() }
    }

    fn strange(&self) -> Failure {
        self.lost("it sent the reply to another request")
    }
}

impl LabHost for RemoteHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn weir(&self) -> &str {
        &self.weir
    }

    fn place(&self, name: &str, text: &str) -> Result<String, Failure> {
        self.put(name, text)
    }

    fn start(&self, order: &Order) -> Result<Box<dyn Task>, Failure> {
        match self.ask(&Ask::Start(order.clone()), PATIENCE)? {
            Answer::Started { task } => {
                let (name, channel) = (self.name.clone(), Arc::clone(&self.channel));
                Ok(Box::new(RemoteTask { name, channel, task, end: None }))
            }
            _ => Err(self.strange()),
        }
    }

    fn listens(&self, port: u16) -> Result<bool, Failure> {
        match self.ask(&Ask::Listens { port }, PATIENCE)? {
            Answer::Listens { yes } => Ok(yes),
            _ => Err(self.strange()),
        }
    }

    fn set(&self, setting: &Sysctl) -> Result<(), Failure> {
        let (name, value) = (setting.name.clone(), setting.value.clone());
        self.done(&Ask::Set { name, value }, PATIENCE)
    }

    fn change(&self, change: &Change) -> Result<(), Failure> {
        self.done(&Ask::Change(change.clone()), CHANGE_PATIENCE)
    }

    fn undo(&self) -> Result<(), Failure> {
        let answer = lock(&self.channel).ask(&Ask::Undo, UNDO_PATIENCE, &Cancel::default())?;
        match answer {
            Answer::Done => Ok(()),
            _ => Err(self.strange()),
        }
    }
}

#[derive(Debug)]
struct RemoteTask {
    name: String,
    channel: Arc<Mutex<Channel>>,
    task: u32,
    end: Option<End>,
}

impl RemoteTask {
    fn strange(&self) -> Failure {
        let reason = "it sent the reply to another request".to_owned();
        Failure::HostLost { host: self.name.clone(), reason }
    }
}

impl Task for RemoteTask {
    fn wait(&mut self, patience: Duration, cancel: &Cancel) -> Result<Option<End>, Failure> {
        if self.end.is_some() {
            return Ok(self.end);
        }
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let ask = Ask::Wait { task: self.task, millis };
        match lock(&self.channel).ask(&ask, patience + PATIENCE, cancel)? {
            Answer::Ended { end } => self.end = end,
            _ => return Err(self.strange()),
        }
        Ok(self.end)
    }

    fn cpu(&mut self) -> Result<Option<Duration>, Failure> {
        let ask = Ask::Cpu { task: self.task };
        match lock(&self.channel).ask(&ask, PATIENCE, &Cancel::default())? {
            Answer::Cpu { nanos } => Ok(nanos.map(Duration::from_nanos)),
            _ => Err(self.strange()),
        }
    }

    fn output(&mut self, stream: Stream) -> Result<Captured, Failure> {
        let mut all = Captured::default();
        loop {
            let ask = Ask::Output { task: self.task, stream, from: all.text.len() as u64 };
            let answer = lock(&self.channel).ask(&ask, PATIENCE, &Cancel::default())?;
            let Answer::Output { text, total } = answer else { return Err(self.strange()) };
            all.total = total;
            if text.is_empty() {
                return Ok(all);
            }
            all.text.push_str(&text);
            // The agent replaces each byte that is not UTF-8 with a character of three bytes.
            if all.text.len() > 3 * super::capture::KEPT + 4 {
                return Err(self.strange());
            }
        }
    }
}

impl Drop for RemoteTask {
    fn drop(&mut self) {
        let ask = Ask::Stop { task: self.task };
        let _ = lock(&self.channel).ask(&ask, PATIENCE, &Cancel::default());
    }
}

fn lock(channel: &Mutex<Channel>) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The timeout of a request. Long enough for a busy or distant host.
const PATIENCE: Duration = Duration::from_secs(20);
/// An agent stops the command of a change after half a minute.
const CHANGE_PATIENCE: Duration = Duration::from_secs(40);
/// JSON may write one byte as six, and a message has at most 2 MiB.
const LONGEST_PIECE: usize = 256 << 10;
const UNDO_PATIENCE: Duration = Duration::from_secs(300);
