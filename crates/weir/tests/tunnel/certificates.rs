//! Expired certificates, at a start, at a reload and while a tunnel runs.

use crate::ends::{Ends, echo, through};
use crate::support::{World, await_some, is_installed};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn an_end_does_not_start_with_an_expired_certificate_and_a_reload_does_not_take_it() {
    let Some(world) = world() else { return };
    let ends = Ends::new(&world);
    let target = world.inside(echo);
    let server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);

    certify(&world, "old", before(Duration::from_secs(86_400)));
    let words = ["tunnel", "server", "--listen-on", "127.0.0.1:7501", "--peer", &ends.peer];
    let mut words = words.to_vec();
    words.extend(["--cert-file", "old.crt", "--key-file", "old.key"]);
    let said = world.weir(&words);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("--cert-file: the certificate expired on "), "{said:?}");
    assert!(said.stderr.contains("weir tunnel keys --force"), "{said:?}");

    std::fs::copy(world.path("old.crt"), world.path("keys/server.crt")).unwrap();
    std::fs::copy(world.path("old.key"), world.path("keys/server.key")).unwrap();
    let said = world.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stdout.contains("the certificate expired on "), "{said:?}");
    assert_eq!(world.inside(|| through(6000, b"still there")).unwrap(), b"still there");
    drop(server);
}

#[test]
fn a_certificate_that_expires_at_run_time_admits_no_new_connection() {
    let Some(world) = world() else { return };
    let ends = Ends::new(&world);
    let soon = SystemTime::now() + Duration::from_secs(15);
    certify(&world, "brief", soon);
    let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
    words.extend(["--peer", &ends.peer, "--allow", "tcp:127.0.0.1:9"]);
    words.extend(["--status-socket", "server.sock"]);
    words.extend(["--cert-file", "brief.crt", "--key-file", "brief.key"]);
    let server = ends.started(&words, "listening on");
    let told = server.said_so_far().1;
    assert!(told.contains("certificate expires on"), "{told}");
    let pin = told.split("pin is ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let own = ends.own("client");
    let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500", "--pin", &pin];
    words.extend(["--forward", "tcp:127.0.0.1:6000=tcp:127.0.0.1:9"]);
    words.extend(own.iter().map(String::as_str));
    let check = || world.weir(&words);
    let before = check();
    assert!(SystemTime::now() > soon || before.status.success(), "{before:?}");
    await_some("the end of its time", || (SystemTime::now() > soon + MARGIN).then_some(()));
    let refused = check();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.contains("certificate expired"), "{refused:?}");
}

fn world() -> Option<World> {
    if !is_installed("openssl") {
        eprintln!("SKIPPED: openssl is needed");
        return None;
    }
    World::new()
}

/// A key, and its certificate, valid from a year ago until then.
fn certify(world: &World, name: &str, until: SystemTime) {
    let settings = "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\n\
                    default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n\
                    [e]\nsubjectAltName=DNS:server\nkeyUsage=digitalSignature\n\
                    extendedKeyUsage=serverAuth,clientAuth\n[req]\ndistinguished_name=n\n[n]\n";
    world.write("ca.cnf", settings);
    world.write("index.txt", "");
    world.write("serial", "01\n");
    let file = |ending: &str| format!("{name}.{ending}");
    let openssl = |words: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(words);
        let said = world.start_command(command).end();
        assert!(said.status.success(), "{said:?}");
    };
    let (key, request, certificate) = (file("key"), file("csr"), file("crt"));
    let kind = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    openssl(&[&["genpkey"], &kind[..], &["-out", &key]].concat());
    openssl(&[
        "req",
        "-new",
        "-key",
        &key,
        "-subj",
        "/CN=server",
        "-config",
        "ca.cnf",
        "-out",
        &request,
    ]);
    let (from, until) = (date(before(Duration::from_secs(365 * 86_400))), date(until));
    let sign = ["ca", "-batch", "-notext", "-selfsign", "-config", "ca.cnf", "-keyfile", &key];
    let what = ["-in", &request, "-out", &certificate, "-startdate", &from, "-enddate", &until];
    openssl(&[&sign[..], &what[..]].concat());
}

fn before(long: Duration) -> SystemTime {
    SystemTime::now() - long
}

/// In the format that `openssl ca` needs.
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut command = Command::new("date");
    command.args(["-u", "-d", &format!("@{seconds}"), "+%Y%m%d%H%M%SZ"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Certificates have a resolution of whole seconds.
const MARGIN: Duration = Duration::from_secs(2);
