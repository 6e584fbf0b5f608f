use anyhow::Context;
use lab::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The first Ctrl-C, SIGTERM or SIGHUP asks for an orderly end; a second one ends at once, and the
/// kernel takes down what was built.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    let ignored = ignored_signals();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // As nohup(1) leaves it. SIGINT is heard all the same: a script's background jobs start with it
        // ignored, and whoever sends it to one means it.
        if signal == SIGHUP && ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        // Registered first, so that it sees the flag as it was before this signal.
        flag::register_conditional_shutdown(signal, 1, cancel.flag())
            .and_then(|_| flag::register(signal, cancel.flag()))
            .context("installing a signal handler")?;
    }
    Ok(cancel)
}

/// The mask of `proc_pid_status(5)`; none where it cannot be read.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .unwrap_or(0)
}
