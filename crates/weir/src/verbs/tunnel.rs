//! TCP, UNIX and UDP carried over QUIC between two hosts.

mod check;
mod client;
mod compat;
mod drain;
mod keys;
mod kick;
mod reload;
mod server;
mod sessions;
mod settings;
mod status;
mod top;
mod unit;
mod upgrade;

use crate::exit::Ending;
use crate::log::{LogFormat, LogTo, Logger};
use clap::Subcommand;
pub(crate) use compat::as_quic_tun;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve known clients and connect them to the targets that each may reach
    #[command(after_help = server::EXAMPLES)]
    Server(Box<server::Server>),
    /// Listen here and carry connections to a server
    #[command(after_help = client::EXAMPLES)]
    Client(Box<client::Client>),
    /// Make this end's key and print the line that the other side needs
    #[command(after_help = keys::EXAMPLES)]
    Keys(keys::Keys),
    /// Show the state of the tunnels that run here, and what limits their rate
    #[command(after_help = status::EXAMPLES)]
    Status(status::StatusOf),
    /// List the sessions of the ends that run here, with the bytes and rates of each
    #[command(after_help = sessions::EXAMPLES)]
    Sessions(sessions::Sessions),
    /// Watch the sessions of the ends that run here: rates, RTT, loss and limits
    #[command(after_help = top::EXAMPLES)]
    Top(top::Top),
    /// End all sessions of an identity at the server that runs here, or one session
    #[command(after_help = kick::EXAMPLES)]
    Kick(kick::Kick),
    /// End an end gracefully: no new sessions and tunnels, and an end with the last tunnel
    #[command(after_help = drain::EXAMPLES)]
    Drain(drain::Drain),
    /// Make the ends that run here read their files again
    #[command(after_help = reload::EXAMPLES)]
    Reload(reload::Reload),
    /// Replace the process of the end that runs here by a new process: no session ends
    #[command(after_help = upgrade::EXAMPLES)]
    Upgrade(upgrade::Upgrade),
    /// Report problems that would keep a tunnel from working or slow it down
    #[command(after_help = check::EXAMPLES)]
    Check(Box<check::Check>),
    /// Run an end with the flags and files of another project's programs
    #[command(subcommand, arg_required_else_help = true)]
    Compat(compat::Compat),
    /// Print a systemd unit that runs an end
    #[command(after_help = unit::EXAMPLES)]
    Unit(unit::Unit),
}

impl Verb {
    /// Returns the logger and its settings: an end logs who connects.
    pub(crate) fn logger(&self) -> (Logger, Option<LogFormat>, LogTo) {
        match self {
            Self::Server(server) => (Logger::Daemon, server.log_format(), LogTo::default()),
            Self::Client(client) => (Logger::Daemon, client.log_format(), LogTo::default()),
            Self::Compat(compat) => {
                let (format, to) = compat.log();
                (Logger::Daemon, format, to)
            }
            _ => (Logger::Command, None, LogTo::default()),
        }
    }
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Server(arguments) => server::run(*arguments),
        Verb::Client(arguments) => client::run(*arguments),
        Verb::Keys(arguments) => keys::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Sessions(arguments) => sessions::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::Kick(arguments) => kick::run(&arguments),
        Verb::Drain(arguments) => drain::run(&arguments),
        Verb::Reload(arguments) => reload::run(&arguments),
        Verb::Upgrade(arguments) => upgrade::run(&arguments),
        Verb::Check(arguments) => check::run(*arguments),
        Verb::Compat(compat) => compat::run(compat),
        Verb::Unit(arguments) => unit::run(&arguments),
    }
}
