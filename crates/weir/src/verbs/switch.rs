//! An OpenFlow switch, and commands for a running switch.

mod check;
mod client;
mod flows;
mod run;
mod settings;
mod show;
mod top;

use crate::exit::Ending;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a switch until Ctrl-C
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::Run>),
    /// Check a file of settings without running a switch
    #[command(after_help = check::EXAMPLES)]
    Check(check::Check),
    /// Show bridges, ports and packet threads of a running switch
    #[command(after_help = show::EXAMPLES)]
    Show(show::Show),
    /// Watch ports, packet threads and caches of a running switch
    #[command(after_help = top::EXAMPLES)]
    Top(top::Top),
    /// Add a rule
    #[command(after_help = flows::EXAMPLES)]
    AddFlow(flows::OneFlow),
    /// Add the rules of a file, all or none
    #[command(after_help = flows::EXAMPLES)]
    AddFlows(flows::FlowFile),
    /// Replace all rules by the rules of a file, at once
    #[command(after_help = flows::EXAMPLES)]
    ReplaceFlows(flows::FlowFile),
    /// Change the actions of rules
    #[command(after_help = flows::EXAMPLES)]
    ModFlows(flows::StrictFlow),
    /// Delete rules
    #[command(after_help = flows::EXAMPLES)]
    DelFlows(flows::Deletion),
    /// Print rules with their counters
    #[command(after_help = flows::EXAMPLES)]
    DumpFlows(flows::DumpFlows),
    /// Print the counters of ports
    #[command(after_help = flows::EXAMPLES)]
    DumpPorts(flows::DumpPorts),
    /// Add, delete or change a port
    #[command(subcommand, arg_required_else_help = true)]
    Port(settings::Port),
    /// Add or delete a bridge
    #[command(subcommand, arg_required_else_help = true)]
    Bridge(settings::Bridge),
    /// Change a setting of the switch
    #[command(subcommand, arg_required_else_help = true)]
    Set(settings::Set),
    /// Make the switch read its file again and change what differs
    #[command(after_help = settings::RELOAD_EXAMPLES)]
    Reload(settings::Reload),
    /// Call a command of the control socket, as ovs-appctl does
    #[command(after_help = settings::CALL_EXAMPLES)]
    Call(settings::Call),
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Run(arguments) => run::run(*arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Show(arguments) => show::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::AddFlow(arguments) => flows::add(&arguments),
        Verb::AddFlows(arguments) => flows::add_file(&arguments, "switch/add-flows"),
        Verb::ReplaceFlows(arguments) => flows::add_file(&arguments, "switch/replace-flows"),
        Verb::ModFlows(arguments) => flows::modify(&arguments),
        Verb::DelFlows(arguments) => flows::delete(&arguments),
        Verb::DumpFlows(arguments) => flows::dump(&arguments),
        Verb::DumpPorts(arguments) => flows::dump_ports(&arguments),
        Verb::Port(verb) => settings::port(&verb),
        Verb::Bridge(verb) => settings::bridge(&verb),
        Verb::Set(verb) => settings::set(&verb),
        Verb::Reload(arguments) => settings::reload(&arguments),
        Verb::Call(arguments) => settings::call(&arguments),
    }
}
