//! An OpenFlow switch in Open vSwitch's language.

mod rules;
mod run;
mod show;

use crate::exit::Ending;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use switch::run::DEFAULT_RUNDIR;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a switch until Ctrl-C
    #[command(after_help = run::EXAMPLES)]
    Run(run::Run),
    /// Show bridges and ports of a running switch
    Show(show::Show),
    /// Add a rule
    #[command(after_help = rules::EXAMPLES)]
    AddFlow(rules::OneRule),
    /// Add the rules of a file, all or none; `-` reads standard input
    AddFlows(rules::RuleFile),
    /// Make the rules of a bridge those of a file, at once; `-` reads standard input
    ReplaceFlows(rules::RuleFile),
    /// Change the actions of rules that match
    ModFlows(rules::RulesToChange),
    /// Delete rules that match; without a match, all
    DelFlows(rules::RulesToDelete),
    /// Print the rules that match, with their counters; without a match, all
    DumpFlows(rules::RulesToDump),
    /// Print how a packet goes through the tables
    Trace(rules::Trace),
    /// Call a command of ovs-appctl; `list-commands` prints all
    Ctl(show::Ctl),
}

/// The running switch that a command talks to.
#[derive(Debug, Args)]
struct Target {
    /// The folder of the switch's control sockets
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNDIR)]
    rundir: PathBuf,
}

impl Target {
    fn call(&self, method: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        Ok(switch::run::call(&self.rundir, method, &arguments)?)
    }
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Show(arguments) => show::show(&arguments),
        Verb::AddFlow(arguments) => rules::add(&arguments),
        Verb::AddFlows(arguments) => rules::add_file(&arguments, "weir/add-flows"),
        Verb::ReplaceFlows(arguments) => rules::add_file(&arguments, "weir/replace-flows"),
        Verb::ModFlows(arguments) => rules::modify(&arguments),
        Verb::DelFlows(arguments) => rules::delete(&arguments),
        Verb::DumpFlows(arguments) => rules::dump(&arguments),
        Verb::Trace(arguments) => rules::trace(&arguments),
        Verb::Ctl(arguments) => show::ctl(&arguments),
    }
}
