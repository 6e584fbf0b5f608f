//! Measures a TCP transfer at full speed, through the kernel alone or through a pair of programs.

use super::programs::{Order, Programs};
use super::transfer::Transfer;
use crate::bench::machine::{
    MachineStep, Measured, PORT, Pair, Roles, Started, Testbed, await_listener,
};
use crate::model::Failure;
use crate::model::file::SystemKind;
use std::net::SocketAddr;
use units::Rate;

/// The server's address and the rate limit of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) to: SocketAddr,
    /// Rate limit of the sender. `None`: as fast as possible.
    pub(crate) rate: Option<Rate>,
}

pub(crate) fn measure(step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let to = SocketAddr::new(testbed.address(to, from)?, PORT);
    measure_over(step, testbed, Route { to, rate: None })
}

/// Measures a transfer over a given route between the hosts.
pub(crate) fn measure_over(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    route: Route,
) -> Result<Measured, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let (client_host, server_host) = (testbed.namespace(from)?, testbed.namespace(to)?);
    let direct = route.to;
    let everywhere = match step.system.kind {
        // A tunnel server may also reach the workload's server over loopback.
        SystemKind::External => SocketAddr::new([0, 0, 0, 0].into(), PORT),
        _ => direct,
    };
    let programs = Programs { traffic: step.system.traffic(), weir: step.weir };
    let cpus = step.cpus;
    let mut server = Started::new(&server_host, programs.server(everywhere), &cpus.to, step)?;
    await_listener(&server_host, PORT, &mut server, step)?;
    let mut pair = Pair::start(step, testbed)?;
    let target = pair.as_ref().and_then(|pair| pair.connect).unwrap_or(direct);
    let congestion = step.system.congestion.as_ref().map(|name| name.get_ref().as_str());
    let order = Order {
        to: target,
        duration: step.duration,
        omit: step.omit,
        streams: step.ends.streams,
        congestion,
        rate: route.rate,
    };
    let program = Started::new(&client_host, programs.client(&order), &cpus.from, step)?;
    let emulator_tid = testbed.emulator_tid();
    let (client, server_side) = match &pair {
        Some(pair) => (pair.client.pid(), pair.server.pid()),
        None => (program.pid(), server.pid()),
    };
    let roles = Roles { client: vec![client], server: vec![server_side], emulator_tid };
    let mut transfer = Transfer {
        step,
        programs,
        program,
        server,
        pair: pair.as_mut(),
        target,
        roles,
        seen: Vec::new(),
    };
    let measured = transfer.follow(&client_host, &server_host, testbed)?;
    drop(transfer);
    Ok(measured.carried_by(pair.as_ref()))
}
