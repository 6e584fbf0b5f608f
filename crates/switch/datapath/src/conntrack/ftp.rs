//! The messages of FTP that announce a data connection: RFC 959 (PORT, 227) and RFC 2428 (EPRT,
//! 229).

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// A port at which an endpoint of the control connection listens for a data connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) port: u16,
    /// `None` if the message has no address; then the address of the control connection applies.
    pub(super) address: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) value: IpAddr,
    /// The position of the address's text in the message.
    pub(super) text: Range<usize>,
    /// Whether the text has commas in place of dots.
    has_commas: bool,
}

impl Address {
    /// Prints `address` in the format of this message.
    pub(super) fn rewritten(&self, address: IpAddr) -> String {
        let text = address.to_string();
        if self.has_commas { text.replace('.', ",") } else { text }
    }
}

/// An FTP message starts like the announcement of a data connection, but has wrong syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Parses the FTP message at the start of a segment's data. Clients announce a data connection with
/// a command, servers with a reply. `None` if the message announces no data connection.
pub(super) fn read(data: &[u8], is_reply: bool) -> Option<Result<Announcement, Malformed>> {
    let message = &data[..data.len().min(LONGEST)];
    let begins = |word: &str| {
        message.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    let read: fn(&[u8]) -> Option<Announcement> = match is_reply {
        false if begins("PORT") => numbers,
        false if begins("EPRT") => extended,
        true if begins("227") => numbers,
        true if begins("229") => extended_passive,
        _ => return None,
    };
    Some(read(message).ok_or(Malformed))
}

/// Reads `PORT 10,1,1,1,195,80` or `227 Entering Passive Mode (10,1,1,1,195,80).`
fn numbers(message: &[u8]) -> Option<Announcement> {
    let space = message.iter().position(|byte| *byte == b' ')?;
    let start = space + message[space..].iter().position(u8::is_ascii_digit)?;
    let mut bytes = [0; 6];
    let (mut at, mut end) = (start, start);
    for (place, byte) in bytes.iter_mut().enumerate() {
        if place > 0 {
            (*message.get(at)? == b',').then_some(())?;
            at += 1;
        }
        let number;
        (number, at) = decimal(message, at, 3)?;
        *byte = u8::try_from(number).ok()?;
        if place == 3 {
            end = at;
        }
    }
    let [a, b, c, d, high, low] = bytes;
    Some(Announcement {
        port: u16::from_be_bytes([high, low]),
        address: Some(Address {
            value: Ipv4Addr::new(a, b, c, d).into(),
            text: start..end,
            has_commas: true,
        }),
    })
}

/// Reads `EPRT |2|fc00::1|50000|`. The delimiter is any character.
fn extended(message: &[u8]) -> Option<Announcement> {
    let at = 4 + message.get(4..)?.iter().position(|byte| *byte != b' ')?;
    let delimiter = *message.get(at)?;
    let part = |from: usize| {
        let length = message.get(from..)?.iter().position(|byte| *byte == delimiter)?;
        Some(from..from + length)
    };
    let family = part(at + 1)?;
    let text = part(family.end + 1)?;
    let port = part(text.end + 1)?;
    let value: IpAddr = std::str::from_utf8(&message[text.clone()]).ok()?.parse().ok()?;
    let is_right = match &message[family] {
        b"1" => value.is_ipv4(),
        b"2" => value.is_ipv6(),
        _ => false,
    };
    is_right.then_some(())?;
    let port = std::str::from_utf8(&message[port]).ok()?.parse().ok()?;
    Some(Announcement { port, address: Some(Address { value, text, has_commas: false }) })
}

/// Reads `229 Entering Extended Passive Mode (|||50000|)`.
fn extended_passive(message: &[u8]) -> Option<Announcement> {
    let open = message.iter().position(|byte| *byte == b'(')?;
    let at = open + message[open..].iter().position(u8::is_ascii_digit)?;
    let (port, _) = decimal(message, at, 5)?;
    Some(Announcement { port: u16::try_from(port).ok()?, address: None })
}

/// Reads a number of at most `most` digits. Returns the number and the position after the last
/// digit.
fn decimal(message: &[u8], at: usize, most: usize) -> Option<(u32, usize)> {
    let digits = message.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > most {
        return None;
    }
    let digits_of = &message[at..at + digits];
    let value = digits_of.iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
    Some((value, at + digits))
}

/// Maximum number of bytes of a segment that the parser reads.
const LONGEST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(data: &str, is_reply: bool) -> Announcement {
        read(data.as_bytes(), is_reply).expect("an announcement").expect("a whole one")
    }

    #[test]
    fn ftp_commands_and_replies_give_a_port_and_an_address() {
        let active = found("PORT 10,1,1,240,195,80\r\n", false);
        assert_eq!(active.port, 195 << 8 | 80);
        let address = active.address.expect("an address");
        assert_eq!(address.value, IpAddr::from([10, 1, 1, 240]));
        assert_eq!(address.text, 5..15);
        assert_eq!(address.rewritten(IpAddr::from([192, 0, 2, 1])), "192,0,2,1");

        let passive = found("227 Entering Passive Mode (10,1,1,2,0,21).\r\n", true);
        assert_eq!((passive.port, passive.address.expect("an address").text), (21, 27..35));

        let extended = found("eprt |2|fc00::1|50000|\r\n", false);
        assert_eq!((extended.port, extended.address.expect("an address").text), (50000, 8..15));
        assert_eq!(found("EPRT |1|10.1.1.1|7|\r\n", false).port, 7);

        let text = "229 Entering Extended Passive Mode (|||6446|)\r\n";
        assert_eq!(found(text, true), Announcement { port: 6446, address: None });
    }

    #[test]
    fn only_ftp_data_connection_messages_can_be_malformed() {
        for (text, is_reply) in [
            ("USER anonymous\r\n", false),
            ("227 Entering Passive Mode (10,1,1,2,0,21).\r\n", false),
            ("PORT 10,1,1,240,195,80\r\n", true),
            ("22", true),
            ("", true),
        ] {
            assert_eq!(read(text.as_bytes(), is_reply), None, "{text}");
        }
        for (text, is_reply) in [
            ("PORT\r\n", false),
            ("PORT 10,1,1,240,195", false),
            ("PORT 10,1,1,256,195,80\r\n", false),
            ("PORT 10,1,1,1,1950,80\r\n", false),
            ("PORT 10.1.1.1.195.80\r\n", false),
            ("227 Entering Passive Mode\r\n", true),
            ("EPRT |1|fc00::1|50000|\r\n", false),
            ("EPRT |2|fc00::1|70000|\r\n", false),
            ("EPRT ", false),
            ("229 Entering Extended Passive Mode (|||70000|)\r\n", true),
        ] {
            assert_eq!(read(text.as_bytes(), is_reply), Some(Err(Malformed)), "{text}");
        }
    }
}
