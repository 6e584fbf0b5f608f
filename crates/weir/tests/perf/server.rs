//! `weir perf server` as a user runs it: many clients, its end, and its limits.

use crate::support::{Running, World, await_some, intervals};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// On a port of this world; the server listens when this returns.
fn serve(world: &World, words: &[&str]) -> Running {
    await_listening(world.start(&[&["perf", "server"], words].concat()))
}

fn await_listening(server: Running) -> Running {
    await_some("a server", || server.said_so_far().0.contains("listening").then_some(()));
    server
}

/// A client that measures until it receives a signal; the test has begun when this returns.
fn endless(world: &World) -> Running {
    let client =
        world.start(&["perf", "client", "127.0.0.1", "-b", "5M", "-i", "0.1", "-t", "600"]);
    await_some("an interval", || (intervals(&client.said_so_far().0) >= 1).then_some(()));
    client
}

#[test]
fn clients_are_served_at_once_and_one_after_another_until_a_signal() {
    for signal in ["INT", "TERM"] {
        let Some(world) = World::new() else { return };
        let server = serve(&world, &[]);
        let mut first = endless(&world);
        for words in [
            &["-n", "1M"][..],
            &["-n", "1M", "-R"],
            &["-u", "-k", "20", "-l", "1000"],
            &["-t", "0.3", "-P", "3"],
        ] {
            let said = world.weir(&[&["perf", "client", "127.0.0.1"], words].concat());
            assert!(said.status.success(), "{words:?}: {said:?}");
        }
        assert!(!first.has_ended(), "{:?}", first.said_so_far());
        first.signal("INT");
        assert_eq!(first.end().stderr, "weir: interrupted\n");

        // During a test, which learns of the signal.
        let last = endless(&world);
        server.signal(signal);
        let said = server.end();
        assert_eq!((said.status.code(), said.stderr.as_str()), (Some(0), ""), "{signal}");
        assert_eq!(said.stdout.matches("summary").count(), 6, "{}", said.stdout);
        let told = last.end();
        assert_eq!(told.status.code(), Some(1));
        assert!(told.stderr.contains("127.0.0.1:5201 ended the test"), "{}", told.stderr);
        assert_eq!(world.leftovers(), Vec::<String>::new());

        // The port is free for the next server at once.
        let next = serve(&world, &["-1"]);
        assert!(world.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]).status.success());
        assert!(next.end().status.success());
    }
}

#[test]
fn an_idle_server_ends_at_a_signal_without_output() {
    let Some(world) = World::new() else { return };
    for signal in ["INT", "TERM", "HUP"] {
        let server = serve(&world, &[]);
        server.signal(signal);
        let said = server.end();
        assert_eq!((said.status.code(), said.stderr.as_str()), (Some(0), ""), "{signal}");
    }
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

/// A server with a low limit of descriptors.
fn cramped(world: &World, files: u32) -> Running {
    let mut command = Command::new("sh");
    let weir = env!("CARGO_BIN_EXE_weir");
    command.args(["-c", &format!("ulimit -n {files}; exec '{weir}' perf server")]);
    await_listening(world.start_command(command))
}

#[test]
fn a_server_without_descriptors_says_so_and_what_to_do() {
    let Some(world) = World::new() else { return };
    let server = cramped(&world, 24);
    for words in [&["-P", "40"][..], &["-u", "-P", "40"], &["-R", "-P", "40"]] {
        let words = [&["perf", "client", "127.0.0.1"], words].concat();
        let said = world.weir(&words);
        assert_eq!(said.status.code(), Some(1), "{words:?}: {said:?}");
        assert!(said.stderr.contains("raise its `ulimit -n`"), "{words:?}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{words:?}: {}", said.stderr);
    }
    // The server still serves other clients.
    let said = world.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]);
    assert!(said.status.success(), "{said:?}");
    server.signal("INT");
    assert!(server.end().status.success());
}

/// Connections that have all sent their cookie and stay: the first one beyond the limit is refused.
#[test]
fn a_client_beyond_the_limit_is_refused_at_once() {
    let Some(world) = World::new() else { return };
    let server = cramped(&world, 24);
    let mut guests: Vec<TcpStream> = Vec::new();
    let said = loop {
        let mut guest = world.inside(|| TcpStream::connect("127.0.0.1:5201").unwrap());
        let cookie = format!("{:036}\0", guests.len());
        guest.write_all(cookie.as_bytes()).unwrap();
        let mut state = [0];
        guest.read_exact(&mut state).unwrap();
        // iperf3's PARAM_EXCHANGE: the server admitted this client.
        if state[0] != 9 {
            let mut rest = vec![state[0]];
            guest.read_to_end(&mut rest).unwrap();
            break rest;
        }
        guests.push(guest);
        assert!(guests.len() < 24, "more than there can be descriptors for");
    };
    // SERVER_ERROR, "unable to initialise the test", EMFILE.
    assert_eq!(said, [254, 0, 0, 0, 101, 0, 0, 0, 24]);
    let told = world.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]);
    assert!(told.stderr.contains("raise its `ulimit -n`"), "{told:?}");
    drop(guests);
    server.signal("INT");
    let said = server.end();
    assert!(said.status.success() && said.stderr.contains("ulimit -n"), "{said:?}");
}

#[test]
fn a_client_without_descriptors_says_what_to_do() {
    let Some(world) = World::new() else { return };
    let server = serve(&world, &[]);
    let mut command = Command::new("sh");
    let weir = env!("CARGO_BIN_EXE_weir");
    command.args(["-c", &format!("ulimit -n 20; exec '{weir}' perf client 127.0.0.1 -P 40")]);
    let said = world.start_command(command).end();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stderr.contains("with `ulimit -n`"), "{}", said.stderr);
    server.signal("INT");
    assert!(server.end().status.success());
}
