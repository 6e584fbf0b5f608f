//! The settings of a switch, from a file and from flags.

use std::collections::HashMap;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use thiserror::Error;

/// The folder of the control sockets if the user names none.
pub const DEFAULT_RUNDIR: &str = "/run/weir-switch";
const MOST_BRIDGES: usize = 64;
const MOST_PORTS: usize = 1024;
const LONGEST_NAME: usize = 64;

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Syntax { path: PathBuf, error: toml::de::Error },
    #[error("{0}")]
    Value(String),
}

/// A switch's settings. An unknown key is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The folder of the control sockets.
    pub rundir: Option<PathBuf>,
    /// The CPUs of the packet threads, one thread each.
    pub pmd_cpus: Option<Vec<usize>>,
    pub bridge: IndexMap<String, BridgeConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BridgeConfig {
    /// 16 hexadecimal digits; made from the bridge's name otherwise.
    pub datapath_id: Option<String>,
    /// TCP addresses on which controllers and ovs-ofctl may connect.
    pub listen: Vec<SocketAddr>,
    /// A file of rules in ovs-ofctl's language that is loaded at the start.
    pub flows: Option<PathBuf>,
    pub port: IndexMap<String, PortConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortConfig {
    /// `pcap`, `null`, `packet` or `tap`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The capture that a pcap port plays.
    pub file: Option<PathBuf>,
    /// Whether the capture is played for ever.
    #[serde(default, rename = "loop")]
    pub repeats: bool,
    /// The capture into which a pcap port writes the frames that it sends.
    pub write: Option<PathBuf>,
    /// The network interface of a packet port; the port's name otherwise.
    pub interface: Option<String>,
    /// The OpenFlow number; the first free one otherwise.
    pub number: Option<u32>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        let config: Self = toml::from_str(&text)
            .map_err(|error| ConfigError::Syntax { path: path.to_owned(), error })?;
        Ok(config)
    }

    /// Adds a port as a flag names it: `BRIDGE:PORT=KIND[:ARGUMENT][,OPTION…]`.
    pub fn add_port(&mut self, text: &str) -> Result<(), ConfigError> {
        let malformed = || {
            ConfigError::Value(format!(
                "--port {text}: write BRIDGE:PORT=KIND, for example br0:p0=pcap:FILE,loop"
            ))
        };
        let (place, kind) = text.split_once('=').ok_or_else(malformed)?;
        let (bridge, port) = place.split_once(':').ok_or_else(malformed)?;
        let known = self.bridge.keys().cloned().collect::<Vec<_>>().join(", ");
        let Some(bridge) = self.bridge.get_mut(bridge) else {
            return Err(ConfigError::Value(format!(
                "--port {text}: there is no bridge {bridge}; the bridges are: {known}"
            )));
        };
        let config = PortConfig::parse(kind)
            .map_err(|problem| ConfigError::Value(format!("--port {text}: {problem}")))?;
        if bridge.port.insert(port.to_owned(), config).is_some() {
            return Err(ConfigError::Value(format!("--port {text}: the port exists already")));
        }
        Ok(())
    }

    /// Checks all that can be checked without opening anything.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |problem: String| Err(ConfigError::Value(problem));
        if self.bridge.is_empty() {
            return wrong(
                "there is no bridge: add one by --bridge br0, or by [bridge.br0] in the file"
                    .to_owned(),
            );
        }
        if self.bridge.len() > MOST_BRIDGES {
            return wrong(format!("there are more than {MOST_BRIDGES} bridges"));
        }
        for (name, bridge) in &self.bridge {
            check_name("bridge", name)?;
            if bridge.port.len() > MOST_PORTS {
                return wrong(format!("bridge {name} has more than {MOST_PORTS} ports"));
            }
            let is_id = |id: &String| id.len() == 16 && u64::from_str_radix(id, 16).is_ok();
            if let Some(id) = bridge.datapath_id.as_ref().filter(|id| !is_id(id)) {
                return wrong(format!(
                    "bridge {name}: datapath-id = {id:?} is not 16 hexadecimal digits"
                ));
            }
            let mut numbers = HashMap::new();
            for (port, config) in &bridge.port {
                check_name("port", port)?;
                config.check().map_err(|problem| {
                    ConfigError::Value(format!("port {name}:{port}: {problem}"))
                })?;
                let other = config.number.and_then(|number| numbers.insert(number, port));
                if let Some(other) = other {
                    return wrong(format!(
                        "ports {other} and {port} of bridge {name} have the same number"
                    ));
                }
            }
        }
        let mut cpus = self.pmd_cpus.clone().unwrap_or_default();
        cpus.sort_unstable();
        if let Some(twice) = cpus.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("pmd-cpus names CPU {} twice", twice[0]));
        }
        Ok(())
    }
}

impl PortConfig {
    pub(super) fn of_kind(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            file: None,
            repeats: false,
            write: None,
            interface: None,
            number: None,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (kind, argument) = match first.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (first, None),
        };
        let mut config = Self::of_kind(kind);
        match (kind, argument) {
            ("pcap", argument) => config.file = argument.map(PathBuf::from),
            ("packet" | "tap", argument) => config.interface = argument.map(str::to_owned),
            ("null", None) => {}
            ("null", Some(_)) => return Err("a null port takes no argument".to_owned()),
            (kind, _) => return Err(unknown_kind(kind)),
        }
        for option in parts {
            match option.split_once('=') {
                None if option == "loop" => config.repeats = true,
                Some(("write", path)) => config.write = Some(PathBuf::from(path)),
                Some(("number", number)) => {
                    let number =
                        number.parse().map_err(|_| format!("number={number} is no number"))?;
                    config.number = Some(number);
                }
                _ => {
                    return Err(format!(
                        "unknown option {option:?}; the options are loop, write=FILE, number=N"
                    ));
                }
            }
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        match self.kind.as_str() {
            "pcap" if self.file.is_none() && self.write.is_none() => {
                Err("a pcap port needs a file to play (file, or pcap:FILE) or to write (write)"
                    .to_owned())
            }
            "pcap" | "null" | "packet" | "tap" => match self.number {
                Some(0) => Err("number 0 is not a port's: begin with 1".to_owned()),
                Some(number) if number >= 0xff00 => {
                    Err(format!("number {number} is reserved: the highest is 65279"))
                }
                _ if self.repeats && self.file.is_none() => {
                    Err("loop needs a file to play".to_owned())
                }
                _ => Ok(()),
            },
            kind => Err(unknown_kind(kind)),
        }
    }
}

fn unknown_kind(kind: &str) -> String {
    const KINDS: [&str; 4] = ["pcap", "null", "packet", "tap"];
    let nearest = KINDS.iter().min_by_key(|known| strsim::damerau_levenshtein(known, kind));
    let near = nearest.filter(|known| strsim::damerau_levenshtein(known, kind) <= 2);
    match near {
        Some(near) => format!("unknown kind of port {kind:?}; did you mean {near:?}?"),
        None => format!("unknown kind of port {kind:?}; the kinds are {}", KINDS.join(", ")),
    }
}

fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > LONGEST_NAME
        || !name.chars().all(is_plain)
        || name.starts_with('.')
    {
        return Err(ConfigError::Value(format!(
            "{what} name {name:?}: use 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.'"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_bridge() -> Config {
        let mut config = Config::default();
        config.bridge.insert("br0".to_owned(), BridgeConfig::default());
        config
    }

    #[test]
    fn flags_describe_ports() {
        let mut config = with_bridge();
        config.add_port("br0:p0=pcap:/tmp/a:b.pcap,loop,number=7").unwrap();
        config.add_port("br0:p1=null").unwrap();
        config.check().unwrap();
        let port = &config.bridge["br0"].port["p0"];
        assert_eq!(port.file.as_deref(), Some(Path::new("/tmp/a:b.pcap")));
        assert!(port.repeats);
        assert_eq!(port.number, Some(7));
    }

    #[test]
    fn wrong_flags_are_explained() {
        let cases = [
            ("br0", "write BRIDGE:PORT=KIND"),
            ("br1:p0=null", "there is no bridge br1; the bridges are: br0"),
            ("br0:p0=pcapp:x", "did you mean \"pcap\"?"),
            ("br0:p0=null,lop", "unknown option \"lop\""),
            ("br0:p0=null:x", "takes no argument"),
        ];
        for (flag, expected) in cases {
            let error = with_bridge().add_port(flag).unwrap_err().to_string();
            assert!(error.contains(expected), "{flag}: {error}");
        }
    }

    #[test]
    fn an_unknown_key_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.toml");
        std::fs::write(&path, "pmd-cpus = [1]\nbrige = 1\n").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("brige"), "{error}");
    }
}
