use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::{Args, Subcommand};
use lab::{LabError, LabFile, builtin};
use std::path::PathBuf;
use units::visible;

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// Connect to every real host of a lab, and print the facts of all hosts as one table
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The path of a lab file
        file: String,
        #[command(flatten)]
        inventory: Inventory,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove weir from every real host of a lab
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean {
        /// The path of a lab file
        file: String,
        #[command(flatten)]
        inventory: Inventory,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Inventory {
    /// The Ansible inventory (INI or YAML) with the machines, as for `weir lab run`
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
}

impl Inventory {
    fn open(&self, file: &str) -> Result<LabFile, LabError> {
        let mut lab = builtin::open(file)?;
        if let Some(inventory) = &self.inventory {
            lab.use_inventory(inventory)?;
        }
        Ok(lab)
    }
}

pub(crate) fn run(verb: Hosts) -> anyhow::Result<Ending> {
    match verb {
        Hosts::Check { file, inventory, json } => check(&inventory.open(&file)?, json),
        Hosts::Clean { file, inventory, json } => {
            let lab = inventory.open(&file)?;
            let lines = lab::hosts::clean(&lab, &cancel_on_signals()?)?;
            if json {
                let document = serde_json::json!({ "hosts": lines });
                output::print(format_args!("{document:#}\n"))?;
            } else {
                for line in lines {
                    output::print(visible(&line) + "\n")?;
                }
            }
            Ok(Ending::Fine)
        }
    }
}

fn check(lab: &LabFile, json: bool) -> anyhow::Result<Ending> {
    let weir = std::env::current_exe().context("finding this program itself")?;
    let checked = lab::hosts::check(lab, &weir, &cancel_on_signals()?)?;
    if json {
        output::print(format_args!("{:#}\n", checked.json))?;
    } else {
        output::print(visible(&checked.table) + "\n")?;
        checked.problems.iter().for_each(|problem| output::note(visible(problem)));
    }
    Ok(if checked.problems.is_empty() { Ending::Fine } else { Ending::Failed })
}

const CHECK_EXAMPLES: &str = "\
Examples:
  weir lab hosts check ./my-path.toml
  weir lab hosts check ./my-path.toml --json | jq .problems
  weir lab hosts check ./my-path.toml --inventory hosts.ini

The first check of a host copies weir into a private directory there (~/.cache/weir/agents). ssh
asks no questions: a host that needs a password, or whose host key is unknown, is reported.";
const CLEAN_EXAMPLES: &str = "\
Examples:
  weir lab hosts clean ./my-path.toml";
