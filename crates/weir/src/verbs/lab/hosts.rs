use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Subcommand;
use lab::builtin;
use units::visible;

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// Connect to every real host of a lab, and print the facts of all hosts as one table
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The path of a lab file
        file: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove weir from every real host of a lab
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean {
        /// The path of a lab file
        file: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(verb: Hosts) -> anyhow::Result<Ending> {
    match verb {
        Hosts::Check { file, json } => check(&file, json),
        Hosts::Clean { file, json } => {
            let lab = builtin::open(&file)?;
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

fn check(file: &str, json: bool) -> anyhow::Result<Ending> {
    let lab = builtin::open(file)?;
    let weir = std::env::current_exe().context("finding this program itself")?;
    let checked = lab::hosts::check(&lab, &weir, &cancel_on_signals()?)?;
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

The first check of a host copies weir into a private directory there (~/.cache/weir/agents). ssh
asks no questions: a host that needs a password, or whose host key is unknown, is reported.";
const CLEAN_EXAMPLES: &str = "\
Examples:
  weir lab hosts clean ./my-path.toml";
