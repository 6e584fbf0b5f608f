use super::Header;
use crate::PerfError;
use rustls_pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A parsed URL: `http://host[:port][/path]` or `https://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub is_tls: bool,
    /// The host's name, or its address without brackets.
    pub host: String,
    pub port: u16,
    /// The request target; begins with `/`.
    pub path: String,
}

impl Address {
    pub(super) fn resolve(&self) -> Result<Vec<SocketAddr>, PerfError> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let missing = |reason: Option<String>| {
            let host = self.host.clone();
            PerfError::NoAddress { host, family: None, reason }
        };
        let found: Vec<SocketAddr> =
            found.map_err(|error| missing(Some(error.to_string())))?.collect();
        if found.is_empty() { Err(missing(None)) } else { Ok(found) }
    }

    pub(super) fn server_name(&self) -> Result<ServerName<'static>, PerfError> {
        ServerName::try_from(self.host.clone())
            .map_err(|_| PerfError::Usage(format!("`{}` is no name of a TLS server", self.host)))
    }

    /// Returns the HTTP request for this URL. `headers` replace the usual fields of the same names.
    /// `closes`: the connection ends after the response.
    pub(super) fn request(&self, headers: &[Header], closes: bool) -> Vec<u8> {
        let connection = if closes { "close" } else { "keep-alive" };
        let authority = self.authority();
        let usual = [("Host", authority.as_str()), ("User-Agent", "weir"), ("Accept", "*/*")];
        let mut request = format!("GET {} HTTP/1.1\r\n", self.path);
        for (name, value) in usual {
            if !headers.iter().any(|header| header.is(name)) {
                request += &format!("{name}: {value}\r\n");
            }
        }
        for header in headers {
            request += &format!("{header}\r\n");
        }
        request += &format!("Connection: {connection}\r\n\r\n");
        request.into_bytes()
    }

    fn usual_port(&self) -> u16 {
        if self.is_tls { 443 } else { 80 }
    }

    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        if self.port == self.usual_port() { host } else { format!("{host}:{}", self.port) }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("write it as http://HOST[:PORT]/PATH or https://…".to_owned()),
        };
        if rest.is_empty() || !rest.chars().all(|c| c.is_ascii_graphic()) {
            let form = "write it as http://HOST[:PORT]/PATH, with %20 for a blank and %XX for other letters";
            return Err(form.to_owned());
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('?') => (&rest[..at], format!("/{}", &rest[at..])),
            Some(at) => (&rest[..at], rest[at..].to_owned()),
            None => (rest, "/".to_owned()),
        };
        if authority.contains('@') {
            return Err("a user name in the URL is not supported: leave out the part before `@`, and write \
                        --header 'Authorization: Basic …'"
                .to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or("`[` is never closed by `]`")?;
                let port = match after {
                    "" => None,
                    after => Some(after.strip_prefix(':').ok_or("a port follows `]` after `:`")?),
                };
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| format!("`{host}` is no IPv6 address"))?;
                (host, port)
            }
            None => match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("write an IPv6 address in brackets: http://[::1]:8080/".to_owned());
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err("the host is missing".to_owned());
        }
        let usual = if is_tls { 443 } else { 80 };
        let port = match port {
            None | Some("") => usual,
            Some(port) => match port.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(format!("`{port}` is no port: it is from 1 to 65535")),
            },
        };
        Ok(Self { is_tls, host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_parses_to_host_port_and_path() {
        for (text, host, port, path, shown) in [
            ("http://a", "a", 80, "/", "http://a/"),
            ("http://a:8080/x?y=1#z", "a", 8080, "/x?y=1", "http://a:8080/x?y=1"),
            ("https://a?q", "a", 443, "/?q", "https://a/?q"),
            ("https://[::1]:444/", "::1", 444, "/", "https://[::1]:444/"),
            ("http://10.0.0.1:80/f", "10.0.0.1", 80, "/f", "http://10.0.0.1/f"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (address.host.as_str(), address.port, address.path.as_str()),
                (host, port, path)
            );
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn header_fields_of_the_user_replace_the_usual_fields() {
        let address: Address = "http://a:81/x".parse().unwrap();
        let request = |headers: &[Header], closes| {
            String::from_utf8(address.request(headers, closes)).unwrap()
        };
        assert_eq!(
            request(&[], false),
            "GET /x HTTP/1.1\r\nHost: a:81\r\nUser-Agent: weir\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"
        );
        let headers = ["host: b", "X: 1", "X: 2"].map(|text| text.parse::<Header>().unwrap());
        assert_eq!(
            request(&headers, true),
            "GET /x HTTP/1.1\r\nUser-Agent: weir\r\nAccept: */*\r\nhost: b\r\nX: 1\r\nX: 2\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn invalid_urls_are_refused_with_the_right_syntax() {
        for (text, says) in [
            ("ftp://a/", "http://HOST"),
            ("a/b", "http://HOST"),
            ("http://", "http://HOST"),
            ("http:///x", "host is missing"),
            ("http://a b/", "%20"),
            ("http://a/\r\nX: y", "%20"),
            ("http://u@a/", "user name"),
            ("http://::1/", "in brackets"),
            ("http://[::1/", "never closed"),
            ("http://[a]/", "no IPv6"),
            ("http://a:0/", "no port"),
            ("http://a:70000/", "no port"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
