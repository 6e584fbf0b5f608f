//! `weir tunnel reload`, and SIGHUP: the file takes effect at once, for new and for open tunnels,
//! and a file with a mistake changes nothing.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Running, World, await_some};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

#[test]
fn a_removed_right_resets_its_tunnels_and_allowed_tunnels_continue() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let (kept, lost) = (world.inside(echo), world.inside(echo));
    let rules = |rules: &[u16]| {
        let list: Vec<String> =
            rules.iter().map(|port| format!("\"tcp:127.0.0.1:{port}\"")).collect();
        format!("allow = [{}]\n", list.join(", "))
    };
    let peer = ends.peer_table();
    world.write("server.toml", format!("{peer}{}", rules(&[kept, lost])));
    let server = server(&ends);
    let _client = ends.client(&[
        &format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{kept}"),
        &format!("tcp:127.0.0.1:6001=tcp:127.0.0.1:{lost}"),
    ]);
    let (mut kept_one, mut lost_one) = (open(&world, 6000), open(&world, 6001));

    world.write("server.toml", format!("{peer}{}", rules(&[kept])));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert!(said.stdout.starts_with("server (pid "), "{said:?}");
    assert!(said.stdout.ends_with("): reloaded\n"), "{said:?}");
    // A reset, as if the target had sent it, instead of a silent wait.
    let mut byte = [0];
    let gone = lost_one.read(&mut byte);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    exchange(&mut kept_one);
    assert!(world.inside(|| through(6001, b"x")).map_or(true, |got| got.is_empty()));
    assert_eq!(world.inside(|| through(6000, b"new")).unwrap(), b"new");
    // The earlier counts are kept.
    let metrics = world.inside(|| get(9150, "/metrics"));
    assert!(metrics.contains("weir_tunnel_reloads_total{role=\"server\"} 1"), "{metrics}");
    assert!(metrics.contains("reason=\"not-listed\"} 2"), "{metrics}");
    drop(server);
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_says_why() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let good = format!("{}allow = [\"tcp:127.0.0.1:{target}\"]\n", ends.peer_table());
    world.write("server.toml", &good);
    let server = server(&ends);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    let mut standing = open(&world, 6000);

    world.write("server.toml", good.replace("allow", "alow"));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stdout.contains("all stays as it was: server.toml:"), "{said:?}");
    assert!(said.stdout.contains("did you mean `allow`?"), "{said:?}");
    let told = server.said_so_far().1;
    assert!(told.contains("not reloaded, all stays as it was: server.toml:"), "{told}");
    let status = world.weir(&["tunnel", "status", "--status-socket", "server.sock"]);
    assert!(status.stdout.contains("the last reload changed nothing: server.toml:"), "{status:?}");
    exchange(&mut standing);
    assert_eq!(world.inside(|| through(6000, b"new")).unwrap(), b"new");

    // The end names the settings that need a restart, and applies the rest.
    world.write("server.toml", format!("[server]\nmemory = \"64MiB\"\n{good}"));
    server.signal("HUP");
    await_some("the reload", || {
        server.said_so_far().1.contains("reloaded; only a restart changes memory").then_some(())
    });
    let status = world.weir(&["tunnel", "status", "--status-socket", "server.sock"]);
    assert!(!status.stdout.contains("changed nothing"), "{status:?}");
    exchange(&mut standing);
}

#[test]
fn a_removed_peer_is_disconnected_and_an_added_peer_is_admitted() {
    let Some(world) = World::new() else { return };
    let (ends, others) = (Ends::new(&world), Ends::below(&world, "others"));
    let target = world.inside(echo);
    let allow = format!("allow = [\"tcp:127.0.0.1:{target}\"]\n");
    let file = |who: &Ends<'_>| format!("{}{allow}", who.peer_table());
    world.write("server.toml", file(&ends));
    let _server = server(&ends);
    let forward = |port: u16| format!("tcp:127.0.0.1:{port}=tcp:127.0.0.1:{target}");
    let _client = ends.client(&[&forward(6000)]);
    let mut standing = open(&world, 6000);
    // The server's pin with the other client's key: an unknown client, refused in the handshake.
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    let (to, own) = (forward(6001), others.own("client"));
    words.extend(["--forward", &to, "--status-socket", "second.sock"]);
    words.extend(own.iter().map(String::as_str));
    let second = world.start(&words);
    await_some("the refusal", || second.said_so_far().1.contains("connection lost").then_some(()));
    assert!(world.inside(|| through(6001, b"in")).map_or(true, |got| got.is_empty()));

    world.write("server.toml", file(&others));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let mut byte = [0];
    let gone = standing.read(&mut byte);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    await_some("the other's connection", || {
        world.inside(|| through(6001, b"in")).ok().filter(|got| got == b"in")
    });
}

#[test]
fn a_client_moves_its_listeners_and_keeps_open_tunnels() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let (one, other) = (world.inside(echo), world.inside(shout));
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
    world.write("client.toml", forwards(&[(6000, one), (6001, one)]));
    let own = ends.own("client");
    let mut words = vec!["tunnel", "client", "--config", "client.toml"];
    words.extend(["--status-socket", "client.sock"]);
    words.extend(own.iter().map(String::as_str));
    let _client = ends.started(&words, "connected to");
    let (mut first, mut second) = (open(&world, 6000), open(&world, 6001));

    // One listener has another target, one is removed, one is new.
    world.write("client.toml", forwards(&[(6000, other), (6002, one)]));
    let reload = || world.weir(&["tunnel", "reload", "--status-socket", "client.sock"]);
    let said = reload();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    exchange(&mut first);
    exchange(&mut second);
    assert_eq!(world.inside(|| through(6000, b"x")).unwrap(), b"X");
    assert_eq!(world.inside(|| through(6002, b"x")).unwrap(), b"x");
    assert!(world.inside(|| TcpStream::connect("127.0.0.1:6001")).is_err());

    // A port that is in use: no part of the file applies.
    world.write("client.toml", forwards(&[(6000, one), (9150, one)]));
    let said = reload();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stdout.contains("9150"), "{said:?}");
    assert_eq!(world.inside(|| through(6000, b"x")).unwrap(), b"X");
    assert_eq!(world.inside(|| through(6002, b"x")).unwrap(), b"x");
}

#[test]
fn reverse_tunnels_last_as_long_as_the_client_may_listen_at_the_server() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let may = |ports: &[u16]| {
        let list: Vec<String> =
            ports.iter().map(|port| format!("\"tcp:127.0.0.1:{port}\"")).collect();
        format!("{}reverse = [{}]\n", ends.peer_table(), list.join(", "))
    };
    world.write("server.toml", may(&[8080, 8081, 8082]));
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
    world.write("client.toml", reverses(&[8080, 8081]));
    let own = ends.own("client");
    let mut words = vec!["tunnel", "client", "--config", "client.toml"];
    words.extend(["--status-socket", "client.sock"]);
    words.extend(own.iter().map(String::as_str));
    let _client = ends.started(&words, "connected to");
    let answers = |port: u16| {
        await_some("a listener at the server", || {
            world.inside(|| through(port, b"in")).ok().filter(|got| got == b"in")
        });
    };
    let is_closed = |port: u16| {
        await_some("the listener's end", || {
            world.inside(|| TcpStream::connect(("127.0.0.1", port))).is_err().then_some(())
        });
    };
    answers(8080);
    answers(8081);
    let (mut stays, mut goes) = (open(&world, 8080), open(&world, 8081));

    // The server removes a right: connections through that listener are reset, the others continue.
    world.write("server.toml", may(&[8080, 8082]));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let gone = goes.read(&mut [0]);
    assert!(
        gone.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{gone:?}"
    );
    is_closed(8081);
    exchange(&mut stays);

    // The client listens elsewhere: open connections stay.
    world.write("client.toml", reverses(&[8082]));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "client.sock"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    answers(8082);
    is_closed(8080);
    exchange(&mut stays);

    // Even then the server may reset them.
    world.write("server.toml", may(&[8082]));
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
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

/// A connection through the tunnel that has carried a byte.
fn open(world: &World, port: u16) -> TcpStream {
    let mut stream = world.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
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

/// Answers in capitals.
fn shout() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard);
            let _ = stream.write_all(&heard.to_ascii_uppercase());
        }
    });
    port
}
