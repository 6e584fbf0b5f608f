//! Runs a command once: starts the server, waits until the server is ready, and runs the client to
//! its end.

use super::{CommandSettings, Ready};
use crate::bench::hosts::{
    Captured, End, LabHost, LocalHost, Order, Stream, Task, Turn, last_words,
};
use crate::bench::machine::{CONGESTION, MachineStep, Measured, Roles, Testbed, Watch};
use crate::model::file::{SystemKind, WORDS_OF_COMMANDS, command_words};
use crate::model::{Failure, Measurement, Value};
use host::Sysctl;
use std::time::{Duration, Instant};

/// Runs the command between two namespaces of this machine.
pub(super) fn in_testbed(step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let host = |name: &str| -> Result<LocalHost, Failure> {
        LocalHost::new(name, Some(testbed.namespace(name)?), step.weir, step.programs)
    };
    let (near, far) = (host(from)?, host(to)?);
    if let (SystemKind::Tcp, Some(name)) = (&step.system.kind, &step.system.congestion) {
        let setting = Sysctl { name: CONGESTION.to_owned(), value: name.get_ref().clone() };
        [&near, &far].into_iter().try_for_each(|host| host.set(&setting))?;
    }
    let addresses = [testbed.address(from, to)?, testbed.address(to, from)?];
    let turn = Turn {
        lab: step.lab,
        system: step.system,
        axes: step.axes,
        near: &near,
        far: &far,
        addresses,
        streams: step.ends.streams,
        duration: step.duration,
        omit: step.omit,
        near_cpus: &step.cpus.from,
        far_cpus: &step.cpus.to,
        cancel: step.cancel,
    };
    let roles = Roles { emulator_tid: testbed.emulator_tid(), ..Roles::default() };
    let mut running = Running::start(&turn)?;
    let before = Watch::read(&roles)?;
    let mut result = running.finish()?;
    let after = Watch::read(&roles)?;
    drop(running);
    let mut machine = Measurement::default();
    after.account(&before, step.cpus, None, &mut machine);
    for (name, value) in machine.metrics {
        result.metrics.entry(name).or_insert(value);
    }
    result.invalid.extend(machine.invalid);
    (result.cpu_limited, result.cpu_limit) = (machine.cpu_limited, machine.cpu_limit);
    result.beside = machine.beside;
    result.congestion_control = step.system.congestion.as_ref().map(|name| name.get_ref().clone());
    Ok(Measured::between_ends(step, before.taken()..after.taken(), result))
}

/// Runs the command between any two hosts.
pub(crate) fn between(turn: &Turn<'_>) -> Result<Measurement, Failure> {
    Running::start(turn)?.finish()
}

/// A turn in progress: the server, if any, is ready, and the client has not started.
struct Running<'a> {
    turn: &'a Turn<'a>,
    settings: CommandSettings,
    server: Option<Box<dyn Task>>,
}

impl<'a> Running<'a> {
    fn start(turn: &'a Turn<'a>) -> Result<Self, Failure> {
        let settings = CommandSettings::of(turn.lab, turn.system, turn.axes);
        let settings = settings.map_err(|error| Failure::Workload(error.to_string()))?;
        let mut running = Self { turn, settings, server: None };
        if let Some((line, ready)) = running.settings.server.clone() {
            let (far, cpus) = (turn.far, turn.far_cpus);
            // If another program listens at the port, the client would measure the other program.
            if let Ready::Port(port) = ready
                && far.listens(port)?
            {
                let name = far.name();
                return Err(Failure::Workload(format!(
                    "{name}: another program listens on port {port}: end that program, or let the server listen \
                     elsewhere"
                )));
            }
            running.server = Some(start(far, turn.words(&line, far)?, cpus)?);
            running.await_server(&line, &ready)?;
        }
        Ok(running)
    }

    fn await_server(&mut self, line: &str, ready: &Ready) -> Result<(), Failure> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let (turn, timeout) = (self.turn, self.settings.timeout);
        let deadline = Instant::now() + timeout;
        let probe = match ready {
            Ready::Command(line) => turn.words(line, turn.near)?,
            Ready::Port(_) | Ready::Log(_) => Vec::new(),
        };
        let mut pause = SHORTEST_PAUSE;
        loop {
            if let Some(end) = server.wait(pause, turn.cancel)? {
                let advice = match end.is_success() {
                    true => {
                        " (a server stays in the foreground; programs that it left behind were ended)"
                    }
                    false => "",
                };
                return Err(ended(&format!("the server `{line}`"), &end, advice, server.as_mut()));
            }
            let is_ready = match ready {
                Ready::Port(port) => turn.far.listens(*port)?,
                Ready::Log(text) => {
                    server.output(Stream::Out)?.text.contains(text)
                        || server.output(Stream::Err)?.text.contains(text)
                }
                Ready::Command(_) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let mut probing = start(turn.near, probe.clone(), turn.near_cpus)?;
                    let end = probing.wait(left.min(LONGEST_PROBE), turn.cancel)?;
                    end.is_some_and(|end| end.is_success())
                }
            };
            if is_ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let words = last_words(server.as_mut());
                return Err(Failure::Workload(format!(
                    "the server `{line}` was not ready within {}: {}; {words}",
                    shown(timeout),
                    ready.missing()
                )));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Runs the client, and reads the figures from its output.
    fn finish(&mut self) -> Result<Measurement, Failure> {
        let (turn, timeout) = (self.turn, self.settings.timeout);
        let line = self.settings.client.clone();
        let words = turn.words(&line, turn.near)?;
        let server_before = self.server_cpu()?;
        let mut client = start(turn.near, words, turn.near_cpus)?;
        let Some(end) = client.wait(timeout, turn.cancel)? else {
            let words = last_words(client.as_mut());
            return Err(self.server_failure().unwrap_or(Failure::Workload(format!(
                "the client `{line}` did not end within its timeout of {}: {words}",
                shown(timeout)
            ))));
        };
        if !end.is_success() {
            let failure = ended(&format!("the client `{line}`"), &end, "", client.as_mut());
            return Err(self.server_failure().unwrap_or(failure));
        }
        let server_after = self.server_cpu()?;
        let mut result = Measurement::default();
        let (took, cpu) = (seconds(end.took_ns), seconds(end.cpu_ns));
        result.record("seconds", Some(took));
        result.record("cpu_seconds.client", Some(cpu));
        let server = server_before.zip(server_after);
        let server = server.map(|(before, after)| after.saturating_sub(before).as_secs_f64());
        result.record("cpu_seconds.server", server);
        let percent = |cpu: f64| Some(cpu / took * 100.0).filter(|_| took > 0.0);
        result.record("cpu_percent.client", percent(cpu));
        result.record("cpu_percent.server", server.and_then(percent));
        result.record("exit_status", end.code.map(f64::from));
        self.read_figures(client.as_mut(), &mut result)?;
        Ok(result)
    }

    /// Returns the CPU time of the server so far. `None` if there is no server. A server that has
    /// ended, such as `iperf3 -s -1` after its client, has the CPU time of its whole run.
    fn server_cpu(&mut self) -> Result<Option<Duration>, Failure> {
        let Some(server) = &mut self.server else { return Ok(None) };
        if let Some(cpu) = server.cpu()? {
            return Ok(Some(cpu));
        }
        let end = server.wait(CAUSE_WITHIN, self.turn.cancel)?;
        Ok(end.map(|end| Duration::from_nanos(end.cpu_ns)))
    }

    fn read_figures(&self, client: &mut dyn Task, result: &mut Measurement) -> Result<(), Failure> {
        let metrics = &self.turn.lab.workload.get_ref().metrics;
        if metrics.is_empty() {
            return Ok(());
        }
        let (out, err) = (client.output(Stream::Out)?, client.output(Stream::Err)?);
        let document = document(&out);
        let text = format!("{}\n{}", err.text, out.text);
        let mut lines = [&out, &err].into_iter().map(|output| output.last_lines(1));
        let printed = match lines.find(|line| !line.is_empty()) {
            Some(line) => format!("its last line is `{line}`"),
            None => "it printed nothing".to_owned(),
        };
        for (name, figure) in metrics {
            let figure = figure.get_ref();
            let metric = figure.metric(name.get_ref());
            match figure.read(&text, &document) {
                Ok(value) => {
                    result.metrics.insert(metric, Value { value, unit: figure.unit.clone() });
                    if figure.one_way.is_some() {
                        // Client and server run on this machine, so a one-way delay has no error of
                        // clocks.
                        let error = Value { value: 0.0, unit: figure.unit.clone() };
                        result.metrics.insert(figure.error_metric(name.get_ref()), error);
                    }
                }
                Err(reason) => {
                    let name = name.get_ref();
                    let reason = format!("`{name}` was not read: {reason}; {printed}");
                    result.miss(&[metric.as_str()], reason, true);
                }
            }
        }
        Ok(())
    }

    /// Returns the failure of the server, if the server has ended. The server's failure explains
    /// the client's failure.
    fn server_failure(&mut self) -> Option<Failure> {
        let server = self.server.as_mut()?;
        let end = server.wait(CAUSE_WITHIN, self.turn.cancel).ok()??;
        Some(ended("the server", &end, "", server.as_mut()))
    }
}

impl Ready {
    fn missing(&self) -> String {
        match self {
            Self::Port(port) => format!("nothing listens on port {port}"),
            Self::Log(text) => format!("it printed no `{text}`"),
            Self::Command(line) => format!("`{line}` did not succeed"),
        }
    }
}

impl Turn<'_> {
    /// Fills in the words of a command that runs on `host`.
    pub(crate) fn words(&self, line: &str, host: &dyn LabHost) -> Result<Vec<String>, Failure> {
        let [client, server] = &self.addresses;
        let value = |name: &str| match name {
            "client" => Some(client.to_string()),
            "server" => Some(server.to_string()),
            "port" => Some(crate::bench::machine::PORT.to_string()),
            "weir" => Some(host.weir().to_owned()),
            "duration" => Some(self.duration.secs_f64().to_string()),
            axis => self.lab.filled_text(self.axes, &format!("{{{axis}}}")).ok(),
        };
        command_words(line, &WORDS_OF_COMMANDS, value).map_err(Failure::Workload)
    }
}

fn start(host: &dyn LabHost, argv: Vec<String>, cpus: &[usize]) -> Result<Box<dyn Task>, Failure> {
    host.start(&Order { argv, cpus: cpus.to_vec() })
}

fn ended(what: &str, end: &End, advice: &str, task: &mut dyn Task) -> Failure {
    Failure::Workload(format!("{what} ended with {end}{advice}: {}", last_words(task)))
}

fn document(output: &Captured) -> Result<serde_json::Value, String> {
    if output.is_cut() {
        return Err(format!(
            "it printed {} bytes, and JSON is read from at most 4 MiB",
            output.total
        ));
    }
    serde_json::from_str(output.text.trim())
        .map_err(|error| format!("its output is no JSON: {error}"))
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

fn shown(time: Duration) -> String {
    units::Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).to_string()
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PROBE: Duration = Duration::from_secs(5);
/// Time until the lab notices, on a busy machine, that a program has ended.
const CAUSE_WITHIN: Duration = Duration::from_millis(300);
