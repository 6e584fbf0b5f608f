//! The settings of quic-tun's programs: flags, then the environment, then a file, all with the same
//! keys. This module keeps the values as texts; `configuration` interprets the texts.

use crate::config::ConfigError;
use indexmap::IndexMap;
use saphyr_parser::{Event, Parser, ScalarStyle};
use settings::{Mistakes, Node, Setting, What};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeValue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

/// The settings of one program.
#[derive(Debug, Clone)]
pub struct Settings {
    pub role: Role,
    given: BTreeMap<&'static str, Given>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// The texts of a key; most keys have one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    texts: Vec<String>,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Flag(&'static str),
    Environment(String),
    Line(String, usize),
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// Returns the name of quic-tun's program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Server => "quictun-server",
            Self::Client => "quictun-client",
        }
    }

    /// Returns the keys, each with its flag.
    fn keys(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = match self {
            Self::Server => &SERVER[..],
            Self::Client => &CLIENT[..],
        };
        own.iter().chain(&BOTH).map(|flag| (&flag[2..], *flag))
    }

    fn key(self, name: &str) -> Option<(&'static str, &'static str)> {
        self.keys().find(|(key, _)| *key == name)
    }
}

impl Settings {
    /// Collects the settings. `flags` are keys and their texts; `environment` returns a variable.
    /// Without `file`, searches for the file where quic-tun does.
    pub fn collect(
        role: Role,
        flags: &[(&str, Vec<String>)],
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let file = file.map(Path::to_owned).or_else(|| find(role, &environment));
        let mut given = match &file {
            Some(path) => {
                let text = host::read_regular_file(path).map_err(|reason| {
                    ConfigError::Unreadable { file: path.display().to_string(), reason }
                })?;
                parse(role, path, &text)?
            }
            None => BTreeMap::new(),
        };
        for (key, _) in role.keys() {
            let variable = variable(role, key);
            // viper treats an empty variable as absent.
            if let Some(text) = environment(&variable).filter(|text| !text.is_empty()) {
                let texts = if is_list(key) { listed(key, &text) } else { vec![text] };
                given.insert(key, Given { texts, place: Place::Environment(variable) });
            }
        }
        for (name, texts) in flags {
            if let Some((key, flag)) = role.key(name).filter(|_| !texts.is_empty()) {
                given.insert(key, Given { texts: texts.clone(), place: Place::Flag(flag) });
            }
        }
        Ok(Self { role, given, file })
    }

    /// Returns the texts given for a key; `None` if all texts are empty.
    pub fn given(&self, key: &str) -> Option<&Given> {
        self.given.get(key).filter(|given| given.texts.iter().any(|text| !text.is_empty()))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.given(key).map(Given::text)
    }

    /// Returns the texts of a list, without empty texts.
    pub fn texts(&self, key: &str) -> impl Iterator<Item = &str> {
        let texts = self.given(key).into_iter().flat_map(|given| &given.texts);
        texts.map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Reads a key that is `true` or `false`; an absent key is `false`.
    pub fn is_set(&self, key: &str) -> Result<bool, ConfigError> {
        let Some(given) = self.given(key) else { return Ok(false) };
        match given.text().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => Ok(true),
            "false" | "f" | "0" => Ok(false),
            other => Err(given.error(format!("`{other}` is neither true nor false"))),
        }
    }
}

impl Given {
    pub fn text(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    /// Builds an error that names the flag, the variable or the line that gave the key.
    pub fn error(&self, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        match &self.place {
            Place::Flag(flag) => ConfigError::Flag { flag, message },
            Place::Environment(name) => ConfigError::Incomplete(format!("{name}: {message}")),
            Place::Line(file, line) => ConfigError::At { file: file.clone(), line: *line, message },
        }
    }

    /// Returns the path that the key names. A relative path refers to the working directory, as in
    /// quic-tun.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.text())
    }
}

/// Parses a file's text as YAML, JSON or TOML, by the file's suffix.
fn parse(
    role: Role,
    path: &Path,
    text: &str,
) -> Result<BTreeMap<&'static str, Given>, ConfigError> {
    let file = path.display().to_string();
    let wrong =
        |line: usize, message: String| ConfigError::At { file: file.clone(), line, message };
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let entries = match ending {
        // JSON is YAML, too.
        "yaml" | "yml" | "json" => yaml(text),
        "toml" => toml_entries(text),
        _ => {
            Err((1, "write the file as YAML, JSON or TOML, with .yaml, .json or .toml".to_owned()))
        }
    };
    let mut all = BTreeMap::new();
    for Entry { line, name, texts } in entries.map_err(|(line, message)| wrong(line, message))? {
        // viper ignores the case of keys.
        let name = name.to_ascii_lowercase();
        let Some((key, _)) = role.key(&name) else {
            return Err(wrong(line, unknown(role, &name)));
        };
        let texts = match &texts[..] {
            [one] if is_list(key) => listed(key, one),
            _ => texts,
        };
        if texts.len() > 1 && !is_list(key) {
            return Err(wrong(line, format!("`{key}` has one value, not a list")));
        }
        let given = Given { texts, place: Place::Line(file.clone(), line) };
        if all.insert(key, given).is_some() {
            return Err(wrong(line, format!("`{key}` stands here again: remove one line")));
        }
    }
    Ok(all)
}

fn unknown(role: Role, name: &str) -> String {
    let hint = units::did_you_mean(name, role.keys().map(|(key, _)| key));
    let name = units::foreign(name);
    match hint.is_empty() {
        false => format!("unknown key `{name}`{hint}"),
        true => format!("unknown key `{name}`: {} --help lists the keys as flags", role.program()),
    }
}

/// One key of a file, with its line and its texts.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    line: usize,
    name: String,
    texts: Vec<String>,
}

type Entries = Result<Vec<Entry>, (usize, String)>;

/// Parses one YAML mapping of scalars and lists. Ignores tags; any other YAML is an error.
fn yaml(text: &str) -> Entries {
    if text.len() > LONGEST_FILE {
        return Err((1, format!("the file is longer than {LONGEST_FILE} bytes")));
    }
    let flat = |line: usize| (line, "write one `key: value` a line, or a list as value".to_owned());
    let mut entries = Vec::new();
    let (mut depth, mut key): (u8, Option<Entry>) = (0, None);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            (error.marker().line().max(1), format!("this is not YAML: {}", error.info()))
        })?;
        let line = span.start.line().max(1);
        match event {
            Event::MappingStart(..) if depth == 0 => depth = 1,
            Event::MappingEnd if depth == 1 && key.is_none() => depth = 3,
            Event::SequenceStart(..) if depth == 1 && key.is_some() => depth = 2,
            Event::SequenceEnd if depth == 2 => {
                depth = 1;
                entries.extend(key.take());
            }
            Event::Scalar(text, style, ..) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "~" | "null");
                let text = if is_null { String::new() } else { text.into_owned() };
                match (depth, &mut key) {
                    (1, None) => key = Some(Entry { line, name: text, texts: Vec::new() }),
                    (1, Some(entry)) => {
                        entry.texts.push(text);
                        entries.extend(key.take());
                    }
                    (2, Some(entry)) => entry.texts.push(text),
                    // A file that holds only comments has an empty document.
                    (0, None) if text.is_empty() => depth = 3,
                    _ => return Err(flat(line)),
                }
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Nothing => {}
            _ => return Err(flat(line)),
        }
    }
    Ok(entries)
}

fn toml_entries(text: &str) -> Entries {
    let all: IndexMap<String, Spanned<Texts>> =
        settings::parse(text).map_err(|mistake| (mistake.line, mistake.what.to_string()))?;
    let entry = |(name, value): (String, Spanned<Texts>)| {
        let line = settings::line(text, value.span().start);
        Entry { line, name, texts: value.into_inner().0 }
    };
    Ok(all.into_iter().map(entry).collect())
}

struct Texts(Vec<String>);

impl Setting for Texts {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let texts = match node.get_ref() {
            DeValue::Array(all) => all.iter().map(|one| scalar(one.get_ref())).collect(),
            one => scalar(one).map(|text| vec![text]),
        };
        if texts.is_none() {
            let what = "a text, a number, a truth value or a list belongs here".to_owned();
            mistakes.add(node.span(), What::Refused(what));
        }
        texts.map(Self)
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        _ => None,
    }
}

/// Finds the file that quic-tun would read: in the working directory, the home directory or /etc.
fn find(role: Role, environment: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let home = environment("HOME").map(|home| PathBuf::from(home).join(".quictun"));
    let folders = [PathBuf::from(".")].into_iter().chain(home).chain(["/etc/quictun".into()]);
    let files = folders.flat_map(|folder| {
        ENDINGS.map(|ending| folder.join(format!("{}.{ending}", role.program())))
    });
    files.into_iter().find(|file| file.is_file())
}

/// Returns the environment variable of a key, as viper forms it.
fn variable(role: Role, key: &str) -> String {
    format!("{}_{key}", role.program()).replace('-', "_").to_ascii_uppercase()
}

/// Splits a text at commas, and rules at blanks: a rule may hold a comma.
fn listed(key: &str, text: &str) -> Vec<String> {
    let separator = if key == RULES { ' ' } else { ',' };
    text.split(separator).map(|part| part.trim().to_owned()).collect()
}

fn is_list(key: &str) -> bool {
    LISTS.contains(&key)
}

/// The key that permits quic-tun's unsafe defaults.
pub const INSECURE: &str = "insecure-no-verification-open-targets";
/// The key of quic-tun 0.0.2 and earlier by which a client trusts any server.
pub const SKIP_VERIFY: &str = "insecure-skip-verify";

const SERVER: [&str; 5] =
    ["--listen-on", "--token-parser-plugin", "--token-parser-key", "--allow", "--peer"];
const CLIENT: [&str; 6] = [
    "--listen-on",
    "--server-endpoint",
    "--token-source-plugin",
    "--token-source",
    "--pin",
    "--insecure-skip-verify",
];
const BOTH: [&str; 14] = [
    "--key-file",
    "--cert-file",
    "--ca-file",
    "--verify-remote-endpoint",
    "--httpd-listen-on",
    "--log-level",
    "--log-format",
    "--log-output-paths",
    "--log-error-output-paths",
    "--log-disable-caller",
    "--log-disable-stacktrace",
    "--log-development",
    "--log-name",
    "--insecure-no-verification-open-targets",
];
const LISTS: [&str; 5] = [RULES, "peer", "pin", "log-output-paths", "log-error-output-paths"];
const RULES: &str = "allow";
const ENDINGS: [&str; 4] = ["json", "toml", "yaml", "yml"];
const LONGEST_FILE: usize = 1 << 20;

/// Reads a file's text for tests outside this crate: the keys that it gives, or the error.
pub fn check_file(role: Role, path: &Path, text: &str) -> Result<Vec<&'static str>, ConfigError> {
    parse(role, path, text).map(|all| all.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn flags_override_the_environment_and_the_environment_overrides_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quictun-client.yaml");
        std::fs::write(
            &path,
            "# quic-tun-client config\nlisten-on: \"tcp:127.0.0.1:1\" # (default)\n\
             server-endpoint: a:1\ntoken-source: tcp:a:1\ncert-file: \"\"\n\
             log-output-paths: ./a.log,stdout\nverify-remote-endpoint: false\n",
        )
        .unwrap();
        let variables = |name: &str| match name {
            "QUICTUN_CLIENT_TOKEN_SOURCE" => Some("tcp:b:2".to_owned()),
            "QUICTUN_CLIENT_SERVER_ENDPOINT" => Some("b:2".to_owned()),
            _ => None,
        };
        let flags = [("server-endpoint", vec!["c:3".to_owned()]), ("pin", vec![])];
        let settings = Settings::collect(Role::Client, &flags, variables, Some(&path)).unwrap();
        assert_eq!(settings.text("listen-on"), Some("tcp:127.0.0.1:1"));
        assert_eq!(settings.text("token-source"), Some("tcp:b:2"));
        assert_eq!(settings.text("server-endpoint"), Some("c:3"));
        assert!(settings.given("cert-file").is_none() && settings.given("pin").is_none());
        assert_eq!(settings.texts("log-output-paths").collect::<Vec<_>>(), ["./a.log", "stdout"]);
        assert_eq!(settings.is_set("verify-remote-endpoint").ok(), Some(false));
        let error = settings.given("listen-on").unwrap().error("no").to_string();
        assert!(error.ends_with("quictun-client.yaml:2: no"), "{error}");
        let error = settings.given("token-source").unwrap().error("no").to_string();
        assert_eq!(error, "QUICTUN_CLIENT_TOKEN_SOURCE: no");
    }

    #[test]
    fn yaml_json_and_toml_give_the_same_settings() {
        let keys = |name: &str, text: &str| {
            let all = parse(Role::Server, Path::new(name), text).unwrap();
            all.into_iter().map(|(key, given)| (key, given.texts)).collect::<Vec<_>>()
        };
        let expected =
            keys("a.yaml", "listen-on: 0.0.0.0:7500\npeer: [a=1, b=2]\nlog-development: true\n");
        assert_eq!(expected[2], ("peer", vec!["a=1".to_owned(), "b=2".to_owned()]));
        let json =
            r#"{"listen-on": "0.0.0.0:7500", "peer": ["a=1", "b=2"], "log-development": true}"#;
        assert_eq!(keys("a.json", json), expected);
        let toml =
            "listen-on = \"0.0.0.0:7500\"\npeer = [\"a=1\", \"b=2\"]\nlog-development = true\n";
        assert_eq!(keys("a.toml", toml), expected);
        assert!(keys("a.yaml", "# nothing\n").is_empty() && keys("a.toml", "").is_empty());
    }

    #[test]
    fn the_error_of_a_settings_file_names_the_line() {
        for (name, text, reported) in [
            (
                "a.yaml",
                "listen-on: a\nlisten_on: b\n",
                "a.yaml:2: unknown key `listen_on` (did you mean `listen-on`?)",
            ),
            ("a.yaml", "\nxyz: b\n", "a.yaml:2: unknown key `xyz`"),
            ("a.yaml", "listen-on:\n  a: b\n", "one `key: value` a line"),
            ("a.yaml", "- a\n", "one `key: value` a line"),
            ("a.yaml", "listen-on: a\nlisten-on: b\n", "a.yaml:2: `listen-on` stands here again"),
            ("a.yaml", "listen-on: [a, b]\n", "has one value"),
            ("a.yaml", "a: &b [*b\n", "a.yaml:"),
            ("a.toml", "x = 1\n", "a.toml:1: unknown key"),
            ("a.toml", "\n[listen-on]\nx = 1\n", "belongs here"),
            ("a.toml", "x\n", "a.toml:1:"),
            ("a.hcl", "", "YAML, JSON or TOML"),
            // This key belongs to the other program.
            ("a.yaml", "token-source: a\n", "unknown key `token-source`"),
        ] {
            let error = parse(Role::Server, Path::new(name), text).unwrap_err().to_string();
            assert!(error.contains(reported), "{text}: {error}");
        }
        let settings = [("verify-remote-endpoint", vec!["perhaps".to_owned()])];
        let settings =
            Settings::collect(Role::Server, &settings, nothing, Some(Path::new("/dev/null")));
        assert!(settings.is_err(), "a device was accepted as a settings file");
    }
}
