use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::{Args, Subcommand};
use lab::{LabError, LabFile, builtin};
use std::path::{Path, PathBuf};
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
    /// Remove weir from every real host of a lab, or from machines
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean {
        /// The path of a lab file, or machines: destinations of ssh, or with --inventory its hosts
        /// and groups
        #[arg(required = true, value_name = "FILE|HOST")]
        names: Vec<String>,
        #[command(flatten)]
        inventory: Inventory,
        /// For machines: the file that ssh reads instead of your configuration (its option -F)
        #[arg(long, value_name = "FILE")]
        ssh_config: Option<PathBuf>,
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
        Hosts::Clean { names, inventory, ssh_config, json } => {
            let lines = clean(&names, &inventory, ssh_config.as_deref())?;
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

fn clean(
    names: &[String],
    inventory: &Inventory,
    config: Option<&Path>,
) -> anyhow::Result<Vec<String>> {
    let Some(file) = names.iter().find(|name| is_lab(name)) else {
        let machines = lab::hosts::machines(names, inventory.inventory.as_deref(), config)?;
        return Ok(lab::hosts::clean_machines(&machines, &cancel_on_signals()?)?);
    };
    let refused = match (names, config) {
        ([_], None) => None,
        ([_], Some(_)) => {
            Some("--ssh-config is for machines, and the file has `config` for each host")
        }
        _ => Some("name one lab file, or machines"),
    };
    if let Some(reason) = refused {
        return Err(LabError::Usage(format!("{file} is a lab file: {reason}")).into());
    }
    Ok(lab::hosts::clean(&inventory.open(file)?, &cancel_on_signals()?)?)
}

/// Whether the name is a lab's. A destination of ssh may be a URL, which has slashes.
fn is_lab(name: &str) -> bool {
    let is_path = name.contains('/') && !name.starts_with("ssh://");
    let is_builtin = builtin::BUILTIN.iter().any(|builtin| builtin.name == name);
    is_path || name.ends_with(".toml") || is_builtin
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
  weir lab hosts clean ./my-path.toml
  weir lab hosts clean root@10.0.0.5 root@10.0.0.6
  weir lab hosts clean --inventory hosts.ini servers

A name with a slash or the ending .toml is a lab file. ssh asks no questions: a machine that needs a
password, or whose host key is unknown, keeps its copy and is reported.";
