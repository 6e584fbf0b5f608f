//! A test machine for `weir accel`, with separate mounts, control groups and network, in which "all
//! connections" are the test's connections. When its keeper process ends, all its objects end,
//! however the test ends.

pub mod forge;
pub mod pair;
pub mod path;
pub mod transfer;

use host::{Confined, Namespace, Program};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct TestMachine {
    keeper: Option<Confined>,
    cgroup: PathBuf,
    home: TempDir,
    /// A lock, because the names of algorithms are global to the real machine.
    _lock: Option<File>,
}

#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl TestMachine {
    /// Makes a test machine; `None`, with a note, if this is impossible.
    pub fn new() -> Option<Self> {
        // Lock a folder that all builds share, because another build's tests may run as well.
        let turn = File::open("/sys/kernel").unwrap();
        turn.lock().unwrap();
        if let Some(taken) = taken() {
            testing::skip(testing::Need::FreeCongestion(taken));
            return None;
        }
        let machine = Self::beside(Some(turn))?;
        let output = machine.weir(&["accel", "status"]);
        if output.code != Some(0) && output.stderr.contains("this kernel has no") {
            testing::skip_because(testing::Need::StructOps, &output.stderr);
            return None;
        }
        Some(machine)
    }

    /// Makes a second test machine beside this machine, which holds the lock.
    pub fn second(&self) -> Self {
        Self::beside(None).unwrap()
    }

    fn beside(turn: Option<File>) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            testing::skip(testing::Need::Root);
            return None;
        }
        let Ok(mount) = accel::cgroup::mount() else {
            testing::skip(testing::Need::CgroupV2);
            return None;
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        left_by_killed(&mount).for_each(|group| remove(&group));
        let cgroup = mount.join(format!("{MARK}{}-{number}", std::process::id()));
        fs::create_dir(&cgroup).unwrap();
        let home = tempfile::tempdir().unwrap();
        // The kernel refuses to mount a file system at a path where it is mounted already, as
        // systemd has done. Unmount the mounted file system first.
        let script = format!(
            "echo 0 > {}/cgroup.procs && exec unshare --mount --cgroup --propagation private sh -c '\
             if test $(stat -f -c %T /sys/fs/cgroup) = cgroup2fs; then umount -l /sys/fs/cgroup; fi && \
             mount -t bpf -o mode=0700 bpf /sys/fs/bpf && mount -t cgroup2 none /sys/fs/cgroup && \
             mount -t tmpfs -o mode=0755 none /run && cd /proc/sys/net/ipv4 && {} && \
             echo ready && exec sleep 3600'",
            cgroup.display(),
            Self::kernel_settings()
        );
        let out = home.path().join("keeper");
        let file = |path: &Path| File::create(path).unwrap();
        let program = Program {
            argv: ["sh", "-c", &script].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            stdout: file(&out),
            stderr: file(&home.path().join("keeper-errors")),
            cpus: Vec::new(),
        };
        let network = Namespace::create("accel").unwrap();
        let keeper = Confined::start(&network, program).unwrap();
        let machine = Self { keeper: Some(keeper), cgroup, home, _lock: turn };
        let deadline = Instant::now() + PATIENCE;
        while fs::read_to_string(&out).unwrap().trim() != "ready" {
            assert!(Instant::now() < deadline, "{}", machine.read("keeper-errors"));
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(machine)
    }

    /// Returns a line of shell that gives a network namespace the kernel's own settings. A new
    /// namespace begins with the machine's settings, which its owner may have raised. The line
    /// first raises the buffers, so that each test begins as on a tuned machine.
    pub fn kernel_settings() -> String {
        let settings = TUNED_SETTINGS.into_iter().chain(KERNEL_SETTINGS);
        let lines: Vec<_> =
            settings.map(|(name, value)| format!("echo {value} > {name}")).collect();
        lines.join(" && ")
    }

    pub fn weir(&self, words: &[&str]) -> CommandOutput {
        self.run(env!("CARGO_BIN_EXE_weir"), words)
    }

    pub fn run(&self, program: &str, words: &[&str]) -> CommandOutput {
        let output = self.command(program, words).output().unwrap();
        CommandOutput {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn start(&self, program: &str, words: &[&str]) -> Child {
        self.command(program, words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    pub fn start_with_input(&self, program: &str, words: &[&str]) -> Child {
        let mut command = self.command(program, words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Builds a command that runs inside the test machine, in its control group.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let keeper = self.keeper.as_ref().unwrap().pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &keeper, "--mount", "--cgroup", "--net", "--", "sh", "-c"]);
        command.arg("echo 0 > /sys/fs/cgroup/cgroup.procs && exec \"$@\"").arg("sh");
        command.arg(program).args(words).stdin(Stdio::null());
        command
    }

    /// Makes one brief transfer over the loopback interface; returns the algorithm of each end.
    pub fn transfer(&self, port: u16, more: &[&str]) -> (String, String) {
        let text = port.to_string();
        let weir = env!("CARGO_BIN_EXE_weir");
        let mut server = self.start(weir, &["perf", "server", "--port", &text, "--one-off"]);
        self.await_listener(port);
        let mut words = vec!["perf", "client", "127.0.0.1", "--port", &text, "--json"];
        words.extend(BRIEF);
        words.extend(more);
        let output = self.weir(&words);
        assert_eq!(output.code, Some(0), "{}{}", output.stderr, output.stdout);
        server.wait().unwrap();
        let end: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let of = |key: &str| end["end"][key].as_str().unwrap_or_default().to_owned();
        (of("sender_tcp_congestion"), of("receiver_tcp_congestion"))
    }

    pub fn await_listener(&self, port: u16) {
        let wanted = format!(":{port:04X} ");
        let pid = self.keeper.as_ref().unwrap().pid();
        let deadline = Instant::now() + PATIENCE;
        let listens = |file: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
            text.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
        };
        while !listens("tcp") && !listens("tcp6") {
            assert!(Instant::now() < deadline, "nobody listens on {port}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn status(&self) -> serde_json::Value {
        let output = self.weir(&["accel", "status", "--json"]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    }

    pub fn pinned(&self) -> String {
        self.run("ls", &["/sys/fs/bpf"])
            .stdout
            .replace("maps.debug\n", "")
            .replace("progs.debug\n", "")
    }

    /// Opens a pinned map of the test machine from outside.
    pub fn map(&self, name: &str) -> libbpf_rs::MapHandle {
        let pid = self.keeper.as_ref().unwrap().pid();
        let path = format!("/proc/{pid}/root/sys/fs/bpf/{name}");
        libbpf_rs::MapHandle::from_pinned_path(path).unwrap()
    }

    /// Opens a network namespace of the test machine from outside.
    pub fn namespace(&self, name: &str) -> Namespace {
        let pid = self.keeper.as_ref().unwrap().pid();
        Namespace::named(&format!("/proc/{pid}/root/run/netns/{name}")).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        drop(self.keeper.take());
        // A failed test leaves processes that the keeper did not start.
        remove(&self.cgroup);
        let deadline = Instant::now() + PATIENCE;
        while self._lock.is_some() && taken().is_some() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes the group with the processes in it.
fn remove(cgroup: &Path) {
    let _ = fs::write(cgroup.join("cgroup.kill"), "1");
    // The kernel takes a moment to end a process.
    let deadline = Instant::now() + PATIENCE;
    while cgroup.exists() && Instant::now() < deadline {
        for folder in [cgroup.join("inner"), cgroup.to_owned()] {
            let _ = fs::remove_dir(folder);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Finds control groups of tests that ended without removing them.
fn left_by_killed(mount: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(mount).unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix(MARK));
        let pid = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    })
}

/// Returns the algorithms available to the whole machine.
pub fn available() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Waits until this algorithm is gone: the kernel unregisters the algorithm of a killed command
/// some time later.
#[track_caller]
pub fn await_free(algorithm: &str) {
    let deadline = Instant::now() + PATIENCE;
    while available().contains(algorithm) {
        assert!(Instant::now() < deadline, "{algorithm} stays registered");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn taken() -> Option<&'static str> {
    let available = available();
    let names = available.split_whitespace();
    ["tcpa", "caqm"].into_iter().find(|ours| names.clone().any(|name| name == *ours))
}

/// The flags of a transfer that only shows which algorithm its ends use: a quarter of a second, and
/// no measurement of the idle path before the transfer.
pub const BRIEF: [&str; 4] = ["--time", "250ms", "--idle-probe", "0"];
const PATIENCE: Duration = Duration::from_secs(60);
/// Settings below /proc/sys/net/ipv4 (Documentation/networking/ip-sysctl.rst).
const KERNEL_SETTINGS: [(&str, &str); 3] = [
    ("tcp_wmem", "4096 16384 4194304"),
    ("tcp_rmem", "4096 131072 6291456"),
    ("tcp_timestamps", "1"),
];
/// Settings of a machine whose owner has raised the buffers for long paths.
const TUNED_SETTINGS: [(&str, &str); 2] =
    [("tcp_wmem", "4096 65536 16777216"), ("tcp_rmem", "4096 131072 16777216")];
/// The prefix of the name of a test's control group; the process ID and a number follow.
const MARK: &str = "weir-accel-test-";
