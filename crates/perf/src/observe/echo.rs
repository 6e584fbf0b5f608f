//! The latency echo: small datagrams that a weir server sends back unchanged.
//!
//! ```text
//! 0        8                24         32         40
//! | magic  | token          | sequence | sent at  |
//! ```
//!
//! Numbers are big-endian. The server makes the token for one test and sends it to its client over
//! the control connection. A sender without the token gets no reply, and a reply is never longer
//! than the request, so the server cannot be abused to flood third parties.

use std::fmt;
use units::Time;

/// Distinguishes the datagrams of a test from all other datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    pub token: Token,
    pub sequence: u64,
    /// Send time by the sender's own clock; meaningless to any other host.
    pub sent_at: Time,
}

/// Returns the server's reply to `datagram`: the datagram itself, or `None` for no reply.
pub fn respond(datagram: &[u8], knows: impl FnOnce(&Token) -> bool) -> Option<&[u8]> {
    let echo = Echo::parse(datagram)?;
    knows(&echo.token).then_some(datagram)
}

impl Echo {
    pub const LENGTH: usize = 40;

    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.token.0);
        bytes[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[32..].copy_from_slice(&self.sent_at.nanos().to_be_bytes());
        bytes
    }

    /// Parses a datagram; `None` if its length or magic number is not the length or magic number of
    /// an echo.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = datagram.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk::<16>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let sent_at = rest.first_chunk::<8>()?;
        (*magic == MAGIC).then_some(Self {
            token: Token(*token),
            sequence: u64::from_be_bytes(*sequence),
            sent_at: Time::from_nanos(u64::from_be_bytes(*sent_at)),
        })
    }
}

impl Token {
    pub fn random() -> Self {
        Self(rand::random())
    }
}

/// Formats the token in hexadecimal digits, as in JSON.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl std::str::FromStr for Token {
    type Err = NoToken;
    fn from_str(text: &str) -> Result<Self, NoToken> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| plain).ok_or(NoToken)?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token of the latency echo has 32 hexadecimal digits")]
pub struct NoToken;

/// The first word of the magic bytes differs, in either byte order, from the numbers that open an
/// iperf3 UDP stream.
const MAGIC: [u8; 8] = *b"weir-ech";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_echo_replies_only_to_a_sender_with_the_token() {
        let (mine, other) = (Token::random(), Token::random());
        let echo = Echo { token: mine, sequence: 7, sent_at: Time::from_nanos(9) };
        let bytes = echo.encode();
        assert_eq!(respond(&bytes, |token| *token == mine), Some(&bytes[..]));
        assert_eq!(respond(&bytes, |token| *token == other), None);
        assert_eq!(respond(&bytes[..39], |_| true), None);
        assert_eq!(respond(&[&bytes[..], &[0]].concat(), |_| true), None);
        assert_eq!(respond(&[0x36, 0x37, 0x38, 0x39], |_| true), None);
    }

    #[test]
    fn a_token_is_written_in_32_hexadecimal_digits() {
        let token = Token::random();
        assert_eq!(token.to_string().parse(), Ok(token));
        let json = serde_json::to_string(&token).unwrap();
        assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
        for text in
            ["", "12", "+1234567890123456789012345678901", "g0000000000000000000000000000000"]
        {
            assert_eq!(text.parse::<Token>(), Err(NoToken), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_encoded_echo_decodes_to_the_same_echo(token: [u8; 16], sequence: u64, nanos: u64) {
            let echo = Echo { token: Token(token), sequence, sent_at: Time::from_nanos(nanos) };
            prop_assert_eq!(Echo::parse(&echo.encode()), Some(echo));
        }

        #[test]
        fn datagrams_that_are_no_echo_get_no_reply(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(respond(&bytes, |_| true), None);
        }
    }
}
