//! Measures one TCP transfer at full speed between two real machines. The figures come from the
//! output of the traffic's program, because the lab reads no sockets on real machines.

use super::programs::{Order as Transfer, Programs};
use crate::bench::hosts::{LabHost, Order, Stream, Turn, last_words};
use crate::bench::machine::PORT;
use crate::model::{Failure, Measurement};
use crate::workloads::between::await_listener;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub(super) fn measure(turn: &Turn<'_>) -> Result<Measurement, Failure> {
    let traffic = turn.system.traffic();
    let to = SocketAddr::new(turn.addresses[1], PORT);
    let congestion = turn.system.congestion.as_ref().map(|name| name.get_ref().as_str());
    let transfer = Transfer {
        to,
        duration: turn.duration,
        omit: turn.omit,
        streams: turn.streams,
        congestion,
        rate: None,
    };
    let of = |host: &dyn LabHost| host.weir().to_owned();
    let (near_weir, far_weir) = (of(turn.near), of(turn.far));
    let at_far = Programs { traffic, weir: Path::new(&far_weir) };
    let at_near = Programs { traffic, weir: Path::new(&near_weir) };
    let order = |argv: Vec<String>, cpus: &[usize]| Order { argv, cpus: cpus.to_vec() };
    let mut server = turn.far.start(&order(at_far.server(to), turn.far_cpus))?;
    await_listener(turn, turn.far, server.as_mut(), PORT)?;
    let mut client = turn.near.start(&order(at_near.client(&transfer), turn.near_cpus))?;
    let length = at_near.lasting(turn.omit) + at_near.lasting(turn.duration);
    let patience = length.as_duration() + AFTERMATH;
    let Some(end) = client.wait(patience, turn.cancel)? else {
        let text =
            format!("{} did not end in time: {}", at_near.name(), last_words(client.as_mut()));
        return Err(Failure::Workload(text));
    };
    // The server usually ends with its client: the whole CPU time of an ended server belongs to the
    // transfer.
    let server_cpu = match server.wait(SERVER_WITHIN, turn.cancel)? {
        Some(end) => Some(Duration::from_nanos(end.cpu_ns)),
        None => server.cpu()?,
    };
    let text = client.output(Stream::Out)?.text;
    let output = at_near.output(&text).map_err(|message| match end.is_success() {
        true => Failure::Workload(message),
        false => Failure::Workload(format!(
            "{} ended with {end}: {}",
            at_near.name(),
            last_words(client.as_mut())
        )),
    })?;
    let used = output.end.sender_tcp_congestion.as_deref();
    if let (Some(asked), Some(used)) = (congestion, used)
        && asked != used
    {
        let used = units::foreign(used);
        let text = format!("the kernel used `{used}` instead of `{asked}`");
        return Err(Failure::Workload(text));
    }
    let rate = |sum: &super::programs::Sum| sum.bits_per_second * 1e-6;
    let mut result = Measurement::default();
    let Some(received) = &output.end.sum_received else {
        let text = format!("{} printed no figures of the receiver", at_near.name());
        return Err(Failure::Workload(text));
    };
    result.record("goodput_mbit_s", Some(rate(received)));
    result.record("sender_mbit_s", output.end.sum_sent.as_ref().map(rate));
    // CPU times cover the whole transfer, including the omitted start.
    let took = Duration::from_nanos(end.took_ns).as_secs_f64();
    let percent = |cpu: f64| Some(cpu / took * 100.0).filter(|_| took > 0.0);
    let client_cpu = Duration::from_nanos(end.cpu_ns).as_secs_f64();
    result.record("cpu_percent.client", percent(client_cpu));
    result.record("cpu_percent.server", server_cpu.and_then(|cpu| percent(cpu.as_secs_f64())));
    result.congestion_control = used.map(|name| units::foreign(name).to_string());
    Ok(result)
}

const SERVER_WITHIN: Duration = Duration::from_secs(1);
/// Time for client and server to exchange their results. On a lossy path TCP may need several
/// timeouts.
const AFTERMATH: Duration = Duration::from_secs(30);
