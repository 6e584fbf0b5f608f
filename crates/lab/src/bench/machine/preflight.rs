//! Finds out before the first step whether this machine has everything that a system needs.

use super::state::find_ethtool;
use super::{is_installed, missing_programs};
use crate::bench::LabFile;
use crate::model::file::{SystemKind, SystemSpec, words};
use accel::algorithm::NAME;
use host::Privilege;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Returns the reason why no step of this system could be measured.
///
/// `own`: the programs that the system's workload starts.
pub(crate) fn problem_of(system: &SystemSpec, own: &[String]) -> Option<String> {
    missing_program(system, own)
        .or_else(|| missing_algorithm(system))
        .or_else(|| missing_setting(system))
}

/// Returns the programs and rights that the states of a `[state]` need and that this machine or
/// user lacks.
pub(crate) fn problems_of_states(lab: &LabFile, privilege: Privilege) -> Vec<String> {
    let Some(state) = &lab.state else { return Vec::new() };
    let mut problems = Vec::new();
    for (name, side) in state.get_ref().sides() {
        if !side.offload.is_empty() && find_ethtool().is_none() {
            problems.push(format!("{name}: `ethtool` is not installed"));
        }
        for line in [&side.command, &side.undo].into_iter().flatten() {
            let program = words(line.get_ref()).into_iter().next().unwrap_or_default();
            if !program.starts_with('{') && !is_installed(&program) {
                problems.push(format!("{name}: `{program}` is not installed"));
            }
        }
        let algorithm = side.congestion.as_ref().and_then(|name| unknown_algorithm(name.get_ref()));
        problems.extend(algorithm.map(|problem| format!("{name}: {problem}")));
        let ours = |text: &Spanned<String>| text.get_ref() == NAME;
        let loaded = side.load.first().or(side.congestion.as_ref().filter(|text| ours(text)));
        if let Some(algorithm) = loaded.filter(|_| privilege != Privilege::Root) {
            let algorithm = algorithm.get_ref();
            problems.push(format!(
                "{name}: only root loads `{algorithm}` into the kernel: run the lab as root, or name another \
                 state in a copy of the file"
            ));
        }
    }
    problems.dedup();
    problems
}

/// Returns the reason why only root can measure this system.
pub(crate) fn missing_right(system: &SystemSpec, privilege: Privilege) -> Option<String> {
    let name = system.congestion.as_ref()?.get_ref();
    let is_loaded = [NAME, accel::caqm::NAME].contains(&name.as_str());
    let kinds = [SystemKind::Tcp, SystemKind::Doctor];
    (is_loaded && kinds.contains(&system.kind) && privilege != Privilege::Root)
        .then(|| format!("only root loads `{name}` into the kernel"))
}

/// Returns a kernel setting that this kernel lacks. A setting without its directory is not
/// reported: the directory may belong to an interface that only the lab's hosts have.
fn missing_setting(system: &SystemSpec) -> Option<String> {
    let missing = |name: &&str| {
        let path = setting(name);
        path.parent().is_some_and(Path::is_dir) && !path.exists()
    };
    let name = system.sysctl.keys().map(|name| name.get_ref().as_str()).find(missing)?;
    let beside = std::fs::read_dir(setting(name).parent()?).ok()?;
    let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
    let known: Vec<String> = beside
        .filter_map(|entry| Some(format!("{stem}.{}", entry.ok()?.file_name().to_str()?)))
        .collect();
    let hint = units::did_you_mean(name, known.iter().map(String::as_str));
    Some(format!("this machine has no kernel setting `{name}`{hint}"))
}

fn setting(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

fn missing_program(system: &SystemSpec, own: &[String]) -> Option<String> {
    let mut missing = missing_programs(system);
    missing.extend(own.iter().filter(|name| !is_installed(name)).cloned());
    let peer = system.traffic().peer().filter(|peer| !is_installed(peer));
    missing.extend(peer.map(str::to_owned));
    // Client and server may be the same program.
    missing.dedup();
    let named: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let problem = match named.as_slice() {
        [] => return None,
        [one] => format!("{one} is not installed"),
        all => format!("{} are not installed", all.join(" and ")),
    };
    Some(match system.install.as_str() {
        "" => problem,
        install => format!("{problem}: {install}"),
    })
}

fn missing_algorithm(system: &SystemSpec) -> Option<String> {
    if system.kind != SystemKind::Tcp {
        return None;
    }
    unknown_algorithm(system.congestion.as_ref()?.get_ref())
}

fn unknown_algorithm(name: &str) -> Option<String> {
    // Weir loads its own algorithms for each step.
    if [NAME, accel::caqm::NAME].contains(&name) {
        return None;
    }
    let tcp = SockProtocol::Tcp;
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, tcp).ok()?;
    let refused = probe::tcp::set_congestion_control(&socket, name).err()?;
    // Ignore a refusal for another reason than a missing algorithm: a host in a user namespace may
    // allow the algorithm.
    if refused.source.as_ref().map(std::io::Error::kind) != Some(ErrorKind::NotFound) {
        return None;
    }
    let known = refused.available.join(", ");
    let hint = units::did_you_mean(name, refused.available.iter().map(String::as_str));
    Some(format!("this machine has no congestion control `{name}`{hint}; it has {known}"))
}
