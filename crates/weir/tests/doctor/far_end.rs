//! A far end that disappears at each phase of a test: doctor must give a verdict and not panic.

use crate::support::Sandbox;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The phase after which the far end disappears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    Accept,
    Cookie,
    Parameters,
    Streams,
    Running,
    /// The far end sends bytes that are no message of the protocol.
    Nonsense,
}

#[test]
fn a_far_end_that_disappears_before_the_transfer_gives_a_verdict() {
    let Some(sandbox) = Sandbox::new() else { return };
    for until in [Until::Accept, Until::Cookie, Until::Parameters, Until::Streams, Until::Nonsense]
    {
        let diagnosis = test_with(&sandbox, until);
        assert_eq!(diagnosis["verdict"]["cause"], "test-failed", "{until:?}: {diagnosis}");
    }
}

/// The transfer has begun, and doctor may find a cause in it.
#[test]
fn a_far_end_that_disappears_during_the_transfer_gives_a_verdict() {
    let Some(sandbox) = Sandbox::new() else { return };
    let diagnosis = test_with(&sandbox, Until::Running);
    let causes = diagnosis["verdict"]["causes"].as_array().unwrap();
    assert!(causes.iter().any(|cause| cause == "test-failed"), "{diagnosis}");
}

fn test_with(sandbox: &Sandbox, until: Until) -> Value {
    let listener = sandbox.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port().to_string();
    let far = std::thread::spawn(move || serve(&listener, until));
    let ended = sandbox.weir(&["doctor", "127.0.0.1", "--port", &port, "--json"]);
    far.join().unwrap();
    assert!(ended.status.success(), "{until:?}: {ended:?}");
    let is_dirty = |c: char| c.is_control() && c != '\n';
    assert!(!ended.stdout.contains(is_dirty) && !ended.stderr.contains(is_dirty), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Follows iperf3's protocol up to a phase, and closes all connections.
fn serve(listener: &TcpListener, until: Until) {
    let (mut control, _) = listener.accept().unwrap();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    if until == Until::Accept {
        return;
    }
    let mut cookie = [0; COOKIE];
    if control.read_exact(&mut cookie).is_err() || until == Until::Cookie {
        return;
    }
    if until == Until::Nonsense {
        let _ = control.write_all(b"\x1b[31mHTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = control.read(&mut [0; 64]);
        return;
    }
    say(&mut control, PARAM_EXCHANGE);
    if until == Until::Parameters {
        return;
    }
    let mut length = [0; 4];
    if control.read_exact(&mut length).is_err() {
        return;
    }
    let mut parameters = vec![0; u32::from_be_bytes(length).min(8192) as usize];
    let _ = control.read_exact(&mut parameters);
    say(&mut control, CREATE_STREAMS);
    if until == Until::Streams {
        return;
    }
    let (mut stream, _) = listener.accept().unwrap();
    let _ = stream.read_exact(&mut cookie);
    say(&mut control, TEST_START);
    say(&mut control, TEST_RUNNING);
    let mut block = vec![0; 65_536];
    for _ in 0..BLOCKS {
        if !matches!(stream.read(&mut block), Ok(1..)) {
            return;
        }
    }
}

fn say(control: &mut TcpStream, state: u8) {
    let _ = control.write_all(&[state]);
}

const PATIENCE: Duration = Duration::from_secs(60);
const COOKIE: usize = 37;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const BLOCKS: u32 = 2_000;
