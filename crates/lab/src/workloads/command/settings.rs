//! The keys of the workload `command`.

use crate::bench::machine::PORT;
use crate::model::file::{Document, FileError, Key, SystemSpec, TO, bounded, command_words};
use results::Axes;
use std::time::Duration;
use toml::Spanned;
use units::Span;

pub(super) const CLIENT: Key = Key::text("client");
pub(super) const SERVER: Key = Key::text("server");
const READY: Key = Key::text("ready");
const TIMEOUT: Key = Key::text("timeout");
pub(super) const KEYS: [Key; 4] = [CLIENT, SERVER, READY, TIMEOUT];
/// The keys whose values are command lines.
pub(crate) const LINES: [Key; 2] = [CLIENT, SERVER];
/// The key `ready`, whose value may contain a command.
pub(crate) const READY_KEY: [Key; 1] = [READY];

/// The commands of one system in one cell, with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandSettings {
    pub(crate) client: String,
    pub(crate) server: Option<(String, Ready)>,
    pub(crate) timeout: Duration,
}

/// The sign by which the lab knows that the server is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The server is ready when it listens at this TCP port.
    Port(u16),
    /// The server is ready when a line of its output contains this text.
    Log(String),
    /// The server is ready when this command on the client's host succeeds.
    Command(String),
}

impl CommandSettings {
    pub(crate) fn of(
        document: &Document,
        system: &SystemSpec,
        axes: &Axes,
    ) -> Result<Self, FileError> {
        let own = |key: Key| match key == CLIENT {
            true => &system.client,
            false => &system.server,
        };
        let line = |key: Key| -> Result<Option<String>, FileError> {
            if let Some(own) = own(key) {
                return Ok(Some(own.get_ref().clone()));
            }
            let table = document.workload.get_ref();
            let Some((text, place)) = table.text(key).zip(table.place(key)) else {
                return Ok(None);
            };
            let checked = document.check_command_text(text);
            checked.map_err(|message| document.source.error(place, message))?;
            Ok(Some(text.to_owned()))
        };
        let Some(client) = line(CLIENT)? else {
            let message = format!(
                "`client` is missing here, and system `{}` has none: the command that is measured",
                system.name()
            );
            return Err(document.source.error(document.workload.span(), message));
        };
        let ready = document.workload_key(axes, READY, |text| {
            let ready = Ready::parse(text)?;
            if let Ready::Command(line) = &ready {
                document.check_command_text(line)?;
            }
            Ok(ready)
        });
        // Leave the placeholders of a command: the turn fills them in.
        let ready = match document.workload.get_ref().text(READY).map(Ready::parse) {
            Some(Ok(Ready::Command(line))) => {
                let place = document.place_of_workload(&[READY]);
                let checked = document.check_command_text(&line);
                checked.map_err(|message| document.source.error(place, message))?;
                Some(Ready::Command(line))
            }
            Some(Ok(ready @ Ready::Port(PORT))) => Some(ready),
            _ => ready?,
        };
        let server = match (line(SERVER)?, ready) {
            (Some(server), Some(ready)) => Some((server, ready)),
            (Some(_), None) => {
                let message = "`ready` is missing here: how is the server known to be ready? Write \
                               `ready = \"port 80\"`, `\"log Serving\"` or `\"command …\"`";
                return Err(document.source.error(document.place_of_workload(&[SERVER]), message));
            }
            (None, Some(_)) => {
                let message = "`ready` waits for a `server`, and there is none";
                return Err(document.source.error(document.place_of_workload(&[READY]), message));
            }
            (None, None) => None,
        };
        let timeout = document.workload_key(axes, TIMEOUT, |text| {
            let refused = || "`timeout` is from 1ms to 1h".to_owned();
            bounded(text, Span::from_millis(1)..=LONGEST, refused).map(Span::as_duration)
        })?;
        Ok(Self { client, server, timeout: timeout.unwrap_or(USUAL_TIMEOUT) })
    }
}

impl Ready {
    /// Parses `port 80`, `log Serving HTTP` or `command curl …`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let ready = match kind {
            "port" if rest == "{port}" => Some(Self::Port(PORT)),
            "port" => rest.parse().ok().filter(|port| *port > 0).map(Self::Port),
            "log" if !rest.is_empty() => Some(Self::Log(rest.to_owned())),
            "command" if !rest.is_empty() => Some(Self::Command(rest.to_owned())),
            _ => None,
        };
        ready.ok_or_else(|| {
            format!(
                "`{text}` is no sign of a server: write `port 80`, `log TEXT` or `command LINE`"
            )
        })
    }
}

/// Returns the programs that a system's commands start. Leaves out a program whose name is a
/// placeholder.
pub(super) fn programs(document: &Document, system: &SystemSpec) -> Vec<String> {
    let table = document.workload.get_ref();
    let client = system.client.as_ref().map(Spanned::get_ref).map(String::as_str);
    let server = system.server.as_ref().map(Spanned::get_ref).map(String::as_str);
    let lines = [client.or_else(|| table.text(CLIENT)), server.or_else(|| table.text(SERVER))];
    let first = |line: &str| {
        let words = command_words(line, &[], |name| Some(format!("{{{name}}}"))).ok()?;
        words.into_iter().next().filter(|program| !program.contains('{'))
    };
    lines.into_iter().flatten().filter_map(first).collect()
}

/// Returns the port at which the server on `host` listens. `None` if the file names another sign
/// that the server is ready, or if an axis or `via` names the host. Each turn checks the port
/// again.
pub(super) fn port_on(document: &Document, host: &str) -> Option<u16> {
    let table = document.workload.get_ref();
    let is_server = table.text(TO) == Some(host);
    match Ready::parse(table.text(READY)?) {
        Ok(Ready::Port(port)) if is_server => Some(port),
        _ => None,
    }
}

const USUAL_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST: Span = Span::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_by_port_log_or_command() {
        assert_eq!(Ready::parse("port 80"), Ok(Ready::Port(80)));
        assert_eq!(Ready::parse(" log  Serving HTTP "), Ok(Ready::Log("Serving HTTP".to_owned())));
        let curl = "curl -s {server}".to_owned();
        assert_eq!(Ready::parse("command curl -s {server}"), Ok(Ready::Command(curl)));
        for wrong in ["", "port", "port 0", "port 70000", "log", "command ", "line x"] {
            assert!(Ready::parse(wrong).unwrap_err().contains("`port 80`"), "{wrong}");
        }
    }
}
