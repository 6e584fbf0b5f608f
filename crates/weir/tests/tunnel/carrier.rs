//! The carriers of a tunnel in a network that blocks UDP.

use crate::ends::{Ends, echo, through};
use crate::support::{Running, Sandbox, await_some, is_installed};
use std::process::Command;
use testing::Attempt;

#[test]
fn a_client_uses_tcp_while_udp_is_filtered_says_why_and_returns_to_udp() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("nft") {
        return testing::skip(testing::Need::Program("nft"));
    }
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let nft = |rules: &str| {
        let run = || Command::new("nft").arg(rules).status();
        sandbox.inside(run).is_ok_and(|status| status.success())
    };
    let blocked =
        nft("add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                       add rule inet t c udp dport 7500 drop");
    if !blocked {
        return testing::skip(testing::Need::Nftables);
    }
    let rule = format!("tcp:127.0.0.1:{target}");
    let mut server = ends.server(&[&rule]);
    let client = ends.client(&[&format!("tcp:127.0.0.1:8080=tcp:127.0.0.1:{target}")]);
    let status = |role: &str| {
        let socket = format!("{role}.sock");
        let output = sandbox.weir(&["tunnel", "status", "--status-socket", &socket]);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let shown = status("client");
    assert!(shown.contains("over TCP: UDP has not answered within "), "{shown}");
    let shown = status("server");
    assert!(shown.contains("over TCP") && shown.contains("tcp:127.0.0.1:7500"), "{shown}");
    let sent = vec![7; 3 << 20];
    let echoed = sandbox.inside(|| through(8080, &sent)).unwrap();
    assert!(echoed == sent);
    // Open connections stay on TCP, and the next connections use UDP again.
    assert!(nft("flush chain inet t c"));
    assert!(status("client").contains("over TCP"));
    let kill = |server: &mut Running| {
        server.signal("KILL");
        await_some("the end of the server", || server.has_ended().then_some(()));
        // A client has several connections, and notices the end of each connection separately.
        let gone = || !status("client").contains(" at 127.0.0.1:7500");
        await_some("the loss of all connections", || gone().then_some(()));
    };
    kill(&mut server);
    // Repeats if the machine stalled: the client uses TCP if the server does not answer over UDP
    // within a second.
    let _server = testing::undisturbed("return of a tunnel to UDP", |_| {
        let mut server = ends.server(&[&rule]);
        let shown = await_some("new connections", || {
            let shown = status("client");
            (!shown.contains("no connection")).then_some(shown)
        });
        if shown.contains("over TCP") {
            kill(&mut server);
            return Attempt::Wrong(shown);
        }
        Attempt::Right(server)
    });
    let echoed = sandbox.inside(|| through(8080, b"over UDP")).unwrap();
    assert_eq!(echoed, b"over UDP");
    drop(client);
}
