//! One TCP transfer at full speed, through the kernel alone or through a pair of programs.

mod arrived;
mod look;
mod transfer;

use super::external::{Pair, await_listener};
use super::started::Started;
use super::traffic::{Order, Programs};
use super::{PORT, Turn, Windowed};
use crate::Failure;
use crate::file::SystemKind;
use crate::testbed::Testbed;
use crate::watch::Roles;
use std::net::SocketAddr;
use transfer::Transfer;

pub(super) fn measure(turn: &Turn<'_>, testbed: &Testbed) -> Result<Windowed, Failure> {
    let (from, to) = (turn.ends.from.as_str(), turn.ends.to.as_str());
    let (client_host, server_host) = (testbed.namespace(from)?, testbed.namespace(to)?);
    let direct = SocketAddr::new(testbed.address(to, from)?, PORT);
    let everywhere = match turn.system.kind {
        // A tunnel's far end may also reach the server over loopback.
        SystemKind::External => SocketAddr::new([0, 0, 0, 0].into(), PORT),
        _ => direct,
    };
    let programs = Programs { traffic: turn.system.traffic(), weir: turn.weir };
    let cpus = turn.cpus;
    let mut server = Started::new(&server_host, programs.server(everywhere), &cpus.to, turn)?;
    await_listener(&server_host, PORT, &mut server, turn)?;
    let mut pair = Pair::start(turn, testbed)?;
    let target = pair.as_ref().and_then(|pair| pair.connect).unwrap_or(direct);
    let congestion = turn.system.congestion.as_ref().map(|name| name.get_ref().as_str());
    let order = Order {
        to: target,
        duration: turn.duration,
        omit: turn.omit,
        streams: turn.ends.streams,
        congestion,
    };
    let program = Started::new(&client_host, programs.client(&order), &cpus.from, turn)?;
    let emulator_tid = testbed.emulator_tid();
    let (client, server_side) = match &pair {
        Some(pair) => (pair.client.pid(), pair.server.pid()),
        None => (program.pid(), server.pid()),
    };
    let roles = Roles { client: vec![client], server: vec![server_side], emulator_tid };
    let mut transfer = Transfer {
        turn,
        programs,
        program,
        server,
        pair: pair.as_mut(),
        target,
        roles,
        seen: Vec::new(),
    };
    transfer.follow(&client_host, &server_host, testbed)
}
