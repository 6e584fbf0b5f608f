//! The shards of a run: the end of `weir lab run --shard`, and `weir lab merge`.

use super::{RUNS, ending, print_run, quoted, unfit_turns};
use crate::exit::Ending;
use crate::output;
use clap::Args;
use lab::{FinishedShard, Location};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The directories of all shards, in any order
    #[arg(required = true, value_name = "DIR")]
    shards: Vec<PathBuf>,
    /// Directory for the run [default: runs/LAB-FORM-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Read the directories of another user
    #[arg(long)]
    trust: bool,
    /// Print results.json instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints the shard's directory; fails if a turn failed or is invalid.
pub(super) fn ended(ended: &FinishedShard) -> anyhow::Result<Ending> {
    let FinishedShard { shard, turns, directory, unfit } = ended;
    let directory = quoted(&directory.to_string_lossy());
    output::print(format_args!("shard {shard}: {turns} turns in {directory}\n"))?;
    if *unfit == 0 {
        return Ok(Ending::Fine);
    }
    let turns = unfit_turns(*unfit);
    output::note(format_args!("exit status 1: {turns}; weir lab merge shows the reasons"));
    Ok(Ending::Failed)
}

pub(super) fn merge(arguments: &Merge) -> anyhow::Result<Ending> {
    let location = match &arguments.out {
        Some(out) => Location::At(out.clone()),
        None => Location::Inside(PathBuf::from(RUNS)),
    };
    let merged = lab::merge::merge(&arguments.shards, &location, arguments.trust)?;
    print_run(&merged.results, &merged.directory, None, arguments.json)?;
    Ok(ending(&merged.results))
}
