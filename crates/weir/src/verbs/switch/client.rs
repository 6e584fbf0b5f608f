use crate::exit::Ending;
use crate::output::{note, print};
use clap::Args;
use std::path::PathBuf;
use switch::run::{DEFAULT_RUNDIR, call};
use units::visible;

/// The running switch that a command is for.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// The folder of the switch's sockets, that of `weir switch run --rundir`
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNDIR)]
    rundir: PathBuf,
}

impl Running {
    pub(super) fn call(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Ok(call(&self.rundir, method, &arguments)?)
    }
}

/// The answer of a command that changes something.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Answer {
    /// Print one JSON document: that it was done, and the switch's notes
    #[arg(long)]
    json: bool,
}

impl Answer {
    /// `text` is the switch's answer: notes, one a line.
    pub(super) fn give(self, text: &str) -> anyhow::Result<Ending> {
        if self.json {
            let notes: Vec<&str> = text.lines().collect();
            let document = serde_json::json!({ "done": true, "notes": notes });
            print(format_args!("{document:#}\n"))?;
        } else {
            text.lines().for_each(|line| note(visible(line)));
        }
        Ok(Ending::Fine)
    }
}
