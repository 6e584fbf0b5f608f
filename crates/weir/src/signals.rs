use anyhow::Context;
use lab::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The first Ctrl-C, SIGTERM or SIGHUP asks for an orderly end; a second one ends at once, and the
/// kernel takes down what was built.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registered first, so that it sees the flag as it was before this signal.
        flag::register_conditional_shutdown(signal, 1, cancel.flag())
            .and_then(|_| flag::register(signal, cancel.flag()))
            .context("installing a signal handler")?;
    }
    Ok(cancel)
}
