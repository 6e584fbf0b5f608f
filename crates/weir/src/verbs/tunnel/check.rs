use super::client::Client;
use super::server::Server;
use crate::exit::Ending;
use crate::output::print;
use clap::{Args, Subcommand};
use tunnel::check::{self, Finding};

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(subcommand)]
    role: Role,
    /// Print one JSON document, a list of findings
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Check a server, with the flags of `weir tunnel server`
    #[command(after_help = EXAMPLES)]
    Server(Box<Server>),
    /// Check a client, with the flags of `weir tunnel client`; it connects to every server
    #[command(after_help = EXAMPLES)]
    Client(Box<CheckedClient>),
}

#[derive(Debug, Args)]
struct CheckedClient {
    /// Also connect through each server to the target of each --forward
    #[arg(long)]
    targets: bool,
    #[command(flatten)]
    client: Client,
}

pub(crate) fn run(arguments: Check) -> anyhow::Result<Ending> {
    let findings = match arguments.role {
        Role::Server(server) => check::server(&server.config()?)?,
        Role::Client(asked) => check::client(&asked.client.config()?, asked.targets)?,
    };
    if arguments.json {
        let all: Vec<_> = findings.iter().map(Finding::to_json).collect();
        print(serde_json::to_string_pretty(&all)? + "\n")?;
    } else {
        findings.iter().try_for_each(|finding| print(format_args!("{finding}\n")))?;
    }
    let failed = findings.iter().any(Finding::is_failure);
    Ok(if failed { Ending::Failed } else { Ending::Fine })
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel check client --config /etc/weir/tunnel.toml --targets
  weir tunnel check server --config /etc/weir/tunnel.toml
Exit status 1 if something keeps it from working; problems that only slow it down are printed.";
