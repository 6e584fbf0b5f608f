use crate::exit::Ending;
use crate::output::{note, print};
use anyhow::Context;
use clap::Args;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use switch::run::{ConfigError, DEFAULT_RUNDIR, call};
use units::{foreign_json, visible};

/// The running switch that a command is for.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// The folder of the switch's sockets, that of `weir switch run --rundir`
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNDIR)]
    rundir: PathBuf,
    /// The longest time to wait for the switch's whole reply
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
}

impl Running {
    /// Calls `method` of the switch. The reply may contain control sequences, see [`Running::text`]
    /// and [`Running::json`].
    pub(super) fn call(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let patience = Duration::try_from_secs_f64(self.timeout).ok();
        let patience = patience.filter(|patience| TIMEOUTS.contains(&patience.as_secs_f64()));
        let patience = patience.ok_or_else(|| {
            ConfigError::Value("--timeout takes 0.001 to 86400 seconds".to_owned())
        })?;
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Ok(call(&self.rundir, method, &arguments, patience)?)
    }

    /// Calls `method` and returns the reply, safe to print on a terminal.
    pub(super) fn text(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(visible(&self.call(method, arguments)?))
    }

    /// Calls a method that replies with a JSON document, and returns the document without control
    /// sequences.
    pub(super) fn json(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let text = self.call(method, arguments)?;
        if visible(&text) == text {
            return Ok(text);
        }
        let malformed = "the switch sent a malformed document; is it older?";
        let mut document: Value = serde_json::from_str(&text).context(malformed)?;
        foreign_json(&mut document, usize::MAX);
        Ok(format!("{document:#}\n"))
    }
}

const TIMEOUTS: RangeInclusive<f64> = 0.001..=86_400.0;

/// The running switch that a command changes, and the form of the command's answer.
#[derive(Debug, Args)]
pub(crate) struct Changed {
    /// Print one JSON document: the result and the switch's notes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) running: Running,
}

impl Changed {
    /// Calls `method` of the switch, and reports success with the switch's notes.
    pub(super) fn call(&self, method: &str, arguments: &[&str]) -> anyhow::Result<Ending> {
        self.answer(&self.running.call(method, arguments)?)
    }

    /// Reports success: prints the switch's notes (`text`, one a line), or one JSON document.
    pub(super) fn answer(&self, text: &str) -> anyhow::Result<Ending> {
        if self.json {
            let notes: Vec<String> = text.lines().map(visible).collect();
            let document = serde_json::json!({ "done": true, "notes": notes });
            print(format_args!("{document:#}\n"))?;
        } else {
            text.lines().for_each(|line| note(visible(line)));
        }
        Ok(Ending::Fine)
    }
}
