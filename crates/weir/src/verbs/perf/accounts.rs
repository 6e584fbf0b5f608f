//! iperf3's accounts on the command line, for both ends.

use super::values;
use crate::terminal;
use clap::Args;
use perf::PerfError;
use perf::accounts::{Accounts, Credentials, Padding};
use perf::event::Stop;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Accounts")]
pub(super) struct ServerAccounts {
    /// Serve only the users in this file: lines of NAME,HASH, where HASH is SHA-256 of
    /// {NAME}PASSWORD
    #[arg(
        long,
        value_name = "FILE",
        alias = "authorized-users-path",
        requires = "rsa_private_key"
    )]
    users: Option<PathBuf>,
    /// The key that decrypts clients' tokens: PEM, without a passphrase
    #[arg(long, value_name = "FILE", alias = "rsa-private-key-path", requires = "users")]
    rsa_private_key: Option<PathBuf>,
    /// Maximum difference between the clocks of client and server: seconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = skew, requires = "users")]
    time_skew_threshold: Duration,
    /// Accept PKCS#1 v1.5 padding instead of OAEP, for clients of iperf3 before 3.17
    #[arg(long, requires = "users")]
    use_pkcs1_padding: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Account")]
pub(super) struct ClientAccount {
    /// The user's name at a server with accounts. The password is read from IPERF3_PASSWORD, or
    /// from the terminal
    #[arg(long, value_name = "NAME", requires = "rsa_public_key")]
    username: Option<String>,
    /// The server's public key: PEM
    #[arg(long, value_name = "FILE", alias = "rsa-public-key-path", requires = "username")]
    rsa_public_key: Option<PathBuf>,
    /// Use PKCS#1 v1.5 padding instead of OAEP, for servers of iperf3 before 3.17
    #[arg(long, requires = "username")]
    use_pkcs1_padding: bool,
}

impl ServerAccounts {
    pub(super) fn open(&self) -> Result<Option<Accounts>, PerfError> {
        let (Some(users), Some(key)) = (&self.users, &self.rsa_private_key) else {
            return Ok(None);
        };
        let padding = padding(self.use_pkcs1_padding);
        Accounts::open(users, key, padding, self.time_skew_threshold).map(Some)
    }
}

impl ClientAccount {
    /// Returns the account's credentials. Asks for the password if necessary, until `stop` is
    /// called.
    pub(super) fn credentials(&self, stop: &Stop) -> Result<Option<Credentials>, PerfError> {
        let (Some(user), Some(key)) = (&self.username, &self.rsa_public_key) else {
            return Ok(None);
        };
        let password = password(stop)?;
        Credentials::new(user, &password, key, padding(self.use_pkcs1_padding)).map(Some)
    }
}

fn password(stop: &Stop) -> Result<String, PerfError> {
    if let Some(password) = std::env::var_os(PASSWORD) {
        let misuse = |_| PerfError::Usage(format!("{PASSWORD} is not UTF-8: set another password"));
        return password.into_string().map_err(misuse);
    }
    if !terminal::is_there() {
        let text =
            format!("--username needs a password: put it into {PASSWORD}, or use a terminal");
        return Err(PerfError::Usage(text));
    }
    terminal::secret("Password: ", || stop.is_called())
        .map_err(|error| PerfError::system("asking for the password", error))?
        .ok_or(PerfError::Interrupted)
}

fn padding(pkcs1: bool) -> Padding {
    if pkcs1 { Padding::Pkcs1 } else { Padding::Oaep }
}

/// Reads whole seconds, because a token counts whole seconds.
fn skew(text: &str) -> Result<Duration, String> {
    let skew = values::seconds(text)?.as_duration();
    if skew < Duration::from_secs(1) || skew > Duration::from_secs(86_400) {
        return Err("write 1s to 86400s".to_owned());
    }
    Ok(skew)
}

const PASSWORD: &str = "IPERF3_PASSWORD";
