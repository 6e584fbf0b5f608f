use super::special::{Special, lists};
use crate::target::{HostPort, Target, is_service_name};
use ipnet::IpNet;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Targets that an identity may reach: `tcp:db.internal:5432`, `tcp:10.0.0.0/8:22,8000-8999`,
/// `udp:[2001:db8::/32]:53`, `tcp:*.example.org:443`, `unix:/run/app.sock`, `unix:/run/app/*`,
/// `service:web`, `service:office-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    Tcp(Hosts, Ports),
    Udp(Hosts, Ports),
    Path(PathBuf),
    /// Any path directly in this directory.
    Directory(PathBuf),
    /// The service with this name.
    Service(String),
    /// Services whose names begin with this text.
    Services(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    Prefix(IpNet),
    /// A name in lower case, without a final dot.
    Name(String),
    /// Names below this domain, at any depth.
    Below(String),
}

/// Ranges of ports; `*` means all ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

/// The extent to which a rule covers an address; a greater value covers more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Reach {
    #[default]
    Elsewhere,
    /// The rule's name or wide prefix would cover the address if it were not special.
    NotExplicitly(Special),
    Covered,
}

/// Whether a rule could cover a target, as known before any look-up; a greater value is more
/// certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum MayCover {
    #[default]
    No,
    /// The target is a name and the rule a prefix, so the result depends on the address.
    ByAddress,
    Yes,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("`{0}` has no kind: write tcp:HOST:PORTS, udp:HOST:PORTS, unix:/PATH or service:NAME")]
    Kind(String),
    #[error(
        "`{0}` names no services: write 1 to 64 letters, digits, dots, dashes and underscores; a * at \
         the end stands for all names that begin with the text before it"
    )]
    Service(String),
    #[error("`{0}` names no ports: write 22, 80,443, 8000-8999 or * behind the host and a colon")]
    Ports(String),
    #[error("`{0}` is no host: write a name, *.name, an address or a prefix; IPv6 in brackets")]
    Host(String),
    #[error("`{prefix}` has bits behind the prefix: write {meant} or a longer prefix")]
    BitsBehind { prefix: String, meant: IpNet },
    #[error(
        "`{0}` is not an absolute path without `.` and `..`: write /PATH, or /FOLDER/* for all sockets of a folder"
    )]
    Path(String),
}

impl Rule {
    /// Returns whether the rule could cover the target, before any look-up.
    pub(super) fn may_cover(&self, target: &Target) -> MayCover {
        let sure = |covers| if covers { MayCover::Yes } else { MayCover::No };
        match (self, target) {
            (Self::Tcp(_, ports) | Self::Udp(_, ports), Target::Tcp(host) | Target::Udp(host))
                if !ports.hold(host.port()) =>
            {
                MayCover::No
            }
            (Self::Tcp(hosts, _), Target::Tcp(host)) | (Self::Udp(hosts, _), Target::Udp(host)) => {
                match (hosts, host.host().parse::<IpAddr>()) {
                    (Hosts::Prefix(prefix), Ok(address)) => {
                        sure(prefix.contains(&address.to_canonical()))
                    }
                    (Hosts::Prefix(_), Err(_)) => MayCover::ByAddress,
                    (hosts, _) => sure(hosts.name(host.host())),
                }
            }
            (rule, Target::Unix(path)) => sure(rule.covers_path(path)),
            (rule, Target::Service(name)) => sure(rule.covers_service(name)),
            _ => MayCover::No,
        }
    }

    /// Returns the extent to which the rule covers the target's canonical `address`. `special`
    /// returns the reason for which a rule must list the address, or `None`.
    pub(super) fn covers(
        &self,
        target: &Target,
        address: IpAddr,
        special: &dyn Fn() -> Option<Special>,
    ) -> Reach {
        let (hosts, ports, host) = match (self, target) {
            (Self::Tcp(hosts, ports), Target::Tcp(host))
            | (Self::Udp(hosts, ports), Target::Udp(host)) => (hosts, ports, host),
            _ => return Reach::Elsewhere,
        };
        if !ports.hold(host.port()) {
            return Reach::Elsewhere;
        }
        hosts.reach(host, address, special)
    }

    pub(super) fn covers_path(&self, path: &Path) -> bool {
        match self {
            Self::Path(listed) => is_plain(path) && path == listed,
            Self::Directory(listed) => {
                is_plain(path) && path.parent().is_some_and(|parent| parent == listed)
            }
            Self::Tcp(..) | Self::Udp(..) | Self::Service(_) | Self::Services(_) => false,
        }
    }

    pub(super) fn covers_service(&self, name: &str) -> bool {
        match self {
            Self::Service(listed) => name == listed,
            Self::Services(beginning) => name.starts_with(beginning),
            _ => false,
        }
    }
}

impl Hosts {
    fn reach(
        &self,
        host: &HostPort,
        address: IpAddr,
        special: &dyn Fn() -> Option<Special>,
    ) -> Reach {
        let within = match self {
            Self::Prefix(prefix) => prefix.contains(&address),
            named => named.name(host.host()),
        };
        if !within {
            return Reach::Elsewhere;
        }
        // A rule for exactly this address lists the address, even if it is special. Skip `special`,
        // which costs a request to the kernel.
        if self.is_one_address() {
            return Reach::Covered;
        }
        match special() {
            Some(special) if !self.lists(address, special) => Reach::NotExplicitly(special),
            _ => Reach::Covered,
        }
    }

    fn is_one_address(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if prefix.prefix_len() == prefix.max_prefix_len())
    }

    fn lists(&self, address: IpAddr, special: Special) -> bool {
        match self {
            Self::Prefix(prefix) => lists(*prefix, address, special),
            // RFC 6761, 6.3: the name `localhost` has no other meaning.
            Self::Name(name) => special == Special::Loopback && name == "localhost",
            Self::Below(_) => false,
        }
    }

    fn name(&self, asked: &str) -> bool {
        let asked = asked.strip_suffix('.').unwrap_or(asked);
        match self {
            Self::Prefix(_) => false,
            Self::Name(name) => asked.eq_ignore_ascii_case(name),
            Self::Below(parent) => asked
                .len()
                .checked_sub(parent.len() + 1)
                .filter(|at| *at > 0)
                .and_then(|at| asked.get(at..))
                .and_then(|end| end.strip_prefix('.'))
                .is_some_and(|end| end.eq_ignore_ascii_case(parent)),
        }
    }
}

impl Ports {
    pub fn hold(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

/// Whether the path has no `.` or `..`. Two spellings of a path count as two paths.
fn is_plain(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let again: PathBuf = path.components().collect();
    path.is_absolute() && path.components().all(plain) && again.as_os_str() == path.as_os_str()
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text.split_once(':') {
            Some(("tcp", rest)) => {
                hosts_and_ports(rest).map(|(hosts, ports)| Self::Tcp(hosts, ports))
            }
            Some(("udp", rest)) => {
                hosts_and_ports(rest).map(|(hosts, ports)| Self::Udp(hosts, ports))
            }
            Some(("unix", rest)) => {
                let (path, all) = match rest.strip_suffix("/*") {
                    Some(directory) => (directory, true),
                    None => (rest, false),
                };
                let path = Path::new(path);
                if !is_plain(path)
                    || path.file_name().is_none()
                    || rest.contains(['\0', '*']) && !all
                {
                    return Err(RuleError::Path(rest.to_owned()));
                }
                let path = path.to_owned();
                Ok(if all { Self::Directory(path) } else { Self::Path(path) })
            }
            Some(("service", name)) => match name.strip_suffix('*') {
                None if is_service_name(name) => Ok(Self::Service(name.to_owned())),
                Some(beginning) if beginning.is_empty() || is_service_name(beginning) => {
                    Ok(Self::Services(beginning.to_owned()))
                }
                _ => Err(RuleError::Service(name.to_owned())),
            },
            _ => Err(RuleError::Kind(text.to_owned())),
        }
    }
}

fn hosts_and_ports(text: &str) -> Result<(Hosts, Ports), RuleError> {
    let no_ports = || RuleError::Ports(text.to_owned());
    let (host, ports) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) =
                rest.split_once(']').ok_or_else(|| RuleError::Host(text.to_owned()))?;
            // The prefix length may also follow the brackets.
            let (length, ports) = rest.split_once(':').ok_or_else(no_ports)?;
            (format!("{host}{length}"), ports)
        }
        None => {
            let (host, ports) = text.rsplit_once(':').ok_or_else(no_ports)?;
            (host.to_owned(), ports)
        }
    };
    if text.starts_with('[') != host.contains(':') {
        return Err(RuleError::Host(host));
    }
    Ok((host.parse()?, ports.parse()?))
}

impl FromStr for Hosts {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Prefix(IpNet::from(address.to_canonical())));
        }
        if text.contains('/') {
            let prefix: IpNet = text.parse().map_err(|_| RuleError::Host(text.to_owned()))?;
            if prefix.trunc() != prefix {
                return Err(RuleError::BitsBehind {
                    prefix: text.to_owned(),
                    meant: prefix.trunc(),
                });
            }
            return Ok(Self::Prefix(prefix));
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let letters =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        // The resolver would interpret a malformed address as another address (inet_aton).
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
        if !letters || number || name.split('.').any(str::is_empty) || name.len() > 253 {
            return Err(RuleError::Host(text.to_owned()));
        }
        Ok(if text.starts_with("*.") { Self::Below(name) } else { Self::Name(name) })
    }
}

impl FromStr for Ports {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "*" {
            return Ok(Self(vec![0..=u16::MAX]));
        }
        let wrong = || RuleError::Ports(text.to_owned());
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = port(first)?..=port(last)?;
            if range.is_empty() { Err(wrong()) } else { Ok(range) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(hosts, ports) => write!(f, "tcp:{hosts}:{ports}"),
            Self::Udp(hosts, ports) => write!(f, "udp:{hosts}:{ports}"),
            Self::Path(path) => write!(f, "unix:{}", path.display()),
            Self::Directory(path) => write!(f, "unix:{}/*", path.display()),
            Self::Service(name) => write!(f, "service:{name}"),
            Self::Services(beginning) => write!(f, "service:{beginning}*"),
        }
    }
}

impl Display for Hosts {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prefix(prefix) if prefix.prefix_len() == prefix.max_prefix_len() => {
                match prefix.addr() {
                    IpAddr::V4(address) => write!(f, "{address}"),
                    IpAddr::V6(address) => write!(f, "[{address}]"),
                }
            }
            Self::Prefix(IpNet::V4(prefix)) => write!(f, "{prefix}"),
            Self::Prefix(IpNet::V6(prefix)) => write!(f, "[{prefix}]"),
            Self::Name(name) => f.write_str(name),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

impl Display for Ports {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if self.hold(0) {
            return f.write_str("*");
        }
        for (number, range) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_rule_parses_to_itself() {
        for text in [
            "tcp:db.internal:5432",
            "tcp:10.0.0.0/8:22,8000-8999",
            "udp:[2001:db8::/32]:53",
            "udp:[::1]:53",
            "tcp:*.example.org:443",
            "tcp:127.0.0.1:*",
            "unix:/run/app.sock",
            "unix:/run/app/*",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        let same = |a: &str, b: &str| assert_eq!(a.parse::<Rule>(), b.parse::<Rule>());
        same("udp:[2001:db8::]/32:53", "udp:[2001:db8::/32]:53");
        same("tcp:DB.Internal.:1", "tcp:db.internal:1");
        same("tcp:[::ffff:10.0.0.1]:1", "tcp:10.0.0.1:1");
    }

    #[test]
    fn the_error_of_a_wrong_rule_shows_the_right_form() {
        for (text, reported) in [
            ("10.0.0.1:22", "tcp:HOST:PORTS"),
            ("tcp:10.0.0.1", "names no ports"),
            ("tcp:10.0.0.1:0", "names no ports"),
            ("tcp:10.0.0.1:9-1", "names no ports"),
            ("tcp:10.0.0.1:22,", "names no ports"),
            ("tcp:10.0.0.1/8:22", "write 10.0.0.0/8"),
            ("tcp:2001:db8::1:22", "is no host"),
            ("tcp:[10.0.0.1]:22", "is no host"),
            ("tcp:*:22", "is no host"),
            ("tcp:a.*.b:22", "is no host"),
            ("tcp:127.1:22", "is no host"),
            ("tcp:0x7f000001:22", "is no host"),
            ("tcp::22", "is no host"),
            ("unix:run/app", "absolute"),
            ("unix:/run/../app", "absolute"),
            ("unix:/run/a*", "absolute"),
            ("unix:/", "absolute"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(reported), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_rule_matches_the_whole_name_or_whole_labels() {
        let below: Hosts = "*.example.org".parse().unwrap();
        for (name, good) in [
            ("a.example.org", true),
            ("b.A.example.ORG.", true),
            ("example.org", false),
            (".example.org", false),
            ("aexample.org", false),
            ("a.example.org.evil", false),
        ] {
            assert_eq!(below.name(name), good, "{name}");
        }
        let exact: Hosts = "db".parse().unwrap();
        assert!(exact.name("DB.") && !exact.name("db2") && !exact.name("d"));
    }
}
