//! The `weir` command: arguments in, exit status out. The crates below do the work.

mod background;
mod completions;
mod config_file;
mod destination;
mod exit;
mod help;
mod log;
mod output;
mod port;
mod progress;
mod signals;
mod terminal;
mod verbs;
mod watch;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use log::{LogTo, Logger};
use std::process::ExitCode;

/// Measure, explain and accelerate transport on a Linux network.
#[derive(Debug, Parser)]
#[command(name = "weir", version = VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = help::FIRST_COMMANDS)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Give selected TCP connections of this machine another congestion control
    #[command(subcommand, arg_required_else_help = true, after_help = help::ACCEL)]
    Accel(verbs::accel::Verb),
    /// Work on a host for `weir lab run` on another machine
    #[command(hide = true)]
    Agent(verbs::agent::Agent),
    /// Print the completions of a shell
    #[command(after_help = completions::EXAMPLES)]
    Completions {
        /// The shell
        shell: completions::Shell,
    },
    /// Find out why this machine's connections are not faster
    Doctor(Box<verbs::doctor::Doctor>),
    /// Ends of connections with a known behaviour, for the faults of `weir lab run faults`
    #[command(subcommand, hide = true)]
    DoctorLoad(verbs::doctor::load::Load),
    /// Send traffic by TRex's profiles; find the highest lossless rate
    Gen(Box<verbs::r#gen::Gen>),
    /// Run, resume, compare, check and list experiments
    #[command(subcommand, after_help = help::LAB)]
    Lab(verbs::lab::Verb),
    /// Emulate a link between two interfaces or namespaces
    #[command(subcommand, after_help = help::LINK)]
    Link(verbs::link::Verb),
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man {
        /// Directory for the pages
        directory: std::path::PathBuf,
    },
    /// Measure a path; compatible with iperf3
    #[command(subcommand, arg_required_else_help = true, after_help = help::PERF)]
    Perf(verbs::perf::Verb),
    /// Run a lab in virtual time: thousands of cells, up to 400G
    #[command(subcommand, arg_required_else_help = true, after_help = help::SIM)]
    Sim(verbs::sim::Verb),
    /// Run an OpenFlow switch that ovs-ofctl and ovs-appctl control
    #[command(subcommand, arg_required_else_help = true, after_help = help::SWITCH)]
    Switch(verbs::switch::Verb),
    /// Carry TCP, UNIX and UDP over QUIC across lossy and long paths
    #[command(subcommand, arg_required_else_help = true, after_help = help::TUNNEL)]
    Tunnel(verbs::tunnel::Verb),
}

fn main() -> ExitCode {
    let words = verbs::tunnel::as_quic_tun(std::env::args_os().collect());
    let words = verbs::perf::as_iperf3(words);
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let (logger, format, to) = match &arguments.verb {
        Verb::Tunnel(verb) => verb.logger(),
        _ => (Logger::Command, None, LogTo::default()),
    };
    if let Err(error) = log::start(logger, format, &to) {
        return exit::code(Err(error));
    }
    let outcome = match arguments.verb {
        Verb::Accel(verb) => verbs::accel::run(verb),
        Verb::Agent(arguments) => verbs::agent::run(&arguments),
        Verb::Completions { shell } => completions::print(shell, &command()),
        Verb::Doctor(arguments) => verbs::doctor::run(&arguments),
        Verb::DoctorLoad(load) => verbs::doctor::load::run(load),
        Verb::Gen(arguments) => verbs::r#gen::run(*arguments),
        Verb::Lab(verb) => verbs::lab::run(verb),
        Verb::Link(verb) => verbs::link::run(verb),
        Verb::Man { directory } => completions::man(&directory, &command()),
        Verb::Perf(verb) => verbs::perf::run(verb),
        Verb::Sim(verb) => verbs::sim::run(verb),
        Verb::Switch(verb) => verbs::switch::run(verb),
        Verb::Tunnel(verb) => verbs::tunnel::run(verb),
    };
    exit::code(outcome)
}

fn parse(words: Vec<std::ffi::OsString>) -> Result<Arguments, clap::Error> {
    let mut matches = command().try_get_matches_from(words).map_err(without_dashes_advice)?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command()))
}

/// Removes clap's advice to write `--` in front of an unknown option: a misspelt option is far more
/// likely.
fn without_dashes_advice(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    error
}

fn command() -> Command {
    help::with_flowing_paragraphs(Arguments::command()).max_term_width(help::WIDEST)
}

/// The version and the commit that build.rs recorded.
const VERSION: &str = match option_env!("WEIR_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
