//! `weir doctor --from A --to B`: a short test between two machines, observed at both of them
//! through their agents.

use super::inventory::{address_of, temporary_folder};
use super::message::Wanted;
use super::remote::RemoteHost;
use super::seam::{LabHost, Order, Task, last_words};
use super::ssh::Ssh;
use super::sweep::Machine;
use crate::bench::programs;
use crate::model::{Cancel, Failure, LabError};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// A test between two machines.
#[derive(Debug)]
pub struct TwoEnds<'a> {
    /// The client and the server of the test.
    pub ends: [&'a Machine; 2],
    /// The server's address for the client. By default the address of the ssh connection.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// Whether the test takes up to thirty seconds.
    pub thorough: bool,
    /// The path of this program, which is copied to the machines.
    pub weir: &'a Path,
}

/// An end with its running agent.
struct Connected {
    ssh: Ssh,
    host: RemoteHost,
}

impl TwoEnds<'_> {
    /// Tests both directions, and returns the text of each end's recording. If the observation of
    /// the server's end failed, the second text is its error message: a test that does not reach
    /// the server leaves no connection there. The texts are those of other machines, and may have
    /// any content.
    pub fn record(&self, cancel: &Cancel) -> Result<(String, Result<String, String>), LabError> {
        let sha256 = programs::own_sha256()?;
        let sockets = temporary_folder()?;
        let connect = |number: usize| self.connect(number, sockets.path(), &sha256, cancel);
        let found = std::thread::scope(|scope| {
            let second = scope.spawn(|| connect(1));
            let first = connect(0);
            let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            [first, second]
        });
        let (mut ends, mut problems) = (Vec::new(), Vec::new());
        let mut is_interrupted = false;
        for end in found {
            match end {
                Ok(end) => ends.push(end),
                Err(Failure::Interrupted) => is_interrupted = true,
                Err(failure) => problems.push(failure.to_string()),
            }
        }
        if is_interrupted {
            close(ends);
            return Err(LabError::Interrupted { directory: None });
        }
        let recorded = match <[Connected; 2]>::try_from(ends) {
            Err(ends) => {
                close(ends);
                return Err(LabError::Usage(problems.join("\n")));
            }
            Ok(ends) => {
                let recorded = self.tested([&ends[0].host, &ends[1].host], &ends[1].ssh, cancel);
                close(ends);
                recorded
            }
        };
        recorded.map_err(|failure| match failure {
            Failure::Interrupted => LabError::Interrupted { directory: None },
            Failure::HostLost { host, reason } => {
                LabError::HostLost { host, reason, directory: None }
            }
            other => LabError::Usage(other.to_string()),
        })
    }

    fn connect(
        &self,
        number: usize,
        sockets: &Path,
        sha256: &str,
        cancel: &Cancel,
    ) -> Result<Connected, Failure> {
        let machine = self.ends[number];
        let name = machine.name();
        let none = || Failure::Workload(format!("{name}: no destination of ssh"));
        let ssh = Ssh::of(name, &machine.spec(), number, sockets, cancel).ok_or_else(none)?;
        let connected = self.connect_by(&ssh, (name, number), sha256, cancel);
        match connected {
            Ok(host) => Ok(Connected { ssh, host }),
            Err(failure) => {
                ssh.close();
                Err(failure)
            }
        }
    }

    fn connect_by(
        &self,
        ssh: &Ssh,
        (name, number): (&str, usize),
        sha256: &str,
        cancel: &Cancel,
    ) -> Result<RemoteHost, Failure> {
        ssh.install(self.weir, sha256)?;
        let host = RemoteHost::connect(name, ssh.agent(sha256), sha256, cancel)?;
        let facts = host.facts(Wanted { port: Some(self.port), ..Wanted::default() })?;
        let refuse = |reason: String| Err(Failure::Workload(format!("{name}: {reason}")));
        if let Some(reason) = facts.unconfined {
            return refuse(format!(
                "programs cannot be confined there, and might outlive the test: {reason}"
            ));
        }
        if let Some(other) = facts.others.first() {
            return refuse(format!(
                "a lab runs there (its agent is process {other}), which the test would disturb: wait for its end"
            ));
        }
        if number == 1 && facts.port_taken {
            return refuse(format!(
                "another program listens on port {} there: name another with --port",
                self.port
            ));
        }
        host.lease(LEASE)?;
        Ok(host)
    }

    fn tested(
        &self,
        [near, far]: [&RemoteHost; 2],
        ssh: &Ssh,
        cancel: &Cancel,
    ) -> Result<(String, Result<String, String>), Failure> {
        let unknown = || {
            let reason = "its address for the other end is not known: add --address".to_owned();
            Failure::HostLost { host: far.name().to_owned(), reason }
        };
        // At a loopback address the other end would reach itself.
        let is_reachable = |ip: &IpAddr| !ip.is_loopback();
        let found = || ssh.host_name().and_then(|name| address_of(&name)).filter(is_reachable);
        let address = self.address.or_else(found).ok_or_else(unknown)?;
        let port = self.port.to_string();
        let start = |host: &RemoteHost, words: &[&str]| {
            let argv = [host.weir()].into_iter().chain(words.iter().copied());
            host.start(&Order { argv: argv.map(str::to_owned).collect(), cpus: Vec::new() })
        };
        let mut server = start(far, &["perf", "server", "--port", &port])?;
        self.await_server(far, server.as_mut(), cancel)?;
        let [near_file, far_file] = [near.put(RECORDING, "")?, far.put(RECORDING, "")?];
        let seconds = if self.thorough { THOROUGH } else { SHORT };
        let (focus, time) = (format!("port:{port}"), seconds.to_string());
        let words = ["doctor", "--flow", &focus, "--time", &time, "--json", "--record", &far_file];
        let mut watching = start(far, &words)?;
        // The observation reads its first sample before the test begins.
        cancel.sleep_until(Instant::now() + HEAD_START)?;
        let address = address.to_string();
        let mut words = vec!["doctor", &address, "--port", &port, "--json", "--record", &near_file];
        words.extend(self.thorough.then_some("--thorough"));
        let mut testing = start(near, &words)?;
        let patience = Duration::from_secs(u64::from(seconds)) + BEYOND;
        let failure = |task: &mut dyn Task| -> Result<Option<String>, Failure> {
            let end = task.wait(patience, cancel)?;
            let is_success = end.is_some_and(|end| end.is_success());
            Ok((!is_success).then(|| last_words(task)))
        };
        if let Some(words) = failure(testing.as_mut())? {
            let name = near.name();
            return Err(Failure::Workload(format!("{name}: weir doctor failed there: {words}")));
        }
        // An end that the test does not reach has no connection to observe.
        let watched = match failure(watching.as_mut())? {
            Some(words) => Err(words),
            None => Ok(read(far)?),
        };
        Ok((read(near)?, watched))
    }

    fn await_server(
        &self,
        far: &RemoteHost,
        server: &mut dyn Task,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + BEYOND;
        while !far.listens(self.port)? {
            if server.wait(LOOK, cancel)?.is_some() || Instant::now() > deadline {
                let words = last_words(server);
                let name = far.name();
                return Err(Failure::Workload(format!("{name}: no test server there: {words}")));
            }
        }
        Ok(())
    }
}

/// Reads the recording of an end.
fn read(host: &RemoteHost) -> Result<String, Failure> {
    let mut text = String::new();
    loop {
        let piece = host.read(RECORDING, text.len() as u64)?;
        if piece.is_empty() {
            return Ok(text);
        }
        text.push_str(&piece);
        if text.len() > LONGEST {
            return Err(Failure::Workload(format!("{}: its recording is too long", host.name())));
        }
    }
}

fn close(ends: impl IntoIterator<Item = Connected>) {
    for Connected { ssh, host } in ends {
        drop(host);
        ssh.close();
    }
}

const RECORDING: &str = "recording.json";
/// The time of the server's observation, in seconds: longer than a test and its start.
const SHORT: u16 = 11;
const THOROUGH: u16 = 34;
const HEAD_START: Duration = Duration::from_secs(1);
const BEYOND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// An agent ends after this time without a request from its controller.
const LEASE: Duration = Duration::from_secs(300);
const LONGEST: usize = 64 << 20;
