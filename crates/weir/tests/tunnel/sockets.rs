//! Sockets of status and metrics: only a dead socket is removed, and sockets of another user are
//! not trusted.

use crate::ends::Ends;
use crate::support::{World, await_some};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[test]
fn a_regular_file_in_the_place_of_a_socket_stays() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    world.write("notes.txt", "mine");
    let file = world.path("notes.txt");
    let metrics = format!("unix:{}", file.display());
    for flags in [["--status-socket", "notes.txt"], ["--metrics-on", metrics.as_str()]] {
        let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
        words.extend(["--peer", &ends.peer]);
        words.extend(flags);
        let own = ends.own("server");
        words.extend(own.iter().map(String::as_str));
        let mut server = world.start(&words);
        let said = await_some("the refusal", || {
            let refused = server.said_so_far().1.contains("no socket");
            assert!(!server.said_so_far().1.contains("listening on"), "{flags:?}: it was removed");
            (refused && server.has_ended()).then(|| server.said_so_far().1)
        });
        assert!(said.contains("remove it, or choose another path"), "{said}");
        assert_eq!(world.read("notes.txt"), "mine");
    }
    assert!(world.marked().is_empty());
}

#[test]
fn a_directory_made_first_by_another_user_is_not_trusted() {
    let Some(world) = World::new() else { return };
    let Some(user) = User::new(&world) else { return };
    // The process of `nobody`, the target of the SIGHUP, and the socket of `nobody`, which names
    // it.
    let mut victim = user.run(Command::new("sleep").arg("600"));
    let trap = Trap::below(Path::new("/tmp").join(format!("weir-{}", user.id)), victim.id());
    for verb in ["reload", "status"] {
        let said = user.run(user.weir(&["tunnel", verb])).wait_with_output().unwrap();
        let told = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{told}");
        assert!(told.contains("belongs to user 65534"), "{told}");
        assert!(told.contains("XDG_RUNTIME_DIR"), "{told}");
    }
    let said = user.run(user.weir(&["link", "list"])).wait_with_output().unwrap();
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("belongs to user 65534"), "{told}");
    assert_eq!(victim.try_wait().unwrap(), None, "the process was signalled");
    victim.kill().unwrap();
    victim.wait().unwrap();
    drop(trap);
}

#[test]
fn an_end_of_another_user_is_neither_asked_nor_signalled() {
    let Some(world) = World::new() else { return };
    let Some(user) = User::new(&world) else { return };
    // Started by its own command under another user, so it is not a process of root.
    let path = world.path("theirs.sock");
    let directory = world.path("own");
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
    await_some("the status socket", || socket.exists().then_some(()));
    // Root asks an end through that end's own directory, as for a service with its own user.
    let said = world.weir(&["tunnel", "status", "--status-socket", &socket_word]);
    assert!(said.status.success() && said.stdout.contains("server (pid "), "{said:?}");
    std::fs::rename(&socket, &path).unwrap();
    for verb in ["status", "reload"] {
        let said = world.weir(&["tunnel", verb, "--status-socket", "theirs.sock"]);
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(said.stderr.contains(&format!("belongs to user {}", user.id)), "{said:?}");
        assert!(said.stderr.contains("as that user"), "{said:?}");
    }
    assert_eq!(server.try_wait().unwrap(), None);
    server.kill().unwrap();
    let said = server.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!told.contains("reloaded"), "{told}");
}

/// An unprivileged user of this machine, and a copy of the command that this user may run.
struct User<'a> {
    id: u32,
    world: &'a World,
    program: PathBuf,
}

impl<'a> User<'a> {
    fn new(world: &'a World) -> Option<Self> {
        let id = 50_000 + std::process::id() % 9_000;
        let program = world.path("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, all.clone()).unwrap();
        std::fs::set_permissions(world.home(), all).unwrap();
        let may = Command::new("true").uid(id).gid(id).status();
        if let Err(error) = may {
            eprintln!("SKIPPED: only root can become another user: {error}");
            return None;
        }
        let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(world.inside(up).unwrap().success());
        Some(Self { id, world, program })
    }

    fn weir(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    fn run(&self, mut command: impl std::borrow::BorrowMut<Command>) -> Child {
        let command = command.borrow_mut();
        command.uid(self.id).gid(self.id).current_dir(self.world.home());
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.world.inside(|| command.spawn()).unwrap()
    }
}

/// A directory that `nobody` makes where others look for theirs, with a socket that names a
/// process.
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
        let status = format!(
            r#"{{"role":"server","version":"0","pid":{victim},"up_seconds":1,"listens_on":[],
            "congestion":"tcpa","certificate_expires":0,"memory_granted":0,"memory_limit":0,
            "counters":{{}},"reloads":0,"reload_refused":"","refused":{{}},"connections":[]}}"#
        );
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
