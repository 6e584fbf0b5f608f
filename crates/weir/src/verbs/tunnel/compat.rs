//! The command lines of quic-tun's programs.

use crate::exit::Ending;
use crate::log::{LogFormat, LogTo};
use crate::output::note;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tunnel::config::ConfigError;
use tunnel::quic_tun::settings::{Role as End, Settings};
use tunnel::quic_tun::{client_config, server_config};

#[derive(Debug, Subcommand)]
pub(crate) enum Compat {
    /// quictun-server and quictun-client of quic-tun; both ends must be Weir's
    #[command(subcommand, name = "quic-tun", arg_required_else_help = true)]
    QuicTun(Role),
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Role {
    /// Run the server with the flags and the file of quictun-server
    #[command(after_help = SERVER_EXAMPLES, args_override_self = true)]
    Server(Box<Server>),
    /// Run the client with the flags and the file of quictun-client
    #[command(after_help = CLIENT_EXAMPLES, args_override_self = true)]
    Client(Box<Client>),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// The UDP address to serve [default: 0.0.0.0:7500]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_on: Option<String>,
    /// The form of the clients' tokens: Cleartext, in which a token is the target itself
    /// [default: Cleartext]
    #[arg(long, value_name = "NAME")]
    token_parser_plugin: Option<String>,
    /// base64 if the tokens are in base64; without this flag the tokens are plain text
    #[arg(long, value_name = "KEY")]
    token_parser_key: Option<String>,
    /// A client that may connect; `weir tunnel keys client` prints the pin on the client's host;
    /// may be repeated
    #[arg(long, value_name = "NAME=PIN")]
    peer: Vec<String>,
    /// Targets that clients may reach, as for `weir tunnel server`; may be repeated
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// As --verify-remote-endpoint, of quic-tun 0.0.2 and earlier
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    verify_client: Option<String>,
    #[command(flatten)]
    both: Both,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Client {
    /// The address for applications, tcp:ADDRESS:PORT or unix:/PATH [default: tcp:127.0.0.1:6500]
    #[arg(long, value_name = "LISTEN")]
    listen_on: Option<String>,
    /// The server, for example tokyo.example:7500
    #[arg(long, value_name = "HOST:PORT")]
    server_endpoint: Option<String>,
    /// The source of a connection's token: Fixed, File or Http [default: Fixed]
    #[arg(long, value_name = "NAME")]
    token_source_plugin: Option<String>,
    /// Fixed: the token, as in tcp:10.0.0.5:22. File: a file with an application's address and a
    /// token in each line. Http: a URL, to which the client adds ?addr=ADDRESS:PORT
    #[arg(long, alias = "token", value_name = "SOURCE")]
    token_source: Option<String>,
    /// The server's pin; `weir tunnel keys server` prints the pin on the server; may be repeated
    #[arg(long, value_name = "PIN")]
    pin: Vec<String>,
    /// Trust any server, as with this flag of quic-tun 0.0.2 and earlier
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    insecure_skip_verify: Option<String>,
    #[command(flatten)]
    both: Both,
}

#[derive(Debug, Clone, Args)]
struct Both {
    /// A YAML, JSON or TOML file with these flags' names as keys; flags and variables such as
    /// QUICTUN_SERVER_LISTEN_ON take precedence [default: quictun-server.yaml or
    /// quictun-client.yaml here, in ~/.quictun or in /etc/quictun]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This end's certificate [default: the certificate of `weir tunnel keys`]
    #[arg(long, value_name = "FILE")]
    cert_file: Option<String>,
    /// The certificate's key
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Certificates of authorities that certify the other end
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    /// Verify the other end's certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    verify_remote_endpoint: Option<String>,
    /// Keep quic-tun's unsafe defaults: no verification of the other end, and targets that no rule
    /// restricts
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    insecure_no_verification_open_targets: Option<String>,
    /// Listener for GET /tunnels [default: 127.0.0.1:8086]
    #[arg(long, value_name = "ADDRESS", help_heading = "Monitoring")]
    httpd_listen_on: Option<String>,
    /// The log's level: debug, info, warn, error, dpanic, panic or fatal [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = "Monitoring")]
    log_level: Option<String>,
    /// The log's format: console or json [default: console]
    #[arg(long, value_name = "FORMAT", help_heading = "Monitoring")]
    log_format: Option<String>,
    /// The log's places: files, stdout or stderr, separated by commas [default: stdout]
    #[arg(long, value_name = "PATHS", value_delimiter = ',', help_heading = "Monitoring")]
    log_output_paths: Vec<String>,
    /// Accepted without effect
    #[arg(long, value_name = "PATHS", value_delimiter = ',', help_heading = "Monitoring")]
    log_error_output_paths: Vec<String>,
    /// Accepted without effect
    #[arg(long, value_name = "NAME", help_heading = "Monitoring")]
    log_name: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Monitoring")]
    log_development: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Monitoring")]
    log_disable_caller: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Monitoring")]
    log_disable_stacktrace: Option<String>,
}

/// Translates quic-tun's command lines: `quictun-server …` becomes `weir tunnel compat quic-tun
/// server …`, and the client likewise. Other command lines do not change.
pub(crate) fn as_quic_tun(words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    let role = [End::Server, End::Client]
        .into_iter()
        .find(|role| name.is_some_and(|name| name == role.program()));
    let Some(role) = role else { return words };
    let head = ["weir", "tunnel", "compat", "quic-tun", role.name()].map(OsString::from);
    head.into_iter().chain(words.into_iter().skip(1)).collect()
}

pub(crate) fn run(Compat::QuicTun(role): Compat) -> anyhow::Result<Ending> {
    let settings = role.settings()?;
    if let Some(file) = &settings.file {
        note(format_args!("settings of {}", file.display()));
    }
    match &role {
        Role::Server(_) => {
            let config = server_config(&settings)?;
            tunnel::run::server(&config, None, || server_config(&role.settings()?), note)?;
        }
        Role::Client(_) => {
            let config = client_config(&settings)?;
            tunnel::run::client(&config, None, || client_config(&role.settings()?), note)?;
        }
    }
    Ok(Ending::Fine)
}

impl Compat {
    /// Returns the log's format, level and destinations. [`run`] reports invalid values.
    pub(super) fn log(&self) -> (Option<LogFormat>, LogTo) {
        let Self::QuicTun(role) = self;
        let Ok(settings) = role.settings() else { return (None, LogTo::default()) };
        let format = (settings.text("log-format") == Some("json")).then_some(LogFormat::Json);
        // quic-tun ignores the case of a level.
        let level = settings.text("log-level").unwrap_or("info").to_ascii_lowercase();
        let level = match level.as_str() {
            "debug" => "warn,tunnel=debug",
            "warn" => "warn",
            "error" | "dpanic" | "panic" | "fatal" => "error",
            _ => "warn,tunnel=info",
        };
        let paths: Vec<String> = settings.texts("log-output-paths").map(str::to_owned).collect();
        let paths = if paths.is_empty() { vec!["stdout".to_owned()] } else { paths };
        (format, LogTo { level: Some(level), paths })
    }
}

impl Role {
    fn settings(&self) -> Result<Settings, ConfigError> {
        let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
        let (role, own, both) = match self {
            Self::Server(server) => {
                let Server { listen_on, token_parser_plugin, token_parser_key, .. } = &**server;
                let own = vec![
                    ("listen-on", one(listen_on)),
                    ("token-parser-plugin", one(token_parser_plugin)),
                    ("token-parser-key", one(token_parser_key)),
                    ("peer", server.peer.clone()),
                    ("allow", server.allow.clone()),
                    ("verify-remote-endpoint", one(&server.verify_client)),
                ];
                (End::Server, own, &server.both)
            }
            Self::Client(client) => {
                let Client { listen_on, server_endpoint, .. } = &**client;
                let own = vec![
                    ("listen-on", one(listen_on)),
                    ("server-endpoint", one(server_endpoint)),
                    ("token-source-plugin", one(&client.token_source_plugin)),
                    ("token-source", one(&client.token_source)),
                    ("pin", client.pin.clone()),
                    ("insecure-skip-verify", one(&client.insecure_skip_verify)),
                ];
                (End::Client, own, &client.both)
            }
        };
        let flags = [
            ("cert-file", one(&both.cert_file)),
            ("key-file", one(&both.key_file)),
            ("ca-file", one(&both.ca_file)),
            ("verify-remote-endpoint", one(&both.verify_remote_endpoint)),
            (
                "insecure-no-verification-open-targets",
                one(&both.insecure_no_verification_open_targets),
            ),
            ("httpd-listen-on", one(&both.httpd_listen_on)),
            ("log-level", one(&both.log_level)),
            ("log-format", one(&both.log_format)),
            ("log-output-paths", both.log_output_paths.clone()),
            ("log-error-output-paths", both.log_error_output_paths.clone()),
            ("log-name", one(&both.log_name)),
            ("log-development", one(&both.log_development)),
            ("log-disable-caller", one(&both.log_disable_caller)),
            ("log-disable-stacktrace", one(&both.log_disable_stacktrace)),
        ];
        let flags: Vec<_> = own.into_iter().chain(flags).collect();
        let variable = |name: &str| std::env::var(name).ok();
        Settings::collect(role, &flags, variable, both.config.as_deref())
    }
}

const SERVER_EXAMPLES: &str = "\
Examples:
  quictun-server --peer laptop=sha256/… --allow tcp:127.0.0.1:5201
  quictun-server --ca-file ca.pem --verify-remote-endpoint \\
      --allow 'tcp:10.0.0.0/8:22'
  quictun-server --insecure-no-verification-open-targets
quictun-server is a name for `weir tunnel compat quic-tun server`; make it by
  ln -s \"$(command -v weir)\" /usr/local/bin/quictun-server
The last form lets anyone in and to every address that this host reaches, as quic-tun does.";

const CLIENT_EXAMPLES: &str = "\
Examples:
  quictun-client --server-endpoint 192.168.26.129:7500 --pin sha256/… \\
      --token-source tcp:127.0.0.1:5201
  quictun-client --server-endpoint 192.168.26.129:7500 --pin sha256/… \\
      --token-source-plugin File --token-source /etc/quictun/tokenfile
quictun-client is a name for `weir tunnel compat quic-tun client`; make it by
  ln -s \"$(command -v weir)\" /usr/local/bin/quictun-client";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(subcommand)]
        role: Role,
    }

    #[test]
    fn flags_may_repeat_and_truth_values_may_be_separate_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty.yaml");
        std::fs::write(&file, "").unwrap();
        let role = |line: &str| {
            let words = ["quic-tun"].into_iter().chain(line.split(' ')).chain(["--config"]);
            let words = words.map(OsString::from).chain([file.clone().into_os_string()]);
            Program::try_parse_from(words).unwrap().role
        };
        // The last of several flags counts.
        let client = "client --token-source tcp:a:1 --insecure-skip-verify true --token-source=b:2";
        let settings = role(client).settings().unwrap();
        assert_eq!(settings.text("token-source"), Some("b:2"));
        assert_eq!(settings.is_set("insecure-skip-verify").ok(), Some(true));
        let settings = role("client --token tcp:a:1").settings().unwrap();
        assert_eq!(settings.text("token-source"), Some("tcp:a:1"));
        for (line, is_set) in [
            ("server --verify-remote-endpoint", true),
            ("server --verify-client", true),
            ("server --verify-remote-endpoint --log-name a", true),
            ("server --verify-remote-endpoint=false", false),
            ("server --verify-remote-endpoint false", false),
            ("server --verify-remote-endpoint false --verify-remote-endpoint", true),
        ] {
            let settings = role(line).settings().unwrap();
            assert_eq!(settings.is_set("verify-remote-endpoint").ok(), Some(is_set), "{line}");
        }
        let line = "server --log-output-paths a.log,b.log --log-output-paths stdout";
        let settings = role(line).settings().unwrap();
        let paths: Vec<_> = settings.texts("log-output-paths").collect();
        assert_eq!(paths, ["a.log", "b.log", "stdout"]);
        let level = |line: &str| Compat::QuicTun(role(line)).log().1.level;
        assert_eq!(level("server --log-level DEBUG"), Some("warn,tunnel=debug"));
    }

    #[test]
    fn the_program_name_of_quic_tun_selects_server_or_client() {
        let translated = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = as_quic_tun(words).into_iter();
            words.map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (line, same) in [
            ("./quictun-server", "weir tunnel compat quic-tun server"),
            ("/usr/local/bin/quictun-client -c a", "weir tunnel compat quic-tun client -c a"),
            ("weir tunnel server", "weir tunnel server"),
            ("weir quictun-server", "weir quictun-server"),
        ] {
            assert_eq!(translated(line), same);
        }
    }
}
