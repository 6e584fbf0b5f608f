//! External programs, started in both hosts. The workload's connection passes through these
//! programs.

use super::carried_by;
use super::peers;
use super::tunnel_keys::{self, TunnelKeys};
use super::{Caller, Listener, MachineStep, Measured, Roles, Started, Testbed};
use crate::model::Failure;
use crate::model::file::{SystemKind, SystemSpec, words};
use host::Namespace;
pub(crate) use host::is_installed;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running pair of programs, and the address that the workload connects to instead of the
/// server's.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) server: Started,
    pub(crate) client: Started,
    pub(crate) connect: Option<SocketAddr>,
    client_argv: Vec<String>,
    server_argv: Vec<String>,
    _keys: Option<TunnelKeys>,
    _files: Option<TempDir>,
}

/// Returns the programs of a system that are not installed on this machine.
pub(crate) fn missing_programs(system: &SystemSpec) -> Vec<String> {
    let own = system.kind == SystemKind::External;
    [&system.server, &system.client]
        .into_iter()
        .filter(|_| own)
        .flatten()
        .filter_map(|command| words(command.get_ref()).into_iter().next())
        .chain(system.needs.iter().cloned())
        .filter(|program| program != WEIR && !peers::is_found(program))
        .collect()
}

impl Pair {
    pub(crate) fn start(
        step: &MachineStep<'_>,
        testbed: &Testbed,
    ) -> Result<Option<Self>, Failure> {
        let (Some(server), Some(client)) = (&step.system.server, &step.system.client) else {
            return Ok(None);
        };
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let texts = [server, client].into_iter().chain(step.system.files.values());
        let texts = texts.map(|text| text.get_ref().as_str());
        let keys = TunnelKeys::for_texts(texts, step.programs)?;
        let files = match step.system.files.is_empty() {
            true => None,
            false => Some(folder("files-", step.programs)?),
        };
        let fill = |text: &str| -> Result<String, Failure> {
            let client = testbed.address(from, to)?.to_string();
            let server = testbed.address(to, from)?.to_string();
            let port = super::PORT.to_string();
            crate::model::file::fill(text, &crate::model::file::COMMAND_WORDS, |name| match name {
                "client" => Some(client.clone()),
                "server" => Some(server.clone()),
                "port" => Some(port.clone()),
                "weir" => tunnel_keys::weir(),
                "files" => files.as_ref().map(|folder| folder.path().display().to_string()),
                other => keys
                    .as_ref()
                    .and_then(|keys| keys.word(other))
                    .or_else(|| step.axes.get(other).cloned()),
            })
            .map_err(Failure::Workload)
        };
        for (name, text) in &step.system.files {
            let Some(folder) = &files else { break };
            let path = folder.path().join(name.get_ref());
            let written = std::fs::write(&path, fill(text.get_ref())?);
            written.map_err(|error| Failure::io(&format!("writing {}", path.display()), &error))?;
        }
        let server_argv = words(&fill(server.get_ref())?);
        let client_argv = words(&fill(client.get_ref())?);
        let begin = |host: &str, argv: &[String], cpus: &[usize]| -> Result<Started, Failure> {
            Started::new(&testbed.namespace(host)?, argv.to_vec(), cpus, step)
        };
        let server = begin(to, &server_argv, &step.cpus.to)?;
        let client = begin(from, &client_argv, &step.cpus.from)?;
        let mut pair = Self {
            server,
            client,
            connect: None,
            client_argv,
            server_argv,
            _keys: None,
            _files: None,
        };
        if let Some(connect) = &step.system.connect {
            let text = fill(connect.get_ref())?;
            let address: SocketAddr = text.parse().map_err(|_| {
                Failure::Workload(format!("connect = `{text}` is not an address and a port"))
            })?;
            pair.connect = Some(address);
            let inside = testbed.namespace(from)?;
            // At an address of another host, the workload's own server listens instead of the
            // program.
            if address.ip().is_loopback()
                && let Err(failure) =
                    await_listener(&inside, address.port(), &mut pair.client, step)
            {
                return Err(pair.failure().unwrap_or(failure));
            }
        }
        (pair._keys, pair._files) = (keys, files);
        Ok(Some(pair))
    }

    /// Starts the pair, if the system has one, and runs `measure` with the caller of the workload's
    /// connections.
    pub(crate) fn measure(
        step: &MachineStep<'_>,
        testbed: &Testbed,
        listener: &Listener,
        measure: impl FnOnce(Option<&mut Self>, Caller<'_>, &Roles) -> Result<Measured, Failure>,
    ) -> Result<Measured, Failure> {
        let mut pair = Self::start(step, testbed)?;
        let connect = pair.as_ref().and_then(|pair| pair.connect);
        let caller = Caller {
            congestion: step.system.congestion.as_ref().map(|name| name.get_ref().as_str()),
            ..Caller::new(connect.unwrap_or(listener.direct), step.cancel)
        };
        let ends = |pair: &Self| (vec![pair.client.pid()], vec![pair.server.pid()]);
        let (client, server) = pair.as_ref().map(ends).unwrap_or_default();
        let roles = Roles { client, server, emulator_tid: testbed.emulator_tid() };
        let measured = measure(pair.as_mut(), caller, &roles);
        let measured = measured.map(|measured| measured.carried_by(pair.as_ref()));
        measured.map_err(|failure| match failure {
            Failure::Interrupted => failure,
            // If a program stopped, its failure explains the failure of the measurement.
            failure => pair.as_mut().and_then(Self::cause).unwrap_or(failure),
        })
    }

    /// Kills the server's program, and starts it again with the same arguments.
    pub(crate) fn restart_server(
        &mut self,
        step: &MachineStep<'_>,
        testbed: &Testbed,
    ) -> Result<(), Failure> {
        self.server.kill()?;
        let inside = testbed.namespace(&step.ends.to)?;
        self.server = Started::new(&inside, self.server_argv.clone(), &step.cpus.to, step)?;
        Ok(())
    }

    /// Returns the algorithm that carries the workload over the path: the tunnel's algorithm, or
    /// `own` if the workload's connection itself crosses the path. `None` if the programs do not
    /// report their algorithm.
    pub(crate) fn algorithm(&self, own: Option<String>) -> Option<String> {
        if self.connect.is_none() {
            return own;
        }
        let weir = std::env::current_exe().ok()?;
        carried_by::algorithm(&weir, &self.client_argv, &self.server_argv)
    }

    /// Returns the failure of a program that has ended. The failure also ends the measurement.
    pub(crate) fn failure(&mut self) -> Option<Failure> {
        self.failure_within(Duration::ZERO)
    }

    /// Returns the failure of a program that may explain why the workload has just failed. The
    /// workload sees a closed connection before the program's exit is known.
    pub(crate) fn cause(&mut self) -> Option<Failure> {
        self.failure_within(CAUSE_WITHIN)
    }

    fn failure_within(&mut self, patience: Duration) -> Option<Failure> {
        // The client's program often exits because the server's program has exited.
        for program in [&mut self.server, &mut self.client] {
            if let Ok(Some(status)) = program.wait(patience) {
                return Some(program.early_end(status));
            }
        }
        None
    }
}

/// Creates a folder for files that exist for one step only.
pub(crate) fn folder(prefix: &str, within: &Path) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(within);
    made.map_err(|error| Failure::io(&format!("making a folder in {}", within.display()), &error))
}

/// Waits until the kernel reports a listener at `port` in the namespace.
pub(crate) fn await_listener(
    inside: &Namespace,
    port: u16,
    program: &mut Started,
    step: &MachineStep<'_>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    let filter = probe::tcp::Filter::listening().local_port(port);
    while Instant::now() < deadline {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let listeners = inside.run(|| Ok(probe::tcp::sockets(&filter)))??;
        if !listeners.is_empty() {
            return Ok(());
        }
        if let Some(status) = program.wait(Duration::from_millis(5))? {
            return Err(program.early_end(status));
        }
    }
    let (name, patience) = (program.name(), READY_WITHIN.as_secs());
    Err(Failure::Workload(format!("{name} did not listen on port {port} within {patience} s")))
}

/// The placeholder for the path of `weir` itself.
const WEIR: &str = "{weir}";
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Maximum wait for the exit of a program: a busy machine may report the exit a second late.
const CAUSE_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_in_path_and_by_their_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("no-such-program-here") && !is_installed("/proc/version"));
    }
}
