//! The commands of quic-tun's reference report, and the API that its users' scripts read.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Running, Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Makes links with the names of quic-tun's programs, beside the keys.
fn links(sandbox: &Sandbox) {
    for name in ["quictun-server", "quictun-client"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), sandbox.path(name)).unwrap();
    }
    let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(sandbox.inside(up).unwrap().success());
}

/// An end of a tunnel. The end's command line names no status socket, so the end puts the socket in
/// the user's directory under /run. An end that is shut down properly removes the socket.
struct End(Option<Running>);

impl Deref for End {
    type Target = Running;

    fn deref(&self) -> &Running {
        self.0.as_ref().unwrap()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // After a failure, dropping the value kills the process.
        if let Some(running) = self.0.take().filter(|_| !std::thread::panicking()) {
            running.signal("INT");
            running.end();
        }
    }
}

fn started(sandbox: &Sandbox, program: &str, flags: &[&str], message: &str) -> End {
    let mut command = Command::new(sandbox.path(program));
    // Hide the settings in the home directory of the user who runs the test.
    command.args(flags).env("HOME", sandbox.home());
    let mut running = sandbox.start_command(command);
    await_some("a tunnel's end", || {
        let output = running.output_so_far();
        assert!(!running.has_ended(), "{output:?}");
        output.1.contains(message).then_some(())
    });
    End(Some(running))
}

fn api(sandbox: &Sandbox, port: u16) -> serde_json::Value {
    let answer = sandbox.inside(|| get(port, "/tunnels"));
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Whether the connection ends without an answer.
fn is_refused(sandbox: &Sandbox, sent: &[u8]) -> bool {
    sandbox.inside(|| through(6500, sent)).map_or(true, |got| got.is_empty())
}

#[test]
fn the_commands_of_the_report_carry_iperf3_traffic() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("iperf3") {
        return testing::skip(testing::Need::Program("iperf3"));
    }
    links(&sandbox);
    let mut iperf = Command::new("iperf3");
    iperf.arg("-s");
    let mut iperf = sandbox.start_command(iperf);
    // Type the commands as in the report. The server's unsafe defaults are in the file that the
    // server finds; the second end on this machine needs another address for its API.
    sandbox.write("quictun-server.yaml", "insecure-no-verification-open-targets: true\n");
    let server = started(&sandbox, "quictun-server", &[], "listening on");
    let words = ["--server-endpoint", "127.0.0.1:7500", "--token-source", "tcp:127.0.0.1:5201"];
    let words = [&words[..], &["--insecure-skip-verify", "true"]].concat();
    let words = [&words[..], &["--httpd-listen-on", "127.0.0.1:18086"]].concat();
    let _client = started(&sandbox, "quictun-client", &words, "connected to");
    let said = server.output_so_far().0;
    assert!(said.contains("no verification") && said.contains("open targets"), "{said}");
    let measured = await_some("iperf3's server", || {
        let measured = sandbox.inside(|| {
            Command::new("iperf3").args(["-c", "127.0.0.1", "-p", "6500", "-t", "2", "-J"]).output()
        });
        let measured = measured.unwrap();
        measured.status.success().then_some(measured)
    });
    let json: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert!(json["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0, "{json}");
    await_some("the end of the tunnels", || {
        (api(&sandbox, 8086) == serde_json::json!([])).then_some(())
    });
    iperf.signal("TERM");
    await_some("the end of iperf3", || iperf.has_ended().then_some(()));
}

#[test]
fn the_api_lists_open_tunnels_with_their_protocol_at_both_ends() {
    let Some(sandbox) = Sandbox::new() else { return };
    links(&sandbox);
    let target = sandbox.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = target.local_addr().unwrap().port();
    let insecure = "--insecure-no-verification-open-targets";
    let server = started(&sandbox, "quictun-server", &[insecure], "listening on");
    let source = format!("tcp:127.0.0.1:{port}");
    let words = ["--server-endpoint", "127.0.0.1:7500", "--token-source", &source, insecure];
    let words = [&words[..], &["--httpd-listen-on=127.0.0.1:18086"]].concat();
    // This listener accepts IPv6, too; the list of tunnels shows an IPv4 peer by its IPv4 address.
    let words = [&words[..], &["--listen-on=tcp:0.0.0.0:6500"]].concat();
    let _client = started(&sandbox, "quictun-client", &words, "connected to");
    let mut stream = sandbox.inside(|| TcpStream::connect("127.0.0.1:6500")).unwrap();
    stream.write_all(b"REDQ\x02\0\0\0\x02\0\0\0\x12\0\0\0\xd0\x30\x6d\x75\x09\0").unwrap();
    let (mut reached, _) = target.accept().unwrap();
    let mut got = [0; 22];
    reached.read_exact(&mut got).unwrap();
    for (port, end) in [(8086, "server"), (18086, "client")] {
        // An end counts bytes after the application has received them.
        let all = await_some("the count of the bytes", || {
            let all = api(&sandbox, port);
            (all[0]["clientTotalBytes"] == 22).then_some(all)
        });
        let one = &all[0];
        assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
        assert_eq!(one["endpoint"], end);
        assert_eq!((&one["clientTotalBytes"], &one["serverTotalBytes"]), (&22.into(), &0.into()));
        assert_eq!(one["protocol"], "spice");
        assert_eq!(one["protocolProperties"]["channelType"], "usbredir");
        assert_eq!(one["protocolProperties"]["sessionId"], "d0306d75");
        match end {
            "server" => assert_eq!(one["serverAppAddr"], source[4..]),
            _ => {
                assert_eq!(one["clientAppAddr"], stream.local_addr().unwrap().to_string().as_str())
            }
        }
    }
    drop(server);
}

#[test]
fn the_api_lists_a_unix_target_by_its_path() {
    let Some(sandbox) = Sandbox::new() else { return };
    links(&sandbox);
    let path = sandbox.path("app.sock");
    let target = UnixListener::bind(&path).unwrap();
    let insecure = "--insecure-no-verification-open-targets";
    let _server = started(&sandbox, "quictun-server", &[insecure], "listening on");
    let source = format!("unix:{}", path.display());
    let words = ["--server-endpoint", "127.0.0.1:7500", "--token-source", &source, insecure];
    let words = [&words[..], &["--httpd-listen-on=127.0.0.1:18086"]].concat();
    let _client = started(&sandbox, "quictun-client", &words, "connected to");
    let mut stream = sandbox.inside(|| TcpStream::connect("127.0.0.1:6500")).unwrap();
    stream.write_all(b"x").unwrap();
    let (mut reached, _) = target.accept().unwrap();
    reached.read_exact(&mut [0]).unwrap();
    let all = await_some("the tunnel in the list", || {
        let all = api(&sandbox, 8086);
        all[0].is_object().then_some(all)
    });
    assert_eq!(all[0]["serverAppAddr"], path.display().to_string().as_str());
}

#[test]
fn quic_tun_ends_with_pins_refuse_targets_that_no_rule_lists() {
    let Some(sandbox) = Sandbox::new() else { return };
    links(&sandbox);
    let ends = Ends::new(&sandbox);
    let (listed, unlisted) = (sandbox.inside(echo), sandbox.inside(echo));
    let rule = format!("tcp:127.0.0.1:{listed}");
    let mut words = vec!["--peer", &ends.peer, "--allow", &rule, "--token-parser-key", "base64"];
    let own = ends.own("server");
    words.extend(own.iter().map(String::as_str));
    let server = started(&sandbox, "quictun-server", &words, "listening on");
    // Write a token for each client's address, in base64 as the server's `token-parser-key` says.
    let token = |port: u16| {
        let encode = format!("printf tcp:127.0.0.1:{port} | base64 -w 0");
        let output = Command::new("sh").args(["-c", &encode]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    sandbox.write("tokens", format!("127.0.0.1 {}\n", token(listed)));
    let mut words = vec!["--server-endpoint", "127.0.0.1:7500", "--pin", &ends.pin];
    words.extend(["--token-source-plugin", "File", "--token-source", "tokens"]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let _client = started(&sandbox, "quictun-client", &words, "connected to");
    assert_eq!(sandbox.inside(|| through(6500, b"listed")).unwrap(), b"listed");
    // The client reads the file again for each connection.
    sandbox.write("tokens", format!("127.0.0.1 {}\n", token(unlisted)));
    assert!(is_refused(&sandbox, b"unlisted"));
    sandbox.write("tokens", "127.0.0.1 tcp:plain:1\n");
    assert!(is_refused(&sandbox, b"plain"));
    sandbox.write("tokens", "127.0.0.9 tcp:other:1\n");
    assert!(is_refused(&sandbox, b"nobody"));
    await_some("the refusals", || {
        let said = server.output_so_far().0;
        let denied = said.contains(&format!("no rule of laptop allows tcp:127.0.0.1:{unlisted}"));
        (denied && said.contains("is not base64")).then_some(())
    });
}

#[test]
fn an_http_source_is_asked_with_the_applications_address() {
    let Some(sandbox) = Sandbox::new() else { return };
    links(&sandbox);
    let target = sandbox.inside(echo);
    let tokens = sandbox.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let source = format!("http://{}/get", tokens.local_addr().unwrap());
    let insecure = "--insecure-no-verification-open-targets";
    let _server = started(&sandbox, "quictun-server", &[insecure], "listening on");
    let words = ["--server-endpoint", "127.0.0.1:7500", insecure, "--token-source-plugin", "Http"];
    let words = [&words[..], &["--token-source", &source]].concat();
    let _client = started(&sandbox, "quictun-client", &words, "connected to");
    let answer = std::thread::spawn(move || {
        let mut requests = Vec::new();
        let answers = [
            format!("HTTP/1.1 200 OK\r\n\r\n{{\"token\": \"tcp:127.0.0.1:{target}\"}}"),
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n".to_owned(),
        ];
        for answer in answers {
            let (mut stream, _) = tokens.accept().unwrap();
            let mut request = [0; 2_000];
            let count = stream.read(&mut request).unwrap();
            requests.push(String::from_utf8_lossy(&request[..count]).into_owned());
            stream.write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    let mut stream = sandbox.inside(|| TcpStream::connect("127.0.0.1:6500")).unwrap();
    let own = stream.local_addr().unwrap().port();
    stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    stream.write_all(b"through").unwrap();
    let mut got = [0; 7];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"through");
    assert!(is_refused(&sandbox, b"redirected"));
    let requests = answer.join().unwrap();
    let wanted = format!("GET /get?addr=127.0.0.1%3A{own} HTTP/1.0\r\n");
    assert!(requests[0].starts_with(&wanted), "{requests:?}");
}

#[test]
fn a_reload_with_a_directory_unknown_at_the_start_asks_for_a_restart() {
    let Some(sandbox) = Sandbox::new() else { return };
    links(&sandbox);
    for directory in ["conf", "elsewhere"] {
        std::fs::create_dir(sandbox.path(directory)).unwrap();
    }
    let insecure = "insecure-no-verification-open-targets: true\n";
    sandbox.write("conf/server.yaml", insecure);
    let server =
        started(&sandbox, "quictun-server", &["--config", "conf/server.yaml"], "listening on");
    let authority = sandbox.path("elsewhere/ca.pem");
    sandbox.write("elsewhere/ca.pem", "");
    sandbox.write(
        "conf/server.yaml",
        format!("{insecure}verify-remote-endpoint: true\nca-file: {}\n", authority.display()),
    );
    server.signal("HUP");
    await_some("the refused reload", || {
        let (stdout, stderr) = server.output_so_far();
        let logged = stdout + &stderr;
        (logged.contains("elsewhere is in none of the directories")
            && logged.contains("restart weir tunnel"))
        .then_some(())
    });
}

#[test]
fn without_the_flag_the_unsafe_defaults_are_refused_with_advice() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, reported) in [
        (vec!["server"], "--peer NAME=PIN"),
        (vec!["client", "--server-endpoint", "a:7500", "--token-source", "tcp:b:1"], "--pin PIN"),
        (vec!["client", "--server-endpoint", "a:7500"], "--token-source is missing"),
        (vec!["server", "--config", "typo.yaml"], "typo.yaml:1: unknown key `listen_on`"),
        (vec!["server", "--log-output-paths", "/nowhere/a.log"], "--log-output-paths"),
    ] {
        sandbox.write("typo.yaml", "listen_on: 0.0.0.0:1\n");
        let words: Vec<&str> = ["tunnel", "compat", "quic-tun"].into_iter().chain(words).collect();
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(reported), "{output:?}");
    }
}
