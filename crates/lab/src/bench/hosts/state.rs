//! `[state]` between real machines. The agent of each host that has the state applies the state,
//! and takes the state back as the agent takes back the settings of a system.

use super::seam::{Change, LabHost};
use super::turn::Turn;
use crate::bench::LabFile;
use crate::bench::machine::CONGESTION;
use crate::model::Failure;
use crate::model::file::{ChangedEnd, FileError, axes, words};
use host::Sysctl;
use results::Axes;

/// Applies the state of the turn's system on each host that has the state.
pub(super) fn apply(turn: &Turn<'_>) -> Result<(), Failure> {
    let Some(state) = &turn.lab.state else { return Ok(()) };
    let wrong = |error: FileError| Failure::Workload(error.to_string());
    let side = state.get_ref().side(turn.system.name());
    let hosts = match turn.lab.changed_end(turn.axes).map_err(wrong)? {
        ChangedEnd::Client => vec![turn.near],
        ChangedEnd::Server => vec![turn.far],
        ChangedEnd::Both if turn.near.name() == turn.far.name() => vec![turn.near],
        ChangedEnd::Both => vec![turn.near, turn.far],
    };
    for host in hosts {
        for (name, value) in &side.sysctl {
            let value = turn.lab.filled(turn.axes, value).map_err(wrong)?;
            host.set(&Sysctl { name: name.get_ref().clone(), value })?;
        }
        if let Some(algorithm) = &side.congestion {
            let value = algorithm.get_ref().clone();
            host.set(&Sysctl { name: CONGESTION.to_owned(), value })?;
        }
        if let (Some(command), Some(undo)) = (&side.command, &side.undo) {
            let apply = argv(turn, host, command.get_ref())?;
            let undo = argv(turn, host, undo.get_ref())?;
            host.change(&Change { apply, undo })?;
        }
    }
    Ok(())
}

/// Returns the words of a state's command on `host`.
fn argv(turn: &Turn<'_>, host: &dyn LabHost, line: &str) -> Result<Vec<String>, Failure> {
    let [client, server] = turn.addresses;
    let value = |name: &str| match name {
        "weir" => Some(host.weir().to_owned()),
        "client" => Some(client.to_string()),
        "server" => Some(server.to_string()),
        _ => None,
    };
    let filled = turn.lab.state_command(turn.axes, line, value).map_err(Failure::Workload)?;
    Ok(words(&filled))
}

/// Refuses the keys of `[state]` that change only this machine.
pub(super) fn check(lab: &LabFile) -> Result<(), FileError> {
    let Some(state) = &lab.state else { return Ok(()) };
    let elsewhere = "or add --namespaces to run the lab in namespaces of this machine";
    for (_, side) in state.get_ref().sides() {
        if let Some((feature, value)) = side.offload.iter().next() {
            let message = format!(
                "`offload` changes the interfaces of a namespace only: write `command = \"ethtool -K eth0 {} {}\"` with the \
                 host's own interface, and an `undo`, {elsewhere}",
                feature.get_ref(),
                value.get_ref()
            );
            return Err(lab.source.error(feature.span(), message));
        }
        let own = [accel::algorithm::NAME, accel::caqm::NAME];
        let named = side.congestion.as_ref().filter(|name| own.contains(&name.get_ref().as_str()));
        if let Some(name) = side.load.first().or(named) {
            let message = format!(
                "a state loads `{}` into this machine's kernel only: leave the name out and start weir accel on the \
                 hosts by `command` and `undo`, {elsewhere}",
                name.get_ref()
            );
            return Err(lab.source.error(name.span(), message));
        }
    }
    Ok(())
}

/// Whether a state changes the host in any cell of the lab.
pub(super) fn is_of(lab: &LabFile, host: &str) -> bool {
    let is_changed = |place: &Axes| {
        // A cell without ends fails in its turn, with the reason.
        let Ok(ends) = lab.kind().ends(lab, place) else { return false };
        let [is_client, is_server] = [ends.from == host, ends.to == host];
        match lab.changed_end(place) {
            Ok(ChangedEnd::Client) => is_client,
            Ok(ChangedEnd::Server) => is_server,
            Ok(ChangedEnd::Both) => is_client || is_server,
            Err(_) => false,
        }
    };
    lab.state.is_some() && axes::all_places(lab).iter().any(is_changed)
}

/// Whether a state changes kernel settings of the host.
pub(super) fn sets(lab: &LabFile, host: &str) -> bool {
    let mut sides = lab.state.iter().flat_map(|state| state.get_ref().sides());
    let has_settings = sides.any(|(_, side)| !side.sysctl.is_empty() || side.congestion.is_some());
    has_settings && is_of(lab, host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(state: &str) -> LabFile {
        let text = format!(
            "name = \"x\"\nhosts = [\"a\", \"b\"]\n[host.a]\nssh = \"a\"\n[host.b]\nssh = \"b\"\n\
             [[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
             [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
             [state]\n{state}\n[form.full]\nduration = \"1s\"\nrepeats = 2\n"
        );
        LabFile::parse("x.toml", &text).unwrap()
    }

    #[test]
    fn a_state_of_the_server_needs_root_on_the_server_only() {
        let both = "after = { sysctl = { \"net.ipv4.tcp_sack\" = \"0\" } }";
        let server = format!("end = \"server\"\n{both}");
        let command = "after = { command = \"true\", undo = \"true\" }";
        for (state, roots) in [
            (both, [true, true]),
            (server.as_str(), [false, true]),
            ("end = \"client\"\nafter = { congestion = \"reno\" }", [true, false]),
            (command, [false, false]),
        ] {
            assert_eq!(["a", "b"].map(|host| sets(&lab(state), host)), roots, "{state}");
        }
        assert!(is_of(&lab(command), "a") && !is_of(&lab(&server), "a"));
    }

    #[test]
    fn offloads_and_algorithms_of_weir_are_refused_with_a_remedy() {
        for (state, says) in [
            ("after = { offload = { tso = \"off\" } }", "ethtool -K eth0 tso off"),
            ("after = { load = [\"caqm\"] }", "a state loads `caqm`"),
            ("before = { congestion = \"tcpa\" }", "a state loads `tcpa`"),
        ] {
            let error = check(&lab(state)).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("--namespaces"), "{state}: {error}");
        }
        check(&lab("after = { congestion = \"reno\" }")).unwrap();
    }
}
