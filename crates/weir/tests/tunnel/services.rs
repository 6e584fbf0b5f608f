//! Services that clients offer at one server by name.

use crate::ends::{Ends, echo, through};
use crate::support::{Sandbox, await_some};

#[test]
fn a_client_reaches_offered_services_that_its_rules_list_and_no_other_services() {
    let Some(sandbox) = Sandbox::new() else { return };
    let office = Ends { keepalive: "1s", ..Ends::named(&sandbox, "office", "office") };
    let home = Ends { keepalive: "1s", ..Ends::named(&sandbox, "home", "home") };
    let target = sandbox.inside(echo);
    let table = |ends: &Ends<'_>, rules: &str| ends.peer_table() + rules;
    sandbox.write(
        "server.toml",
        format!(
            "[server]\nlisten-on = \"127.0.0.1:7500\"\n{}{}",
            table(&office, "reverse = [\"service:office-*\"]\n"),
            table(&home, "allow = [\"service:office-wiki\", \"service:office-gone\"]\n"),
        ),
    );
    let start = |ends: &Ends<'_>, role: &str, socket: &str, flags: &[&str], message: &str| {
        let own = ends.own(role);
        let mut words = vec!["tunnel", role, "--status-socket", socket];
        words.extend(flags);
        words.extend(own.iter().map(String::as_str));
        ends.started(&words, message)
    };
    let _server =
        start(&office, "server", "server.sock", &["--config", "server.toml"], "listening on");
    let to_server = ["--server", "127.0.0.1:7500", "--pin", &office.pin];
    let wiki = format!("service:office-wiki=tcp:127.0.0.1:{target}");
    let other = format!("service:other=tcp:127.0.0.1:{target}");
    let offers = ["--reverse", &wiki, "--reverse", &other];
    let flags = [&to_server[..], &offers].concat();
    let offering = start(&office, "client", "office.sock", &flags, "the server listens");
    let forwards = [
        "--forward",
        "tcp:127.0.0.1:8080=service:office-wiki",
        "--forward",
        "tcp:127.0.0.1:8081=service:office-gone",
        "--forward",
        "tcp:127.0.0.1:8082=service:other",
    ];
    let flags = [&to_server[..], &forwards].concat();
    let _asking = start(&home, "client", "home.sock", &flags, "connected to");
    let status = || {
        let output =
            sandbox.weir(&["tunnel", "status", "--json", "--status-socket", "server.sock"]);
        serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap()[0].clone()
    };
    assert_eq!(status()["services"], serde_json::json!({ "office-wiki": "office" }));
    let sent = vec![3; 2 << 20];
    assert!(sandbox.inside(|| through(8080, &sent)).unwrap() == sent);
    // No client offers the first service, and no rule lists the second service.
    for port in [8081, 8082] {
        let refused = sandbox.inside(|| through(port, b"x"));
        assert!(!refused.is_ok_and(|got| !got.is_empty()));
    }
    await_some("the counts", || {
        let status = status();
        let is_counted = status["counters"]["services_missed"] == 1
            && status["refused"]["not-listed"] == 1
            && status["refused"]["listen-not-listed"].as_u64() > Some(0);
        is_counted.then_some(())
    });
    let shown = sandbox.weir(&["tunnel", "status", "--status-socket", "server.sock"]).stdout;
    assert!(shown.contains("service:office-wiki offered by office"), "{shown}");
    offering.signal("KILL");
    await_some("the end of the offer", || {
        status()["services"].as_object().unwrap().is_empty().then_some(())
    });
}
