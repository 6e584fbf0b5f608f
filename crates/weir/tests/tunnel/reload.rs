//! `weir tunnel reload`, and SIGHUP: the file takes effect at once, for new and for open tunnels.
//! An end refuses a file with a mistake and keeps its settings.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Running, Sandbox, await_some, is_installed};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

#[test]
fn a_removed_right_resets_its_tunnels_and_allowed_tunnels_continue() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let (kept, lost) = (sandbox.inside(echo), sandbox.inside(echo));
    let rules = |rules: &[u16]| {
        let list: Vec<String> =
            rules.iter().map(|port| format!("\"tcp:127.0.0.1:{port}\"")).collect();
        format!("allow = [{}]\n", list.join(", "))
    };
    let peer = ends.peer_table();
    sandbox.write("server.toml", format!("{peer}{}", rules(&[kept, lost])));
    let server = server(&ends);
    let _client = ends.client(&[
        &format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{kept}"),
        &format!("tcp:127.0.0.1:6001=tcp:127.0.0.1:{lost}"),
    ]);
    let (mut kept_one, mut lost_one) = (open(&sandbox, 6000), open(&sandbox, 6001));

    sandbox.write("server.toml", format!("{peer}{}", rules(&[kept])));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with("server (pid "), "{output:?}");
    assert!(output.stdout.ends_with("): reloaded\n"), "{output:?}");
    // The application gets a reset instead of waiting.
    let mut byte = [0];
    let gone = lost_one.read(&mut byte);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    exchange(&mut kept_one);
    assert!(sandbox.inside(|| through(6001, b"x")).map_or(true, |got| got.is_empty()));
    assert_eq!(sandbox.inside(|| through(6000, b"new")).unwrap(), b"new");
    // The reload keeps the earlier counts.
    let metrics = sandbox.inside(|| get(9150, "/metrics"));
    assert!(metrics.contains("weir_tunnel_reloads_total{role=\"server\"} 1"), "{metrics}");
    assert!(metrics.contains("reason=\"not-listed\"} 2"), "{metrics}");
    drop(server);
}

#[test]
fn a_reload_of_a_file_with_a_mistake_changes_nothing_and_says_why() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let good = format!("{}allow = [\"tcp:127.0.0.1:{target}\"]\n", ends.peer_table());
    sandbox.write("server.toml", &good);
    let server = server(&ends);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    let mut standing = open(&sandbox, 6000);

    sandbox.write("server.toml", good.replace("allow", "alow"));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("all stays as it was: server.toml:"), "{output:?}");
    assert!(output.stdout.contains("did you mean `allow`?"), "{output:?}");
    let message = server.output_so_far().1;
    assert!(message.contains("not reloaded, all stays as it was: server.toml:"), "{message}");
    let status = sandbox.weir(&["tunnel", "status", "--status-socket", "server.sock"]);
    assert!(status.stdout.contains("the last reload changed nothing: server.toml:"), "{status:?}");
    exchange(&mut standing);
    assert_eq!(sandbox.inside(|| through(6000, b"new")).unwrap(), b"new");

    // The end names the settings that need a restart, and applies the other settings.
    sandbox.write("server.toml", format!("[server]\nmemory = \"64MiB\"\n{good}"));
    server.signal("HUP");
    await_some("the reload", || {
        server.output_so_far().1.contains("reloaded; only a restart changes memory").then_some(())
    });
    let status = sandbox.weir(&["tunnel", "status", "--status-socket", "server.sock"]);
    assert!(!status.stdout.contains("changed nothing"), "{status:?}");
    exchange(&mut standing);
}

/// open(2) of a pipe waits for a writer, which would block the thread that reads the files and also
/// serves `status` and `reload`.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_the_end_still_answers() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("mkfifo") {
        return testing::skip(testing::Need::Program("mkfifo"));
    }
    let ends = Ends::new(&sandbox);
    let other = Ends::below(&sandbox, "authority");
    let authority = format!("{}/server.crt", other.folder);
    let target = sandbox.inside(echo);
    sandbox.write(
        "server.toml",
        format!(
            "[server]\nca-file = \"{authority}\"\n{}allow = [\"tcp:127.0.0.1:{target}\"]\n",
            ends.peer_table()
        ),
    );
    let server = server(&ends);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    let reload = || sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    let [certificate, key] = ["crt", "key"].map(|end| format!("{}/server.{end}", ends.folder));
    for file in ["server.toml", &certificate, &key, &authority] {
        let path = sandbox.path(file);
        let kept = sandbox.path("kept");
        std::fs::rename(&path, &kept).unwrap();
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
        assert!(made.unwrap().success());
        let output = reload();
        assert_eq!(output.status.code(), Some(1), "{file}: {output:?}");
        assert!(output.stdout.contains("not a regular file"), "{file}: {output:?}");
        assert!(output.stdout.contains(file), "{file}: {output:?}");
        let status = sandbox.weir(&["tunnel", "status", "--status-socket", "server.sock"]);
        assert!(status.status.success(), "{file}: {status:?}");
        let mut words = vec!["tunnel", "check", "server", "--config", "server.toml"];
        let own = ends.own("server");
        words.extend(own.iter().map(String::as_str));
        let check = sandbox.weir(&words);
        assert_eq!(check.status.code(), Some(2), "{file}: {check:?}");
        assert!(check.stderr.contains("not a regular file"), "{file}: {check:?}");
        std::fs::rename(&kept, &path).unwrap();
        let output = reload();
        assert_eq!(output.status.code(), Some(0), "{file}: {output:?}");
    }
    assert_eq!(sandbox.inside(|| through(6000, b"new")).unwrap(), b"new");
    drop(server);
}

#[test]
fn a_removed_peer_is_disconnected_and_an_added_peer_is_admitted() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (ends, others) = (Ends::new(&sandbox), Ends::below(&sandbox, "others"));
    let target = sandbox.inside(echo);
    let allow = format!("allow = [\"tcp:127.0.0.1:{target}\"]\n");
    let file = |who: &Ends<'_>| format!("{}{allow}", who.peer_table());
    sandbox.write("server.toml", file(&ends));
    let _server = server(&ends);
    let forward = |port: u16| format!("tcp:127.0.0.1:{port}=tcp:127.0.0.1:{target}");
    let _client = ends.client(&[&forward(6000)]);
    let mut standing = open(&sandbox, 6000);
    // The server does not know the other client's key, and refuses the handshake.
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    let (to, own) = (forward(6001), others.own("client"));
    words.extend(["--forward", &to, "--status-socket", "second.sock"]);
    words.extend(own.iter().map(String::as_str));
    let second = sandbox.start(&words);
    await_some("the refusal", || {
        second.output_so_far().1.contains("no connection; trying again").then_some(())
    });
    assert!(sandbox.inside(|| through(6001, b"in")).map_or(true, |got| got.is_empty()));

    sandbox.write("server.toml", file(&others));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut byte = [0];
    let gone = standing.read(&mut byte);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    await_some("the other's connection", || {
        sandbox.inside(|| through(6001, b"in")).ok().filter(|got| got == b"in")
    });
}

#[test]
fn a_client_moves_its_listeners_and_keeps_open_tunnels() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let (one, other) = (sandbox.inside(echo), sandbox.inside(shout));
    let _server =
        ends.server(&[&format!("tcp:127.0.0.1:{one}"), &format!("tcp:127.0.0.1:{other}")]);
    let to_server =
        format!("[[client.server]]\nendpoint = \"127.0.0.1:7500\"\npin = \"{}\"\n", ends.pin);
    let forwards = |all: &[(u16, u16)]| {
        let table = |(port, target): &(u16, u16)| {
            format!(
                "[[client.forward]]\nlisten-on = \"tcp:127.0.0.1:{port}\"\n\
                 target = \"tcp:127.0.0.1:{target}\"\n"
            )
        };
        format!("{to_server}{}", all.iter().map(table).collect::<String>())
    };
    sandbox.write("client.toml", forwards(&[(6000, one), (6001, one)]));
    let own = ends.own("client");
    let mut words = vec!["tunnel", "client", "--config", "client.toml"];
    words.extend(["--status-socket", "client.sock"]);
    words.extend(own.iter().map(String::as_str));
    let _client = ends.started(&words, "connected to");
    let (mut first, mut second) = (open(&sandbox, 6000), open(&sandbox, 6001));

    // The reload changes the target of one listener, removes another listener, and adds a listener
    // at a port that needs a capability.
    sandbox.write("client.toml", forwards(&[(6000, other), (602, one)]));
    let reload = || sandbox.weir(&["tunnel", "reload", "--status-socket", "client.sock"]);
    let output = reload();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    exchange(&mut first);
    exchange(&mut second);
    assert_eq!(sandbox.inside(|| through(6000, b"x")).unwrap(), b"X");
    assert_eq!(sandbox.inside(|| through(602, b"x")).unwrap(), b"x");
    await_some("the listener's end", || {
        sandbox.inside(|| TcpStream::connect("127.0.0.1:6001")).is_err().then_some(())
    });

    // A port is in use, so the client applies no part of the file.
    sandbox.write("client.toml", forwards(&[(6000, one), (9150, one)]));
    let output = reload();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("9150"), "{output:?}");
    assert_eq!(sandbox.inside(|| through(6000, b"x")).unwrap(), b"X");
    assert_eq!(sandbox.inside(|| through(602, b"x")).unwrap(), b"x");
}

#[test]
fn reverse_tunnels_last_as_long_as_the_client_may_listen_at_the_server() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let may = |ports: &[u16]| {
        let list: Vec<String> =
            ports.iter().map(|port| format!("\"tcp:127.0.0.1:{port}\"")).collect();
        format!("{}reverse = [{}]\n", ends.peer_table(), list.join(", "))
    };
    sandbox.write("server.toml", may(&[8080, 8081, 8082]));
    let _server = server(&ends);
    let reverses = |ports: &[u16]| {
        let table = |port: &u16| {
            format!(
                "[[client.reverse]]\nlisten-on = \"tcp:127.0.0.1:{port}\"\n\
                 target = \"tcp:127.0.0.1:{target}\"\n"
            )
        };
        format!(
            "[[client.server]]\nendpoint = \"127.0.0.1:7500\"\npin = \"{}\"\n{}",
            ends.pin,
            ports.iter().map(table).collect::<String>()
        )
    };
    sandbox.write("client.toml", reverses(&[8080, 8081]));
    let own = ends.own("client");
    let mut words = vec!["tunnel", "client", "--config", "client.toml"];
    words.extend(["--status-socket", "client.sock"]);
    words.extend(own.iter().map(String::as_str));
    let _client = ends.started(&words, "connected to");
    let answers = |port: u16| {
        await_some("a listener at the server", || {
            sandbox.inside(|| through(port, b"in")).ok().filter(|got| got == b"in")
        });
    };
    let is_closed = |port: u16| {
        await_some("the listener's end", || {
            sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).is_err().then_some(())
        });
    };
    answers(8080);
    answers(8081);
    let (mut stays, mut goes) = (open(&sandbox, 8080), open(&sandbox, 8081));

    // The server removes a right and resets the connections of that listener; other connections
    // continue.
    sandbox.write("server.toml", may(&[8080, 8082]));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let gone = goes.read(&mut [0]);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    is_closed(8081);
    exchange(&mut stays);

    // The client listens at another port, and open connections stay.
    sandbox.write("client.toml", reverses(&[8082]));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "client.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    answers(8082);
    is_closed(8080);
    exchange(&mut stays);

    // The server still resets the connections if the server removes their right.
    sandbox.write("server.toml", may(&[8082]));
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let gone = stays.read(&mut [0]);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    answers(8082);
}

fn server(ends: &Ends<'_>) -> Running {
    let own = ends.own("server");
    let mut words = vec!["tunnel", "server", "--config", "server.toml"];
    words.extend(["--listen-on", "127.0.0.1:7500", "--metrics-on", "127.0.0.1:9150"]);
    words.extend(["--status-socket", "server.sock"]);
    words.extend(own.iter().map(String::as_str));
    ends.started(&words, "listening on")
}

fn open(sandbox: &Sandbox, port: u16) -> TcpStream {
    let mut stream = sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    exchange(&mut stream);
    stream
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"a").unwrap();
    let mut got = [0];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"a");
}

/// Starts a server that answers in capitals.
fn shout() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received);
            let _ = stream.write_all(&received.to_ascii_uppercase());
        }
    });
    port
}
