//! All objects must disappear, however the process that made them ends.
#![allow(clippy::unwrap_used)]

use host::{Address, Confined, HostError, Namespace, Program, add_address, connect};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// Makes a namespace; without the right to make networks, skips the test.
fn namespace(name: &str) -> Option<Namespace> {
    match Namespace::create(name) {
        Ok(namespace) => Some(namespace),
        Err(error @ HostError::NotPermitted { .. }) => {
            testing::skip_because(testing::Need::NetworkNamespaces, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn program(argv: &[&str]) -> Program {
    Program {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        environment: Vec::new(),
        stdout: File::options().write(true).open("/dev/null").unwrap(),
        stderr: File::options().write(true).open("/dev/null").unwrap(),
        cpus: Vec::new(),
    }
}

#[test]
fn two_hosts_exchange_data_over_a_veth_pair() {
    let (Some(a), Some(b)) = (namespace("a"), namespace("b")) else {
        return;
    };
    connect((&a, "eth0"), (&b, "eth0"), 1500).unwrap();
    let at = |last| Address { ip: IpAddr::V4(Ipv4Addr::new(10, 9, 8, last)), prefix: 24 };
    add_address(&a, "eth0", at(1)).unwrap();
    add_address(&b, "eth0", at(2)).unwrap();
    let io = |source| HostError::Io { doing: "test".to_owned(), source };
    let listener = b.run(|| TcpListener::bind(("10.9.8.2", 0)).map_err(io)).unwrap();
    let port = listener.local_addr().unwrap().port();
    a.run(|| TcpStream::connect(("10.9.8.2", port)).map_err(io)).unwrap();
}

#[test]
fn a_program_ends_with_all_its_descendants() {
    let Some(inside) = namespace("inside") else {
        return;
    };
    let mut shell = Confined::start(
        &inside,
        program(&["sh", "-c", "setsid sleep 300 & setsid sleep 300 & wait"]),
    )
    .unwrap();
    let task = format!("/proc/{}/task/{}/children", shell.pid(), shell.pid());
    let children = loop {
        let text = std::fs::read_to_string(&task).unwrap();
        let children: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        if children.len() == 2 {
            break children;
        }
        std::thread::yield_now();
    };
    shell.stop(Duration::from_millis(200)).unwrap();
    for child in children {
        assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "{child} lives on");
    }
}

#[test]
fn the_error_of_a_missing_program_names_the_program() {
    let Some(inside) = namespace("inside") else {
        return;
    };
    let error = Confined::start(&inside, program(&["no-such-program-here"])).unwrap_err();
    assert!(error.to_string().starts_with("`no-such-program-here` is not installed"), "{error}");
}

#[test]
fn the_exit_status_of_a_confined_program_is_returned() {
    let Some(inside) = namespace("inside") else {
        return;
    };
    let mut shell = Confined::start(&inside, program(&["sh", "-c", "exit 7"])).unwrap();
    let status = shell.wait(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(status.code(), Some(7));
}
