use crate::DoctorError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The connections of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Focus {
    /// The busiest connections of the machine.
    All,
    Process(u32),
    Port(u16),
    Address(IpAddr),
    /// The connections of this socket.
    Socket(SocketAddr),
}

impl Focus {
    /// Parses a focus. A plain number is a port if a TCP socket of this machine has this port, and
    /// otherwise a process.
    pub fn parse(text: &str) -> Result<Self, DoctorError> {
        Self::parse_with(text, |port| probe::tcp::has_port(port).unwrap_or(false))
    }

    fn parse_with(text: &str, is_port: impl Fn(u16) -> bool) -> Result<Self, DoctorError> {
        let usage = || {
            DoctorError::Usage(format!(
                "`{}` is no process, port or address: name a number, pid:NUMBER, port:NUMBER, an \
                 IP address, or ADDRESS:PORT",
                units::foreign(text)
            ))
        };
        if let Some(pid) = text.strip_prefix("pid:") {
            return pid.parse().map(Self::Process).map_err(|_| usage());
        }
        let port = text.strip_prefix("port:").or(text.strip_prefix(':'));
        if let Some(port) = port.and_then(|port| port.parse().ok()) {
            return Ok(Self::Port(port));
        }
        if let Ok(socket) = text.parse() {
            return Ok(Self::Socket(socket));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        match text.parse().ok().filter(|port| is_port(*port)) {
            Some(port) => Ok(Self::Port(port)),
            None => text.parse().map(Self::Process).map_err(|_| usage()),
        }
    }
}

impl fmt::Display for Focus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("any"),
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Socket(socket) => write!(f, "{socket}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_focus_is_a_process_a_port_or_an_address() {
        let parse = |text| Focus::parse_with(text, |port| port == 5201).unwrap();
        assert_eq!(parse("5201"), Focus::Port(5201));
        assert_eq!(parse("5202"), Focus::Process(5202));
        assert_eq!(parse("70000"), Focus::Process(70_000));
        assert_eq!(parse("pid:5201"), Focus::Process(5201));
        assert_eq!(parse("port:80"), Focus::Port(80));
        assert_eq!(parse(":80"), Focus::Port(80));
        assert_eq!(parse("::1"), Focus::Address("::1".parse().unwrap()));
        assert_eq!(parse("10.0.0.1"), Focus::Address("10.0.0.1".parse().unwrap()));
        assert_eq!(parse("10.0.0.1:80"), Focus::Socket("10.0.0.1:80".parse().unwrap()));
        assert_eq!(parse("[::1]:80"), Focus::Socket("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn a_focus_in_another_syntax_is_an_error() {
        for text in ["", "x", "-1", "99999999999", "pid:", "port:70000", "1.2.3", "a:80"] {
            assert!(Focus::parse_with(text, |_| false).is_err(), "{text}");
        }
    }
}
