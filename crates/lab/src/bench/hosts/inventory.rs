//! The real hosts of a lab: their connections and the facts found there. The table of facts and the
//! list of problems appear before the first measurement.

use super::message::{Facts, Wanted};
use super::middle;
use super::remote::RemoteHost;
use super::seam::LabHost;
use super::session::controller_of;
use super::ssh::Ssh;
use super::state;
use crate::bench::LabFile;
use crate::bench::programs;
use crate::model::clock::millis;
use crate::model::file::{HostSpec, SystemKind, SystemSpec, words};
use crate::model::{Cancel, ClockReading, Failure, LabError};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Every host of a lab, connected.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) hosts: IndexMap<String, Connected>,
    weir: PathBuf,
    sha256: String,
    cancel: Cancel,
    /// Holds the sockets of shared connections, and the sessions of this machine.
    folder: TempDir,
}

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) host: RemoteHost,
    /// The address on the measured path. `None` for a machine that emulates links.
    pub(super) address: Option<IpAddr>,
    /// The interfaces of the links that the machine emulates.
    pub(super) interfaces: String,
    pub(super) place: String,
    pub(super) facts: Facts,
    clock: ClockReading,
    ssh: Option<Ssh>,
}

impl Inventory {
    /// Connects to every host at once. The error names all hosts that failed.
    pub(super) fn connect(lab: &LabFile, weir: &Path, cancel: &Cancel) -> Result<Self, LabError> {
        let sha256 = programs::own_sha256()?;
        let folder = temporary_folder()?;
        let (weir, cancel) = (weir.to_owned(), cancel.clone());
        let mut own = Self { hosts: IndexMap::new(), weir, sha256, cancel, folder };
        let names = lab.machines();
        let found: Vec<Result<Connected, Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                names.iter().map(|name| scope.spawn(|| own.connected(lab, name))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut problems = Vec::new();
        for (name, connected) in names.into_iter().zip(found) {
            match connected {
                Err(Failure::Interrupted) => return Err(LabError::Interrupted { directory: None }),
                Ok(connected) => {
                    own.hosts.insert(name.to_owned(), connected);
                }
                Err(failure) => problems.push(failure.to_string()),
            }
        }
        match problems.is_empty() {
            true => Ok(own),
            false => Err(LabError::HostsUnfit { problems }),
        }
    }

    /// Connects to one host again.
    pub(super) fn reconnect(&mut self, lab: &LabFile, name: &str) -> Result<(), Failure> {
        // Close the old connection first, so that its agent undoes its changes.
        if let Some(Connected { host, ssh, .. }) = self.hosts.shift_remove(name) {
            drop(host);
            ssh.iter().for_each(Ssh::close);
        }
        let connected = self.connected(lab, name)?;
        self.hosts.insert(name.to_owned(), connected);
        Ok(())
    }

    fn connected(&self, lab: &LabFile, name: &str) -> Result<Connected, Failure> {
        let spec = lab.real_host(name).cloned().unwrap_or_default();
        let number = lab.machines().iter().position(|host| *host == name).unwrap_or_default();
        let ssh = Ssh::of(name, &spec, number, self.folder.path(), &self.cancel);
        let connected = self.connected_by(lab, (name, number), &spec, ssh.as_ref());
        if connected.is_err() {
            ssh.iter().for_each(Ssh::close);
        }
        connected
    }

    fn connected_by(
        &self,
        lab: &LabFile,
        (name, number): (&str, usize),
        spec: &HostSpec,
        ssh: Option<&Ssh>,
    ) -> Result<Connected, Failure> {
        let command = match ssh {
            Some(ssh) => {
                ssh.install(&self.weir, &self.sha256)?;
                ssh.agent(&self.sha256)
            }
            None => {
                let mut agent = Command::new(&self.weir);
                agent.args(["agent", "--stdio", "--folder"]).arg(self.folder.path());
                let control = self.folder.path().join(number.to_string());
                agent.args(["--controller", &controller_of(&control)]);
                agent
            }
        };
        let host = RemoteHost::connect(name, command, &self.sha256, &self.cancel)?;
        let is_middle = lab.is_middle(name);
        let interfaces = lab.interfaces_on(name).into_iter();
        let facts = host.facts(match is_middle {
            true => Wanted {
                interfaces: interfaces.map(|(name, mtu)| (name, Some(mtu))).collect(),
                ..Wanted::default()
            },
            false => wanted(lab, name),
        })?;
        let clock = host.clock(CLOCK_ROUNDS)?;
        let address = match is_middle {
            true => None,
            false => {
                let given = spec.address.as_ref().map(|address| address.get_ref().as_str());
                let of_ssh = || ssh.and_then(Ssh::host_name).and_then(|name| address_of(&name));
                let lost = |reason: String| Failure::HostLost { host: name.to_owned(), reason };
                Some(measured_address(given, of_ssh).map_err(lost)?)
            }
        };
        let (place, interfaces) = (spec.place(), middle::interfaces_text(lab, name));
        Ok(Connected { host, address, interfaces, place, facts, clock, ssh: ssh.cloned() })
    }

    /// Reads the clock of each host with programs.
    pub(super) fn clocks(&self) -> Result<IndexMap<String, ClockReading>, Failure> {
        let clock = |(name, one): (&String, &Connected)| {
            Ok((name.clone(), one.host.clock(CLOCK_ROUNDS_OF_TURN)?))
        };
        self.ends().map(clock).collect()
    }

    /// Returns the hosts that run programs, without the machines that emulate links.
    pub(super) fn ends(&self) -> impl Iterator<Item = (&String, &Connected)> {
        self.hosts.iter().filter(|(_, one)| one.interfaces.is_empty())
    }

    /// Returns the reasons why the lab cannot run, each with its host.
    pub(super) fn problems(&self, lab: &LabFile) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, one) in &self.hosts {
            let facts = &one.facts;
            let mut add = |text: String| problems.push(format!("{name}: {text}"));
            if let Some(reason) = &facts.unconfined {
                add(format!(
                    "programs cannot be confined there, and might outlive the lab: {reason}"
                ));
            }
            if !facts.missing_algorithms.is_empty() {
                let known = facts.algorithms.join(", ");
                let missing = facts.missing_algorithms.join(", ");
                add(format!("its kernel has no congestion control {missing}; it has {known}"));
            }
            if !facts.missing_programs.is_empty() {
                add(format!("{} not installed there", are(&facts.missing_programs)));
            }
            if let Some(other) = facts.others.first() {
                add(format!(
                    "another lab runs there (its agent is process {other}): wait for its end; if the other lab is \
                     gone, its agent ends by itself some minutes after the longest time of a turn, or at once by \
                     kill {other} there"
                ));
            }
            if lab.is_middle(name) {
                middle::problems(facts).into_iter().for_each(add);
                continue;
            }
            if let Some(port) = lab.kind().port_on(lab, name).filter(|_| facts.port_taken) {
                add(format!("another program listens on port {port} there: end that program"));
            }
            if !facts.root && changes_settings(lab, name) {
                let text = "only root changes kernel settings there: log in as root, write `sudo = true` for the \
                            host, or remove the settings";
                add(text.to_owned());
            }
        }
        problems
    }

    /// Returns a note if two hosts are one machine.
    pub(super) fn shared_machine(&self) -> Option<String> {
        let machine =
            |(name, one): (&String, &Connected)| (name.clone(), one.facts.machine.clone());
        shared_machine(&self.ends().map(machine).collect::<Vec<_>>())
    }

    /// Renders the facts as a table with one column for each host.
    pub(super) fn table(&self) -> String {
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        let mut row = |what: &str, of: &dyn Fn(&Connected) -> String| {
            rows.push((what.to_owned(), self.hosts.values().map(of).collect()));
        };
        row("", &|one| one.host.name().to_owned());
        row("place", &|one| one.place.clone());
        row("address", &|one| one.address.map_or_else(|| "none".to_owned(), |ip| ip.to_string()));
        if self.hosts.values().any(|one| !one.interfaces.is_empty()) {
            row("link", &|one| one.interfaces.clone());
        }
        row("kernel", &|one| format!("{} {}", one.facts.kernel, one.facts.architecture));
        row("cpus", &|one| one.facts.cpus.to_string());
        let by_sudo = |one: &Connected| one.ssh.as_ref().is_some_and(Ssh::uses_sudo);
        row("user", &|one| {
            let user = match (one.facts.root, by_sudo(one)) {
                (true, true) => "root by sudo",
                (true, false) => "root",
                (false, _) => "not root",
            };
            user.to_owned()
        });
        row("algorithms", &|one| one.facts.algorithms.join(" "));
        row("clock", &|one| clock_text(one.clock));
        row("free", &|one| format!("{} MiB", one.facts.free_mib));
        for name in self.differing() {
            row(&name, &|one| {
                one.facts.sysctls.get(&name).cloned().unwrap_or_else(|| "none".to_owned())
            });
        }
        let columns = self.hosts.len() + 1;
        let cell = |row: &(String, Vec<String>), column: usize| match column {
            0 => row.0.clone(),
            column => row.1[column - 1].clone(),
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0)
            })
            .collect();
        let line = |row: &(String, Vec<String>)| {
            let cells: Vec<String> = (0..columns)
                .map(|column| format!("{:<1$}", cell(row, column), widths[column]))
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns the kernel settings in which the hosts differ.
    fn differing(&self) -> BTreeSet<String> {
        let names: BTreeSet<&String> =
            self.hosts.values().flat_map(|one| one.facts.sysctls.keys()).collect();
        let differs = |name: &&String| {
            let mut values = self.hosts.values().map(|one| one.facts.sysctls.get(*name));
            let first = values.next().flatten();
            values.any(|value| value != first)
        };
        names.into_iter().filter(differs).cloned().collect()
    }

    /// Returns the facts of each host for the conditions of a report.
    pub(super) fn facts(&self) -> Value {
        let each = self.hosts.iter().map(|(name, one)| {
            let facts = json!({
                "place": one.place,
                "address": one.address.map(|ip| ip.to_string()),
                "kernel_release": one.facts.kernel,
                "architecture": one.facts.architecture,
                "cpus": one.facts.cpus,
                "root": one.facts.root,
                "clock_ahead_ms": millis(one.clock.ahead_s),
                "clock_error_ms": millis(one.clock.error_s),
                "sysctls": one.facts.sysctls,
            });
            let mut facts = facts;
            if !one.interfaces.is_empty() {
                facts["emulates_links_on"] = json!(one.interfaces);
            }
            (name.clone(), facts)
        });
        Value::Object(each.collect())
    }

    pub(super) fn json(&self, problems: &[String]) -> Value {
        let mut document =
            json!({ "problems": problems, "settings_that_differ": self.differing() });
        document["hosts"] = self.facts();
        document
    }

    /// Returns each host with its ssh connection; `None` for a host that is this machine.
    pub(super) fn ssh_of(
        lab: &LabFile,
        folder: &Path,
        cancel: &Cancel,
    ) -> Vec<(String, Option<Ssh>)> {
        let each = lab.machines().into_iter().enumerate().map(|(number, name)| {
            let ssh =
                lab.real_host(name).and_then(|spec| Ssh::of(name, spec, number, folder, cancel));
            (name.to_owned(), ssh)
        });
        each.collect()
    }
}

impl Drop for Inventory {
    fn drop(&mut self) {
        for (_, one) in self.hosts.drain(..) {
            let Connected { host, ssh, .. } = one;
            drop(host);
            if let Some(ssh) = ssh {
                ssh.close();
            }
        }
    }
}

/// Creates a folder for the sockets of shared connections.
pub(super) fn temporary_folder() -> Result<TempDir, LabError> {
    tempfile::Builder::new().prefix("weir-").tempdir().map_err(|error| {
        let path = std::env::temp_dir();
        LabError::RunDirectory { path, reason: format!("a folder cannot be made there: {error}") }
    })
}

/// Returns the address of a host on the measured path: the address that the file gives, or else the
/// address of the ssh connection. The error is the reason why the address is not known.
fn measured_address(
    given: Option<&str>,
    of_ssh: impl FnOnce() -> Option<IpAddr>,
) -> Result<IpAddr, String> {
    if let Some(given) = given {
        let wrong = |_| format!("its address `{given}` on the measured path is no IP address");
        return given.parse().map_err(wrong);
    }
    match of_ssh() {
        Some(found) if found.is_loopback() => Err(format!(
            "ssh reaches it at {found}, where each host reaches itself: add its `address` on the measured path"
        )),
        Some(found) => Ok(found),
        None => Err("its address on the measured path is not known: add `address`".to_owned()),
    }
}

/// Returns a note about the first two hosts that are one machine. `hosts`: the names of hosts, and
/// what each says about its machine.
fn shared_machine(hosts: &[(String, String)]) -> Option<String> {
    hosts.iter().enumerate().find_map(|(place, (name, machine))| {
        let (other, _) = hosts[..place].iter().find(|(_, other)| other == machine)?;
        let note = format!(
            "{other} and {name} are one machine: packets between them do not leave the machine"
        );
        (!machine.is_empty()).then_some(note)
    })
}

/// Collects the programs, algorithms and settings that the lab names, and the port that the host
/// needs.
fn wanted(lab: &LabFile, host: &str) -> Wanted {
    let mut wanted = Wanted { port: lab.kind().port_on(lab, host), ..Wanted::default() };
    let add = |list: &mut Vec<String>, name: &str| {
        if !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    };
    for system in lab.systems() {
        if let (SystemKind::Tcp, Some(name)) = (&system.kind, &system.congestion) {
            add(&mut wanted.algorithms, name.get_ref());
        }
        for name in crate::bench::workload::programs(lab, system) {
            add(&mut wanted.programs, &name);
        }
        if let Some(peer) = system.traffic().peer() {
            add(&mut wanted.programs, peer);
        }
        for name in system.sysctl.keys() {
            add(&mut wanted.settings, name.get_ref());
        }
    }
    for name in lab.sysctl.keys() {
        add(&mut wanted.settings, name.get_ref());
    }
    let states = lab.state.iter().filter(|_| state::is_of(lab, host));
    for (_, side) in states.flat_map(|state| state.get_ref().sides()) {
        for name in side.sysctl.keys() {
            add(&mut wanted.settings, name.get_ref());
        }
        if let Some(name) = &side.congestion {
            add(&mut wanted.algorithms, name.get_ref());
        }
        for line in [&side.command, &side.undo].into_iter().flatten() {
            // A placeholder may stand for the program.
            let program = words(line.get_ref()).into_iter().next().unwrap_or_default();
            if !program.starts_with('{') {
                add(&mut wanted.programs, &program);
            }
        }
    }
    wanted
}

/// Whether a turn changes kernel settings of the host.
fn changes_settings(lab: &LabFile, host: &str) -> bool {
    let sets_algorithm = sets_algorithm(lab);
    let is_set_by = |system: &SystemSpec| {
        !system.sysctl.is_empty() || (sets_algorithm && system.congestion.is_some())
    };
    !lab.sysctl.is_empty() || lab.systems().any(is_set_by) || state::sets(lab, host)
}

/// Whether the algorithm of a system is set as the default of its hosts. The programs of `bulk`
/// choose the algorithm of their own connections.
pub(super) fn sets_algorithm(lab: &LabFile) -> bool {
    lab.kind().kind() != "bulk"
}

pub(super) fn address_of(name: &str) -> Option<IpAddr> {
    if let Ok(address) = name.parse() {
        return Some(address);
    }
    let found: Vec<_> = (name, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    found.iter().find(|address| address.is_ipv4()).or_else(|| found.first()).copied()
}

fn are(names: &[String]) -> String {
    match names {
        [one] => format!("{one} is"),
        all => format!("{} are", all.join(" and ")),
    }
}

fn clock_text(clock: ClockReading) -> String {
    format!("{:+.3} ms ± {:.3} ms", millis(clock.ahead_s), millis(clock.error_s))
}

const CLOCK_ROUNDS: usize = 8;
/// Fewer than `CLOCK_ROUNDS`, because each turn reads the clock of each host twice.
const CLOCK_ROUNDS_OF_TURN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_of_ssh_is_not_the_address_on_the_measured_path() {
        let of = |given, ssh: &str| measured_address(given, || ssh.parse().ok());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(of(None, "10.0.0.5"), Ok(ip("10.0.0.5")));
        assert_eq!(of(Some("192.0.2.5"), "127.0.0.1"), Ok(ip("192.0.2.5")));
        // The file may measure a machine's loopback.
        assert_eq!(of(Some("127.0.0.1"), "10.0.0.5"), Ok(ip("127.0.0.1")));
        for (given, ssh, reason) in [
            (None, "127.0.1.1", "ssh reaches it at 127.0.1.1"),
            (None, "::1", "ssh reaches it at ::1"),
            (None, "gate", "is not known: add `address`"),
            (Some("gate"), "10.0.0.5", "`gate` on the measured path is no IP address"),
        ] {
            let error = of(given, ssh).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn two_hosts_on_one_machine_give_a_note() {
        let hosts = |machines: [&str; 3]| {
            let names = ["a", "b", "c"].map(str::to_owned);
            names.into_iter().zip(machines.map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(shared_machine(&hosts(["m1 n", "m2 n", "m1 o"])), None);
        assert_eq!(shared_machine(&hosts(["", "m", ""])), None);
        let note = shared_machine(&hosts(["m1 n", "m2 n", "m1 n"])).unwrap();
        assert!(note.starts_with("a and c are one machine"), "{note}");
    }
}
