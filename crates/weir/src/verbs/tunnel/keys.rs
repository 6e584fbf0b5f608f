use crate::exit::{Ending, Unusable};
use crate::output::{note, print};
use clap::{Args, ValueEnum};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use tunnel::config::DEFAULT_DIRECTORY;
use tunnel::identity::{Identity, IdentityError, PeerName};

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Which end this is
    role: Role,
    /// Name of this end on the other side [default: this machine's name]
    #[arg(long)]
    name: Option<PeerName>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "N", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Directory for the two files, server.crt and server.key, or client.crt and client.key
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIRECTORY)]
    directory: PathBuf,
    /// Replace an existing key; the other side needs the new pin
    #[arg(long)]
    force: bool,
    /// Print lines for the other side's file instead of a flag
    #[arg(long)]
    toml: bool,
    /// Print one JSON document instead
    #[arg(long, conflicts_with = "toml")]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Server,
    Client,
}

pub(crate) fn run(arguments: &Keys) -> anyhow::Result<Ending> {
    let role = match arguments.role {
        Role::Server => "server",
        Role::Client => "client",
    };
    let file = |ending: &str| arguments.directory.join(format!("{role}.{ending}"));
    let (certificate, key) = (file("crt"), file("key"));
    let identity = if !arguments.force && certificate.exists() && key.exists() {
        note(format_args!(
            "{} exists already and was not changed; --force replaces the key",
            certificate.display()
        ));
        Identity::load(&certificate, &key)?
    } else {
        let name = arguments.name.clone().unwrap_or_else(|| machine_name(role));
        let (identity, made) = Identity::generate(name.as_str(), arguments.days)?;
        // The service's user reads the certificate, and the file beside this directory; only the
        // key is secret, by its own mode.
        DirBuilder::new().recursive(true).mode(0o755).create(&arguments.directory).map_err(
            |cause| Unusable::path("create", &arguments.directory, &cause, "--directory"),
        )?;
        made.write(&certificate, &key, arguments.force).map_err(|error| match error {
            IdentityError::File { doing, path, source } => {
                anyhow::Error::new(Unusable::path(doing, &path, &source, "--directory"))
            }
            other => other.into(),
        })?;
        note(format_args!(
            "{} and {} are valid until {}",
            certificate.display(),
            key.display(),
            identity.certificate().valid_until_date()
        ));
        identity
    };
    let pin = identity.pin();
    let named = identity.certificate().names.first().and_then(|name| name.parse().ok());
    let name = arguments.name.clone().or(named).unwrap_or_else(|| machine_name(role));
    if arguments.json {
        let document = serde_json::json!({
            "role": role,
            "name": name.to_string(),
            "pin": pin.to_string(),
            "certificate": certificate,
            "key": key,
            "valid_until": identity.certificate().valid_until_date().to_string(),
        });
        print(format_args!("{document:#}\n"))?;
        return Ok(Ending::Fine);
    }
    let other = match arguments.role {
        Role::Server => "client",
        Role::Client => "server",
    };
    note(format_args!("for the {other}:"));
    print(match (arguments.role, arguments.toml) {
        (Role::Server, false) => format!("--pin {pin}\n"),
        (Role::Server, true) => format!("pin = \"{pin}\"\n"),
        (Role::Client, false) => format!("--peer {name}={pin}\n"),
        (Role::Client, true) => format!("[[server.peer]]\nname = \"{name}\"\npin = \"{pin}\"\n"),
    })?;
    Ok(Ending::Fine)
}

/// The host name, if it is valid as the name of a peer.
fn machine_name(role: &str) -> PeerName {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    match first.parse().or_else(|_| role.parse()) {
        Ok(name) => name,
        Err(_) => unreachable!("a role is a name"),
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  server# weir tunnel keys server
  client# weir tunnel keys client --name laptop
Each prints the flag for the other side's command line:
  --pin sha256/…              for the client
  --peer laptop=sha256/…      for the server";
