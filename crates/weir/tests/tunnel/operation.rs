//! Sessions, quotas and the drain of a running server.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Running, Sandbox, await_some};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

fn server(ends: &Ends<'_>) -> Running {
    let own = ends.own("server");
    let mut words = vec!["tunnel", "server", "--config", "server.toml"];
    words.extend(["--listen-on", "127.0.0.1:7500", "--metrics-on", "127.0.0.1:9150"]);
    words.extend(["--status-socket", "server.sock"]);
    words.extend(own.iter().map(String::as_str));
    ends.started(&words, "listening on")
}

/// Runs a verb with `--json`, and returns its document.
fn asked(sandbox: &Sandbox, words: &[&str]) -> Value {
    let all = [&["tunnel"][..], words, &["--json", "--status-socket", "server.sock"]].concat();
    let output = sandbox.weir(&all);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Opens a connection through the tunnel, and carries a byte over it.
fn open(sandbox: &Sandbox, port: u16) -> TcpStream {
    let mut stream = sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    exchange(&mut stream).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"a")?;
    stream.read_exact(&mut [0])
}

#[test]
fn an_operator_lists_sessions_ends_them_and_drains_the_server() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    sandbox.write(
        "server.toml",
        format!("{}allow = [\"tcp:127.0.0.1:{target}\"]\n", ends.peer_table()),
    );
    sandbox.write("before.toml", sandbox.read("server.toml"));
    let with_log =
        format!("[server]\naccess-log = \"logs/access.log\"\n{}", sandbox.read("before.toml"));
    std::fs::create_dir(sandbox.path("logs")).unwrap();
    sandbox.write("server.toml", with_log);
    let mut server = server(&ends);
    let client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{target}")]);
    let mut kicked = open(&sandbox, 6000);
    let sessions = await_some("two sessions", || {
        let all = asked(&sandbox, &["sessions"])[0]["sessions"].as_array().unwrap().clone();
        (all.len() == 2).then_some(all)
    });
    let busy = sessions.iter().find(|one| one["tunnels"] == 1).unwrap();
    assert_eq!((&busy["bytes_in"], &busy["bytes_out"]), (&1.into(), &1.into()), "{busy}");
    assert_eq!((&busy["identity"], &busy["carrier"]), (&"laptop".into(), &"udp".into()), "{busy}");
    let shown = sandbox.weir(&["tunnel", "sessions", "--status-socket", "server.sock"]).stdout;
    assert!(shown.contains("2 sessions\n") && shown.contains("  laptop/"), "{shown}");
    // The client lists the same connections with the server as their peer, and cannot end them.
    let output = sandbox.weir(&["tunnel", "sessions", "--status-socket", "client.sock"]);
    assert!(output.stdout.contains("  127.0.0.1:7500/"), "{output:?}");
    for (words, message) in [
        (["kick", "laptop", "--status-socket", "client.sock"], "run the command at the server"),
        (["kick", "other", "--status-socket", "server.sock"], "no session is called other"),
        (["kick", "laptop/999999", "--status-socket", "server.sock"], "lists the sessions"),
    ] {
        let output = sandbox.weir(&[&["tunnel"][..], &words].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains(message), "{output:?}");
    }

    let name = busy["session"].as_str().unwrap();
    let ended = asked(&sandbox, &["kick", name]);
    assert_eq!(ended[0]["kicked"][0]["session"], name, "{ended}");
    assert_eq!(ended[0]["kicked"][0]["tunnels"], 1, "{ended}");
    let gone = kicked.read(&mut [0]);
    assert!(gone.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    let lines = |file: &str| -> Vec<Value> {
        let text = sandbox.read(file);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let line = await_some("the line in the access log", || lines("logs/access.log").pop());
    let target_of_it = format!("tcp:127.0.0.1:{target}");
    assert_eq!((&line["identity"], &line["target"]), (&"laptop".into(), &target_of_it.into()));
    assert_eq!((&line["reason"], &line["direction"]), (&"kicked".into(), &"forward".into()));
    assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&1.into(), &1.into()), "{line}");
    // The client connects again.
    await_some("the new session", || {
        let all = asked(&sandbox, &["sessions"])[0]["sessions"].as_array().unwrap().clone();
        (all.len() == 2 && all.iter().all(|one| one["session"] != name)).then_some(())
    });

    // A renamed file gets no more lines once the server has reloaded.
    std::fs::rename(sandbox.path("logs/access.log"), sandbox.path("logs/access.log.1")).unwrap();
    let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(sandbox.inside(|| through(6000, b"log")).unwrap(), b"log");
    let line = await_some("the line in the new file", || lines("logs/access.log").pop());
    assert_eq!((&line["reason"], &line["bytes_out"]), (&"finished".into(), &3.into()), "{line}");
    assert_eq!(lines("logs/access.log.1").len(), 1);
    let page = sandbox.inside(|| get(9150, "/"));
    assert!(page.contains("<td data-head=\"identity\">laptop</td>"), "{page}");

    let mut last = open(&sandbox, 6000);
    let begun = asked(&sandbox, &["drain", "--no-wait", "--timeout", "600s"]);
    assert_eq!(begun["tunnels"], 1, "{begun}");
    let metrics = sandbox.inside(|| get(9150, "/readyz"));
    assert!(metrics.contains("503 ") && metrics.contains("draining"), "{metrics}");
    await_some("the end of the idle session", || {
        let all = asked(&sandbox, &["sessions"]);
        (all[0]["is_draining"] == true && all[0]["sessions"].as_array().unwrap().len() == 1)
            .then_some(())
    });
    assert!(!sandbox.inside(|| through(6000, b"new")).is_ok_and(|got| !got.is_empty()));
    exchange(&mut last).unwrap();
    drop(last);
    await_some("the end of the server", || server.has_ended().then_some(()));
    assert!(!sandbox.path("server.sock").exists());
    drop(client);
}

#[test]
fn quotas_apply_to_their_identity_and_change_by_a_reload_during_open_tunnels() {
    let Some(sandbox) = Sandbox::new() else { return };
    let office = Ends::named(&sandbox, "office", "office");
    let home = Ends::named(&sandbox, "home", "home");
    let target = sandbox.inside(echo);
    let file = |of_home: &str, of_office: &str| {
        format!(
            "{}reverse = [\"service:wiki\"]\n{of_office}\n{}allow = [\"service:wiki\"]\n{of_home}\n",
            office.peer_table(),
            home.peer_table()
        )
    };
    sandbox.write("server.toml", file("quota = \"1MB/month\"", "quota = \"1KB/month\""));
    let _server = server(&office);
    let client = |ends: &Ends<'_>, flags: &[&str], socket: &str, message: &str| {
        let own = ends.own("client");
        let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500"];
        words.extend(["--pin", &office.pin, "--connections", "1", "--status-socket", socket]);
        words.extend(flags);
        words.extend(own.iter().map(String::as_str));
        ends.started(&words, message)
    };
    let offer = format!("service:wiki=tcp:127.0.0.1:{target}");
    let _offering = client(&office, &["--reverse", &offer], "office.sock", "the server listens");
    let to_wiki = ["--forward", "tcp:127.0.0.1:8080=service:wiki"];
    let _asking = client(&home, &to_wiki, "home.sock", "connected to");
    let mut standing = open(&sandbox, 8080);

    // A connection to a service spends the quota of its user, and not the quota of the client that
    // offers the service.
    let sent = vec![7; 100_000];
    assert!(sandbox.inside(|| through(8080, &sent)).unwrap() == sent);
    let account = |name: &str| {
        let status = asked(&sandbox, &["status"]);
        let all = status[0]["accounts"].as_array().unwrap();
        all.iter().find(|one| one["peer"] == name).unwrap().clone()
    };
    assert_eq!(account("home")["quota_used"], 200_002);
    assert_eq!(account("office")["quota_used"], 0);
    let lost = sandbox.inside(|| through(8080, &vec![7; 900_000]));
    assert!(!lost.is_ok_and(|got| got.len() == 900_000));
    assert!(!sandbox.inside(|| through(8080, b"x")).is_ok_and(|got| !got.is_empty()));
    let status = asked(&sandbox, &["status"]);
    assert!(status[0]["counters"]["tunnels_over_quota"].as_u64() >= Some(2), "{status}");
    let shown = sandbox.weir(&["tunnel", "status", "--status-socket", "server.sock"]).stdout;
    assert!(shown.contains("this month, used up until 20"), "{shown}");
    let metrics = sandbox.inside(|| get(9150, "/metrics"));
    assert!(
        metrics.contains("weir_tunnel_peer_quota_bytes{role=\"server\",peer=\"home\"} 1000000")
    );

    // A reload raises the quota, so an idle open tunnel goes on. At 64 kbit/s the tunnel's next
    // megabyte would take two minutes in each direction.
    sandbox.write("server.toml", file("quota = \"1GB/month\"\nrate-limit = \"64kbit\"", ""));
    let reload = || {
        let output = sandbox.weir(&["tunnel", "reload", "--status-socket", "server.sock"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    reload();
    exchange(&mut standing).unwrap();
    let before = account("home")["bytes_in"].as_u64().unwrap();
    let mut writing = standing.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&vec![9; 1_000_000]));
    let carried = await_some("a part of the data", || {
        let now = account("home")["bytes_in"].as_u64().unwrap();
        (now > before).then_some(now - before)
    });
    assert!(carried < 1_000_000, "{carried}");
    // The next reload removes the rate limit, also for the tunnel that the limit holds back.
    sandbox.write("server.toml", file("quota = \"1GB/month\"", ""));
    reload();
    let mut got = vec![0; 1_000_000];
    standing.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 9));
    writer.join().unwrap().unwrap();
}
