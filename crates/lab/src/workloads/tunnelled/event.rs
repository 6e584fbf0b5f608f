//! The events: a network that drops UDP, and a server that is killed and started again.

use super::settings::TunnelledSettings;
use crate::bench::machine::{Caller, MachineStep, Pair, Testbed, is_installed};
use crate::model::{Failure, Measurement};
use crate::workloads::crowd::{PASSING, inside};
use host::Namespace;
use std::process::Command;
use std::time::{Duration, Instant};

/// Makes both hosts drop UDP, as a firewall does.
pub(super) fn block_udp(step: &MachineStep<'_>, testbed: &Testbed) -> Result<(), Failure> {
    let missing = || Failure::Workload("`nft` is not installed".to_owned());
    let nft = nft().ok_or_else(missing)?;
    for host in [&step.ends.from, &step.ends.to] {
        let output = testbed.namespace(host)?.run(|| Ok(Command::new(nft).arg(RULES).output()))?;
        let output = output.map_err(|error| Failure::io("running nft", &error))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = units::foreign(text.trim()).to_string();
            return Err(Failure::Workload(format!("nft does not drop UDP here: {text}")));
        }
    }
    Ok(())
}

/// Tries new connections until a connection is answered. Returns the time from `begun` to the
/// answer, or `None` if the patience ends first.
pub(super) fn answered(
    settings: TunnelledSettings,
    step: &MachineStep<'_>,
    near: &Namespace,
    caller: &Caller<'_>,
    begun: Instant,
) -> Result<Option<Duration>, Failure> {
    let caller = Caller { patience: ATTEMPT, ..*caller };
    let until = begun + settings.patience.as_duration();
    inside(step, near, || {
        loop {
            match caller.call(&[PASSING], &mut [0]) {
                Ok(_) => return Ok(Some(begun.elapsed())),
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                Err(_) if Instant::now() >= until => return Ok(None),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    })
}

/// Kills the server's program, starts it again, and records the time to the next answer.
pub(super) fn restart(
    settings: TunnelledSettings,
    step: &MachineStep<'_>,
    testbed: &Testbed,
    near: &Namespace,
    caller: &Caller<'_>,
    pair: &mut Pair,
) -> Result<Measurement, Failure> {
    let mut result = Measurement::default();
    let begun = Instant::now();
    pair.restart_server(step, testbed)?;
    let answered = answered(settings, step, near, caller, begun)?;
    result.record("availability_percent", Some(if answered.is_some() { 100.0 } else { 0.0 }));
    match answered {
        Some(time) => result.record("seconds", Some(time.as_secs_f64())),
        None => {
            let patience = settings.patience.shown();
            let reason = match pair.cause() {
                Some(cause) => format!("no connection after the restart: {cause}"),
                None => format!("no connection was answered within {patience} after the restart"),
            };
            result.miss(&["seconds"], reason, false);
        }
    }
    Ok(result)
}

/// Returns the command that sets rules of nftables; an ordinary user's PATH omits the folder of
/// `nft`.
pub(super) fn nft() -> Option<&'static str> {
    ["nft", "/usr/sbin/nft"].into_iter().find(|place| is_installed(place))
}

const RULES: &str = "add table inet lab; \
                     add chain inet lab in { type filter hook input priority 0; }; \
                     add rule inet lab in meta l4proto udp drop";
/// Maximum time of an attempt after its connection is open.
const ATTEMPT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);
