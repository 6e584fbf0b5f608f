//! OpenFlow over TLS, with Debian's tools and Python's `ssl` as the peers.

use super::database::Database;
use crate::support::{Running, await_some, is_installed};
use std::process::Command;

/// Makes two CAs, and certificates of a switch and a controller. The confined switch reads files in
/// its rundir.
const CERTIFICATES: &str = "
set -e
mkdir run/tls
cd run/tls
curve='-pkeyopt ec_paramgen_curve:P-256'
for ca in ca other; do
    openssl req -x509 -newkey ec $curve -nodes -keyout $ca.key -out $ca.pem -subj /CN=$ca -days 2
done
echo basicConstraints=CA:false >extensions
for name in switch controller; do
    openssl req -newkey ec $curve -nodes -keyout $name.key -out $name.csr -subj /CN=$name
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $name.pem \
        -days 2 -extfile extensions
done";

/// A controller that asks for certificates of `ca.pem`, sends its hello, and reads.
const CONTROLLER: &str = "
import os, socket, ssl
os.chdir('run/tls')
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('controller.pem', 'controller.key')
context.load_verify_locations('ca.pem')
context.verify_mode = ssl.CERT_REQUIRED
listener = socket.create_server(('127.0.0.1', 6653))
kept = []
while True:
    try:
        peer = context.wrap_socket(listener.accept()[0], server_side=True)
        peer.sendall(bytes([4, 0, 0, 8, 0, 0, 0, 1]))
        kept.append(peer)
    except OSError:
        pass
";

fn controller(database: &Database) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", CONTROLLER]);
    database.sandbox.start_command(command)
}

#[test]
fn ovs_vsctl_sets_the_files_of_controllers_and_listeners_with_tls() {
    for tool in ["openssl", "python3"] {
        if !is_installed(tool) {
            return testing::skip(testing::Need::Program(tool));
        }
    }
    let Some(database) = Database::new() else { return };
    let mut certificates = Command::new("sh");
    certificates.args(["-c", CERTIFICATES]);
    let made = database.sandbox.start_command(certificates).end();
    assert!(made.status.success(), "{made:?}");
    let (server, controller) = (database.serve(), controller(&database));
    let switch = database.switch();
    database.set("add-br br0 -- set-controller br0 ssl:127.0.0.1:6653 pssl:6654:127.0.0.1");
    let await_status = |target: &str, words: &str| {
        await_some(words, || {
            let columns = "--bare --columns=status,is_connected find controller";
            let status = database.set(&format!("{columns} target=\"{target}\""));
            status.contains(words).then_some(())
        });
    };
    let (connects, listens) = ("ssl:127.0.0.1:6653", "pssl:6654:127.0.0.1");
    await_status(connects, "by ovs-vsctl set-ssl");
    await_status(listens, "by ovs-vsctl set-ssl");
    let path = |name: &str| database.sandbox.path("run/tls").join(name).display().to_string();
    let set_files = |authority: &str| {
        let [key, certificate, ca] = ["switch.key", "switch.pem", authority].map(path);
        database.set(&format!("set-ssl {key} {certificate} {ca}"));
    };
    set_files("other.pem");
    await_status(connects, "is not signed by the CA of the switch");
    set_files("ca.pem");
    await_status(connects, "true");
    let rundir = database.sandbox.path("run").display().to_string();
    let shown = database.sandbox.weir(&["switch", "show", "--rundir", &rundir]).stdout;
    assert!(
        shown.contains("    Controller ssl:127.0.0.1:6653\n        state: connected\n"),
        "{shown}"
    );
    let show = |certificate: &str| {
        let [key, certificate, ca] = ["controller.key", certificate, "ca.pem"].map(path);
        let words = ["-t", "60", "-p", &key, "-c", &certificate, "-C", &ca];
        database.tool("ovs-ofctl", &[&words[..], &["show", "ssl:127.0.0.1:6654"]].concat())
    };
    let served = show("controller.pem");
    assert!(served.stdout.contains("OFPT_FEATURES_REPLY"), "{served:?}");
    let plain = database.tool("ovs-ofctl", &["-t", "60", "show", "tcp:127.0.0.1:6654"]);
    assert!(!plain.status.success(), "{plain:?}");
    // The listener keeps its address.
    database.set("set-controller br0 ssl:127.0.0.1:6653 ptcp:6654:127.0.0.1");
    await_some("a listener without TLS", || {
        let shown = database.tool("ovs-ofctl", &["-t", "60", "show", "tcp:127.0.0.1:6654"]);
        shown.status.success().then_some(())
    });
    controller.signal("KILL");
    controller.end();
    // The end of the switch leaves no file of its own in this folder.
    std::fs::remove_dir_all(database.sandbox.path("run/tls")).unwrap();
    database.end(switch, Some(server));
}
