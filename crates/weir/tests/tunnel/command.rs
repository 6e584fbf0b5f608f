//! `weir tunnel` as a user runs it: two ends, their clients, and failures.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;

#[test]
fn usage_errors_of_the_tunnel_are_refused_with_advice_and_nothing_starts() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    sandbox.write("wrong.toml", "[server]\nlisten-onn = \"0.0.0.0:7500\"\n");
    let (server, client) = (ends.own("server"), ends.own("client"));
    for (end, words, message) in [
        (&server, vec!["server"], "weir tunnel keys client"),
        (&client, vec!["client"], "--server HOST:PORT"),
        (&server, vec!["server", "--config", "wrong.toml"], "wrong.toml:2: unknown key"),
        (&server, vec!["server", "--peer", "a=b"], "is not a pin"),
        (&server, vec!["server", "--listen-on", "7500"], "as in [::]:7500"),
        (
            &server,
            vec!["server", "--peer", &ends.peer, "--allow", "tcp:10.0.0.1"],
            "names no ports",
        ),
        (&server, vec!["server", "--peer", &ends.peer, "--metrics-on", "0.0.0.0:9"], "127.0.0.1:9"),
        (&server, vec!["server", "--peer", &ends.peer, "--congestion", "fixed"], "fixed 100mbit"),
        (&server, vec!["server", "--peer", &ends.peer, "--crl-file", "a.crl"], "`ca-file`"),
        (&client, vec!["client", "--server", "a:1", "--forward", FORWARD], "--pin"),
    ] {
        let mut all = vec!["tunnel"];
        all.extend(&words);
        all.extend(end.iter().map(String::as_str));
        let output = sandbox.weir(&all);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
    }
    assert!(sandbox.marked().is_empty());
}

/// A user who may not enter /etc/weir must read that the file is hidden, and not that nothing is
/// configured.
#[test]
fn a_file_that_the_user_may_not_read_is_named() {
    if !is_installed("setpriv") {
        return testing::skip(testing::Need::Program("setpriv"));
    }
    let Some(sandbox) = Sandbox::new() else { return };
    let secret = sandbox.home().join("secret");
    std::fs::DirBuilder::new().mode(0o700).create(&secret).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_weir")).args(["tunnel", "check", "server"]);
    let output = command.env("XDG_CONFIG_HOME", &secret).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("secret/weir/tunnel.toml: Permission denied"), "{text}");
}

#[test]
fn help_shows_examples_of_every_verb() {
    let Some(sandbox) = Sandbox::new() else { return };
    let all = sandbox.weir(&["tunnel", "--help"]);
    for verb in ["server", "client", "keys", "status", "reload", "check", "unit"] {
        assert!(all.stdout.contains(&format!("\n  {verb} ")), "{verb}: {all:?}");
        let output = sandbox.weir(&["tunnel", verb, "--help"]);
        assert!(output.status.success(), "{output:?}");
        assert!(
            output.stdout.contains(&format!("Examples:\n  weir tunnel {verb}"))
                || output.stdout.contains(&format!("# weir tunnel {verb}")),
            "{output:?}"
        );
    }
    let file = sandbox.path("tunnel.toml");
    std::fs::write(&file, "[server]\n").unwrap();
    let unit = sandbox.weir(&["tunnel", "unit", "server", "tunnel.toml"]);
    let starts = format!(" tunnel server --config {} \\\n", file.display());
    assert!(unit.stdout.contains(&starts) && unit.stdout.contains("ExecReload="), "{unit:?}");
    for verb in ["status", "reload"] {
        let none = sandbox.weir(&["tunnel", verb, "--status-socket", "none.sock"]);
        assert_eq!(none.status.code(), Some(1), "{none:?}");
        assert!(none.stderr.contains("none.sock"), "{none:?}");
    }
}

#[test]
fn both_directions_are_carried_and_unlisted_targets_are_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let mut server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let mut client = ends.client(&[
        &format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}"),
        "tcp:127.0.0.1:6001=tcp:127.0.0.1:9",
        "tcp:127.0.0.1:6002=tcp:169.254.169.254:80",
    ]);
    for size in [0, 1, 100_000, 3_000_000] {
        let sent: Vec<u8> = (0..size).map(|at: u32| (at * 7 + at / 251) as u8).collect();
        assert!(sandbox.inside(|| through(6000, &sent)).unwrap() == sent, "{size} bytes");
    }
    for port in [6001, 6002] {
        assert!(sandbox.inside(|| through(port, b"x")).map_or(true, |got| got.is_empty()));
    }
    let status = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", "server.sock"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status[0]["refused"]["not-listed"], 2, "{status}");
    assert_eq!(status[0]["connections"][0]["peer"], "laptop", "{status}");
    let metrics = sandbox.inside(|| get(9150, "/metrics"));
    assert!(metrics.contains("weir_tunnel_refused_total{role=\"server\",reason=\"not-listed\"} 2"));

    for running in [&mut client, &mut server] {
        running.signal("TERM");
        await_some("a clean end", || running.has_ended().then_some(()));
        assert!(running.child.wait().unwrap().success(), "{:?}", running.output_so_far());
    }
    assert!(!sandbox.path("server.sock").exists() && !sandbox.path("client.sock").exists());
}

#[test]
fn an_unknown_client_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (ends, others) = (Ends::new(&sandbox), Ends::below(&sandbox, "others"));
    let target = sandbox.inside(echo);
    let server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let forward = format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}");
    let check = |pin: &str, own: &[String]| {
        let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500"];
        words.extend(["--forward", &forward, "--pin", pin]);
        words.extend(own.iter().map(String::as_str));
        sandbox.weir(&words)
    };
    let good = check(&ends.pin, &ends.own("client"));
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let wrong_pin = check(&others.pin, &ends.own("client"));
    assert_eq!(wrong_pin.status.code(), Some(1), "{wrong_pin:?}");
    let advice = format!("give the client --pin {}\n", ends.pin);
    assert!(wrong_pin.stdout.ends_with(&advice), "{wrong_pin:?}");
    assert!(!wrong_pin.stdout.contains("error 46"), "{wrong_pin:?}");
    let stranger = check(&ends.pin, &others.own("client"));
    assert_eq!(stranger.status.code(), Some(1), "{stranger:?}");
    assert!(stranger.stdout.contains("does not let this client in"), "{stranger:?}");
    let advice =
        format!("add the client there by --peer NAME={}\n", others.peer.split_once('=').unwrap().1);
    assert!(stranger.stdout.ends_with(&advice), "{stranger:?}");
    await_some("the server's line about the stranger", || {
        server.output_so_far().1.contains("connection refused address=127.0.0.1 ").then_some(())
    });
}

#[test]
fn tunnel_check_connects_to_targets_on_request() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let rules = [format!("tcp:127.0.0.1:{target}"), "tcp:127.0.0.1:9".to_owned()];
    let udp = format!("udp:127.0.0.1:{target}");
    let _server = ends.server(&[&rules[0], &rules[1], &udp]);
    let check = |to: &str, more: &[&str]| {
        let forward = format!("{}:127.0.0.1:6000={to}", &to[..3]);
        let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500"];
        words.extend(["--forward", &forward, "--pin", &ends.pin]);
        let own = ends.own("client");
        words.extend(own.iter().map(String::as_str));
        words.extend(more);
        sandbox.weir(&words)
    };
    let good = check(&rules[0], &["--targets"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let line = format!("ok    server 127.0.0.1:7500 reaches tcp:127.0.0.1:{target}\n");
    assert!(good.stdout.ends_with(&line), "{good:?}");
    let datagrams = check(&udp, &["--targets"]);
    assert_eq!(datagrams.status.code(), Some(0), "{datagrams:?}");
    assert!(
        datagrams.stdout.contains(&format!("server 127.0.0.1:7500 sends to {udp}; ")),
        "{datagrams:?}"
    );
    let dead = check(&rules[1], &["--targets"]);
    assert_eq!(dead.status.code(), Some(1), "{dead:?}");
    assert!(dead.stdout.contains("the target cannot be reached: Connection refused"), "{dead:?}");
    let denied = check("tcp:127.0.0.1:10", &["--targets"]);
    assert_eq!(denied.status.code(), Some(1), "{denied:?}");
    // Without the flag, the check connects to no target.
    assert_eq!(check(&rules[1], &[]).status.code(), Some(0));
}

/// A server's sockets share its port. The kernel would let another server of the same user share
/// the port too, and each server would get some of the clients.
#[test]
fn a_second_server_at_the_same_port_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let _first = ends.server_with(&["--endpoints", "2"]);
    for endpoints in ["1", "2"] {
        let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
        words.extend(["--peer", &ends.peer, "--endpoints", endpoints]);
        words.extend(["--status-socket", "second.sock"]);
        let own = ends.own("server");
        words.extend(own.iter().map(String::as_str));
        let second = sandbox.weir(&words);
        assert_eq!(second.status.code(), Some(1), "{second:?}");
        assert!(second.stderr.contains("ss -ulpn"), "{second:?}");
    }
}

#[test]
fn a_second_client_at_the_same_listener_is_refused_with_advice() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let _server = ends.server(&["tcp:127.0.0.1:9"]);
    let forward = "tcp:127.0.0.1:6000=tcp:127.0.0.1:9";
    let _first = ends.client(&[forward]);
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    words.extend(["--forward", forward, "--status-socket", "second.sock"]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let second = sandbox.weir(&words);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(second.stderr.contains("ss -tulpn"), "{second:?}");
}

#[test]
fn garbage_on_the_port_disturbs_no_tunnel() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let _server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    sandbox.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seed = 7u32;
        for size in (0..1400).chain(std::iter::repeat_n(1200, 2000)) {
            let mut random = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            };
            let mut packet: Vec<u8> = (0..size).map(|_| random()).collect();
            // Make half of the packets resemble an Initial packet of QUIC version 1.
            if size > 5 && size % 2 == 0 {
                packet[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
            }
            let _ = socket.send_to(&packet, "127.0.0.1:7500");
        }
    });
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    assert_eq!(sandbox.inside(|| through(6000, b"still there")).unwrap(), b"still there");
}

#[test]
fn the_client_reconnects_after_either_end_was_killed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends { keepalive: "1s", ..Ends::new(&sandbox) };
    let target = sandbox.inside(echo);
    let forward = format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}");
    let rule = format!("tcp:127.0.0.1:{target}");
    let mut server = ends.server(&[&rule]);
    let _client = ends.client(&[&forward]);
    assert_eq!(sandbox.inside(|| through(6000, b"one")).unwrap(), b"one");
    // An application in the middle of a transfer gets an error instead of waiting.
    let mut held = sandbox.inside(|| TcpStream::connect("127.0.0.1:6000")).unwrap();
    held.write_all(b"a").unwrap();
    let mut got = [0; 1];
    held.read_exact(&mut got).unwrap();
    server.signal("KILL");
    server.child.wait().unwrap();
    held.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    let error = held.read(&mut got).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    let mut server = ends.server(&[&rule]);
    await_some("the client's return", || {
        sandbox.inside(|| through(6000, b"two")).ok().filter(|got| got == b"two")
    });

    let mut second = ends.client_at(&["tcp:127.0.0.1:6005=tcp:127.0.0.1:9"], "second.sock");
    second.signal("KILL");
    second.child.wait().unwrap();
    assert_eq!(sandbox.inside(|| through(6000, b"three")).unwrap(), b"three");
    assert!(!server.has_ended());
}

/// A series for each connection would let the metrics grow for as long as a peer reconnects.
#[test]
fn reconnects_begin_no_new_series_in_the_metrics() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let _server = ends.server(&["tcp:127.0.0.1:9"]);
    let mut all = std::collections::BTreeSet::new();
    let mut first = 0;
    for turn in 0..3 {
        let mut client = ends.client(&[FORWARD]);
        let series = await_some("the connections", || {
            let metrics = sandbox.inside(|| get(9150, "/metrics"));
            let lines = metrics.lines().filter(|line| line.starts_with("weir_tunnel_"));
            let series: Vec<_> =
                lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
            let connections = series.iter().filter(|one| one.contains("connection_mtu_bytes{"));
            (connections.count() == CONNECTIONS).then_some(series)
        });
        all.extend(series);
        first = if turn == 0 { all.len() } else { first };
        client.signal("TERM");
        await_some("a clean end", || client.has_ended().then_some(()));
        await_some("the end of the connections", || {
            let metrics = sandbox.inside(|| get(9150, "/metrics"));
            (!metrics.contains("connection_mtu_bytes{")).then_some(())
        });
    }
    assert_eq!(all.len(), first, "{all:?}");
}

#[test]
fn a_name_that_resolves_to_a_forbidden_address_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    // The rule lists the name, which resolves to this machine. Only a rule that lists 127.0.0.1
    // itself would cover the address.
    let name = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let name = name.lines().filter(|line| line.starts_with("127.")).find_map(|line| {
        line.split_whitespace()
            .skip(1)
            .find(|name| !name.starts_with("localhost"))
            .map(str::to_owned)
    });
    let Some(name) = name else {
        return testing::skip(testing::Need::LoopbackName);
    };
    let _server = ends.server(&[&format!("tcp:{name}:{target}")]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:{name}:{target}")]);
    assert!(sandbox.inside(|| through(6000, b"x")).map_or(true, |got| got.is_empty()));
    let status = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", "server.sock"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status[0]["refused"]["special-address"], 1, "{status}");
}

#[test]
fn a_client_reports_blocked_udp_and_resets_its_applications() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("nft") {
        return testing::skip(testing::Need::Program("nft"));
    }
    let ends = Ends::new(&sandbox);
    let blocked = sandbox.inside(|| {
        let rule = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                    add rule inet t c udp dport 7500 drop";
        Command::new("nft").arg(rule).status().is_ok_and(|status| status.success())
    });
    if !blocked {
        return testing::skip(testing::Need::Nftables);
    }
    let _server = ends.server(&["tcp:127.0.0.1:9"]);
    let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500"];
    words.extend(["--forward", FORWARD, "--pin", &ends.pin]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.contains("answers over TCP alone: UDP is blocked"), "{output:?}");
    words.extend(["--carrier", "udp"]);
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("the path blocks UDP"), "{output:?}");
}

/// Runs the commands of the guide in two namespaces, with a file system of their own.
#[test]
fn the_readme_commands_work_as_written() {
    let Some(sandbox) = Sandbox::new() else { return };
    for needed in ["unshare", "curl", "python3"] {
        if !is_installed(needed) {
            return testing::skip(testing::Need::Program(needed));
        }
    }
    let readme = include_str!("../../../../docs/guides/tunnel.md");
    let start = readme.split("<!-- two namespaces -->").nth(1).unwrap();
    let block = start.split("```").nth(1).unwrap();
    let commands: String = block
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .map(|line| format!("{line}\n"))
        .collect();
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display().to_string();
    let script = format!(
        "set -e\n[ -e /tmp/page ] || trap 'rm -rf /tmp/page' EXIT\n\
         mount -t tmpfs none /run\nmount -t tmpfs none /mnt\ncp -a /etc /mnt/etc\n\
         mount --bind /mnt/etc /etc\nPATH={weir}:$PATH\n{commands}kill %1 %2 %3\nwait || true\n"
    );
    sandbox.write("start.sh", script);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-m", "start.sh"]);
    let output = sandbox.start_command(command).end();
    assert!(output.stdout.contains("it works"), "{output:?}");
}

/// The number of connections that a client makes by default.
const CONNECTIONS: usize = 2;
const FORWARD: &str = "tcp:127.0.0.1:6000=tcp:127.0.0.1:9";
