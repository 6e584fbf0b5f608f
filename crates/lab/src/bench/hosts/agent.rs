//! The agent: the process on a host that carries out the requests of a controller, which come over
//! its standard input.
//!
//! The agent opens no port. Its programs end with the agent, and the agent ends when its input
//! ends. If the agent is killed, the kernel ends its programs and the guardian takes its changes
//! back.

use super::local::{LocalHost, LocalTask};
use super::message::{self, Answer, Ask, Facts, Hello, MAGIC, PROTOCOL, Wanted};
use super::middle;
use super::seam::{Captured, LabHost, Stream, Task};
use super::session;
use crate::bench::machine::Emulation;
use crate::bench::programs;
use crate::model::Failure;
use host::Sysctl;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

/// Serves one controller until `input` ends. `folder` is for the files of this session.
/// `controller`: the controller's name for its connection to this host.
pub fn serve(
    folder: &Path,
    controller: &str,
    input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<(), Failure> {
    // The confinement must begin before the first thread starts.
    let unconfined = match rustix::process::geteuid().is_root() {
        true => None,
        false => host::confine_as_user().err().map(|error| error.to_string()),
    };
    let weir =
        std::env::current_exe().map_err(|error| Failure::io("finding this program", &error))?;
    let gone = Arc::new(AtomicBool::new(false));
    let asks = reader(input, Arc::clone(&gone))?;
    let host = LocalHost::of_agent(&weir, folder, controller)?;
    let (folder, controller) = (folder.to_owned(), controller.to_owned());
    let mut agent = Agent {
        host,
        folder,
        controller,
        unconfined,
        tasks: HashMap::new(),
        next: 0,
        emulator: None,
        gone,
        outputs: None,
        lease: FIRST_LEASE,
    };
    let wrong = |error: io::Error| Failure::io("answering the controller", &error);
    output.write_all(MAGIC).and_then(|()| output.flush()).map_err(wrong)?;
    loop {
        let ask = match asks.recv_timeout(agent.lease) {
            Ok(Ok(ask)) => ask,
            Ok(Err(error)) => {
                let reason = format!("a message could not be read: {error}");
                let _ = message::encode(&Answer::Failed { reason })
                    .and_then(|bytes| output.write_all(&bytes).and_then(|()| output.flush()));
                return Ok(());
            }
            // The controller ended, or is silent for so long that the connection must be gone.
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return Ok(()),
        };
        let answer = agent.answer(ask).unwrap_or_else(|failure| Answer::Failed {
            reason: failure.to_string().chars().take(LONGEST_REASON).collect(),
        });
        let bytes = message::encode(&answer).map_err(wrong)?;
        if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
            return Ok(());
        }
    }
}

struct Agent {
    /// The running programs. Rust drops this field first, so programs end before the host takes its
    /// changes back.
    tasks: HashMap<u32, LocalTask>,
    host: LocalHost,
    /// The links that this host emulates.
    emulator: Option<emu::Emulator>,
    /// The folder of the sessions of this build.
    folder: PathBuf,
    controller: String,
    unconfined: Option<String>,
    next: u32,
    /// Whether the controller's stream has ended.
    gone: Arc<AtomicBool>,
    /// The agent ends if the controller asks nothing for this long, even on an open connection.
    lease: Duration,
    /// The output that the controller reads piece by piece, with its program and stream.
    outputs: Option<(u32, Stream, Captured)>,
}

impl Agent {
    fn answer(&mut self, ask: Ask) -> Result<Answer, Failure> {
        Ok(match ask {
            Ask::Hello { .. } => Answer::Hello(Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                sha256: programs::own_sha256().unwrap_or_default(),
                weir: self.host.weir().to_owned(),
            }),
            Ask::Facts(wanted) => Answer::Facts(Box::new(self.facts(&wanted)?)),
            Ask::Clock => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let nanos = since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0));
                Answer::Clock { nanos }
            }
            Ask::Start(order) => {
                if self.tasks.len() >= MOST_TASKS {
                    let text = format!("{MOST_TASKS} programs run already");
                    return Err(Failure::Workload(text));
                }
                let task = self.host.run(&order)?;
                self.next += 1;
                self.tasks.insert(self.next, task);
                Answer::Started { task: self.next }
            }
            Ask::Wait { task, millis } => {
                let gone = Arc::clone(&self.gone);
                let patience = Duration::from_millis(millis).min(LONGEST_WAIT);
                let is_gone = || gone.load(Ordering::Relaxed);
                Answer::Ended { end: self.task(task)?.end_within(patience, &is_gone)? }
            }
            Ask::Cpu { task } => {
                let cpu = self.task(task)?.cpu()?;
                let nanos = cpu.map(|cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
                Answer::Cpu { nanos }
            }
            Ask::Output { task, stream, from } => self.output(task, stream, from)?,
            Ask::Stop { task } => {
                self.tasks.remove(&task);
                Answer::Done
            }
            Ask::Listens { port } => Answer::Listens { yes: self.host.listens(port)? },
            Ask::Set { name, value } => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if !name.starts_with("net.") || name.contains("..") || !name.chars().all(plain) {
                    return Err(Failure::Workload(format!("`{name}` is not a network setting")));
                }
                self.host.set(&Sysctl { name, value })?;
                Answer::Done
            }
            Ask::Change(change) => {
                self.host.change(&change)?;
                Answer::Done
            }
            Ask::Lease { seconds } => {
                self.lease = Duration::from_secs(seconds).min(LONGEST_LEASE);
                Answer::Done
            }
            Ask::Undo => {
                self.emulator = None;
                self.host.undo()?;
                Answer::Done
            }
            Ask::Emulate { cables } => {
                self.emulator = None;
                self.emulator = Some(middle::start(cables)?);
                Answer::Done
            }
            Ask::EndEmulation => {
                let none = || Failure::Workload("no link is emulated there".to_owned());
                let seen = self.emulator.take().ok_or_else(none)?.finish()?;
                Answer::Emulated(Box::new(Emulation::of(&seen)))
            }
            Ask::Put { name, text, append } => {
                let path = self.host.room_file(&name)?;
                self.host.write(&path, &text, append)?;
                Answer::Placed { path: path.display().to_string() }
            }
            Ask::Read { name, from } => {
                let path = self.host.room_file(&name)?;
                let wrong = |error: io::Error| Failure::io(&format!("reading {name}"), &error);
                match File::open(&path) {
                    Ok(file) => Answer::Read { text: piece(file, from).map_err(wrong)? },
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        Answer::Read { text: String::new() }
                    }
                    Err(error) => return Err(wrong(error)),
                }
            }
        })
    }

    fn task(&mut self, task: u32) -> Result<&mut LocalTask, Failure> {
        let unknown = || Failure::Workload("the agent did not start this program".to_owned());
        self.tasks.get_mut(&task).ok_or_else(unknown)
    }

    fn output(&mut self, task: u32, stream: Stream, from: u64) -> Result<Answer, Failure> {
        let is_kept = self.outputs.as_ref().is_some_and(|(a, b, _)| (*a, *b) == (task, stream));
        // All pieces come from one reading of the output.
        if from == 0 || !is_kept {
            let output = self.task(task)?.output(stream)?;
            self.outputs = Some((task, stream, output));
        }
        let Some((.., output)) = &self.outputs else { return Ok(Answer::Done) };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let rest = output.text.get(from..).unwrap_or_default();
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let text = rest[..end].to_owned();
        Ok(Answer::Output { text, total: output.total })
    }

    fn facts(&self, wanted: &Wanted) -> Result<Facts, Failure> {
        let machine = probe::machine::Machine::read()?;
        let mut sysctls: indexmap::IndexMap<String, String> = machine.sysctls.into_iter().collect();
        for name in &wanted.settings {
            if let Some(value) = host::read_sysctl(name) {
                sysctls.insert(name.clone(), value);
            }
        }
        let algorithms = host::read_sysctl("net.ipv4.tcp_available_congestion_control");
        let missing = |name: &&String| is_missing(name);
        let free = rustix::fs::statvfs(std::env::temp_dir().as_path());
        Ok(Facts {
            kernel: machine.kernel_release,
            architecture: machine.architecture,
            machine: session::machine(),
            cpus: u32::try_from(machine.cores_usable.len()).unwrap_or(u32::MAX),
            root: rustix::process::geteuid().is_root(),
            unconfined: self.unconfined.clone(),
            missing_algorithms: wanted.algorithms.iter().filter(missing).cloned().collect(),
            algorithms: algorithms.unwrap_or_default().split(' ').map(str::to_owned).collect(),
            missing_programs: wanted
                .programs
                .iter()
                .filter(|name| !host::is_installed(name))
                .cloned()
                .collect(),
            others: session::others(&self.folder, &self.controller),
            port_taken: match wanted.port {
                Some(port) => self.host.listens(port)?,
                None => false,
            },
            free_mib: free.map_or(0, |free| free.f_bavail.saturating_mul(free.f_frsize) >> 20),
            unfit_interfaces: middle::unfit(&wanted.interfaces)?,
            sysctls,
        })
    }
}

/// Reads the text of a file from byte `from` on, without a last character that is still incomplete.
fn piece(mut file: File, from: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(PIECE as u64).read_to_end(&mut bytes)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.utf8_error().error_len().is_none() => {
            let valid = error.utf8_error().valid_up_to();
            Ok(String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned())
        }
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is no text")),
    }
}

/// Whether the kernel has no algorithm `name`, neither built in nor as a module.
fn is_missing(name: &str) -> bool {
    let tcp = SockProtocol::Tcp;
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, tcp);
    let Ok(socket) = socket else { return false };
    let refused = probe::tcp::set_congestion_control(&socket, name).err();
    let cause = refused.and_then(|refused| refused.source);
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

/// Reads the controller's messages on a thread, so that the end of the stream is seen while a
/// program runs.
fn reader(
    mut input: impl Read + Send + 'static,
    gone: Arc<AtomicBool>,
) -> Result<Receiver<io::Result<Ask>>, Failure> {
    let (sender, receiver) = channel();
    let work = move || {
        loop {
            let ask = match message::read::<Ask>(&mut input) {
                Ok(Some(ask)) => Ok(ask),
                Ok(None) => break,
                Err(error) => Err(error),
            };
            let is_last = ask.is_err();
            if sender.send(ask).is_err() || is_last {
                break;
            }
        }
        gone.store(true, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("controller".to_owned()).spawn(work);
    thread.map_err(|error| Failure::io("starting a thread", &error))?;
    Ok(receiver)
}

/// The lease before the first request, which comes only when all hosts have a copy of weir.
const FIRST_LEASE: Duration = Duration::from_secs(1200);
const LONGEST_LEASE: Duration = Duration::from_secs(2 * 3600);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
const MOST_TASKS: usize = 64;
/// JSON may write one byte as six, and a message must stay below [`message::LONGEST`].
const PIECE: usize = 256 << 10;
const LONGEST_REASON: usize = 4_000;
