use std::fmt;

/// The kind of error that left a request without a good response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// No program listens at the address.
    Refused,
    /// No connection within the time limit.
    Unconnected,
    /// All local ports to this server are in use.
    NoPort,
    /// The server, or something on the path, reset the connection.
    Reset,
    /// The response was not complete within the time limit.
    Stalled,
    /// The response has a status of 400 or above.
    Status,
    /// The connection ended before the response was complete.
    Cut,
    /// The response's length contradicts itself, or the server sent more than the response.
    Length,
    /// Not an HTTP/1.1 response.
    Malformed,
    /// The TLS handshake failed, or a record could not be read.
    Tls,
}

impl Fault {
    pub const ALL: [Self; 10] = [
        Self::Refused,
        Self::Unconnected,
        Self::NoPort,
        Self::Reset,
        Self::Stalled,
        Self::Status,
        Self::Cut,
        Self::Length,
        Self::Malformed,
        Self::Tls,
    ];

    /// Returns the key in JSON, which is also part of a metric's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unconnected => "unconnected",
            Self::NoPort => "no_port",
            Self::Reset => "reset",
            Self::Stalled => "stalled",
            Self::Status => "status",
            Self::Cut => "cut",
            Self::Length => "length",
            Self::Malformed => "malformed",
            Self::Tls => "tls",
        }
    }

    pub fn advice(self) -> &'static str {
        match self {
            Self::Refused => "nobody listens there: start the server, or correct the port",
            Self::Unconnected => {
                "no connection within --timeout: the host is down, a firewall drops packets, or the server's accept queue is full"
            }
            Self::NoPort => {
                "all local ports are in use: leave out --short, use fewer connections, or widen net.ipv4.ip_local_port_range"
            }
            Self::Reset => "the connection was reset: read the server's log",
            Self::Stalled => {
                "no complete response within --timeout: the server hangs, or raise --timeout"
            }
            Self::Status => {
                "the server answered with a status of 400 or above: correct the path, or read the server's log"
            }
            Self::Cut => "the connection ended within a response: read the server's log",
            Self::Length => {
                "the length of a response contradicts itself, or more bytes followed: the server or a proxy is at fault"
            }
            Self::Malformed => "the answer is no HTTP/1.1: check the scheme and the port",
            Self::Tls => "TLS failed: see the first error",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unconnected => "not connected",
            Self::NoPort => "no local port",
            Self::Tls => "TLS",
            Self::Status => "status 400 or above",
            Self::Length => "wrong length",
            other => other.word(),
        })
    }
}
