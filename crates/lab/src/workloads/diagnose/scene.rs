//! A case on a testbed: both hosts prepared, and the load running.

use super::case::{Case, Side, variable_of};
use super::quota::QuotaGroup;
use crate::bench::machine::{MachineStep, PORT, Started, Testbed};
use crate::model::Failure;
use host::Namespace;
use probe::tcp::Filter;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The running load. Dropping this value ends its programs, then removes their groups.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    step: &'a MachineStep<'a>,
    sender: Namespace,
    receiver: Namespace,
    addresses: (IpAddr, IpAddr),
    programs: Vec<Started>,
    groups: Vec<QuotaGroup>,
}

impl<'a> Scene<'a> {
    /// Prepares the hosts and starts the load. Calls `before_load` just before the sender's load
    /// starts, when all other programs run.
    pub(super) fn begin(
        case: &Case,
        step: &'a MachineStep<'a>,
        testbed: &Testbed,
        before_load: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let mut scene = Self {
            step,
            sender: testbed.namespace(from)?,
            receiver: testbed.namespace(to)?,
            addresses: (testbed.address(from, to)?, testbed.address(to, from)?),
            programs: Vec::new(),
            groups: Vec::new(),
        };
        // Remove the file that an earlier turn may have left.
        let _ = std::fs::remove_file(step.programs.join(READY));
        for side in [Side::Receiver, Side::Sender] {
            if let Some(script) = case.setup.of(side) {
                scene.set_up(side, script)?;
            }
        }
        let crowded = step.cpus.workload.first().copied();
        for _ in 0..case.hogs {
            let hog = ["sh", "-c", HOG].map(str::to_owned).to_vec();
            let cpus: Vec<usize> = crowded.into_iter().collect();
            scene.programs.push(Started::new(&scene.sender, hog, &cpus, step)?);
        }
        scene.start(Side::Receiver, case, &step.cpus.to.clone())?;
        if case.load.receiver.is_some() {
            scene.await_receiver();
        }
        before_load(&scene)?;
        let cpus: Vec<usize> = match case.hogs {
            0 => step.cpus.from.clone(),
            _ => crowded.into_iter().collect(),
        };
        scene.start(Side::Sender, case, &cpus)?;
        scene.await_ready(case.ready_within)?;
        Ok(scene)
    }

    /// Waits for the file with which the load reports that its preparations are over.
    fn await_ready(&mut self, seconds: u32) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(seconds.into());
        let file = self.step.programs.join(READY);
        while seconds > 0 && !file.exists() {
            if self.step.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if Instant::now() > deadline {
                return Err(Failure::Workload(format!(
                    "the load was not ready within {seconds} s: it made no file $READY"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts a program in a host, with the same environment as the scripts.
    pub(super) fn program(
        &self,
        side: Side,
        argv: &[String],
        cpus: &[usize],
    ) -> Result<Started, Failure> {
        let words = std::iter::once("env".to_owned()).chain(self.environment());
        let argv = words.chain(argv.iter().cloned()).collect();
        Started::new(self.host(side), argv, cpus, self.step)
    }

    pub(super) fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Sender => self.addresses.0,
            Side::Receiver => self.addresses.1,
        }
    }

    /// Returns the sender's and the receiver's namespace.
    pub(super) fn hosts(&self) -> [&Namespace; 2] {
        [&self.sender, &self.receiver]
    }

    /// Returns the failure of a program of the load that has ended unsuccessfully.
    pub(super) fn failure(&mut self) -> Option<Failure> {
        self.programs.iter_mut().find_map(|program| match program.wait(Duration::ZERO) {
            Ok(Some(status)) if !status.success() => Some(program.early_end(status)),
            _ => None,
        })
    }

    fn host(&self, side: Side) -> &Namespace {
        match side {
            Side::Sender => &self.sender,
            Side::Receiver => &self.receiver,
        }
    }

    fn environment(&self) -> impl Iterator<Item = String> + use<> {
        let (sender, receiver) = self.addresses;
        let weir = self.step.weir.display();
        let axes = self.step.axes.iter().map(|(axis, value)| {
            let name = variable_of(axis);
            format!("{name}={value}")
        });
        let axes: Vec<String> = axes.collect();
        let named = self.step.system.congestion.as_ref().map(|name| name.get_ref().as_str());
        let congestion = named.unwrap_or("cubic");
        [
            format!("WEIR={weir}"),
            format!("SENDER={sender}"),
            format!("RECEIVER={receiver}"),
            format!("PORT={PORT}"),
            "INTERFACE=eth0".to_owned(),
            format!("CONGESTION={congestion}"),
            format!("SENDS_WITH={}", named.unwrap_or("")),
            format!("READY={}", self.step.programs.join(READY).display()),
        ]
        .into_iter()
        .chain(axes)
    }

    fn set_up(&self, side: Side, script: &str) -> Result<(), Failure> {
        let argv = ["sh", "-ec", script].map(str::to_owned);
        let mut shell = self.program(side, &argv, &[])?;
        let deadline = Instant::now() + SETUP_WITHIN;
        while Instant::now() < deadline {
            if self.step.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            match shell.wait(Duration::from_millis(50))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(shell.early_end(status)),
                None => {}
            }
        }
        Err(Failure::Workload(format!(
            "the setup of the {side:?} took more than {} s",
            SETUP_WITHIN.as_secs()
        )))
    }

    fn start(&mut self, side: Side, case: &Case, cpus: &[usize]) -> Result<(), Failure> {
        let Some(load) = case.load.of(side) else { return Ok(()) };
        let mut script = String::new();
        if let Some(share) = case.quota.of(side) {
            let name = format!("{side:?}").to_lowercase();
            let group = QuotaGroup::create(&name, *share)?;
            script += &format!("echo 0 > '{}'\n", group.door().display());
            self.groups.push(group);
        }
        // `exec` keeps the pid of the process that was started, if the load is a single command.
        if is_one_command(load) {
            script += "exec ";
        }
        let argv = ["sh".to_owned(), "-ec".to_owned(), script + load.trim()];
        let program = self.program(side, &argv, cpus)?;
        self.programs.push(program);
        Ok(())
    }

    /// Waits until a socket listens at the port, for at most [`READY_WITHIN`]: a fault may prevent
    /// the receiver from listening.
    fn await_receiver(&self) {
        let deadline = Instant::now() + READY_WITHIN;
        let filter = Filter::listening().local_port(PORT);
        let is_there = || {
            let tcp = probe::tcp::sockets(&filter).is_ok_and(|sockets| !sockets.is_empty());
            let udp = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default();
            Ok(tcp || udp.contains(&format!(":{PORT:04X} ")))
        };
        while Instant::now() < deadline
            && !self.step.cancel.is_cancelled()
            && !self.receiver.run(is_there).unwrap_or(true)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether the load is a single command, with which a shell can replace itself: no loop, list or
/// pipeline. A separator within quotes also counts as a list, which only costs a process.
fn is_one_command(load: &str) -> bool {
    let is_loop = load.split_whitespace().next().is_some_and(|word| LOOPS.contains(&word));
    !is_loop && !load.trim().contains(['\n', ';', '|', '&', '{', '('])
}

const LOOPS: [&str; 6] = ["while", "until", "for", "if", "case", "!"];
const READY: &str = "ready";
/// A loop that uses a CPU and makes no system call.
const HOG: &str = "while :; do :; done";
const SETUP_WITHIN: Duration = Duration::from_secs(20);
const READY_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_command_replaces_the_shell() {
        assert!(is_one_command(" $WEIR doctor-load send $RECEIVER:$PORT --rate 20mbit\n"));
        for several in ["while true; do curl x; done", "while read x", "sleep 1 & exec y", "a | b"]
        {
            assert!(!is_one_command(several), "{several}");
        }
    }
}
