//! A server that offers the test's bridge at a UNIX socket, for the real ovs-ofctl.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flow::request::PacketIn;
use openflow::{FlowUpdate, Kind, Session};

use super::bridge::Bridge;

pub(crate) struct Server {
    directory: tempfile::TempDir,
    pub(crate) bridge: Arc<Mutex<Bridge>>,
    pub(crate) packet_ins: Arc<Mutex<Vec<PacketIn>>>,
    is_closed: Arc<AtomicBool>,
}

/// The result of a run of ovs-ofctl.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) is_success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether ovs-ofctl is installed. Without ovs-ofctl, the tests print that it is missing, and pass.
pub(crate) fn is_installed() -> bool {
    let is_there = Command::new("ovs-ofctl")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_there {
        testing::skip(testing::Need::Program("ovs-ofctl"));
    }
    is_there
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("br0.mgmt")).unwrap();
        let server = Self {
            directory,
            bridge: Arc::default(),
            packet_ins: Arc::default(),
            is_closed: Arc::default(),
        };
        let (bridge, is_closed) = (server.bridge.clone(), server.is_closed.clone());
        let packet_ins = server.packet_ins.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let (bridge, is_closed) = (bridge.clone(), is_closed.clone());
                let packet_ins = packet_ins.clone();
                std::thread::spawn(move || serve(stream, &bridge, &packet_ins, &is_closed));
            }
        });
        server
    }

    pub(crate) fn target(&self) -> String {
        format!("unix:{}", self.directory.path().join("br0.mgmt").display())
    }

    /// Builds a command that runs ovs-ofctl, with its control socket in the server's directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("ovs-ofctl");
        command.env("OVS_RUNDIR", self.directory.path());
        command
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `ovs-ofctl OPTIONS VERB TARGET ARGUMENTS`.
    pub(crate) fn run(&self, options: &[&str], verb: &str, arguments: &[&str]) -> Ran {
        let output = self
            .command()
            .args(["-t", "10"])
            .args(options)
            .arg(verb)
            .arg(self.target())
            .args(arguments)
            .output()
            .unwrap();
        Ran {
            is_success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Like [`Server::run`], but panics if the run fails.
    pub(crate) fn ok(&self, options: &[&str], verb: &str, arguments: &[&str]) -> String {
        let ran = self.run(options, verb, arguments);
        assert!(ran.is_success, "{options:?} {verb} {arguments:?}: {}", ran.stderr);
        ran.stdout
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = UnixStream::connect(self.directory.path().join("br0.mgmt"));
    }
}

fn serve(
    mut stream: UnixStream,
    bridge: &Mutex<Bridge>,
    packet_ins: &Mutex<Vec<PacketIn>>,
    is_closed: &AtomicBool,
) {
    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut session = Session::new(Kind::Service);
    let mut out = Vec::new();
    session.start(&mut out);
    let mut seen = bridge.lock().unwrap().events.len();
    let mut seen_packets = packet_ins.lock().unwrap().len();
    let mut bytes = vec![0; 1 << 16];
    while !is_closed.load(Ordering::Relaxed) {
        for packet in &packet_ins.lock().unwrap()[seen_packets..] {
            session.packet_in(packet, &mut out);
            seen_packets += 1;
        }
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
        let read = match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return,
        };
        let mut bridge = bridge.lock().unwrap();
        let result = session.receive(&bytes[..read], &mut *bridge, &mut out);
        let events = bridge.events.len();
        let updates: Vec<_> = bridge.events[seen..events]
            .iter()
            .map(|(change, flow)| FlowUpdate { change: *change, flow, former: &[] })
            .collect();
        session.flows_changed(&updates, None, &mut out);
        seen = events;
        drop(bridge);
        if result.is_err() {
            let _ = stream.write_all(&out);
            return;
        }
    }
}
