//! The guide's steps that change a key, as a user types them.

use crate::support::{Sandbox, is_installed};
use std::path::Path;
use std::process::Command;

/// The commands of the guide between a client's old and new key, on one machine. `systemctl` is a
/// function that does what the unit asks of systemd: the service gets a copy of its key when it
/// starts. An editor's part is played by sed(1).
#[test]
fn the_steps_of_the_guide_change_a_key_and_a_reload_alone_would_not() {
    let Some(sandbox) = Sandbox::new() else { return };
    for needed in ["unshare", "curl", "python3", "bash"] {
        if !is_installed(needed) {
            return testing::skip(testing::Need::Program(needed));
        }
    }
    let guide = include_str!("../../../../docs/guides/tunnel.md");
    let section = guide.split("### Change a key\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let typed: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("client# ").or(line.strip_prefix("server# ")))
        .collect();
    let [keys, reload, place, restart, last] = typed[..] else { panic!("{typed:?}") };
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display().to_string();
    sandbox.write(
        "change.sh",
        format!(
            "set -e\nmount -t tmpfs none /run\nmount -t tmpfs none /mnt\ncp -a /etc /mnt/etc\n\
             mount --bind /mnt/etc /etc\nrm -rf /etc/weir\nPATH={weir}:$PATH\n{SERVICES}\n\
             old=$(pin $(weir tunnel keys client --name laptop))\n{START}\n\
             new=$(pin $({keys}))\ncarries 'the old key'\n\
             sed -i \"s|^pin = \\\"$old\\\"|pin = [\\\"$old\\\", \\\"$new\\\"]|\" /etc/weir/tunnel.toml\n\
             {reload}\ncarries 'both pins'\n{place}\n\
             systemctl reload weir-tunnel-client && echo 'a reload was enough' || true\n\
             {restart}\ncarries 'the new key'\n\
             sed -i \"s|^pin = .*$new.*|pin = \\\"$new\\\"|\" /etc/weir/tunnel.toml\n\
             {last}\ncarries 'the new pin alone'\n\
             kill $(cat /run/*/pid) $page\nwait || true\necho done\n"
        ),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "change.sh"]);
    let output = sandbox.start_command(command).end();
    let said = &output.stdout;
    for state in ["the old key", "both pins", "the new key", "the new pin alone"] {
        assert!(said.contains(&format!("carried with {state}\n")), "{state}: {output:?}");
    }
    // Step 3 of the guide gives this reason for the restart.
    assert!(said.contains("is not that of the certificate"), "{output:?}");
    assert!(!said.contains("a reload was enough") && said.ends_with("done\n"), "{output:?}");
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
    reload) weir tunnel reload --status-socket $run/status.sock ;;
    restart) kill $(cat $run/pid); wait $(cat $run/pid); systemctl start $2 ;;
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
