use clap::Args;
use std::path::PathBuf;
use switch::run::{DEFAULT_RUNDIR, call};

/// The running switch that a command is for.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// The folder of the switch's sockets
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNDIR)]
    rundir: PathBuf,
}

impl Running {
    pub(super) fn call(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Ok(call(&self.rundir, method, &arguments)?)
    }
}
