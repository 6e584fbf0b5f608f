//! The CPU time of an observation of many connections. The test prints the time without judging it,
//! because the machine may be busy.

use crate::support::{Running, Sandbox};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn doctor_watches_a_thousand_connections_and_the_test_prints_the_cpu_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    let most = rustix::process::Rlimit { current: Some(8192), maximum: Some(8192) };
    if rustix::process::setrlimit(rustix::process::Resource::Nofile, most).is_err() {
        testing::skip(testing::Need::OpenFiles(8192));
        return;
    }
    let (port, _ends): (u16, Vec<(TcpStream, TcpStream)>) = sandbox.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pair = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        (address.port(), (0..CONNECTIONS).map(pair).collect())
    });
    let of_port = format!("--flow {port}");
    for (seconds, words) in [(3u64, ""), (3, of_port.as_str()), (10, "")] {
        let ended = observe(&sandbox, seconds, words).end();
        assert!(ended.status.success(), "{ended:?}");
        let spent = children(&ended.stdout).expect(&ended.stdout);
        println!(
            "{CONNECTIONS} connections, both ends here, for {seconds} s {words}: {:.2} % of a core",
            spent * 100.0 / seconds as f64
        );
    }
}

fn observe(sandbox: &Sandbox, seconds: u64, words: &str) -> Running {
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("'{weir}' doctor --json -t {seconds} {words} > seen.json; times")]);
    sandbox.start_command(shell)
}

/// Parses the user and system time of the shell's children, the second line of `times`: `0m0.012s
/// 0m0.034s`.
fn children(printed: &str) -> Option<f64> {
    let words = printed.lines().nth(1)?.split_whitespace();
    let seconds = words.map(|word| {
        let (minutes, rest) = word.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + rest.parse::<f64>().ok()?)
    });
    seconds.sum()
}

const CONNECTIONS: usize = 1000;
