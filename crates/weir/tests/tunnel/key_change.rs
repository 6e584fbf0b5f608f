//! Keys that change while tunnels are open, and the guide's steps as a user types them.

use super::ends::{Ends, NEVER_LONGER, echo};
use crate::support::{Sandbox, await_some, is_installed};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Runs the guide's commands for a client's change of its key, on one machine. `systemctl` is a
/// shell function that starts the service as systemd does: the service gets a copy of its key when
/// it starts. sed(1) replaces the editor.
#[test]
fn the_steps_of_the_guide_change_a_key_without_a_restart() {
    let Some(sandbox) = Sandbox::new() else { return };
    for needed in ["unshare", "curl", "python3", "bash"] {
        if !is_installed(needed) {
            return testing::skip(testing::Need::Program(needed));
        }
    }
    let guide = include_str!("../../../../docs/guides/tunnel.md");
    let section = guide.split("### Change a key\n").nth(1).unwrap();
    let section = section.split("\n### See and end sessions\n").next().unwrap();
    let typed: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("client# ").or(line.strip_prefix("server# ")))
        .collect();
    let [keys, reload, place, change, status, last, renew, renewed] = typed[..] else {
        panic!("{typed:?}")
    };
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display().to_string();
    sandbox.write(
        "change.sh",
        format!(
            "set -e\nmount -t tmpfs none /run\nmount -t tmpfs none /mnt\ncp -a /etc /mnt/etc\n\
             mount --bind /mnt/etc /etc\nrm -rf /etc/weir\nPATH={weir}:$PATH\n{SERVICES}\n\
             old=$(pin $(weir tunnel keys client --name laptop))\n{START}\n\
             new=$(pin $({keys}) | sed 's/^.*,//')\ncarries 'the old key'\n\
             sed -i \"s|^pin = \\\"$old\\\"|pin = [\\\"$old\\\", \\\"$new\\\"]|\" /etc/weir/tunnel.toml\n\
             {reload}\ncarries 'both pins'\n{place}\n{change}\n\
             until {status} | grep -q \"key of laptop: $old on no connection\"; do sleep 0.2; done\n\
             carries 'the new key'\n\
             sed -i \"s|^pin = .*$new.*|pin = \\\"$new\\\"|\" /etc/weir/tunnel.toml\n\
             {last}\ncarries 'the new pin alone'\n\
             {renew}\n{renewed}\ncarries 'the new certificate'\n\
             kill $(cat /run/*/pid) $page\nwait || true\necho done\n"
        ),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "change.sh"]);
    let output = sandbox.start_command(command).end();
    let said = &output.stdout;
    let states =
        ["the old key", "both pins", "the new key", "the new pin alone", "the new certificate"];
    for state in states {
        assert!(said.contains(&format!("carried with {state}\n")), "{state}: {output:?}");
    }
    assert!(said.ends_with("done\n"), "{output:?}");
}

#[test]
fn keys_of_both_ends_change_while_a_hundred_tunnels_stay_open() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let (name, client_pin) = ends.peer.split_once('=').unwrap();
    let peers = |pins: &[&str]| {
        let text = format!(
            "[server]\nlisten-on = \"127.0.0.1:7500\"\n[[server.peer]]\nname = \"{name}\"\n\
             pin = {pins:?}\nallow = [\"tcp:127.0.0.1:{target}\"]\nreverse = [\"tcp:127.0.0.1:8081\"]\n"
        );
        sandbox.write("server.toml", text);
    };
    let servers = |pins: &[&str]| {
        let text = format!(
            "[[client.server]]\nendpoint = \"127.0.0.1:7500\"\npin = {pins:?}\n\
             [[client.forward]]\nlisten-on = \"tcp:127.0.0.1:8080\"\ntarget = \"tcp:127.0.0.1:{target}\"\n\
             [[client.reverse]]\nlisten-on = \"tcp:127.0.0.1:8081\"\ntarget = \"tcp:127.0.0.1:{target}\"\n"
        );
        sandbox.write("client.toml", text);
    };
    let start = |role: &str, message: &str| {
        let (file, socket, own) = (format!("{role}.toml"), format!("{role}.sock"), ends.own(role));
        let mut words = vec!["tunnel", role, "--config", &file, "--status-socket", &socket];
        words.extend(own.iter().map(String::as_str));
        ends.started(&words, message)
    };
    let weir = |words: &[&str]| {
        let output = sandbox.weir(words);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let reload = |role: &str| {
        weir(&["tunnel", "reload", "--status-socket", &format!("{role}.sock")]);
    };
    let status = |role: &str| {
        let text =
            weir(&["tunnel", "status", "--json", "--status-socket", &format!("{role}.sock")]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].clone()
    };
    let uses = |role: &str, pin: &str| {
        let status = status(role);
        let keys = status["peer_keys"].as_array().unwrap();
        keys.iter().find(|key| key["key"] == pin).unwrap()["connections"].as_u64().unwrap()
    };
    let next = |role: &str| {
        let words = ["tunnel", "keys", role, "--next", "--json", "--directory", &ends.folder];
        let made: serde_json::Value = serde_json::from_str(&weir(&words)).unwrap();
        made["pin"].as_str().unwrap().to_owned()
    };
    let use_next = |role: &str| {
        weir(&["tunnel", "keys", role, "--use-next", "--directory", &ends.folder]);
        reload(role);
    };
    peers(&[client_pin]);
    servers(&[&ends.pin]);
    let _server = start("server", "listening on");
    let client = start("client", "the server listens");
    let connect = |port: u16| {
        let stream = sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
        stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
        stream
    };
    let mut tunnels: Vec<_> =
        (0..100).map(|index| connect(8080 + u16::from(index % 10 == 0))).collect();
    let echoed = |stream: &mut TcpStream| {
        stream.write_all(b"still here").unwrap();
        let mut got = [0; 10];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"still here");
    };
    tunnels.iter_mut().for_each(echoed);

    // If the server does not know the next key yet, the client keeps its connections.
    let new_client = next("client");
    use_next("client");
    await_some("the server's refusal", || {
        client.output_so_far().1.contains("the current one stays").then_some(())
    });
    echoed(&mut connect(8080));
    peers(&[client_pin, &new_client]);
    reload("server");
    await_some("connections with the client's new key", || {
        (uses("server", &new_client) == 2).then_some(())
    });
    assert!(uses("server", client_pin) > 0);
    tunnels.iter_mut().for_each(echoed);

    let new_server = next("server");
    servers(&[&ends.pin, &new_server]);
    reload("client");
    use_next("server");
    await_some("connections with the server's new key", || {
        (uses("client", &new_server) == 2).then_some(())
    });
    await_some("no idle connection with an old key", || {
        let all = status("client");
        let old: Vec<_> = all["connections"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["key"] == ends.pin.as_str())
            .cloned()
            .collect();
        let carries = |one: &serde_json::Value| {
            one["is_retiring"] == true && one["tunnels"].as_u64() > Some(0)
        };
        (!old.is_empty() && old.iter().all(carries)).then_some(())
    });
    tunnels.iter_mut().for_each(echoed);
    let mut newer: Vec<_> = [8080, 8081].into_iter().map(connect).collect();
    newer.iter_mut().for_each(echoed);

    // If a reload removes a pin, the server resets only the tunnels of that key.
    peers(&[&new_client]);
    reload("server");
    for stream in &mut tunnels {
        let end = stream.read(&mut [0; 10]);
        let is_late = end.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(matches!(end, Ok(0) | Err(_)) && !is_late, "{end:?}");
    }
    newer.iter_mut().for_each(echoed);
    weir(&["tunnel", "keys", "client", "--renew", "--days", "20", "--directory", &ends.folder]);
    reload("client");
    let shown = weir(&["tunnel", "status", "--status-socket", "client.sock"]);
    assert!(shown.contains("the certificate expires on "), "{shown}");
    assert!(client.output_so_far().1.contains("certificate expires on "));
    assert!(shown.contains(&format!("key {new_server}, certificate valid until ")), "{shown}");
    newer.iter_mut().for_each(echoed);
}

const SERVICES: &str = r#"
pin() { echo "${@: -1}" | sed 's/^.*=sha256/sha256/'; }
systemctl() {
    local role=${2#weir-tunnel-} run=/run/$2
    case $1 in
    start)
        mkdir -p $run
        cp /etc/weir/tunnel/$role.key $run/key
        weir tunnel $role --config /etc/weir/tunnel.toml --cert-file /etc/weir/tunnel/$role.crt \
            --key-file $run/key --status-socket $run/status.sock &
        echo $! > $run/pid ;;
    reload)
        weir tunnel reload --status-socket $run/status.sock --key-file /etc/weir/tunnel/$role.key ;;
    esac
}
carries() {
    curl --silent --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8080/ > /dev/null
    echo "carried with $1"
}
"#;

const START: &str = r#"
server=$(weir tunnel keys server | cut -d' ' -f2)
cat > /etc/weir/tunnel.toml <<END
[server]
listen-on = "127.0.0.1:7500"

[[server.peer]]
name = "laptop"
pin = "$old"
allow = ["tcp:127.0.0.1:8000"]

[[client.server]]
endpoint = "127.0.0.1:7500"
pin = "$server"

[[client.forward]]
listen-on = "tcp:127.0.0.1:8080"
target = "tcp:127.0.0.1:8000"
END
ip link set lo up
python3 -m http.server 8000 --bind 127.0.0.1 --directory /run > /dev/null 2>&1 &
page=$!
systemctl start weir-tunnel-server
systemctl start weir-tunnel-client
"#;
