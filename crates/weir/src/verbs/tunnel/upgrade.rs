use super::Verb;
use crate::exit::Ending;
use crate::output::{note, print};
use anyhow::Context;
use clap::{Args, Parser};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tunnel::run::RunError;
use tunnel::status::Status;
use units::{Span, foreign};

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The end's socket; needed for a service, and if several ends of this user run here
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// The end's process instead of its socket, if several ends of this user run here
    #[arg(long, value_name = "PID", conflicts_with = "status_socket")]
    pid: Option<u32>,
    /// The former process carries its last sessions for at most this time
    #[arg(long, value_name = "TIME", default_value = "1h")]
    timeout: Span,
    /// Do nothing if the end runs this very program
    #[arg(long)]
    if_changed: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Upgrade) -> anyhow::Result<Ending> {
    let of_process = |pid| Former::of(pid).ok()?.status_socket();
    let named = arguments.pid.and_then(of_process);
    let socket = arguments.status_socket.as_deref().or(named.as_deref());
    let mut ends = match (tunnel::run::statuses(socket), arguments.pid, &named) {
        (Err(error), Some(pid), Some(socket)) => return Err(unanswered(pid, socket, error)),
        (found, ..) => found?,
    };
    ends.retain(|end| !end.is_draining);
    if let Some(pid) = arguments.pid {
        ends.retain(|end| end.pid == pid);
    }
    let end = match &ends[..] {
        [] => {
            match arguments.pid {
                Some(pid) => note(format_args!(
                    "process {pid} is no end of this user that serves here: `weir tunnel status` \
                     lists such ends; for an end with a status socket of its own, name the socket \
                     (--status-socket PATH)"
                )),
                None => note(super::status::NONE),
            }
            return Ok(Ending::Failed);
        }
        [end] => end,
        several => return Err(RunError::several(several).into()),
    };
    let (role, pid) = (foreign(&end.role), end.pid);
    let former = Former::of(pid)?;
    let program = std::env::current_exe().context("finding this program itself")?;
    if arguments.if_changed && former.runs(&program)? {
        match arguments.json {
            true => print(document(end, None)?)?,
            false => print(format_args!("{role} (pid {pid}) runs this program: no upgrade\n"))?,
        }
        return Ok(Ending::Fine);
    }
    let mut child = former.successor(&program, arguments.timeout)?;
    await_serving(&mut child, socket, pid)?;
    match arguments.json {
        true => print(document(end, Some(child.id()))?)?,
        false => print(format_args!(
            "{role} (pid {pid}): process {} has taken over; the last sessions have at most {}\n",
            child.id(),
            arguments.timeout.shown()
        ))?,
    }
    Ok(Ending::Fine)
}

/// Returns the error for a process whose status socket gave no answer.
fn unanswered(pid: u32, socket: &Path, error: RunError) -> anyhow::Error {
    match error {
        RunError::Status(error) if error.is_gone() => anyhow::anyhow!(
            "process {pid} names the status socket {}, which does not exist: name the process's \
             present socket by --status-socket PATH, or restart the process",
            socket.display()
        ),
        error => anyhow::Error::new(error).context(format!("process {pid} does not answer")),
    }
}

fn document(end: &Status, successor: Option<u32>) -> anyhow::Result<String> {
    let document = serde_json::json!({ "role": end.role, "pid": end.pid, "successor": successor });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The words of a command line from `tunnel` on.
#[derive(Debug, Parser)]
struct Flags {
    #[command(subcommand)]
    verb: Verb,
}

/// A running end, with the kernel's data about its process.
struct Former {
    pid: u32,
    directory: PathBuf,
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    user: Option<u32>,
}

impl Former {
    fn of(pid: u32) -> anyhow::Result<Self> {
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| {
            let read = std::fs::read(directory.join(name));
            read.with_context(|| {
                format!("process {pid} cannot be examined: run this command as its user")
            })
        };
        let words = texts(&read("cmdline")?);
        let environment = texts(&read("environ")?).into_iter().filter_map(|text| {
            let at = text.as_bytes().iter().position(|byte| *byte == b'=')?;
            let (name, value) = text.as_bytes().split_at(at);
            Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(&value[1..]).to_owned()))
        });
        let environment = environment.collect();
        let user = effective_user(&String::from_utf8_lossy(&read("status")?));
        Ok(Self { pid, words, environment, user, directory })
    }

    /// Returns the status socket that the process's flags or file name; `None` for the default
    /// socket.
    fn status_socket(&self) -> Option<PathBuf> {
        // Root must not read a file or a socket because another user's process names it.
        if !self.is_of_this_user() {
            return None;
        }
        let flags = Flags::try_parse_from(self.words.iter().skip(1)).ok()?;
        let folder = self.directory.join("cwd").read_link().ok()?;
        match flags.verb {
            Verb::Server(server) => server.status_socket(&folder),
            Verb::Client(client) => client.status_socket(&folder),
            _ => None,
        }
    }

    fn is_of_this_user(&self) -> bool {
        self.user == Some(rustix::process::geteuid().as_raw())
    }

    /// Whether the process runs this program, rather than an earlier file at the same path.
    fn runs(&self, program: &Path) -> anyhow::Result<bool> {
        let of = |path: &Path| {
            let about = path.metadata().with_context(|| format!("reading {}", path.display()))?;
            anyhow::Ok((about.dev(), about.ino()))
        };
        Ok(of(&self.directory.join("exe"))? == of(program)?)
    }

    /// Starts a process with the same arguments, which takes over from the former process.
    fn successor(&self, program: &Path, timeout: Span) -> anyhow::Result<Child> {
        let pid = self.pid;
        let role = self.words.get(1..3).unwrap_or_default();
        if role.first().is_none_or(|word| word != "tunnel")
            || !role.iter().any(|word| word == "server" || word == "client")
        {
            anyhow::bail!(
                "process {pid} has the command line of another project's program: start `weir \
                 tunnel server` or `client` with --take-over in its place"
            );
        }
        let is_service = self.environment.iter().any(|(name, _)| name == "NOTIFY_SOCKET");
        if is_service && self.group() != group_of(Path::new("/proc/self")) {
            anyhow::bail!(
                "process {pid} is a service: upgrade it by `systemctl reload` of its unit"
            );
        }
        // The environment and the arguments of another user's process could make this command run
        // any program (ld.so(8)).
        if !self.is_of_this_user() {
            anyhow::bail!("process {pid} belongs to another user: run this command as that user");
        }
        if let (Some(theirs), Some(ours)) =
            (network_of(&self.directory), network_of(Path::new("/proc/self")))
            && theirs != ours
        {
            anyhow::bail!(
                "process {pid} runs in another network namespace: run this command there (`nsenter \
                 --net --target {pid}`)"
            );
        }
        let mut command = Command::new(program);
        // The former process may itself have taken over, from another process.
        let of_former = |word: &&OsString| !word.as_bytes().starts_with(b"--take-over");
        command
            .args(self.words.iter().skip(1).filter(of_former))
            .arg(format!("--take-over={timeout}"))
            .arg(format!("--take-over-from={pid}"))
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            // The supervisor set this variable for the former process.
            .env_remove("WATCHDOG_PID")
            .current_dir(self.directory.join("cwd"))
            .stdin(Stdio::null())
            .stdout(self.output("1"))
            .stderr(self.output("2"))
            // Starts the end in a separate process group, so that Ctrl-C does not stop the end.
            .process_group(0);
        command.spawn().with_context(|| format!("starting {}", program.display()))
    }

    /// Opens the former process's output. Inherits this process's output if the former process's
    /// output cannot be opened, for example a socket of the journal.
    fn output(&self, number: &str) -> Stdio {
        let path = self.directory.join("fd").join(number);
        let opened = File::options().append(true).open(path);
        opened.map_or_else(|_| Stdio::inherit(), Stdio::from)
    }

    fn group(&self) -> Option<String> {
        group_of(&self.directory)
    }
}

/// Returns the control group of a process, without the part that systemd adds for the commands of a
/// unit.
fn group_of(process: &Path) -> Option<String> {
    let text = std::fs::read_to_string(process.join("cgroup")).ok()?;
    Some(text.trim_end().trim_end_matches("/.control").to_owned())
}

/// Returns the network namespace of a process, if this process may know it (namespaces(7)).
fn network_of(process: &Path) -> Option<(u64, u64)> {
    let about = process.join("ns/net").metadata().ok()?;
    Some((about.dev(), about.ino()))
}

fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

fn texts(bytes: &[u8]) -> Vec<OsString> {
    let mut all: Vec<_> =
        bytes.split(|byte| *byte == 0).map(|text| OsString::from_vec(text.to_owned())).collect();
    all.pop();
    all
}

/// Waits until the new process serves. If the new process does not serve, ends the new process, and
/// the former process goes on.
fn await_serving(child: &mut Child, socket: Option<&Path>, former: u32) -> anyhow::Result<()> {
    let until = Instant::now() + STARTS_WITHIN;
    loop {
        // Checks once more after the time limit: this machine may have stalled.
        let is_last = Instant::now() >= until;
        if let Some(status) = child.try_wait()? {
            anyhow::bail!(
                "the new process has failed ({status}), and process {former} goes on: read the \
                 new process's log"
            );
        }
        // An error here may mean that the socket is being handed over.
        let serves = |socket: Option<&Path>| {
            let ends = tunnel::run::statuses(socket).unwrap_or_default();
            ends.iter().any(|end| end.pid == child.id())
        };
        let own = socket.and_then(|socket| default_socket(socket, former, child.id()));
        if serves(socket) || own.is_some_and(|own| serves(Some(&own))) {
            return Ok(());
        }
        if is_last {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let _ = child.kill();
    let _ = child.wait();
    anyhow::bail!("the new process has not started within 30 s, and process {former} goes on");
}

/// Returns the default socket of the new process if `socket` is the default socket of the former
/// process. The name of a default socket contains the number of its process. The former and the
/// new process have the same environment, so both sockets are in the same directory.
fn default_socket(socket: &Path, former: u32, new: u32) -> Option<PathBuf> {
    let role = socket.file_name()?.to_str()?.strip_suffix(&format!("-{former}.sock"))?;
    Some(socket.with_file_name(format!("{role}-{new}.sock")))
}

const STARTS_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel upgrade
  weir tunnel upgrade --pid 4711
  weir tunnel upgrade --timeout 10min
Starts this program with the arguments, the environment and the folder of the
running end. The new process takes over the listening sockets: no session and
no tunnel ends. The former process carries its tunnels until the last one ends,
or until the time is over. If the new process cannot start, the running end
goes on, and the exit status is 1.

By hand, the same: start the end again with --take-over. The units of
`weir tunnel unit` upgrade by `systemctl reload` once the program has changed.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_uid_of_four() {
        let status = "Name:\tweir\nUmask:\t0077\nUid:\t1000\t1001\t1002\t1003\nGid:\t0\t0\t0\t0\n";
        assert_eq!(effective_user(status), Some(1001));
        assert_eq!(effective_user("Name:\tweir\n"), None);
    }

    #[test]
    fn the_default_socket_of_the_new_process_lies_beside_the_socket_of_the_former_process() {
        let found = |path: &str| default_socket(Path::new(path), 4711, 4712);
        let expected = PathBuf::from("/run/user/7/weir/tunnel/server-4712.sock");
        assert_eq!(found("/run/user/7/weir/tunnel/server-4711.sock"), Some(expected));
        assert_eq!(found("/srv/tunnel.sock"), None);
        assert_eq!(found("/srv/server-14711.sock"), None);
    }
}
