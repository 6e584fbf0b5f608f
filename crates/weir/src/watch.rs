//! `--watch`: prints a text again every second. On a terminal the text overwrites the previous
//! text.

use crate::output::print;
use crate::signals::cancel_on_signals;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Prints the text that `look` returns, once a second until Ctrl-C. JSON documents follow one
/// another.
pub(crate) fn every_second(
    json: bool,
    look: impl Fn() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let cancel = cancel_on_signals()?;
    let is_drawn = !json && std::io::stdout().is_terminal();
    let mut due = Instant::now();
    while !cancel.is_cancelled() {
        let now = Instant::now();
        if now >= due {
            due = now + Duration::from_secs(1);
            let text = look()?;
            match is_drawn {
                // Clear the screen and move to its first column (ECMA-48: CUP, ED), and wrap no
                // line (DECAWM).
                true => print(format_args!("\x1b[H\x1b[J\x1b[?7l{text}\x1b[?7h"))?,
                false => print(text)?,
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Formats the document; with `compact` on one line.
pub(crate) fn document(document: &serde_json::Value, compact: bool) -> anyhow::Result<String> {
    let text = match compact {
        true => serde_json::to_string(document)?,
        false => serde_json::to_string_pretty(document)?,
    };
    Ok(text + "\n")
}

const LOOK_EVERY: Duration = Duration::from_millis(50);
