use crate::exit::{Ending, Unusable};
use crate::output::{note, print};
use clap::{Args, ValueEnum};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tunnel::config::DEFAULT_DIRECTORY;
use tunnel::identity::{Identity, IdentityError, NewCertificate, PeerName, Pin, use_next};

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
    /// Make the next key beside the present key, which stays in use; print both pins for the other
    /// side
    #[arg(long)]
    next: bool,
    /// Replace the present key by the next key; a reload of this end uses it
    #[arg(long, conflicts_with_all = ["next", "force", "name"])]
    use_next: bool,
    /// Make a new certificate for the present key; its pin stays the same
    #[arg(long, conflicts_with_all = ["next", "use_next", "force"])]
    renew: bool,
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

struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

pub(crate) fn run(arguments: &Keys) -> anyhow::Result<Ending> {
    let present = arguments.pair("");
    let (pins, identity, shown) = if arguments.next {
        let before = Identity::load(&present.certificate, &present.key)?;
        let next = arguments.pair(".next");
        let identity = arguments.key(&next, Some(&before))?;
        (vec![before.pin(), identity.pin()], identity, next)
    } else if arguments.use_next {
        let (next, previous) = (arguments.pair(".next"), arguments.pair(".previous"));
        use_next(next.paths(), present.paths(), previous.paths())?;
        let identity = Identity::load(&present.certificate, &present.key)?;
        note(format_args!(
            "{} is the present key now, and the former one is {}; reload this end",
            present.key.display(),
            previous.key.display()
        ));
        (vec![identity.pin()], identity, present)
    } else if arguments.renew {
        let before = Identity::load_of_any_age(&present.certificate)?;
        if !before.is_self_signed() {
            return Err(IdentityError::OfAuthority { path: present.certificate }.into());
        }
        let name = arguments.name_of(named(&before));
        let (identity, made) = Identity::renew(&present.key, name.as_str(), arguments.days)?;
        made.replace(&present.certificate).map_err(unusable)?;
        let until = identity.certificate().valid_until_date();
        note(format_args!(
            "{} is valid until {until}; reload this end",
            present.certificate.display()
        ));
        (vec![identity.pin()], identity, present)
    } else {
        let identity = arguments.key(&present, None)?;
        (vec![identity.pin()], identity, present)
    };
    arguments.tell(&pins, &identity, &shown)?;
    Ok(Ending::Fine)
}

fn unusable(error: IdentityError) -> anyhow::Error {
    match error {
        IdentityError::File { doing, path, source } => {
            anyhow::Error::new(Unusable::path(doing, &path, &source, "--directory"))
        }
        other => other.into(),
    }
}

impl Keys {
    fn role(&self) -> &'static str {
        match self.role {
            Role::Server => "server",
            Role::Client => "client",
        }
    }

    fn pair(&self, which: &str) -> Pair {
        let file = |ending: &str| self.directory.join(format!("{}{which}.{ending}", self.role()));
        Pair { certificate: file("crt"), key: file("key") }
    }

    /// Returns the key in these files, or makes a key if the files do not exist. A next key takes
    /// the name of the key `before`.
    fn key(&self, pair: &Pair, before: Option<&Identity>) -> anyhow::Result<Identity> {
        if !self.force && pair.certificate.exists() && pair.key.exists() {
            note(format_args!(
                "{} exists already and was not changed; --force replaces the key",
                pair.certificate.display()
            ));
            return Ok(Identity::load(&pair.certificate, &pair.key)?);
        }
        let name = self.name_of(before.and_then(|before| named(before.certificate())));
        let (identity, made) = Identity::generate(name.as_str(), self.days)?;
        self.write(&made, pair, self.force)?;
        note(format_args!(
            "{} and {} are valid until {}",
            pair.certificate.display(),
            pair.key.display(),
            identity.certificate().valid_until_date()
        ));
        Ok(identity)
    }

    fn write(&self, made: &NewCertificate, pair: &Pair, force: bool) -> anyhow::Result<()> {
        // The service's user reads the certificate, and the configuration beside this directory;
        // only the key is secret, protected by its own mode.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.directory)
            .map_err(|cause| Unusable::path("create", &self.directory, &cause, "--directory"))?;
        made.write(&pair.certificate, &pair.key, force).map_err(unusable)
    }

    fn name_of(&self, named: Option<PeerName>) -> PeerName {
        self.name.clone().or(named).unwrap_or_else(|| machine_name(self.role()))
    }

    /// Prints the lines for the other side, which accepts each of these pins.
    fn tell(&self, pins: &[Pin], identity: &Identity, pair: &Pair) -> anyhow::Result<()> {
        let role = self.role();
        let name = self.name_of(named(identity.certificate()));
        if self.json {
            let document = serde_json::json!({
                "role": role,
                "name": name.to_string(),
                "pin": identity.pin().to_string(),
                "pins": pins.iter().map(Pin::to_string).collect::<Vec<_>>(),
                "certificate": pair.certificate,
                "key": pair.key,
                "valid_until": identity.certificate().valid_until_date().to_string(),
            });
            print(format_args!("{document:#}\n"))?;
            return Ok(());
        }
        let other = match self.role {
            Role::Server => "client",
            Role::Client => "server",
        };
        note(format_args!("for the {other}:"));
        let each = |one: &dyn Fn(&Pin) -> String, between: &str| {
            pins.iter().map(one).collect::<Vec<_>>().join(between)
        };
        let quoted = match pins {
            [pin] => format!("\"{pin}\""),
            _ => format!("[{}]", each(&|pin| format!("\"{pin}\""), ", ")),
        };
        print(match (self.role, self.toml) {
            (Role::Server, false) => each(&|pin| format!("--pin {pin}"), " ") + "\n",
            (Role::Client, false) => format!("--peer {name}={}\n", each(&Pin::to_string, ",")),
            (Role::Server, true) => format!("pin = {quoted}\n"),
            (Role::Client, true) => {
                format!("[[server.peer]]\nname = \"{name}\"\npin = {quoted}\n")
            }
        })?;
        Ok(())
    }
}

impl Pair {
    fn paths(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }
}

/// Returns the name in a certificate, if it is valid as the name of a peer.
fn named(certificate: &tunnel::identity::Certificate) -> Option<PeerName> {
    certificate.names.first().and_then(|name| name.parse().ok())
}

/// Returns the host name, if it is valid as the name of a peer.
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
  --peer laptop=sha256/…      for the server

A key is changed without a lost tunnel:
  client# weir tunnel keys client --next
(list both pins at the server, and reload the server)
  client# weir tunnel keys client --use-next
(reload the client; remove the old pin once `weir tunnel status` shows no connection with the
old key)

A certificate that expires soon needs no new pin:
  client# weir tunnel keys client --renew
(reload the client)";
