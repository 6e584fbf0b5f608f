//! Checks that the control socket serves valid clients, whatever invalid clients send.
#![allow(clippy::unwrap_used)]

mod support;

use emu::control::{Client, Directory, Server};
use emu::{EmuError, LinkOptions, RunningLink, Settings};
use host::{HostError, Namespace, Privilege};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use tempfile::TempDir;

struct Testbed {
    server: Server,
    link: RunningLink,
    directory: Directory,
    path: TempDir,
    _hosts: [Namespace; 2],
}

fn testbed() -> Option<Testbed> {
    let create = |name| match Namespace::create(name) {
        Ok(namespace) => Some(namespace),
        Err(error @ HostError::NotPermitted { .. }) => {
            testing::skip_because(testing::Need::NetworkNamespaces, error);
            None
        }
        Err(error) => panic!("{error}"),
    };
    let hosts = [create("a")?, create("b")?];
    let end = |host: &Namespace| {
        format!("/proc/{}/fd/{}:eth0", std::process::id(), host.as_fd().as_raw_fd())
    };
    let mut options = LinkOptions::default();
    for (key, value) in [
        ("a", end(&hosts[0]).as_str()),
        ("b", &end(&hosts[1])),
        ("rate", "10mbit"),
        ("no-real-time", "true"),
        ("spin", "0us"),
    ] {
        options.set(key, value).unwrap();
    }
    let path = private();
    let directory = Directory::at(links(&path));
    directory.prepare().unwrap();
    let claim = directory.claim(Some("wan")).unwrap();
    let link = RunningLink::start("wan", options.plan().unwrap(), Privilege::Root).unwrap();
    let server = Server::start(claim, link.inspector()).unwrap();
    Some(Testbed { server, link, directory, path, _hosts: hosts })
}

/// Makes a folder that no other user may enter, as the sockets' directory must be.
fn private() -> TempDir {
    let mode = Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

impl Testbed {
    fn client(&self) -> Client {
        Client::connect(&self.directory, "wan").unwrap()
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(links(&self.path).join("wan.sock")).unwrap()
    }

    fn rate(&self) -> String {
        self.client().show().unwrap().ab.config.rate.to_string()
    }
}

/// Returns the path of the sockets' directory. A temporary directory is open to all users, so the
/// program makes the sockets' directory inside the temporary directory, with its own mode.
fn links(path: &TempDir) -> PathBuf {
    path.path().join("links")
}

fn settings(pairs: &[&str]) -> Settings {
    let mut settings = Settings::default();
    pairs.iter().for_each(|pair| emu::set_pair(&mut settings, pair).unwrap());
    settings
}

#[test]
fn a_client_can_show_change_and_stop_a_link() {
    let Some(testbed) = testbed() else { return };
    let mut client = testbed.client();
    client
        .set(settings(&["delay=3ms"]), settings(&["rate=20mbit"]), settings(&["loss=1%"]))
        .unwrap();
    let report = client.show().unwrap();
    assert_eq!((report.name.as_str(), report.pid), ("wan", std::process::id()));
    // A busy machine makes frames late; the report may name no other problem.
    assert!(report.problems.iter().all(|one| one.contains(" late ")), "{report:?}");
    assert_eq!(report.valid, report.problems.is_empty());
    let shown =
        |config: &link::LinkConfig| format!("{} {} {}", config.rate, config.delay, config.loss);
    assert_eq!(shown(&report.ab.config), "20mbit 3ms none");
    assert_eq!(shown(&report.ba.config), "10mbit 3ms 1%");

    let refused = client.set(settings(&["seed=3", "rate=1mbit"]), settings(&[]), settings(&[]));
    assert!(matches!(&refused, Err(EmuError::Refused(why)) if why.contains("seed")), "{refused:?}");
    assert_eq!(testbed.rate(), "20mbit");

    assert_eq!(testbed.directory.names().unwrap(), ["wan"]);
    let down = std::thread::spawn(move || client.down());
    support::until("the wish arrives", || testbed.server.down_requested());
    testbed.link.finish().unwrap();
    drop(testbed.server);
    down.join().unwrap().unwrap();
    assert!(testbed.directory.names().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(links(&testbed.path)).unwrap().count(), 0);
}

#[test]
fn invalid_control_requests_get_an_error_or_are_cut_off() {
    let Some(testbed) = testbed() else { return };
    for garbage in [
        "\n",
        "hello\n",
        "{\"do\":\"dance\"}\n",
        "{\"do\":\"set\",\"both\":{\"los\":\"1%\"}}\n",
        "{\"do\":\"set\",\"both\":{\"loss\":\"140%\"}}\n",
        "{\"do\":\"set\",\"both\":{\"rate\":\"0mbit\"},\"ba\":{\"rate\":\"5mbit\"}}\n",
        "{\"do\":\"set\",\"ab\":[[[[[[[[[[[[\n",
    ] {
        let mut stream = testbed.raw();
        stream.write_all(garbage.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":"), "{garbage}: {answer}");
    }
    let deep = "[".repeat(1 << 20);
    let mut stream = testbed.raw();
    writeln!(stream, "{deep}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"error\":"), "{answer}");

    let mut stream = testbed.raw();
    stream.write_all(&[0xff, 0xfe, 0, b'\n']).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("UTF-8"), "{answer}");

    // A line without a line break is cut off at the bound, not stored.
    let mut stream = testbed.raw();
    let chunk = vec![b'x'; 1 << 16];
    let written = (0..1024).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(written < 1024, "64 MiB of one line were taken");

    assert_eq!(testbed.rate(), "10mbit");
}

#[test]
fn closed_and_silent_clients_do_not_block_other_clients() {
    let Some(testbed) = testbed() else { return };
    for _ in 0..200 {
        let mut stream = testbed.raw();
        let _ = stream.write_all(b"{\"do\":");
    }
    // Connect more silent clients than the link serves at once. The link refuses further clients
    // until a slot is free.
    let silent: Vec<UnixStream> = (0..32).map(|_| testbed.raw()).collect();
    drop(silent);
    support::until("there is room again", || {
        Client::connect(&testbed.directory, "wan").and_then(|mut client| client.show()).is_ok()
    });
    // Connect clients that send a request and do not wait for the reply.
    for _ in 0..50 {
        // The link may already have closed this connection, because the link has too many clients.
        let _ = testbed.raw().write_all(b"{\"do\":\"show\"}\n{\"do\":\"show\"}\n");
    }
    support::until("there is room again", || {
        Client::connect(&testbed.directory, "wan").and_then(|mut client| client.show()).is_ok()
    });
}

#[test]
fn a_link_name_is_unique_and_the_name_of_a_dead_link_is_free() {
    let path = private();
    let directory = Directory::at(links(&path));
    directory.prepare().unwrap();
    // Leave a socket without a listener, as a killed link does.
    drop(UnixListener::bind(links(&path).join("wan.sock")).unwrap());
    drop(UnixListener::bind(links(&path).join("old.sock")).unwrap());
    let claim = directory.claim(Some("wan")).unwrap();
    let refused = directory.claim(Some("wan"));
    assert!(matches!(refused, Err(EmuError::NameTaken { .. })), "{refused:?}");
    assert_eq!(directory.names().unwrap(), ["wan"]);
    assert!(!links(&path).join("old.sock").exists());
    let (first, second) = (directory.claim(None).unwrap(), directory.claim(None).unwrap());
    assert_eq!((first.name(), second.name()), ("link0", "link1"));
    drop(claim);
    directory.claim(Some("wan")).unwrap();
    let missing = Client::connect(&directory, "link2").unwrap_err().to_string();
    assert!(missing.contains("did you mean `link"), "{missing}");
    assert!(directory.claim(Some("../x")).is_err());
}

#[test]
fn each_of_many_unnamed_links_gets_a_name() {
    let path = private();
    let directory = Directory::at(links(&path));
    directory.prepare().unwrap();
    drop(UnixListener::bind(links(&path).join("wan.sock")).unwrap());
    let claims: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|_| scope.spawn(|| directory.claim(Some("wan")))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
}

#[test]
fn a_socket_directory_that_other_users_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let path = private();
    std::fs::set_permissions(path.path(), Permissions::from_mode(0o755)).unwrap();
    let directory = Directory::at(path.path());
    // Another user who may enter the directory can put a socket into it that replies instead of the
    // link.
    let _theirs = UnixListener::bind(path.path().join("wan.sock")).unwrap();
    let refused = [
        directory.prepare().unwrap_err(),
        directory.claim(Some("lan")).unwrap_err(),
        directory.names().unwrap_err(),
        Client::connect(&directory, "wan").unwrap_err(),
    ];
    for error in refused.map(|error| error.to_string()) {
        assert!(error.contains("can be entered by others (mode 0755)"), "{error}");
        assert!(error.contains("chmod 700"), "{error}");
    }
    assert!(Directory::at("/dev/null").prepare().is_err());
    assert!(Directory::at("/dev/null").names().is_err());
}

#[test]
fn a_regular_file_at_the_path_of_a_socket_is_kept() {
    let path = private();
    let directory = Directory::at(links(&path));
    directory.prepare().unwrap();
    std::fs::write(links(&path).join("wan.sock"), "mine").unwrap();
    let refused = directory.claim(Some("wan")).unwrap_err().to_string();
    assert!(refused.contains("no socket: remove it"), "{refused}");
    assert!(directory.names().unwrap().is_empty());
    assert_eq!(std::fs::read(links(&path).join("wan.sock")).unwrap(), b"mine");
}

#[test]
fn strings_from_a_link_are_escaped_for_the_terminal() {
    let path = private();
    let directory = Directory::at(links(&path));
    directory.prepare().unwrap();
    let listener = UnixListener::bind(links(&path).join("wan.sock")).unwrap();
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reading = BufReader::new(stream.try_clone().unwrap());
        reading.read_line(&mut String::new()).unwrap();
        let why = format!("\\u001b]0;owned\\u0007\\n{}", "x".repeat(100_000));
        writeln!(&stream, "{{\"error\":\"{why}\"}}").unwrap();
    });
    let refused = Client::connect(&directory, "wan").unwrap().show().unwrap_err().to_string();
    serving.join().unwrap();
    assert!(refused.starts_with(r"\x1b]0;owned\x07\nxxx"), "{refused}");
    assert!(refused.chars().count() < 1100, "{refused}");
}
