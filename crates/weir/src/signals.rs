use anyhow::Context;
use lab::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Handles signals: the first Ctrl-C, SIGTERM or SIGHUP requests an orderly end. A second signal
/// ends the process at once, and the kernel cleans up.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    let ignored = ignored_signals();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Respect ignored signals, as nohup(1) sets them. Handle SIGINT even if it is ignored: a
        // script's background jobs start with SIGINT ignored. A user who sends SIGINT to such a job
        // wants to end it.
        if signal == SIGHUP && ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        // The handler that ends the process precedes the handler that sets the flag: at the first
        // signal the flag is not set yet, and the process goes on.
        flag::register_conditional_shutdown(signal, 1, cancel.flag())
            .and_then(|_| flag::register(signal, cancel.flag()))
            .context("installing a signal handler")?;
    }
    Ok(cancel)
}

/// Reads the mask of ignored signals from `proc_pid_status(5)`; 0 for a mask that cannot be read.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .unwrap_or(0)
}
