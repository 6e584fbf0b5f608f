use super::*;
use crate::access::{Resolve, SystemResolver};
use crate::identity::PeerName;
use crate::server::TcpAt;
use std::net::IpAddr;
use units::Rate;

#[test]
fn client_and_server_read_their_own_tables_of_one_file() {
    let home = KeyDirectory::new();
    let text = format!(
        r#"
        [server]
        listen-on = "[::]:7500"
        cert-file = "server.crt"
        key-file = "server.key"
        congestion = "fixed 100mbit"
        memory = "64MiB"
        keepalive = "2s"
        metrics-on = "unix:/run/weir/metrics"

        [[server.peer]]
        name = "laptop"
        pin = "{pin}"
        allow = ["tcp:10.0.0.0/8:22,80", "tcp:db.internal:5432", "unix:/run/app/*"]
        resolve-names = true
        reverse = ["tcp:127.0.0.1:8080"]

        [client]
        cert-file = "client.crt"
        key-file = "client.key"
        connections = 4

        [[client.server]]
        endpoint = "[2001:db8::1]:7500"
        pin = ["{pin}", "{hex}"]

        [[client.forward]]
        listen-on = "tcp:127.0.0.1:2222"
        target = "tcp:db.internal:22"

        [[client.reverse]]
        listen-on = "tcp:127.0.0.1:8080"
        target = "unix:/run/web"
        "#,
        pin = home.pin,
        hex = home.pin.hex(),
    );
    let file = home.parse(&text).unwrap();
    let server = file.server_config(ServerTable::default()).unwrap();
    assert_eq!(server.listen_on, "[::]:7500".parse().ok());
    assert_eq!(server.tcp, TcpAt::SameAsUdp);
    assert_eq!(server.settings.congestion, Congestion::Fixed(Rate::from_mbit(100)));
    assert_eq!(server.settings.memory, Bytes::kib(64 << 10));
    let laptop: PeerName = "laptop".parse().unwrap();
    assert_eq!(server.peers[0].name, laptop);
    let ssh = "tcp:10.1.2.3:22".parse().unwrap();
    let address: IpAddr = [10, 1, 2, 3].into();
    server.access.admit_resolved(&laptop, &ssh, &[address]).unwrap();
    assert!(server.access.rights(&laptop).unwrap().resolve_names);
    let _: &dyn Resolve = &SystemResolver;

    let client = file.client_config(ClientTable::default()).unwrap();
    assert_eq!((client.connections, client.servers.len()), (4, 1));
    assert_eq!(client.forwards[0].to_string(), "tcp:127.0.0.1:2222=tcp:db.internal:22");
    assert_eq!(client.reverses[0].to_string(), "tcp:127.0.0.1:8080=unix:/run/web");
    assert_eq!(client.settings, Settings::default());
}

#[test]
fn flags_take_precedence_over_the_file_and_add_to_its_lists() {
    let home = KeyDirectory::new();
    let text = format!(
        "[server]\ncert-file = \"server.crt\"\nkey-file = \"server.key\"\nmemory = \"64MiB\"\n\
         [[server.peer]]\nname = \"a\"\npin = \"{}\"\n",
        home.pin
    );
    let file = home.parse(&text).unwrap();
    let peer = |name: &str, pin: &str| {
        let pin = Located::by_flag("--peer", OneOrMore(vec![pin.parse().unwrap()]));
        let name = name.parse().unwrap();
        let allow = vec!["tcp:127.0.0.1:22".parse().unwrap()];
        let (pin, reverse) = (Some(pin), Vec::new());
        let table = PeerTable {
            name,
            pin,
            certificate_name: None,
            allow,
            resolve_names: false,
            reverse,
            rate_limit: None,
            quota: None,
            sessions: None,
        };
        Located::by_flag("--peer", table)
    };
    let flags = ServerTable {
        memory: Some(Located::by_flag("--memory", Bytes::kib(32 << 10))),
        peer: vec![peer("b", &"ab".repeat(32))],
        ..ServerTable::default()
    };
    let server = file.server_config(flags).unwrap();
    assert_eq!(server.settings.memory, Bytes::kib(32 << 10));
    assert_eq!(server.peers.len(), 2);
    let reported = |flags| file.server_config(flags).unwrap_err().to_string();
    let again = ServerTable { peer: vec![peer("a", &"ab".repeat(32))], ..ServerTable::default() };
    assert_eq!(reported(again), "--peer: two peers have this name: rename one");
    let same =
        ServerTable { peer: vec![peer("b", &home.pin.to_string())], ..ServerTable::default() };
    assert_eq!(reported(same), "--peer: another peer has this pin already: drop one");
    let little = Some(Located::by_flag("--memory", Bytes::kib(1)));
    let little = ServerTable { memory: little, ..ServerTable::default() };
    assert_eq!(reported(little), "--memory: 1KiB is out of range: 8MiB to 1024GiB");
    let none = Some(Located::by_flag("--cert-file", "none.crt".into()));
    let none = ServerTable { cert_file: none, ..ServerTable::default() };
    assert!(reported(none).starts_with("--cert-file: cannot read none.crt"));
}

#[test]
fn the_error_of_a_configuration_file_names_the_line() {
    let home = KeyDirectory::new();
    let pin = home.pin;
    let own = "cert-file = \"client.crt\"\nkey-file = \"client.key\"\n";
    let to = format!("[[client.server]]\nendpoint = \"a:1\"\npin = \"{pin}\"\n");
    let client = |rest: &str| format!("[client]\n{own}{to}{rest}");
    let server = |rest: &str| format!("[server]\n{own}{rest}");
    let quota =
        |key: &str| server(&format!("[[server.peer]]\nname = \"a\"\npin = \"{pin}\"\n{key}\n"));
    for (text, line, reported) in [
        ("[servr]\n".to_owned(), 1, "did you mean `server`?"),
        ("[server]\nlisten_on = \"[::]:1\"\n".to_owned(), 2, "did you mean `listen-on`?"),
        ("[server]\nlisten-on = \"localhost:1\"\n".to_owned(), 2, ""),
        ("[server]\nlisten-on = 7500\n".to_owned(), 2, ""),
        (server("keepalive = \"5\"\n"), 4, "unit"),
        (server("keepalive = \"5h\"\n"), 4, "out of range: 100ms to 60s"),
        (server("congestion = \"fixed\"\n"), 4, "fixed 100mbit"),
        (server("carrier = \"quic\"\n"), 4, "write auto, udp or tcp"),
        (server("carrier = \"udp\"\ntcp-listen-on = \"[::]:443\"\n[[server.peer]]\nname = \"a\"\npin = \"x\"\n".replace('x', &"ab".repeat(32)).as_str()), 5, "remove one of the two keys"),
        (server("metrics-on = \"0.0.0.0:9150\"\n"), 4, "write 127.0.0.1:9150"),
        (server("[[server.peer]]\npin = \"aa\"\n"), 5, "is not a pin"),
        (server("[[server.peer]]\nname = \"a\"\n"), 4, "this peer has no identity"),
        (quota("quota = \"100GB\""), 7, "as in 100GB/month"),
        (quota("rate-limit = \"1bit\""), 7, "out of range: 8kbit to"),
        (quota("sessions = 0"), 7, "out of range: 1 to 4096"),
        (server("[[server.peer]]\nname = \"a b\"\n"), 5, "cannot name a peer"),
        (server("[[server.peer]]\nname = \"a\"\ncertificate-name = \"a\"\n"), 6, "`ca-file`"),
        (
            server("[[server.peer]]\nname = \"a\"\nallow = [\n  \"tcp:a:1\",\n  \"tcp:b\"\n]\n"),
            8,
            "names no ports",
        ),
        (server("crl-file = \"a.crl\"\n[[server.peer]]\nname = \"a\"\n"), 4, "`ca-file`"),
        (
            server(
                "ca-file = \"client.crt\"\ncrl-file = [\n\"no.crl\"]\n[[server.peer]]\nname = \"a\"\n",
            ),
            5,
            "no.crl",
        ),
        (
            server(
                "ca-file = \"client.crt\"\ncrl-file = \"client.crt\"\n[[server.peer]]\nname = \"a\"\n",
            ),
            5,
            "no revocation list",
        ),
        (server("ca-file = \"client.key\"\n[[server.peer]]\nname = \"a\"\n"), 4, "certificate"),
        (
            client("[[client.forward]]\nlisten-on = \"service:a\"\ntarget = \"tcp:a:1\"\n"),
            7,
            "--reverse service:a=TARGET",
        ),
        (
            client("[[client.reverse]]\nlisten-on = \"service:a\"\ntarget = \"service:b\"\n"),
            7,
            "an address or a path of this side",
        ),
        (client("[[client.forward]]\ntarget = \"tcp:a:1\"\n"), 7, "`listen-on` is missing"),
        (
            client("[[client.forward]]\nlisten-on = \"tcp:a:1\"\ntarget = \"tcp:a:1\"\n"),
            7,
            "write an address",
        ),
        (
            client("[[client.forward]]\nlisten-on = \"udp:[::1]:1\"\ntarget = \"tcp:a:1\"\n"),
            7,
            "datagrams",
        ),
        (
            client(
                &"[[client.forward]]\nlisten-on = \"tcp:[::1]:1\"\ntarget = \"tcp:a:1\"\n"
                    .repeat(2),
            ),
            10,
            "address of two listeners",
        ),
        ("[client]\n[[client.server]]\nendpoint = \"a\"\n".to_owned(), 3, "HOST:PORT"),
        ("[client\n".to_owned(), 1, ""),
    ] {
        let error = match home.parse(&text) {
            Err(error) => error,
            Ok(file) if file.server.is_some() => {
                file.server_config(ServerTable::default()).unwrap_err()
            }
            Ok(file) => file.client_config(ClientTable::default()).unwrap_err(),
        };
        let error = error.to_string();
        let origin = format!("{}:{line}: ", home.path.join("weir.toml").display());
        assert!(error.starts_with(&origin) && error.contains(reported), "{text}: {error}");
    }
}

#[test]
fn a_server_without_a_listening_address_serves_ipv4_and_ipv6() {
    let home = KeyDirectory::new();
    let text = format!(
        "[server]\ncert-file = \"server.crt\"\nkey-file = \"server.key\"\n\
         [[server.peer]]\nname = \"laptop\"\npin = \"{}\"\nallow = [\"tcp:a:1\"]\n",
        home.pin
    );
    let server = home.parse(&text).unwrap().server_config(ServerTable::default()).unwrap();
    let all = match std::net::UdpSocket::bind("[::]:0") {
        Ok(_) => "[::]:7500",
        Err(_) => "0.0.0.0:7500",
    };
    assert_eq!(server.listen_on, all.parse().ok());
}

#[test]
fn a_missing_key_is_reported_with_the_command_that_makes_it() {
    let home = KeyDirectory::new();
    let file = home.parse("").unwrap();
    let reported = file.server_config(ServerTable::default()).unwrap_err().to_string();
    assert!(reported.contains("weir tunnel keys client"), "{reported}");
    let reported = file.client_config(ClientTable::default()).unwrap_err().to_string();
    assert!(reported.contains("--server HOST:PORT"), "{reported}");
    assert!(!format!("{:?}", home.identity).contains("PRIVATE"));
}

#[test]
fn a_printed_forward_parses_to_itself() {
    for text in ["tcp:127.0.0.1:2222=tcp:db:22", "udp:[::1]:53=udp:10.0.0.1:53", "unix:/a=tcp:b:1"]
    {
        assert_eq!(text.parse::<Forward>().unwrap().to_string(), text);
    }
    assert!("tcp:127.0.0.1:2222".parse::<Forward>().unwrap_err().contains("LISTEN=TARGET"));
}

/// A temporary directory with a certificate and a key.
struct KeyDirectory {
    path: PathBuf,
    pin: crate::identity::Pin,
    identity: Identity,
    _folder: tempfile::TempDir,
}

impl KeyDirectory {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let (identity, made) = Identity::generate("server", 730).unwrap();
        for role in ["server", "client"] {
            let file = |ending: &str| path.join(format!("{role}.{ending}"));
            made.write(&file("crt"), &file("key"), false).unwrap();
        }
        Self { path, pin: identity.pin(), identity, _folder: folder }
    }

    fn parse(&self, text: &str) -> Result<File, ConfigError> {
        File::parse(&self.path.join("weir.toml"), text)
    }
}
