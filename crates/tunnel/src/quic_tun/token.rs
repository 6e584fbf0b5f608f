//! Tokens. A client sends a token in place of a target, and the server derives the target from the
//! token. Pure.

use crate::target::Target;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use std::str::FromStr;

/// The parser `Cleartext` of a server: a token is the target itself, plain or in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleartext {
    Plain,
    Base64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is not base64, which this server's token-parser-key expects")]
    Base64,
    #[error("the token names no target: it must be tcp:HOST:PORT or unix:/PATH")]
    Target,
}

impl FromStr for Cleartext {
    type Err = String;

    /// Parses a `token-parser-key`.
    fn from_str(key: &str) -> Result<Self, String> {
        match key.to_ascii_lowercase().as_str() {
            "" => Ok(Self::Plain),
            "base64" => Ok(Self::Base64),
            _ => Err("the parser Cleartext has the key base64, or none for plain text".to_owned()),
        }
    }
}

impl Cleartext {
    pub fn target(self, token: &str) -> Result<Target, TokenError> {
        match self {
            Self::Plain => plain(token),
            Self::Base64 => {
                let decoded = STANDARD.decode(token).map_err(|_| TokenError::Base64)?;
                plain(std::str::from_utf8(&decoded).map_err(|_| TokenError::Target)?)
            }
        }
    }
}

/// Parses a plain token. Go's `tcp4` and `tcp6`, and any mix of upper and lower case, mean `tcp`.
/// As in Go, a port without a host is a port of this machine.
fn plain(token: &str) -> Result<Target, TokenError> {
    let (network, rest) = token.split_once(':').ok_or(TokenError::Target)?;
    let network = match network.to_ascii_lowercase().as_str() {
        "tcp" | "tcp4" | "tcp6" => "tcp",
        "unix" => "unix",
        _ => return Err(TokenError::Target),
    };
    let host = if network == "tcp" && rest.starts_with(':') { "127.0.0.1" } else { "" };
    format!("{network}:{host}{rest}").parse().map_err(|_| TokenError::Target)
}

/// Finds the token of a client's address in the text of a token file: an address and a token in
/// each line. An address must match completely; the first line with this address counts.
pub fn find_in_lines(text: &str, client: IpAddr) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        let token = words.next().filter(|token| is_fit(token))?;
        (address.to_canonical() == client.to_canonical()).then_some(token)
    })
}

/// Whether a text can be sent as a token.
pub fn is_fit(token: &str) -> bool {
    (1..=LONGEST).contains(&token.len()) && !token.chars().any(char::is_control)
}

/// Maximum length of a token: a target of 300 bytes in base64 is shorter.
pub const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_target_from_plain_text_or_base64() {
        for (key, token, target) in [
            ("", "tcp:172.18.30.117:22", "tcp:172.18.30.117:22"),
            ("", "TCP:db.internal:5432", "tcp:db.internal:5432"),
            ("", "tcp6:[::1]:22", "tcp:[::1]:22"),
            ("", "tcp::5201", "tcp:127.0.0.1:5201"),
            ("", "unix:/run/app.sock", "unix:/run/app.sock"),
            ("Base64", "dGNwOjEwLjAuMC4xOjIy", "tcp:10.0.0.1:22"),
        ] {
            let parser: Cleartext = key.parse().unwrap();
            assert_eq!(parser.target(token).unwrap().to_string(), target);
        }
        for token in
            ["", "22", "udp:10.0.0.1:53", "http:a:1", "tcp:10.0.0.1", "tcp:::1:22", "unix:run"]
        {
            assert_eq!(Cleartext::Plain.target(token), Err(TokenError::Target), "{token}");
        }
        assert_eq!(Cleartext::Base64.target("tcp:a:1"), Err(TokenError::Base64));
        assert!("aes".parse::<Cleartext>().is_err());
    }

    #[test]
    fn an_address_in_a_token_file_matches_as_a_whole() {
        let text = "# clients\n172.26.106.19 tcp:10.0.0.1:1\n172.26.106.191\ttcp:10.0.0.2:2 x\n\
                    172.26.106.191 tcp:10.0.0.3:3\n::1 unix:/run/a\n10.0.0.9\nno tcp:a:1\n";
        let token = |address: &str| find_in_lines(text, address.parse().unwrap());
        assert_eq!(token("172.26.106.191"), Some("tcp:10.0.0.2:2"));
        assert_eq!(token("::ffff:172.26.106.19"), Some("tcp:10.0.0.1:1"));
        assert_eq!(token("::1"), Some("unix:/run/a"));
        assert_eq!(token("172.26.106.1"), None);
        assert_eq!(token("10.0.0.9"), None);
    }
}
