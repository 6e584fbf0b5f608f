use crate::exit::Ending;
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;

/// Arguments of the process that `weir lab` starts on each host of a lab.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Do what a controller asks over standard input, and end with the controller
    #[arg(long, requires_all = ["folder", "controller"], conflicts_with_all = ["guard", "tidy"])]
    stdio: bool,
    /// Wait for the end of the agent whose session is at DIR, and take its changes back if it was
    /// killed
    #[arg(long, value_name = "DIR")]
    guard: Option<PathBuf>,
    /// Take back the changes of agents that were killed, and end
    #[arg(long, requires = "folder", conflicts_with = "guard")]
    tidy: bool,
    /// Folder for the files of this session
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The controller's name for its connection to this host: a new agent ends the former agent of
    /// the same name
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
}

pub(crate) fn run(agent: &Agent) -> anyhow::Result<Ending> {
    if let Some(folder) = &agent.guard {
        lab::hosts::guard(folder).context("waiting for the end of an agent")?;
        return Ok(Ending::Fine);
    }
    let folder = agent.folder.as_deref().context("--folder is missing")?;
    if agent.tidy {
        lab::hosts::tidy(folder);
    } else {
        anyhow::ensure!(agent.stdio, "name what to do: --stdio, --guard or --tidy");
        let controller = agent.controller.as_deref().context("--controller is missing")?;
        lab::hosts::serve(folder, controller, std::io::stdin(), &mut std::io::stdout().lock())?;
    }
    Ok(Ending::Fine)
}
