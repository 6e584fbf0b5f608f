//! The two ends of a connection with a known fault. Each end is a separate process, because the
//! verdict names processes and their threads: the test's program runs itself again.

use crate::support::{Running, Sandbox, await_some};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// A connection over loopback, whose ends run until they are dropped.
pub struct Pair {
    pub writer: Running,
    pub reader: Running,
}

impl Pair {
    /// Starts both ends. Each end is described by `BYTES,PAUSE`: bytes for each call, and
    /// milliseconds between the calls.
    pub fn start(sandbox: &Sandbox, writer: &str, reader: &str) -> Self {
        let reader = end(sandbox, &format!("read,{reader}"));
        let writer = end(sandbox, &format!("write,{writer}"));
        await_some("the connection", || {
            let table = sandbox.inside(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
            table.ok()?.contains(&format!(":{PORT:04X} 01 ")).then_some(())
        });
        Self { writer, reader }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in [&mut self.writer, &mut self.reader] {
            let _ = end.child.kill();
            let _ = end.child.wait();
        }
    }
}

fn end(sandbox: &Sandbox, role: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "peer::peer", "--ignored", "--nocapture"]).env(ROLE, role);
    sandbox.start_command(command)
}

#[test]
#[ignore = "it is an end of the other tests' connections"]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<_> = role.split(',').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let (mut buffer, pause) = (vec![0; number(1) as usize], Duration::from_millis(number(2)));
    let reads = words[0] == "read";
    let mut stream = if reads {
        TcpListener::bind(("127.0.0.1", PORT)).unwrap().accept().unwrap().0
    } else {
        await_some("the reader", || TcpStream::connect(("127.0.0.1", PORT)).ok())
    };
    loop {
        let moved = if reads { stream.read(&mut buffer) } else { stream.write(&buffer) };
        if moved.is_err() || moved.is_ok_and(|bytes| bytes == 0) {
            return;
        }
        std::thread::sleep(pause);
    }
}

const ROLE: &str = "WEIR_DOCTOR_PEER";
pub const PORT: u16 = 5471;
