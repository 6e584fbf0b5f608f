//! A peer's wide rules must not cover the server's own addresses.

use crate::ends::{Keys, echo, tcp_of, through, to_tcp};
use nix::sched::{CloneFlags, unshare};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tunnel::access::Access;
use tunnel::client::Client;
use tunnel::server::Server;

#[test]
fn wide_rules_and_names_cover_no_address_of_the_server_in_any_notation() {
    if !own_network() {
        return;
    }
    assert!(ip("address add 10.1.2.3/32 dev lo"));
    // All addresses of the prefix are local to this machine, although no interface has such an
    // address.
    assert!(ip("route add local 10.99.0.0/16 dev lo"));
    let wide = [
        "tcp:10.0.0.0/8:22",
        "tcp:[2001:db8::/32]:22",
        "tcp:[2002::/16]:22",
        "tcp:[64:ff9b::/96]:22",
        "tcp:[64:ff9b:1::/48]:22",
        "tcp:[::/0]:22",
        "tcp:name.example:22",
    ];
    let keys = Keys::new();
    let access = keys.guard(&wide, &[]).access;
    for (address, reached) in [
        ("10.1.2.3", false),
        ("10.1.2.4", true),
        ("10.99.7.7", false),
        ("::ffff:10.1.2.3", false),
        ("::10.1.2.3", false),
        ("2002:a01:203::1", false),
        ("2002:a01:204::1", true),
        ("64:ff9b::10.1.2.3", false),
        ("64:ff9b::10.1.2.4", true),
        ("64:ff9b:1::10.1.2.3", false),
        ("64:ff9b:1:a01:2:300::", false),
        ("2001:0:a01:203::", false),
        ("2001:0:808:808:0:0:f5fe:fdfc", false),
        ("2001:db8::5", true),
    ] {
        assert_eq!(reaches(&access, address), reached, "{address}");
    }
    assert!(!resolved_to(&access, "10.1.2.3") && resolved_to(&access, "10.1.2.4"));
    let listed = keys.guard(&["tcp:10.1.2.3:22"], &[]).access;
    assert!(reaches(&listed, "10.1.2.3"));
    // A rule that lists the address also permits names that resolve to it.
    assert!(resolved_to(
        &keys.guard(&["tcp:name.example:22", "tcp:10.1.2.3:22"], &[]).access,
        "10.1.2.3"
    ));

    // Change the machine's addresses while the server runs.
    assert!(ip("address del 10.1.2.3/32 dev lo") && ip("address add 10.1.2.4/32 dev lo"));
    assert!(reaches(&access, "10.1.2.3") && !reaches(&access, "10.1.2.4"));
    if !ip("-6 address add 2001:db8::5/128 dev lo") {
        return testing::skip_part(testing::Need::Ipv6);
    }
    // Wait until the kernel has added the local route.
    for _ in 0..6000 {
        if !reaches(&access, "2001:db8::5") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!reaches(&access, "2001:db8::5") && reaches(&access, "2001:db8::6"));
}

#[test]
fn only_a_rule_that_lists_the_address_reaches_a_program_on_the_server() {
    if !own_network() {
        return;
    }
    assert!(ip("address add 10.1.2.3/32 dev lo"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = TcpListener::bind("10.1.2.3:0").await.unwrap();
        let address = target.local_addr().unwrap();
        let echo = tokio::spawn(echo(target));
        let keys = Keys::new();
        for (rule, leads) in
            [("tcp:10.0.0.0/8:*".to_owned(), false), (format!("tcp:{address}"), true)]
        {
            let server = Server::start(keys.server_parts(keys.guard(&[&rule], &[]))).unwrap();
            let parts = keys.client_parts(&[server.local_addr().unwrap()], vec![to_tcp(address)]);
            let client = Client::start(parts).await.unwrap();
            let mut stream = through(tcp_of(&client.bound()[0])).await;
            let exchange = async {
                stream.write_all(b"x").await?;
                stream.read_exact(&mut [0; 1]).await
            };
            match exchange.await {
                Ok(_) => assert!(leads, "{rule} leads there"),
                Err(error) => {
                    assert!(!leads, "{rule}: {error}");
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                }
            }
            assert_eq!(server.counted().tunnels_refused, u64::from(!leads));
            drop((client, server));
        }
        echo.abort();
    });
}

fn reaches(access: &Access, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    let target = format!("tcp:{}", SocketAddr::new(address, 22)).parse().unwrap();
    access.admit_resolved(&"client".parse().unwrap(), &target, &[address]).is_ok()
}

fn resolved_to(access: &Access, address: &str) -> bool {
    let target = "tcp:name.example:22".parse().unwrap();
    let found = [address.parse().unwrap()];
    access.admit_resolved(&"client".parse().unwrap(), &target, &found).is_ok()
}

/// Gives this thread, and threads that it starts, a separate network namespace.
fn own_network() -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        testing::skip_because(testing::Need::NetworkNamespaces, error);
        return false;
    }
    if !ip("link set lo up") {
        testing::skip(testing::Need::Program("ip"));
        return false;
    }
    true
}

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}
