//! Runs a client that prints one JSON document, and a server if the client needs one, between two
//! real machines.

use crate::bench::hosts::{LabHost, Order, Stream, Task, Turn, last_words};
use crate::model::{Failure, Measurement};
use serde_json::Value;
use std::time::{Duration, Instant};
use units::Span;

/// The client and the server of one turn, with the hosts on which they run.
pub(super) struct Exchange<'a> {
    turn: &'a Turn<'a>,
    server: Option<(&'a dyn LabHost, Box<dyn Task>)>,
}

/// A client and the host that it runs on.
pub(super) struct Client<'a> {
    pub(super) name: &'a str,
    pub(super) host: &'a dyn LabHost,
    pub(super) argv: Vec<String>,
    /// The planned duration of the measurement.
    pub(super) lasting: Span,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(turn: &'a Turn<'a>) -> Self {
        Self { turn, server: None }
    }

    /// Starts the server and waits until the server listens at `port`.
    pub(super) fn serve(
        &mut self,
        host: &'a dyn LabHost,
        argv: Vec<String>,
        port: u16,
    ) -> Result<(), Failure> {
        if host.listens(port)? {
            return Err(Failure::Workload(format!(
                "{}: another program listens on port {port}: end that program",
                host.name()
            )));
        }
        let mut server = host.start(&Order { argv, cpus: Vec::new() })?;
        await_listener(self.turn, host, server.as_mut(), port)?;
        self.server = Some((host, server));
        Ok(())
    }

    /// Runs the client to its end. `read` records the figures of the client's document.
    pub(super) fn run(
        &mut self,
        client: Client<'_>,
        read: impl FnOnce(&Value, &mut Measurement) -> Result<(), Failure>,
    ) -> Result<Measurement, Failure> {
        let Client { name, host, argv, lasting } = client;
        let turn = self.turn;
        let before = self.server_cpu()?;
        let mut client = host.start(&Order { argv, cpus: Vec::new() })?;
        let Some(end) = client.wait(lasting.as_duration() + AFTERMATH, turn.cancel)? else {
            let text = format!("{name} did not end in time: {}", last_words(client.as_mut()));
            return Err(self.cause().unwrap_or(Failure::Workload(text)));
        };
        let after = self.server_cpu()?;
        // Status 1 means that the program counted errors in its document.
        let document = match end.code {
            Some(0 | 1) => serde_json::from_str::<Value>(&client.output(Stream::Out)?.text).ok(),
            _ => None,
        };
        let Some(document) = document else {
            let words = last_words(client.as_mut());
            let failure = Failure::Workload(format!("{name} ended with {end}: {words}"));
            return Err(self.cause().unwrap_or(failure));
        };
        let mut result = Measurement::default();
        read(&document, &mut result)?;
        // CPU times cover the whole run of the client, including an omitted start.
        let took = Duration::from_nanos(end.took_ns).as_secs_f64();
        let percent = |cpu: Duration| Some(cpu.as_secs_f64() / took * 100.0);
        let used = Duration::from_nanos(end.cpu_ns);
        result.record("cpu_percent.client", percent(used));
        let server = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        result.record("cpu_percent.server", server.and_then(percent));
        let congestion = turn.system.congestion.as_ref();
        result.congestion_control = congestion.map(|name| name.get_ref().clone());
        Ok(result)
    }

    /// Returns the CPU time of the server so far. `None` if there is no server, or if the server
    /// has ended.
    fn server_cpu(&mut self) -> Result<Option<Duration>, Failure> {
        let Some((_, server)) = &mut self.server else { return Ok(None) };
        match server.wait(Duration::ZERO, self.turn.cancel)? {
            Some(end) => Ok(Some(Duration::from_nanos(end.cpu_ns))),
            None => server.cpu(),
        }
    }

    /// Returns the failure of the server, if the server ended with an error.
    fn cause(&mut self) -> Option<Failure> {
        let (host, server) = self.server.as_mut()?;
        let end = server.wait(Duration::ZERO, self.turn.cancel).ok()??;
        let words = last_words(server.as_mut());
        let text = format!("the server on {} ended with {end}: {words}", host.name());
        (!end.is_success()).then_some(Failure::Workload(text))
    }
}

/// Waits until `server` listens at `port`.
pub(super) fn await_listener(
    turn: &Turn<'_>,
    host: &dyn LabHost,
    server: &mut dyn Task,
    port: u16,
) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    while !host.listens(port)? {
        if let Some(end) = server.wait(Duration::from_millis(10), turn.cancel)? {
            let text = format!("the server ended with {end}: {}", last_words(server));
            return Err(Failure::Workload(text));
        }
        if Instant::now() > deadline {
            let text = format!("the server did not listen on port {port} in time");
            return Err(Failure::Workload(text));
        }
    }
    Ok(())
}

const READY_WITHIN: Duration = Duration::from_secs(10);
/// Time for client and server to exchange their results. On a lossy path TCP may need several
/// timeouts.
const AFTERMATH: Duration = Duration::from_secs(30);
