//! The `weir` command as a user runs it, and a check of the objects that it leaves behind.
//!
//! Every run gets its own network namespace, folder and temporary folder, and a mark in its
//! environment that all its descendants inherit, even as daemons. The namespaces of a run have no
//! name, and exist as long as a process is in them or a descriptor is open. If no marked process is
//! left, no namespace is left.
#![allow(dead_code, unreachable_pub)]

use host::{HostError, Namespace};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Sandbox {
    home: TempDir,
    outer: Namespace,
    mark: String,
    /// A lock: labs that measure share two CPUs with all other tests, so they run one at a time.
    _lock: Option<File>,
}

#[derive(Debug)]
pub struct CommandOutput {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

pub struct Running {
    pub child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl CommandOutput {
    /// Checks that every cell of this run of a lab was measured. On a busy machine, or if a
    /// hypervisor takes CPU time, the run may be invalid, with exit status 1.
    pub fn assert_measured(&self, results: &serde_json::Value) {
        let cells = results["cells"].as_array().unwrap();
        assert!(cells.iter().all(|cell| cell["failed"].is_null()), "{self:?}");
        let is_valid = judge(results);
        assert_eq!(self.status.code(), Some(i32::from(!is_valid)), "{self:?}");
    }
}

/// Whether a lab's run is valid. An invalid run must give its reasons, which the lab counted
/// itself: the lateness of its link, or CPU time that other programs took.
pub fn judge(results: &serde_json::Value) -> bool {
    // A run on a single CPU names no `emulator_cpu`, but its cells have a lateness.
    let is_emulated = !results["environment"]["emulator_cpu"].is_null()
        || results["cells"].as_array().is_some_and(|cells| {
            cells.iter().any(|cell| !cell["metrics"]["lateness_us.p99"].is_null())
        });
    let kind =
        if is_emulated { "lab over an emulated link" } else { "lab without an emulated link" };
    let is_valid = results["valid"] == true;
    if is_valid {
        testing::judged(kind);
    } else {
        let reasons = results["invalid_reasons"].as_array().filter(|reasons| !reasons.is_empty());
        testing::not_judged(kind, serde_json::json!(reasons.expect("reasons of an invalid run")));
    }
    is_valid
}

/// Returns the minimum value that a test accepts: `least` for a valid cell, almost zero for an
/// invalid cell.
pub fn floor(cell: &serde_json::Value, least: f64) -> f64 {
    if cell["valid"] == true {
        return least;
    }
    assert_eq!(cell["valid"], false, "{cell}");
    println!("DISTURBED a cell that its run calls invalid is not compared with {least}: {cell}");
    0.1
}

/// Lets programs that this process starts receive SIGHUP. Under nohup(1) this process ignores
/// SIGHUP, and its programs would inherit the ignored signal. The kernel resets a signal with a
/// handler to its default when a program starts (execve(2)).
fn let_programs_hear_hangups() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let heard = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGHUP, heard).unwrap();
    });
}

impl Sandbox {
    /// Makes a sandbox; `None`, with a note, if labs cannot run.
    pub fn new() -> Option<Self> {
        if !is_installed("ip") {
            testing::skip(testing::Need::Program("ip"));
            return None;
        }
        let outer = match Namespace::create("outer") {
            Ok(outer) => outer,
            Err(error) => {
                testing::skip_because(testing::Need::NetworkNamespaces, error);
                return None;
            }
        };
        let_programs_hear_hangups();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = tempfile::Builder::new().prefix("lab-test-").tempdir().unwrap();
        std::fs::create_dir(home.path().join("tmp")).unwrap();
        let mark = format!("WEIR_TEST_MARK={}-{number}-", std::process::id());
        Some(Self { home, outer, mark, _lock: None })
    }

    /// Makes a sandbox whose labs run alone, for careful measurements.
    pub fn quiet() -> Option<Self> {
        let mut sandbox = Self::new()?;
        let lock =
            File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-lab-at-a-time")).unwrap();
        lock.lock().unwrap();
        sandbox._lock = Some(lock);
        Some(sandbox)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Makes a directory where anybody may write, like /tmp, with symbolic links of another user:
    /// `link` leads to this sandbox's file `precious`, whose content is its own name; `new` to a
    /// missing file; `way` to the sandbox's folder. `theirs` is that user's own file. `None`, with
    /// a note, if this user cannot make files of other users.
    pub fn shared_directory(&self, precious: &str) -> Option<String> {
        use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
        let folder = self.path("shared");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
        self.write(precious, precious);
        std::fs::write(folder.join("theirs"), "theirs").unwrap();
        let (file, new) = (self.path(precious), self.path("absent"));
        for (name, target) in [("link", file.as_path()), ("new", &new), ("way", self.home())] {
            symlink(target, folder.join(name)).unwrap();
            if let Err(error) = lchown(folder.join(name), Some(OTHER_USER), None) {
                testing::skip_because(testing::Need::Root, error);
                return None;
            }
        }
        chown(folder.join("theirs"), Some(OTHER_USER), None).unwrap();
        Some("shared".to_owned())
    }

    /// Runs `work` on a thread in this sandbox's namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.outer.run(|| Ok(work())).unwrap()
    }

    pub fn weir(&self, words: &[&str]) -> CommandOutput {
        self.start(words).end()
    }

    pub fn start(&self, words: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(words);
        self.start_command(command)
    }

    pub fn start_command(&self, mut command: Command) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place =
            |what: &str| self.home.path().join("tmp").with_file_name(format!(".{what}-{number}"));
        let (stdout, stderr) = (place("stdout"), place("stderr"));
        let (name, value) = self.mark.split_once('=').unwrap();
        command
            .current_dir(self.home.path())
            .env(name, value)
            .env("TMPDIR", self.home.path().join("tmp"))
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        let child = self.outer.run(|| Ok(command.spawn())).unwrap().unwrap();
        Running { child, stdout, stderr }
    }

    /// Lists all objects that should be gone after a run: the run's processes, interfaces, queues
    /// and temporary files. Polls for a while, because the kernel takes a moment to end a process.
    pub fn leftovers(&self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.leftovers_now();
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lists the objects of [`Self::leftovers`], without waiting for their end.
    pub fn leftovers_once(&self) -> Vec<String> {
        await_some("the end of all processes", || self.marked().is_empty().then_some(()));
        self.leftovers_now()
    }

    fn leftovers_now(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.marked().into_iter().map(|(pid, name)| format!("process {pid} {name}")).collect();
        let interfaces = self.outer.run(|| read("/proc/thread-self/net/dev")).unwrap();
        left.extend(
            interfaces
                .lines()
                .filter_map(|line| Some(line.split_once(':')?.0.trim()))
                .filter(|name| *name != "lo")
                .map(|name| format!("interface {name}")),
        );
        let queues = self
            .outer
            .run(|| Ok(Command::new("tc").args(["qdisc", "show"]).output()))
            .unwrap()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        let usual = |line: &&str| !line.starts_with("qdisc noqueue 0: dev lo");
        left.extend(queues.lines().filter(usual).map(|line| format!("queue {line}")));
        for entry in std::fs::read_dir(self.path("tmp")).unwrap() {
            left.push(format!("temporary {}", entry.unwrap().file_name().display()));
        }
        left
    }

    /// Returns the running processes that descend from this sandbox's commands.
    pub fn marked(&self) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|word| word == self.mark.as_bytes()) {
                let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                found.push((pid, name.trim().to_owned()));
            }
        }
        found
    }

    /// Returns the marked processes whose command line contains these consecutive words.
    pub fn running(&self, words: &[&str]) -> Vec<u32> {
        let line = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let has = |pid: &u32| {
            let line = line(*pid);
            let line: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let here = |some: &[&[u8]]| some.iter().zip(words).all(|(a, b)| *a == b.as_bytes());
            line.windows(words.len()).any(here)
        };
        self.marked().into_iter().map(|(pid, _)| pid).filter(has).collect()
    }

    pub fn await_process(&self, name: &str) -> u32 {
        await_some(&format!("a process {name}"), || {
            self.marked().into_iter().find(|(_, comm)| comm == name).map(|(pid, _)| pid)
        })
    }

    /// Runs a lab into the directory `run`. If a cell failed or lacks one of these metrics, repeats
    /// the run if the machine was disturbed. If the machine stalls during a turn, nothing arrives,
    /// or the lab reads nothing.
    pub fn measure(&self, words: &[&str], metrics: &[&str]) -> (CommandOutput, serde_json::Value) {
        let lacks = |cell: &serde_json::Value| {
            let has = |name: &&str| cell["metrics"][*name]["median"].is_number();
            !cell["failed"].is_null() || !metrics.iter().all(has)
        };
        let measured = testing::undisturbed("lab whose cells have figures", |_| {
            let _ = std::fs::remove_dir_all(self.path("run"));
            let output = self.weir(&[&["lab", "run"][..], words, &["--out", "run"]].concat());
            let results = self.results("run");
            match results["cells"].as_array().unwrap().iter().any(lacks) {
                true => testing::Attempt::Wrong(format!("{output:?} {results}")),
                false => testing::Attempt::Right((output, results)),
            }
        });
        measured.unwrap()
    }

    /// Reads the complete lines of a run's journal, which records the finished turns.
    pub fn journal(&self, run: &str) -> Vec<String> {
        let text = std::fs::read(self.path(run).join("journal.jsonl")).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        String::from_utf8_lossy(&text[..whole]).lines().map(str::to_owned).collect()
    }

    pub fn results(&self, run: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(&format!("{run}/results.json"))).unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for (pid, _) in self.marked() {
            signal(pid, "KILL");
        }
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub fn end(mut self) -> CommandOutput {
        let deadline = Instant::now() + NEVER_LONGER;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("it never ended; it said {:?}", self.output_so_far());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (stdout, stderr) = self.output_so_far();
        CommandOutput { status, stdout, stderr }
    }

    pub fn output_so_far(&self) -> (String, String) {
        let text = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        (text(&self.stdout), text(&self.stderr))
    }

    /// Whether a program in the command's network namespace listens to TCP on the port.
    pub fn listens(&self, port: u16) -> bool {
        let port = format!(":{port:04X} ");
        ["tcp", "tcp6"].iter().any(|table| {
            // A kernel without IPv6 has no tcp6.
            let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", self.pid()));
            // 0A stands for LISTEN (net/ipv4/tcp_ipv4.c).
            let is_listener = |row: &str| row.contains(&port) && row.contains(" 0A ");
            table.unwrap_or_default().lines().any(is_listener)
        })
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        std::thread::sleep(pause);
        pause = longer(pause);
    }
}

/// Returns the next pause between two checks of a condition. Many tests wait at once, and a check
/// costs CPU time.
pub fn longer(pause: Duration) -> Duration {
    (pause + pause / 4).min(Duration::from_millis(25))
}

/// Counts the intervals that `weir perf client` has printed. A test must not wait for "0.3-0.4": on
/// a busy machine an interval ends late, and its line has the actual times.
pub fn intervals(printed: &str) -> usize {
    let table = printed.lines().skip_while(|line| !line.trim_start().starts_with("seconds "));
    table.skip(1).take_while(|line| line.contains("bit/s")).count()
}

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok(), "kill is not installed");
}

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the path of the relay of examples/relay.rs. `cargo test` builds the relay beside the
/// tests, `cargo test --test` does not.
pub fn relay() -> String {
    example("relay")
}

/// Returns the path of the program of `examples/NAME.rs`. Builds the program if it is missing.
pub fn example(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "-p", "weir", "--example", name]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "examples/{name}.rs cannot be built");
    }
    program.display().to_string()
}

fn read(path: &str) -> Result<String, HostError> {
    std::fs::read_to_string(path)
        .map_err(|source| HostError::Io { doing: format!("reading {path}"), source })
}

const OTHER_USER: u32 = 4711;
/// A limit for events that are immediate on an idle machine; only a hang takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of a command. The slowest command of a test takes about a minute, five times as long on
/// a slow machine.
const NEVER_LONGER: Duration = Duration::from_secs(600);
