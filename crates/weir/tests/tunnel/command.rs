//! `weir tunnel` as a user runs it: two ends, their clients, and failures.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{World, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

#[test]
fn wrong_use_is_refused_with_advice_and_nothing_starts() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    world.write("wrong.toml", "[server]\nlisten-onn = \"0.0.0.0:7500\"\n");
    let (server, client) = (ends.own("server"), ends.own("client"));
    for (end, words, told) in [
        (&server, vec!["server"], "weir tunnel keys client"),
        (&client, vec!["client"], "--server HOST:PORT"),
        (&server, vec!["server", "--config", "wrong.toml"], "wrong.toml:2: unknown key"),
        (&server, vec!["server", "--peer", "a=b"], "is not a pin"),
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
        let said = world.weir(&all);
        assert_eq!(said.status.code(), Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(told), "{words:?}: {}", said.stderr);
    }
    assert!(world.marked().is_empty());
}

#[test]
fn help_shows_examples_of_every_verb() {
    let Some(world) = World::new() else { return };
    let all = world.weir(&["tunnel", "--help"]);
    for verb in ["server", "client", "keys", "status", "reload", "check", "unit"] {
        assert!(all.stdout.contains(&format!("\n  {verb} ")), "{verb}: {all:?}");
        let said = world.weir(&["tunnel", verb, "--help"]);
        assert!(said.status.success(), "{said:?}");
        assert!(
            said.stdout.contains(&format!("Examples:\n  weir tunnel {verb}"))
                || said.stdout.contains(&format!("# weir tunnel {verb}")),
            "{said:?}"
        );
    }
    let file = world.path("tunnel.toml");
    std::fs::write(&file, "[server]\n").unwrap();
    let unit = world.weir(&["tunnel", "unit", "server", "tunnel.toml"]);
    let starts = format!(" tunnel server --config {} \\\n", file.display());
    assert!(unit.stdout.contains(&starts) && unit.stdout.contains("ExecReload="), "{unit:?}");
    for verb in ["status", "reload"] {
        let none = world.weir(&["tunnel", verb, "--status-socket", "none.sock"]);
        assert_eq!(none.status.code(), Some(1), "{none:?}");
        assert!(none.stderr.contains("none.sock"), "{none:?}");
    }
}

#[test]
fn both_directions_are_carried_and_unlisted_targets_are_refused() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let mut server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let mut client = ends.client(&[
        &format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}"),
        "tcp:127.0.0.1:6001=tcp:127.0.0.1:9",
        "tcp:127.0.0.1:6002=tcp:169.254.169.254:80",
    ]);
    for size in [0, 1, 100_000, 3_000_000] {
        let sent: Vec<u8> = (0..size).map(|at: u32| (at * 7 + at / 251) as u8).collect();
        assert!(world.inside(|| through(6000, &sent)).unwrap() == sent, "{size} bytes");
    }
    for port in [6001, 6002] {
        assert!(world.inside(|| through(port, b"x")).map_or(true, |got| got.is_empty()));
    }
    let status = world.weir(&["tunnel", "status", "--json", "--status-socket", "server.sock"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status[0]["refused"]["not-listed"], 2, "{status}");
    assert_eq!(status[0]["connections"][0]["peer"], "laptop", "{status}");
    let metrics = world.inside(|| get(9150, "/metrics"));
    assert!(metrics.contains("weir_tunnel_refused_total{role=\"server\",reason=\"not-listed\"} 2"));

    for running in [&mut client, &mut server] {
        running.signal("TERM");
        await_some("a clean end", || running.has_ended().then_some(()));
        assert!(running.child.wait().unwrap().success(), "{:?}", running.said_so_far());
    }
    assert!(!world.path("server.sock").exists() && !world.path("client.sock").exists());
}

#[test]
fn an_unknown_client_is_refused() {
    let Some(world) = World::new() else { return };
    let (ends, others) = (Ends::new(&world), Ends::below(&world, "others"));
    let target = world.inside(echo);
    let _server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let forward = format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}");
    let check = |pin: &str, own: &[String]| {
        let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500"];
        words.extend(["--forward", &forward, "--pin", pin]);
        words.extend(own.iter().map(String::as_str));
        world.weir(&words)
    };
    let good = check(&ends.pin, &ends.own("client"));
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let wrong_pin = check(&others.pin, &ends.own("client"));
    assert_eq!(wrong_pin.status.code(), Some(1), "{wrong_pin:?}");
    assert!(wrong_pin.stdout.contains(&ends.pin), "{wrong_pin:?}");
    let stranger = check(&ends.pin, &others.own("client"));
    assert_eq!(stranger.status.code(), Some(1), "{stranger:?}");
    assert!(stranger.stdout.contains("does not let this client in"), "{stranger:?}");
}

#[test]
fn garbage_on_the_port_changes_nothing() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let _server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    world.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seed = 7u32;
        for size in (0..1400).chain(std::iter::repeat_n(1200, 2000)) {
            let mut random = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            };
            let mut packet: Vec<u8> = (0..size).map(|_| random()).collect();
            // Half of them resemble an Initial packet of QUIC version 1.
            if size > 5 && size % 2 == 0 {
                packet[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
            }
            let _ = socket.send_to(&packet, "127.0.0.1:7500");
        }
    });
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    assert_eq!(world.inside(|| through(6000, b"still there")).unwrap(), b"still there");
}

#[test]
fn the_client_reconnects_after_either_end_was_killed() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let forward = format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}");
    let rule = format!("tcp:127.0.0.1:{target}");
    let mut server = ends.server(&[&rule]);
    let _client = ends.client(&[&forward]);
    assert_eq!(world.inside(|| through(6000, b"one")).unwrap(), b"one");
    // An application in mid-transfer gets an error instead of waiting.
    let mut held = world.inside(|| TcpStream::connect("127.0.0.1:6000")).unwrap();
    held.write_all(b"a").unwrap();
    let mut got = [0; 1];
    held.read_exact(&mut got).unwrap();
    server.signal("KILL");
    server.child.wait().unwrap();
    held.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    match held.read(&mut got) {
        Ok(0) => {}
        Ok(_) => panic!("bytes from nowhere"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    let mut server = ends.server(&[&rule]);
    await_some("the client's return", || {
        world.inside(|| through(6000, b"two")).ok().filter(|got| got == b"two")
    });

    let mut second = ends.client_at(&["tcp:127.0.0.1:6005=tcp:127.0.0.1:9"], "second.sock");
    second.signal("KILL");
    second.child.wait().unwrap();
    assert_eq!(world.inside(|| through(6000, b"three")).unwrap(), b"three");
    assert!(!server.has_ended());
}

#[test]
fn a_name_that_resolves_to_a_forbidden_address_is_refused() {
    let Some(world) = World::new() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    // The rule lists the name, and the name resolves to this machine: the rule would have to list
    // 127.0.0.1.
    let name = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let name = name.lines().filter(|line| line.starts_with("127.")).find_map(|line| {
        line.split_whitespace()
            .skip(1)
            .find(|name| !name.starts_with("localhost"))
            .map(str::to_owned)
    });
    let Some(name) = name else {
        eprintln!("SKIPPED: /etc/hosts gives 127.0.0.0/8 no name but localhost");
        return;
    };
    let _server = ends.server(&[&format!("tcp:{name}:{target}")]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:{name}:{target}")]);
    assert!(world.inside(|| through(6000, b"x")).map_or(true, |got| got.is_empty()));
    let status = world.weir(&["tunnel", "status", "--json", "--status-socket", "server.sock"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status[0]["refused"]["special-address"], 1, "{status}");
}

#[test]
fn blocked_udp_is_reported_and_applications_do_not_hang() {
    let Some(world) = World::new() else { return };
    if !is_installed("nft") {
        eprintln!("SKIPPED: nft is needed");
        return;
    }
    let ends = Ends::new(&world);
    let blocked = world.inside(|| {
        let rule = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                    add rule inet t c udp dport 7500 drop";
        Command::new("nft").arg(rule).status().is_ok_and(|status| status.success())
    });
    if !blocked {
        eprintln!("SKIPPED: this kernel has no nftables");
        return;
    }
    let _server = ends.server(&["tcp:127.0.0.1:9"]);
    let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500"];
    words.extend(["--forward", FORWARD, "--pin", &ends.pin]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let said = world.weir(&words);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stdout.contains("UDP is blocked on the path"), "{said:?}");
}

/// The commands of the README, in two namespaces, on a machine within the machine.
#[test]
fn the_readme_commands_work_as_written() {
    let Some(world) = World::new() else { return };
    for needed in ["unshare", "curl", "python3"] {
        if !is_installed(needed) {
            eprintln!("SKIPPED: {needed} is needed");
            return;
        }
    }
    let readme = include_str!("../../../../README.md");
    let start = readme.split("<!-- two namespaces -->").nth(1).unwrap();
    let block = start.split("```").nth(1).unwrap();
    let commands: String = block
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .map(|line| format!("{line}\n"))
        .collect();
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display().to_string();
    let script = format!(
        "set -e\nmount -t tmpfs none /run\nmount -t tmpfs none /mnt\ncp -a /etc /mnt/etc\n\
         mount --bind /mnt/etc /etc\nPATH={weir}:$PATH\n{commands}kill %1 %2 %3\nwait || true\n"
    );
    world.write("start.sh", script);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-m", "start.sh"]);
    let said = world.start_command(command).end();
    assert!(said.stdout.contains("it works"), "{said:?}");
}

const FORWARD: &str = "tcp:127.0.0.1:6000=tcp:127.0.0.1:9";
