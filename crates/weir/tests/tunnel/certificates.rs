//! Expired certificates, at a start, at a reload and while a tunnel runs.

use crate::ends::{Ends, echo, through};
use crate::support::{Running, Sandbox, await_some, is_installed};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn neither_a_start_nor_a_reload_accepts_an_expired_certificate() {
    let Some(sandbox) = sandbox() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);

    certify(&sandbox, "old", before(Duration::from_secs(86_400)));
    let words = ["tunnel", "server", "--listen-on", "127.0.0.1:7501", "--peer", &ends.peer];
    let mut words = words.to_vec();
    words.extend(["--cert-file", "old.crt", "--key-file", "old.key"]);
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("--cert-file: the certificate expired on "), "{output:?}");
    assert!(output.stderr.contains("weir tunnel keys --renew"), "{output:?}");

    std::fs::copy(sandbox.path("old.crt"), sandbox.path("keys/server.crt")).unwrap();
    std::fs::copy(sandbox.path("old.key"), sandbox.path("keys/server.key")).unwrap();
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("the certificate expired on "), "{output:?}");
    assert_eq!(sandbox.inside(|| through(6000, b"still there")).unwrap(), b"still there");
    drop(server);
}

#[test]
fn a_certificate_that_expires_at_run_time_admits_no_new_connection() {
    let Some(sandbox) = sandbox() else { return };
    let ends = Ends::new(&sandbox);
    let soon = SystemTime::now() + Duration::from_secs(15);
    certify(&sandbox, "brief", soon);
    let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
    words.extend(["--peer", &ends.peer, "--allow", "tcp:127.0.0.1:9"]);
    words.extend(["--status-socket", "server.sock"]);
    words.extend(["--cert-file", "brief.crt", "--key-file", "brief.key"]);
    let server = ends.started(&words, "listening on");
    let message = server.output_so_far().1;
    assert!(message.contains("certificate expires on"), "{message}");
    let pin =
        message.split("pin is ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let own = ends.own("client");
    let mut words = vec!["tunnel", "check", "client", "--server", "127.0.0.1:7500", "--pin", &pin];
    words.extend(["--forward", "tcp:127.0.0.1:6000=tcp:127.0.0.1:9"]);
    words.extend(own.iter().map(String::as_str));
    let check = || sandbox.weir(&words);
    let before = check();
    assert!(SystemTime::now() > soon || before.status.success(), "{before:?}");
    await_some("the end of its time", || (SystemTime::now() > soon + MARGIN).then_some(()));
    let refused = check();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.contains(EXPIRED), "{refused:?}");
}

#[test]
fn an_expired_client_certificate_is_named_at_both_ends_and_another_client_goes_on() {
    let Some(sandbox) = sandbox() else { return };
    let ends = Ends { keepalive: "1s", ..Ends::new(&sandbox) };
    let target = sandbox.inside(echo);
    let allow = format!("tcp:127.0.0.1:{target}");
    let soon = SystemTime::now() + Duration::from_secs(20);
    certify(&sandbox, "brief", soon);
    let forward = format!("tcp:127.0.0.1:6001={allow}");
    let brief = ["--cert-file", "brief.crt", "--key-file", "brief.key", "--forward", &forward];
    let to_server = ["--server", "127.0.0.1:7500", "--pin", &ends.pin, "--carrier", "udp"];
    let words = |verbs: &[&'static str]| [&["tunnel"][..], verbs, &to_server, &brief].concat();
    let stop = |mut server: Running| {
        server.signal("KILL");
        server.child.wait().unwrap();
    };

    // The error about an unknown client has the client's pin.
    let server = ends.server(&[&allow]);
    let unknown = sandbox.weir(&words(&["check", "client"])).stdout;
    let pin = unknown.split("--peer NAME=").nth(1).unwrap_or_else(|| panic!("{unknown}"));
    let peer = format!("brief={}", pin.split_whitespace().next().unwrap());
    stop(server);
    let serve = || ends.server_with(&["--peer", &peer, "--allow", &allow]);
    let server = serve();
    let _other = ends.client(&[&format!("tcp:127.0.0.1:6000={allow}")]);
    let client = ends.started(&words(&["client", "--status-socket", "brief.sock"]), "connected to");
    for port in [6000, 6001] {
        assert_eq!(sandbox.inside(|| through(port, b"valid")).unwrap(), b"valid");
    }

    await_some("the certificate's expiry", || (SystemTime::now() > soon + MARGIN).then_some(()));
    stop(server);
    let server = serve();
    await_some("the other client's return", || {
        sandbox.inside(|| through(6000, b"other")).ok().filter(|got| got == b"other")
    });
    let lines = |running: &Running| {
        let text = running.output_so_far().1;
        text.lines().filter(|line| line.contains(EXPIRED)).count()
    };
    for (end, running) in [("server", &server), ("client", &client)] {
        await_some(end, || (lines(running) > 0).then_some(()));
    }
    await_some("further attempts", || {
        let words = ["tunnel", "status", "--json", "--status-socket", "server.sock"];
        let status =
            serde_json::from_str::<serde_json::Value>(&sandbox.weir(&words).stdout).ok()?;
        (status[0]["counters"]["connections_failed"].as_u64()? >= 6).then_some(())
    });
    // The client logs a line before the server's restart, a line after the restart, and further
    // lines if other failures come between.
    assert!(lines(&client) <= 4, "{:?}", client.output_so_far());
    assert_eq!(sandbox.inside(|| through(6000, b"still")).unwrap(), b"still");
}

fn sandbox() -> Option<Sandbox> {
    if !is_installed("openssl") {
        testing::skip(testing::Need::Program("openssl"));
        return None;
    }
    Sandbox::new()
}

/// Writes a key and its certificate, which is valid from a year ago until `until`.
fn certify(sandbox: &Sandbox, name: &str, until: SystemTime) {
    let settings = "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\n\
                    default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n\
                    [e]\nsubjectAltName=DNS:server\nkeyUsage=digitalSignature\n\
                    extendedKeyUsage=serverAuth,clientAuth\n[req]\ndistinguished_name=n\n[n]\n";
    sandbox.write("ca.cnf", settings);
    sandbox.write("index.txt", "");
    sandbox.write("serial", "01\n");
    let file = |ending: &str| format!("{name}.{ending}");
    let openssl = |words: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(words);
        let output = sandbox.start_command(command).end();
        assert!(output.status.success(), "{output:?}");
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

/// Formats a time as `openssl ca` needs it.
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut command = Command::new("date");
    command.args(["-u", "-d", &format!("@{seconds}"), "+%Y%m%d%H%M%SZ"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

const EXPIRED: &str =
    "certificate expired: renew the certificate at its end (weir tunnel keys --renew)";
/// Time that a test waits after a certificate's expiry before the test checks the refusal.
const MARGIN: Duration = Duration::from_secs(2);
