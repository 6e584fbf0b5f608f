//! Messages of SOCKS5 (RFC 1928) with names and passwords (RFC 1929). This module does no I/O.
//!
//! Each `decode` returns `None` if the message is incomplete, otherwise the message and its length.
//! No message is longer than [`LONGEST`].

use crate::target::HostPort;
use bytes::{BufMut, BytesMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The authentication methods that an application offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    pub without_login: bool,
    pub with_password: bool,
}

/// The authentication method that this end selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    WithoutLogin = 0,
    Password = 2,
    NoneAcceptable = 0xff,
}

/// The name and password of a login (RFC 1929).
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub name: Vec<u8>,
    pub password: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Connect to this target.
    Connect(HostPort),
    /// Carry datagrams of an application. `port` is the port from which the application sends; 0 if
    /// the application does not know it yet.
    Associate { port: u16 },
}

/// The outcome of a request, RFC 1928, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    #[error("the application speaks SOCKS4: choose SOCKS5 (socks5h) in its settings")]
    Version4,
    #[error("the application does not speak SOCKS5: choose socks5 (socks5h) in its settings")]
    NotSocks,
    #[error("malformed SOCKS5 message: {0}")]
    Malformed(&'static str),
    #[error("command {0} is not supported: CONNECT and UDP ASSOCIATE are")]
    Command(u8),
    #[error("the target is neither an address nor a valid host name")]
    Address,
}

/// Maximum length of a message: a login with a name and a password of 255 bytes each.
pub const LONGEST: usize = 3 + 2 * 255;

impl Greeting {
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, SocksError> {
        version(bytes)?;
        let Some(&[_, count]) = bytes.first_chunk() else { return Ok(None) };
        let Some(methods) = bytes.get(2..2 + usize::from(count)) else { return Ok(None) };
        let greeting = Self {
            without_login: methods.contains(&(Method::WithoutLogin as u8)),
            with_password: methods.contains(&(Method::Password as u8)),
        };
        Ok(Some((greeting, 2 + methods.len())))
    }
}

impl Method {
    pub fn encode(self) -> [u8; 2] {
        [VERSION, self as u8]
    }
}

impl Login {
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, SocksError> {
        match bytes.first() {
            Some(&LOGIN_VERSION) => {}
            Some(_) => return Err(SocksError::Malformed("unknown version of the login")),
            None => return Ok(None),
        }
        let Some((name, rest)) = counted(&bytes[1..]) else { return Ok(None) };
        let Some((password, _)) = counted(rest) else { return Ok(None) };
        let taken = 3 + name.len() + password.len();
        Ok(Some((Self { name: name.to_owned(), password: password.to_owned() }, taken)))
    }

    /// Returns the reply to a login.
    pub fn verdict(is_right: bool) -> [u8; 2] {
        [LOGIN_VERSION, u8::from(!is_right)]
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl Request {
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, SocksError> {
        version(bytes)?;
        let Some((head, rest)) = bytes.split_at_checked(3) else { return Ok(None) };
        if head[2] != 0 {
            return Err(SocksError::Malformed("the reserved byte is not zero"));
        }
        let Some((host, port, length)) = address(rest)? else { return Ok(None) };
        let request = match head[1] {
            CONNECT => Self::Connect(HostPort::new(&host, port).map_err(|_| SocksError::Address)?),
            ASSOCIATE => Self::Associate { port },
            other => return Err(SocksError::Command(other)),
        };
        Ok(Some((request, 3 + length)))
    }
}

/// Encodes the reply to a request, with the address that this end has bound for the request.
pub fn reply(outcome: Outcome, bound: SocketAddr) -> BytesMut {
    let mut out = BytesMut::with_capacity(22);
    out.put_slice(&[VERSION, outcome as u8, 0]);
    put_address(&mut out, &bound.ip().to_string(), bound.port());
    out
}

/// The address in a reply if this end has bound no address for the request.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl SocksError {
    /// Returns the outcome for the reply to a request with this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Command(_) => Outcome::CommandNotSupported,
            Self::Address => Outcome::AddressNotSupported,
            _ => Outcome::GeneralFailure,
        }
    }
}

/// Splits a datagram of an application into its target and its payload (RFC 1928, section 7).
/// Returns `None` for a fragment and for a malformed datagram; the caller drops such datagrams.
pub fn datagram(bytes: &[u8]) -> Option<(HostPort, &[u8])> {
    let (head, rest) = bytes.split_at_checked(3)?;
    if head != [0, 0, NO_FRAGMENT] {
        return None;
    }
    let (host, port, length) = address(rest).ok()??;
    Some((HostPort::new(&host, port).ok()?, rest.get(length..)?))
}

/// Writes the header of a datagram that came from `source`.
pub fn put_datagram_head(out: &mut BytesMut, source: &HostPort) {
    out.put_slice(&[0, 0, NO_FRAGMENT]);
    put_address(out, source.host(), source.port());
}

/// Decodes an address. Returns the host, the port, and the length of the address.
fn address(bytes: &[u8]) -> Result<Option<(String, u16, usize)>, SocksError> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let (host, port) = match kind {
        IPV4 => {
            let Some((octets, port)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            (Ipv4Addr::from(*octets).to_string(), port)
        }
        IPV6 => {
            let Some((octets, port)) = rest.split_first_chunk::<16>() else { return Ok(None) };
            (Ipv6Addr::from(*octets).to_string(), port)
        }
        NAME => {
            let Some((name, port)) = counted(rest) else { return Ok(None) };
            let name = std::str::from_utf8(name).map_err(|_| SocksError::Address)?;
            (name.to_owned(), port)
        }
        _ => return Err(SocksError::Malformed("unknown kind of address")),
    };
    let Some((&port, left)) = port.split_first_chunk::<2>() else { return Ok(None) };
    Ok(Some((host, u16::from_be_bytes(port), bytes.len() - left.len())))
}

fn put_address(out: &mut BytesMut, host: &str, port: u16) {
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            out.put_u8(IPV4);
            out.put_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            out.put_u8(IPV6);
            out.put_slice(&address.octets());
        }
        Err(_) => {
            // A name in an address has at most 255 bytes.
            let name = &host.as_bytes()[..host.len().min(255)];
            out.put_slice(&[NAME, name.len() as u8]);
            out.put_slice(name);
        }
    }
    out.put_u16(port);
}

/// Reads a field that begins with its length in one byte. Returns the field and the bytes after it.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}

fn version(bytes: &[u8]) -> Result<(), SocksError> {
    match bytes.first() {
        Some(&VERSION) | None => Ok(()),
        Some(4) => Err(SocksError::Version4),
        Some(_) => Err(SocksError::NotSocks),
    }
}

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const NO_FRAGMENT: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_socks5_greeting_decodes_only_once_complete() {
        let bytes = [5, 3, 0, 1, 2, 99];
        for cut in 0..5 {
            assert_eq!(Greeting::decode(&bytes[..cut]), Ok(None));
        }
        let both = Greeting { without_login: true, with_password: true };
        assert_eq!(Greeting::decode(&bytes), Ok(Some((both, 5))));
        let neither = Greeting { without_login: false, with_password: false };
        assert_eq!(Greeting::decode(&[5, 0]), Ok(Some((neither, 2))));
        assert_eq!(Greeting::decode(&[4, 1]), Err(SocksError::Version4));
        assert_eq!(Greeting::decode(b"GET "), Err(SocksError::NotSocks));
    }

    #[test]
    fn a_socks5_login_decodes_to_name_and_password() {
        let bytes = [1, 2, b'm', b'e', 3, b'x', b'y', b'z', 7];
        for cut in 0..8 {
            assert_eq!(Login::decode(&bytes[..cut]), Ok(None));
        }
        let login = Login { name: b"me".to_vec(), password: b"xyz".to_vec() };
        assert_eq!(Login::decode(&bytes), Ok(Some((login, 8))));
        assert!(Login::decode(&[5, 1]).is_err());
        assert_eq!((Login::verdict(true), Login::verdict(false)), ([1, 0], [1, 1]));
    }

    #[test]
    fn a_socks5_request_decodes_to_an_address_or_a_name() {
        let connect = |host: &str, port| Request::Connect(HostPort::new(host, port).unwrap());
        let mapped: Vec<u8> =
            [&[5, 1, 0, 4], &[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1, 0, 22]].concat();
        let named: Vec<u8> = [&[5, 1, 0, 3, 11][..], b"example.org", &[1, 187]].concat();
        for (bytes, expected) in [
            (vec![5, 1, 0, 1, 10, 0, 0, 1, 0, 80], connect("10.0.0.1", 80)),
            (mapped, connect("::ffff:127.0.0.1", 22)),
            (named, connect("example.org", 443)),
            (vec![5, 3, 0, 1, 0, 0, 0, 0, 0, 9], Request::Associate { port: 9 }),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..cut]), Ok(None));
            }
            assert_eq!(Request::decode(&bytes), Ok(Some((expected, bytes.len()))));
        }
    }

    #[test]
    fn an_unsupported_socks5_request_gets_its_own_reply_code() {
        for (bytes, outcome) in [
            (&[5, 2, 0, 1, 10, 0, 0, 1, 0, 80][..], Outcome::CommandNotSupported),
            (&[5, 1, 0, 3, 0, 0, 80], Outcome::AddressNotSupported),
            (&[5, 1, 0, 3, 3, b'a', b' ', b'b', 0, 80], Outcome::AddressNotSupported),
            (&[5, 1, 0, 3, 2, 0xff, 0xfe, 0, 80], Outcome::AddressNotSupported),
            (&[5, 1, 0, 9, 1], Outcome::GeneralFailure),
            (&[5, 1, 1, 1], Outcome::GeneralFailure),
        ] {
            assert_eq!(Request::decode(bytes).unwrap_err().outcome(), outcome, "{bytes:?}");
        }
    }

    #[test]
    fn a_socks5_reply_carries_the_bound_address() {
        let bound = "192.0.2.1:1080".parse().unwrap();
        assert_eq!(reply(Outcome::Succeeded, bound)[..], [5, 0, 0, 1, 192, 0, 2, 1, 4, 56]);
        assert_eq!(reply(Outcome::NotAllowed, "[::1]:1".parse().unwrap()).len(), 22);
    }

    #[test]
    fn a_fragmented_socks5_datagram_is_dropped() {
        let whole = [0, 0, 0, 1, 10, 0, 0, 1, 0, 53, b'q'];
        let (to, payload) = datagram(&whole).unwrap();
        assert_eq!((to.to_string().as_str(), payload), ("10.0.0.1:53", &b"q"[..]));
        let mut fragment = whole;
        fragment[2] = 1;
        assert_eq!(datagram(&fragment), None);
        assert_eq!(datagram(&whole[..8]), None);
    }

    proptest! {
        #[test]
        fn a_socks5_datagram_decodes_to_its_address_and_payload(
            host in "[a-z][a-z0-9.-]{0,200}", port: u16, payload: Vec<u8>, octets: [u8; 16], kind in 0..3
        ) {
            let host = match kind {
                0 => host,
                1 => Ipv6Addr::from(octets).to_string(),
                _ => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).to_string(),
            };
            let source = HostPort::new(&host, port).unwrap();
            let mut out = BytesMut::new();
            put_datagram_head(&mut out, &source);
            out.put_slice(&payload);
            prop_assert_eq!(datagram(&out), Some((source, &payload[..])));
        }

        #[test]
        fn decoding_arbitrary_bytes_as_socks5_causes_no_panic(mut bytes: Vec<u8>, version in 0u8..6) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            let _ = (Greeting::decode(&bytes), Login::decode(&bytes), Request::decode(&bytes));
            let _ = datagram(&bytes);
        }
    }
}
