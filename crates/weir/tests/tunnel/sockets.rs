//! Sockets of status and metrics: an end removes only a dead socket, and a command trusts no socket
//! of another user.

use crate::ends::Ends;
use crate::support::{Sandbox, await_some, is_installed};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[test]
fn a_regular_file_at_the_path_of_a_socket_is_not_removed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    sandbox.write("notes.txt", "mine");
    let file = sandbox.path("notes.txt");
    let metrics = format!("unix:{}", file.display());
    for flags in [["--status-socket", "notes.txt"], ["--metrics-on", metrics.as_str()]] {
        let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
        words.extend(["--peer", &ends.peer]);
        words.extend(flags);
        let own = ends.own("server");
        words.extend(own.iter().map(String::as_str));
        let mut server = sandbox.start(&words);
        let output = await_some("the refusal", || {
            let refused = server.output_so_far().1.contains("no socket");
            assert!(
                !server.output_so_far().1.contains("listening on"),
                "{flags:?}: it was removed"
            );
            (refused && server.has_ended()).then(|| server.output_so_far().1)
        });
        assert!(output.contains("remove it, or choose another path"), "{output}");
        assert_eq!(sandbox.read("notes.txt"), "mine");
    }
    assert!(sandbox.marked().is_empty());
}

/// A check has to start a runtime to bind the status socket.
#[test]
fn tunnel_check_reports_whether_the_sockets_are_free() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let check = || {
        let metrics = format!("unix:{}", sandbox.path("metrics.sock").display());
        let mut words = vec!["tunnel", "check", "server", "--listen-on", "127.0.0.1:7500"];
        words.extend(["--peer", &ends.peer, "--metrics-on", &metrics]);
        words.extend(["--status-socket", "server.sock"]);
        let own = ends.own("server");
        words.extend(own.iter().map(String::as_str));
        sandbox.weir(&words)
    };
    let free = check();
    assert_eq!(free.status.code(), Some(0), "{free:?}");
    assert!(free.stdout.contains("the status socket server.sock is free"), "{free:?}");
    assert!(!sandbox.path("server.sock").exists() && !sandbox.path("metrics.sock").exists());
    let _taken = UnixListener::bind(sandbox.path("server.sock")).unwrap();
    let taken = check();
    assert_eq!(taken.status.code(), Some(1), "{taken:?}");
    assert!(taken.stdout.contains("another process answers on server.sock"), "{taken:?}");
}

#[test]
fn a_directory_made_first_by_another_user_is_not_trusted() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(user) = User::new(&sandbox) else { return };
    // The socket of `nobody` names a process of `nobody`, which a reload must not signal.
    let mut victim = user.run(Command::new("sleep").arg("600"));
    let trap = Trap::below(Path::new("/tmp").join(format!("weir-{}", user.id)), victim.id());
    for verb in ["reload", "status"] {
        let output = user.run(user.weir(&["tunnel", verb])).wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("belongs to user 65534"), "{message}");
        assert!(message.contains("XDG_RUNTIME_DIR"), "{message}");
    }
    let output = user.run(user.weir(&["link", "list"])).wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("belongs to user 65534"), "{message}");
    assert_eq!(victim.try_wait().unwrap(), None, "the process was signalled");
    victim.kill().unwrap();
    victim.wait().unwrap();
    drop(trap);
}

#[test]
fn a_tunnel_process_of_another_user_is_neither_queried_nor_signalled() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(user) = User::new(&sandbox) else { return };
    // Start the end with a command of the other user, so that root does not own the end's process.
    let path = sandbox.path("theirs.sock");
    let directory = sandbox.path("own");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(user.id), None).unwrap();
    let words = ["tunnel", "keys", "server", "--directory", "own", "--name", "server"];
    let keys = user.run(user.weir(&words));
    assert!(keys.wait_with_output().unwrap().status.success());
    let socket = directory.join("status.sock");
    let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
    let socket_word = socket.to_str().unwrap().to_owned();
    words.extend(["--status-socket", &socket_word]);
    words.extend(["--cert-file", "own/server.crt", "--key-file", "own/server.key"]);
    let peer = format!("laptop=sha256/{}", "A".repeat(43));
    words.extend(["--peer", &peer]);
    let mut server = user.run(user.weir(&words));
    // Root may query a tunnel process of another user if the socket lies in that user's own
    // directory, as for a service. Poll, because the socket file appears before the process
    // listens.
    let output = await_some("the status", || {
        let output = sandbox.weir(&["tunnel", "status", "--status-socket", &socket_word]);
        output.status.success().then_some(output)
    });
    assert!(output.stdout.contains("server (pid "), "{output:?}");
    std::fs::rename(&socket, &path).unwrap();
    for verb in ["status", "reload"] {
        let output = sandbox.weir(&["tunnel", verb, "--status-socket", "theirs.sock"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains(&format!("belongs to user {}", user.id)), "{output:?}");
        assert!(output.stderr.contains("as that user"), "{output:?}");
    }
    assert_eq!(server.try_wait().unwrap(), None);
    server.kill().unwrap();
    let output = server.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("reloaded"), "{message}");
}

/// `nobody` listens, passes the socket on and exits. Then a process of root gets the exited
/// process's number, which SO_PEERCRED still reports.
#[test]
fn a_process_with_the_reused_pid_of_the_listener_is_not_signalled() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    std::fs::set_permissions(sandbox.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.write("reuse.py", REUSE);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "python3", "reuse.py"]);
    command.arg(sandbox.home()).arg(env!("CARGO_BIN_EXE_weir")).arg(document(1));
    let output = sandbox.start_command(command).end();
    if let Some(error) = output.stdout.strip_prefix("no number: ") {
        return testing::skip_because(testing::Need::ProcessNumbers, error);
    }
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains("the process of root: alive"), "{output:?}");
    assert!(
        output.stdout.contains("has ended, and another process holds its socket"),
        "{output:?}"
    );
}

/// An unprivileged user of this machine, and a copy of the command that this user may run.
struct User<'a> {
    id: u32,
    sandbox: &'a Sandbox,
    program: PathBuf,
}

impl<'a> User<'a> {
    fn new(sandbox: &'a Sandbox) -> Option<Self> {
        let id = 50_000 + std::process::id() % 9_000;
        let program = sandbox.path("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, all.clone()).unwrap();
        std::fs::set_permissions(sandbox.home(), all).unwrap();
        let may = Command::new("true").uid(id).gid(id).status();
        if let Err(error) = may {
            testing::skip_because(testing::Need::Root, error);
            return None;
        }
        let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(sandbox.inside(up).unwrap().success());
        Some(Self { id, sandbox, program })
    }

    fn weir(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    fn run(&self, mut command: impl std::borrow::BorrowMut<Command>) -> Child {
        let command = command.borrow_mut();
        command.uid(self.id).gid(self.id).current_dir(self.sandbox.home());
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.sandbox.inside(|| command.spawn()).unwrap()
    }
}

/// A directory that `nobody` makes at the path where root expects its own, with a socket that names
/// a process.
struct Trap(PathBuf);

impl Trap {
    fn below(path: PathBuf, victim: u32) -> Self {
        let nobody = |path: &Path| chown(path, Some(65_534), Some(65_534)).unwrap();
        let folder = path.join("tunnel");
        std::fs::DirBuilder::new().recursive(true).mode(0o777).create(&folder).unwrap();
        let trap = Self(path);
        let listener = UnixListener::bind(folder.join("server-1.sock")).unwrap();
        for path in [&trap.0, &folder, &folder.join("server-1.sock")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
            nobody(path);
        }
        let status = document(victim);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(status.as_bytes());
            }
        });
        trap
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds a status document that names `pid` as its sender.
fn document(pid: u32) -> String {
    format!(
        r#"{{"role":"server","version":"0","pid":{pid},"up_seconds":1,"listens_on":[],
        "congestion":"tcpa","certificate_expires":0,"memory_granted":0,"memory_limit":0,
        "counters":{{}},"reloads":0,"reload_refused":"","refused":{{}},"connections":[]}}"#
    )
}

const REUSE: &str = r#"
import os, socket, subprocess, sys
home, weir, document = sys.argv[1:]
folder = home + "/theirs"
os.mkdir(folder, 0o755)
os.chown(folder, 65534, 65534)
path = folder + "/status.sock"
first = os.fork()
if first == 0:
    os.setgid(65534)
    os.setuid(65534)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    if os.fork() == 0:
        while True:
            peer, _ = listener.accept()
            peer.sendall(document.encode())
            peer.close()
    os._exit(0)
os.waitpid(first, 0)
for _ in range(100):
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(first - 1))
    except OSError as error:
        print("no number:", error)
        sys.exit()
    victim = subprocess.Popen(["sleep", "600"])
    if victim.pid == first:
        break
    victim.kill()
    victim.wait()
else:
    sys.exit("no process got the number")
words = [weir, "tunnel", "reload", "--status-socket", path]
done = subprocess.run(words, capture_output=True, text=True)
try:
    end = victim.wait(1)
except subprocess.TimeoutExpired:
    end = "alive"
print("the process of root:", end)
print(done.returncode, done.stdout, done.stderr)
sys.exit(0 if done.returncode == 1 else 1)
"#;
